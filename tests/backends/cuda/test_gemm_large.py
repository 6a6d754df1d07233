"""Sizes at which an index of 32 bits, or a grid dimension of 16, would overflow; kernels run on the host.

Memory that nobody touches costs nothing: rows lie gigabytes apart in a reservation of addresses.
"""

from __future__ import annotations

import mmap

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import host_gemm

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu
from gemmsim.backends.epilogue import Finish

FAR = 2**31 + 40  # elements


def reserved(elements: int) -> torch.Tensor:
    """Zeros in bfloat16, of which only pages that are touched take memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        memory = mmap.mmap(-1, 2 * elements, flags=flags)
    except OSError as error:
        pytest.skip(f"no {2 * elements} bytes of addresses: {error}")
    return torch.frombuffer(memory, dtype=torch.bfloat16)


@pytest.mark.parametrize("spec", ["e4m3 : e5m10", ":interleaved(2, bf16/sr8)"])
def test_offsets_beyond_2_to_the_31(spec):
    """Operands, result and bias whose rows, columns or matrices lie more than 2^31 elements apart."""
    g = torch.Generator().manual_seed(1)
    b, bias = torch.randn(1, 9, 5, generator=g).bfloat16(), torch.randn(5, generator=g)
    values = torch.randn(1, 3, 9, generator=g).bfloat16()
    want = torch.empty(1, 3, 5, dtype=torch.float32)
    cpu.gemm(values, b, GemmSpec.of(spec), want, 7)
    want = (want + bias).bfloat16()
    storage = reserved(3 * FAR)
    rows = storage.as_strided((1, 3, 9), (0, FAR, 1))
    rows.copy_(values)
    out = storage.as_strided((1, 3, 5), (0, FAR, 2), 1000)
    host_gemm(rows, b, GemmSpec.of(spec), out, 7, finish=Finish(bias, torch.float32))
    assert_bitwise_equal(out.contiguous(), want)
    far_b = storage.as_strided((1, 5, 2), (0, 3, FAR), 4000)
    far_b.copy_(b[:, :5, :2])
    got, want = (torch.empty(1, 3, 2, dtype=torch.float32) for _ in range(2))
    host_gemm(values[..., :5], far_b, GemmSpec.of(spec), got, 7)
    cpu.gemm(values[..., :5], b[:, :5, :2], GemmSpec.of(spec), want, 7)
    assert_bitwise_equal(got, want)


def test_more_matrices_than_a_grid_dimension_has(monkeypatch):
    """One block in 2000 is run; each computes two tiles, half of all apart."""
    monkeypatch.setenv("GEMMSIM_HOST_STEP", "2000")
    g = torch.Generator().manual_seed(2)
    count, half = 140_002, 70_001
    a, b = torch.randn(count, 1, 3, generator=g), torch.randn(1, 3, 2, generator=g).expand(count, 3, 2)
    got, want = (torch.empty(count, 1, 2) for _ in range(2))
    spec = GemmSpec.of(":e5m10/sr8")
    host_gemm(a, b, spec, got, 5)
    cpu.gemm(a, b, spec, want, 5)
    for start in (0, half):
        assert_bitwise_equal(got[start : start + half : 2000], want[start : start + half : 2000])
