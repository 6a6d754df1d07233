"""CUTLASS' mainloops on a GPU made of Python: what a launch would compute, from the record that it is given."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Hardware, Promote
from gemmsim.backends import cpu
from gemmsim.backends.cuda.tensor_cores import cutlass_mainloop, native_mma
from support.tensor_cores import MAP, FakeGpu, fake_gpu, matrix, memory, whole  # noqa: F401


def mapped(raw: bytes, batch: int, element: int) -> Tensor:
    """(lines, terms) codes of one matrix of a map."""
    address, terms, lines, _, line, step, *_ = struct.unpack_from(MAP, bytes(raw))
    return matrix(address + batch * step, lines, line, terms * element)


def _distinct(codes: Tensor) -> tuple[Tensor, Tensor]:
    """Lines that differ, and which of them each line is."""
    return torch.unique(codes, dim=0, return_inverse=True)


class FakeHopper:
    """``launch`` of ``gemm_collective``: the chain of wgmma over whole tiles of K. ``accumulator``: another chain, as of a
    chip that adds otherwise."""

    def __init__(self) -> None:
        self.launches: list = []
        self.accumulator = None

    def launch(self, source, device, blocks, args) -> None:
        self.launches.append((source, blocks))
        one = next(found for found in ALL if cutlass_mainloop.collective_source(found) == source)
        m, n, _, batches = args.problem
        for batch in range(batches):
            sides = []
            for raw, name in ((args.map_a, one.a), (args.map_b, one.b)):
                codes, which = _distinct(whole(mapped(raw, batch, one.tiling.element), 128))
                dtype = native_mma._ELEMENTS[name][1]
                word = {1: torch.uint8, 2: torch.int16}[dtype.itemsize]
                values = codes.view(word).view(dtype)
                sides.append((values.float() if dtype.itemsize == 1 else values, which))
            (a, rows), (b, columns) = sides
            inner = self.accumulator or Hardware("hopper", "wgmma", *(_name(x) for x in (one.a, one.b)))
            spec = GemmSpec(accumulator=Promote(inner, one.promoted) if one.promoted else inner)
            found = torch.empty(a.shape[0], b.shape[0])
            cpu.gemm(a, b.mT, spec, found, 0)
            out = memory(args.out + 4 * batch * args.out_batch, m * n, torch.float32)
            out.copy_(found[rows][:, columns].flatten())


def _name(element: str) -> str:
    return {"f16": "fp16"}.get(element, element)


ALL = [
    cutlass_mainloop.Collective(a, b, promoted)
    for a, b in (
        ("bf16", "bf16"),
        ("f16", "f16"),
        ("e4m3", "e4m3"),
        ("e4m3", "e5m2"),
        ("e5m2", "e4m3"),
        ("e5m2", "e5m2"),
    )
    for promoted in ((0, 128) if a in ("e4m3", "e5m2") else (0,))
]


@pytest.fixture
def fake_hopper(fake_gpu: FakeGpu, monkeypatch) -> FakeHopper:  # noqa: F811
    """``fake_gpu`` that runs CUTLASS' mainloops, whatever the size of a product."""
    from gemmsim.backends.cuda.tensor_cores import route

    gpu = FakeHopper()
    monkeypatch.setattr(cutlass_mainloop, "launch", gpu.launch)
    monkeypatch.setattr(cutlass_mainloop, "check_kernel", lambda collective, arch: None)
    monkeypatch.setattr(cutlass_mainloop, "device_arch", route.device_arch)
    monkeypatch.setattr(cutlass_mainloop, "_is_gpu", lambda device: True)
    monkeypatch.setattr(route, "LARGE", 500)
    found = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found)
    return gpu
