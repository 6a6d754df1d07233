"""Kernels of matrix instructions on the host: their pipelines, barriers and places in shared memory are those of the GPU; the
instructions are their published models, which end, as copies do, as late as they may (``host/matrix``)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from gemmsim.arithmetic import Accumulator, GemmSpec, Hardware
from gemmsim.backends.cuda.jit.source import KernelSource
from gemmsim.backends.cuda.simt.gemm_source import hardware_literal
from gemmsim.backends.cuda.tensor_cores import cutlass_params, native_mma, wgmma_block_scaled
from gemmsim.backends.encoded_operand import Coded
from gemmsim.lowering.instructions import named_instruction
from support.host import HOST, host_library
from support.tensor_cores import encode_map
from support.traces import traced

Launch = Callable[[KernelSource, torch.device, tuple[int, int, int], ctypes.Structure], None]


def _without_addresses(args: ctypes.Structure) -> ctypes.Structure:
    found = type(args).from_buffer_copy(args)
    for name in ("map_a", "map_b"):
        if hasattr(found, name):
            getattr(found, name)[:8] = bytes(8)
    return found


def host_matrix(source: KernelSource, instruction: Hardware) -> ctypes.CDLL:
    """``source`` as a library, its instructions those of ``instruction``."""
    model = f"constexpr HardwareModel HOST_MODEL = {hardware_literal(instruction)};"
    head = f'#include "gemmsim/program.h"\nnamespace gemmsim {{ {model} }}\n'
    return host_library(head + source.text + "\nGEMMSIM_HOST_ENTRY\n", str(source), beside=HOST / "matrix")


def launching(instruction: Hardware) -> Launch:
    """``launch`` on the host."""

    def launch(
        source: KernelSource, device: torch.device, blocks: tuple[int, int, int], args: ctypes.Structure
    ) -> None:
        if traced(source, blocks, _without_addresses(args)):
            return
        kernel = host_matrix(source, instruction)
        assert kernel.gemmsim_host_args_size() == ctypes.sizeof(args), "the records of C++ and Python differ"
        room = (ctypes.c_uint8 * (ctypes.sizeof(args) + 64))()  # the record asks for a multiple of 64 bytes
        aligned = type(args).from_buffer(room, -ctypes.addressof(room) % 64)
        ctypes.memmove(ctypes.addressof(aligned), ctypes.addressof(args), ctypes.sizeof(args))
        kernel.gemmsim_host_run(ctypes.byref(aligned), *blocks, source.threads, ctypes.c_size_t(source.shared_bytes), 1)

    return launch


@contextmanager
def on_host(instruction: Hardware, early: bool) -> Iterator[None]:
    """Kernels of ``instruction`` are run on the host; ``early``: copies are done at once."""
    cutlass_params.tensor_map.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutlass_params, "encode_map", encode_map)
        for module in (native_mma, wgmma_block_scaled):
            patch.setattr(module, "launch", launching(instruction))
        if early:
            patch.setenv("GEMMSIM_HOST_EARLY", "1")
        yield
    cutlass_params.tensor_map.cache_clear()


def chain_product(a: Tensor, b: Tensor, text: str, early: bool) -> Tensor:
    """``a`` times ``b`` by the kernel of the chain that ``text`` says, in float32."""
    accumulator = Accumulator.parse(text)
    spec, chain = GemmSpec(accumulator=accumulator), native_mma.chain_of(accumulator)
    assert isinstance(chain, native_mma.Chain), chain
    out = torch.full((*a.shape[:-1], b.shape[-1]), 7.0)
    named = named_instruction(accumulator)
    assert named is not None
    with on_host(named, early):
        native_mma.gemm_instruction(a, b, spec, out, 0, chain)
    return out


def scaled_product(a: Coded, b: Coded, spec: GemmSpec, early: bool) -> Tensor:
    """``a`` times ``b`` by the kernel of scaled totals, in float32."""
    groups = wgmma_block_scaled.groups_of(spec)
    assert isinstance(groups, wgmma_block_scaled.ScaledGroups), groups
    out = torch.full((*a.codes.shape[:-1], b.codes.shape[-1]), 7.0)
    assert wgmma_block_scaled.refuses(a, b, out, groups) is None
    named = named_instruction(spec.accumulator)
    assert named is not None
    with on_host(named, early):
        wgmma_block_scaled.gemm(a, b, spec, out, 0, groups)
    return out
