"""Kernels of sm_100a that keep sums and scales in tensor memory, whole, on a host's model of it (host/tcgen05/machine.h): layouts,
descriptors, scale ids, columns, waiting. Numbers are small and sums exact, so that results are those of float64. How the
chip adds is another matter: ``test_tensor_cores`` compares that with its model where there is one."""

from __future__ import annotations

import ctypes

import pytest
import torch
from support import assert_bitwise_equal
from support.host import HOST, host_library
from support.traces import traced

import gemmsim as gs
from gemmsim.arithmetic import Accumulator, GemmSpec
from gemmsim.backends.cuda.tensor_cores import block_scaled_mma, native_mma
from gemmsim.backends.cuda.tensor_cores.block_scaled_mma import tensor_source
from gemmsim.backends.cuda.tensor_cores.native_mma import chain_of
from gemmsim.backends.encoded_operand import Coded
from gemmsim.formats import parse_block


def launch(source, device, blocks, args):
    """``launch`` on the host's machine."""
    if traced(source, blocks, args):
        return
    kernel = host_library(source.text + "\nGEMMSIM_HOST_ENTRY\n", str(source), beside=HOST / "tcgen05")
    assert kernel.gemmsim_host_args_size() == ctypes.sizeof(args), "the records of C++ and Python differ"
    kernel.gemmsim_host_run(ctypes.byref(args), *blocks, source.threads, ctypes.c_size_t(source.shared_bytes), 1)


def integers(seed, *shape):
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).float()


@pytest.mark.parametrize("text", ["hw(blackwell, tcgen05, bf16, fp16)", "hw(blackwell, tcgen05, tf32)", "promote(hw(blackwell, tcgen05, e4m3, e5m2), 128)"])  # fmt: skip
def test_products_without_scales(monkeypatch, text):
    monkeypatch.setattr(native_mma, "launch", launch)
    spec = GemmSpec(accumulator=Accumulator.parse(text))
    for m, k, n, batch in ((130, 1, 5, ()), (3, 300, 131, ()), (20, 700, 9, (2,)), (4, 0, 3, ())):
        a, b = integers(k, *batch, m, k), integers(k + 1, *batch, k, n)
        out = torch.full((*batch, m, n), 7.0)
        native_mma.gemm_instruction(a, b, spec, out, 0, chain_of(spec.accumulator))
        assert_bitwise_equal(out, (a.double() @ b.double()).float() + 0.0, context=f"{m} {k} {n}")


@pytest.mark.parametrize(("left", "right"), [("mxfp8_e4m3", "mxfp8_e5m2"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4")])
def test_products_with_scales(monkeypatch, left, right):
    monkeypatch.setattr(block_scaled_mma, "launch", launch)
    formats = parse_block(left), parse_block(right)
    packing = "bytes" if "fp8" in left else "lo_first"
    source = tensor_source("TENSOR_MEMORY", *formats, packing, packing, torch.float32)
    one = 127 if "mx" in left else 56
    for m, k, n in ((130, 32, 7), (5, 300, 131), (40, 1100, 20)):
        sides = []
        for seed, lines, fmt in ((k, m, formats[0]), (k + 1, n, formats[1])):
            codes = gs.mx.encode(integers(seed, lines, k), fmt, packing=packing).codes
            width = -(-codes.shape[1] // 16) * 16
            wide = torch.full((lines, width), 0x3F, dtype=torch.uint8)  # what lies behind a line is not read
            wide[:, : codes.shape[1]] = codes
            blocks = -(-k // fmt.block_size)
            steps = torch.randint(-2, 3, (lines, blocks), generator=torch.Generator().manual_seed(seed))
            scales = (one + steps * (1 if one == 127 else 8)).to(torch.uint8)
            sides.append(Coded(wide[:, : codes.shape[1]], scales, fmt, -1, k, packing))
        a, b = sides
        out = torch.full((m, n), 7.0)
        block_scaled_mma.run_tensor(source, a, b.transposed, out)
        x, y = (gs.mx.decode((s.codes, s.scales), s.format, size=k, packing=packing).double() for s in sides)
        assert_bitwise_equal(out, (x @ y.mT).float() + 0.0, context=f"{m} {k} {n}")
