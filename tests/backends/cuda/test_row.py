"""Rows of a larger product in the GPU's kernels, run on the host: the random bits of the whole."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda import host_quantize
from support.cuda_gemm import compile_on_host, host_gemm, sources_of

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu
from gemmsim.formats import parse_cast
from gemmsim.reference import element_draw, round_value

TEXTS = [
    ":e5m10/sr8", ":mul=e4m3/sr20, add=e5m10/sr18", ":chunked(4, e5m2/sr8, e5m10/sr8)", ":pairwise(bf16/sr8, 3)",
    ":splitk(3, e5m10/sr3, bf16/sr3)", ":kahan(e5m2/sr8)", ":chunked(8, exact(e5m2/sr8))", ":fixed(12, 4, rounding=sr8)",
    ":shuffled(interleaved(3, e5m10/sr8), 7)", ":binned(e5m2/sr8, carry=1)",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_rows_alone_have_the_bits_of_the_whole(text):
    spec, g = GemmSpec.of(text), torch.Generator().manual_seed(3)
    a, b = torch.randn(21, 37, generator=g), torch.randn(37, 18, generator=g)
    compile_on_host(sources_of([(a, b, spec, 5)]))
    whole, of_cpu = (torch.empty(21, 18, dtype=torch.float64) for _ in range(2))
    host_gemm(a, b, spec, whole, 5)
    for first, count in ((0, 1), (1, 7), (8, 13), (20, 1)):
        rows = slice(first, first + count)
        got = torch.empty(count, 18, dtype=torch.float64)
        host_gemm(a[rows], b, spec, got, 5, row=first)
        assert_bitwise_equal(got, whole[rows], context=f"{text}, rows from {first}")
    cpu.gemm(a, b, spec, of_cpu, 5, row=2**32 - 9)
    host_gemm(a, b, spec, whole, 5, row=2**32 - 9)  # the counter's next word begins within
    assert_bitwise_equal(whole, of_cpu, context=text)


@pytest.mark.parametrize("text", ["e4m3/sr8", "e5m10/sr20"])
def test_casts_of_elements_from_a_first_one_on(text):
    cast, x = parse_cast(text), torch.randn(64, 33)
    whole, of_cpu = torch.empty_like(x), torch.empty_like(x)
    host_quantize(x, cast, whole, 7, 4)
    for first in (1, 8, 33):  # within a block of draws, and where one begins
        for rows in (x[first:], x[first:].t().contiguous().t()):
            got = torch.empty_like(rows)
            host_quantize(rows, cast, got, 7, 4, first * 33)
            assert_bitwise_equal(got, whole[first:], context=f"{text} from row {first}")
    start = 2**34 - 5
    host_quantize(x, cast, whole, 7, 4, start)
    cpu.quantize(x, cast, of_cpu, 7, 4, start)
    assert_bitwise_equal(whole, of_cpu, context=text)
    want = round_value(x[0, 9].item(), cast, element_draw(7, start + 9, 4, cast.rounding.bits))
    assert whole[0, 9].item() == want
