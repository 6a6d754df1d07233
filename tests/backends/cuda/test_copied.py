"""Products whose chunks lie in shared memory as they do in global memory (``copied.h``) have the CPU backend's bits: all
loops in turn, both directions of both operands, ragged ends, copies that come as late and as early as they may."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import compile_on_host, cuda_gemm, host_gemm, sources_of
from support.cuda_tiles import asked_tile

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

#: 128 outputs of a thread and 64; steps of each kind; formats that prove every product's place, and none.
SPECS = [
    ":e5m10", ":e4m3", ":fp32", "e6m9 : e6m9", ":bf16", ":e6m9/rtz", ":e6m9/rna", ":e6m9/ru", ":e5m14",
    ":e5m10, arithmetic=fp32", ":mul=e5m10, add=e6m9",
]  # fmt: skip
#: Two tiles each way, the second ragged; chunks have 32 terms, the last of which is ragged, or a term alone.
SIZES = [(132, 268, 132), (12, 97, 20), (8, 3, 4), (4, 32, 132)]
LAYOUTS = [(at_a, at_b) for at_a in "tl" for at_b in "tl"]


def lying(x: torch.Tensor, terms: int, layout: str) -> torch.Tensor:
    """``x`` with its terms, along dimension ``terms``, side by side (t), or its lines (l)."""
    return x.contiguous() if (layout == "t") == (terms == 1) else x.mT.contiguous().mT


def operands(size: tuple[int, int, int], layout: tuple[str, str], seed: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Short numbers, then any, large ones, NaN and infinity, then short ones: all loops, and back."""
    m, k, n = size
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(m, k, generator=g), torch.randn(k, n, generator=g)
    short_a, short_b = (x.to(torch.float8_e4m3fn).float() for x in (a, b))
    short_a[:, 70:100], short_b[150:170] = a[:, 70:100], b[150:170]
    short_a[:, 170:190] *= 300
    short_a[2, 200:205], short_b[220:222, n // 2] = float("inf"), float("nan")
    short_a[3, ::2], short_b[:, 1] = -0.0, 0.0
    return lying(short_a, 1, layout[0]), lying(short_b, 0, layout[1])


def chosen(text: str) -> list[tuple[torch.Tensor, torch.Tensor, GemmSpec]]:
    """Terms side by side are copied where a line is a multiple of 16 bytes."""
    spec = GemmSpec.of(text)
    layouts = LAYOUTS if text == ":e5m10" else LAYOUTS[1:2]
    pairs = [(size, layout) for size in SIZES for layout in layouts if size[1] % 4 == 0 or layout == ("l", "l")]
    return [(*operands(*pair), spec) for pair in pairs]


@pytest.mark.parametrize("text", SPECS)
def test_bits(text, monkeypatch):
    monkeypatch.setattr(cuda_gemm, "_is_read_often", lambda x, others: True)  # what is rounded is so beforehand
    with asked_tile(0):
        sources = sources_of([(*one, 1) for one in chosen(text)])
        assert all(".copied = 1" in source.text for source in sources if source.family == "gemm")
        compile_on_host(sources)
        for a, b, spec in chosen(text):
            want = torch.empty(a.shape[0], b.shape[1], dtype=torch.float64)
            cpu.gemm(a, b, spec, want, 1)
            for early in (False, True):
                if early:
                    monkeypatch.setenv("GEMMSIM_HOST_EARLY", "1")
                got = torch.full_like(want, 7.0)
                host_gemm(a, b, spec, got, 1)
                assert_bitwise_equal(got, want, context=f"{text} {tuple(a.shape)} {a.stride()} {b.stride()} {early}")
            monkeypatch.delenv("GEMMSIM_HOST_EARLY")
