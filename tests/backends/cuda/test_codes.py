"""Operands as codes: every code of every kind of format, and products of the kernels run on the host."""

from __future__ import annotations

import math

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import compile_on_host, host_codes, host_gemm, sources_of_codes

from gemmsim.arithmetic import GemmSpec, SpecError
from gemmsim.backends import cpu
from gemmsim.backends.cuda.codes import code_format, decoded
from gemmsim.backends.cuda.simt import tile_heuristic
from gemmsim.formats import FormatError, parse

FORMATS = """e4m3 e5m2 e3m2 e2m3 e2m1 e8m0 e4m3fnuz e5m2fnuz ieee_e4m3 e1m6 e7m0 e5m2/ftz binary8p1se binary8p3sf binary8p7se
binary8p1ue binary5p2uf e4m3b100 e5m2b1000 e2m1/ftz binary4p2se binary3p2se int8 uint8 int4 fixed(6,2,symmetric)""".split()


def value(fmt, code: int) -> float:
    try:
        return fmt.decode(code)
    except FormatError:  # not in use
        return math.nan


def pack(codes: torch.Tensor, dim: int) -> torch.Tensor:
    """Codes of 4 bits two a byte along ``dim``, the first in the low half."""
    even, odd = (codes.narrow(dim, 0, codes.shape[dim]).unfold(dim, 2, 2).select(-1, i) for i in (0, 1))
    return (even | odd << 4).to(torch.uint8)


def stored(codes: torch.Tensor, fmt, dim: int) -> torch.Tensor:
    return pack(codes, dim) if fmt.bits == 4 else codes.to(torch.uint8)


def values_of(codes: torch.Tensor, fmt) -> torch.Tensor:
    table = torch.tensor([value(fmt, code) for code in range(1 << fmt.bits)], dtype=torch.float64)
    return table[codes.long()]


def drawn(fmt, shape: tuple[int, int], g: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 1 << fmt.bits, shape, generator=g)


def check(calls) -> None:
    compile_on_host(sources_of_codes(calls))
    for a, b, fa, fb, spec in calls:
        got, want = (torch.full((a.shape[0], b.shape[1]), 7.0, dtype=torch.float64) for _ in range(2))
        host_codes(stored(a, fa, -1), stored(b, fb, -2), fa, fb, spec, got, 5)
        cpu.gemm(values_of(a, fa), values_of(b, fb), spec, want, 5)
        assert_bitwise_equal(got, want, context=f"{fa} {fb} {spec} {tuple(a.shape)}x{tuple(b.shape)}")


def test_every_code_of_every_format():
    """Times one, into a register that keeps all: the kernel's own decoding, and its mirror in Python."""
    calls = []
    for text in FORMATS:
        fmt = parse(text)
        codes = range(1 << fmt.bits)
        assert [str(decoded(code_format(fmt), c)) for c in codes] == [str(float(value(fmt, c))) for c in codes]
        every = torch.arange(1 << fmt.bits).reshape(-1, 1)
        # a second term of 4 bits is zero: 0 * 1, which leaves the first
        if fmt.bits == 4:
            every = torch.cat([every, every * 0], dim=1)
        one = torch.full((every.shape[1], 1), 1)
        calls.append((every, one, fmt, parse("int8"), GemmSpec.of(":exact(fp64)")))
        calls.append((one.mT, every.mT, parse("int8"), fmt, GemmSpec.of(":sequential(fp64)")))
    check(calls)


PRODUCTS = [
    ("e4m3", "e4m3", ":e5m10"), ("e4m3", "e5m2", "e4m3*e5m2 : e6m9"), ("e2m1", "e2m1", ":e5m10"), ("e2m1", "e4m3", ":bf16/sr8"),
    ("e3m2", "e2m1", ":chunked(4, e5m10)"), ("e2m1", "e3m2", ":shuffled(chunked(4, e5m10/sr8), 5)"), ("e8m0", "e4m3", ":fp32"),
    ("e5m2b1000", "e4m3", ":fp64"), ("int8", "int4", ":int(12, saturate)"), ("e2m1", "e2m1", ":fixed(16, 8, rounding=rne)"),
    ("e5m2", "e5m2", ":kahan(bf16)"), ("e2m1", "e2m1", ":binned(fp32)"), ("e4m3fnuz", "e4m3fnuz", ":e8m3/rtz -> bf16/sr4"),
]  # fmt: skip


def test_products_of_codes_are_those_of_their_values():
    g, calls = torch.Generator().manual_seed(40), []
    for fa, fb, text in PRODUCTS:
        for m, k, n in [(3, 18, 33), (17, 32, 48), (2, 50, 5)]:
            a, b = drawn(parse(fa), (m, k), g), drawn(parse(fb), (k, n), g)
            calls.append((a, b, parse(fa), parse(fb), GemmSpec.of(text)))
    check(calls)


def test_large_tiles_batches_and_strides(monkeypatch):
    monkeypatch.setattr(tile_heuristic, "_asked", 0)
    g = torch.Generator().manual_seed(41)
    spec, e4m3, e2m1 = GemmSpec.of(":e5m10"), parse("e4m3"), parse("e2m1")
    check([(drawn(f, (150, 48), g), drawn(h, (48, 144), g), f, h, spec) for f in (e4m3, e2m1) for h in (e4m3, e2m1)])
    a, b = drawn(e2m1, (2 * 9, 32), g), drawn(e4m3, (32, 21), g)
    got, want = torch.empty(2, 9, 21), torch.empty(2, 9, 21)
    stacked = stored(a, e2m1, -1).mT.contiguous().mT.reshape(2, 9, 16)
    host_codes(stacked, b.to(torch.uint8).expand(2, 32, 21), e2m1, e4m3, spec, got)
    cpu.gemm(values_of(a, e2m1).reshape(2, 9, 32), values_of(b, e4m3).expand(2, 32, 21), spec, want)
    assert_bitwise_equal(got, want)


def test_bits_above_a_code_change_nothing():
    codes, b = torch.arange(64, dtype=torch.uint8).reshape(1, 64), torch.full((64, 1), 0x38, dtype=torch.uint8)
    results = []
    for a in (codes, codes | 0xC0):
        results.append(torch.empty(1, 1))
        host_codes(a, b, "e3m2", "e4m3", GemmSpec.of(":fp32"), results[-1])
    assert_bitwise_equal(*results)


def test_what_is_refused():
    x, out, spec = torch.zeros(2, 2, dtype=torch.uint8), torch.empty(2, 2), GemmSpec.of(":fp32")
    with pytest.raises(FormatError, match="at most 8 bits"):
        host_codes(x, x, "e5m10", "e4m3", spec, out)
    with pytest.raises(FormatError, match="at most 8 bits"):
        host_codes(x, x, "fixed(8,4,unbounded)", "e4m3", spec, out)
    with pytest.raises(FormatError, match="single numbers"):
        host_codes(x, x, "mxfp4", "e4m3", spec, out)
    with pytest.raises(SpecError, match="a_codes of e4m3 with the operand cast e5m2"):
        host_codes(x, x, "e4m3", "e4m3", GemmSpec.of("e5m2*e4m3 : fp32"), out)
    with pytest.raises(SpecError, match="b_codes of e5m2"):  # infinities would be clamped
        host_codes(x, x, "e4m3", "e5m2", GemmSpec.of("e4m3*e5m2/clamp : fp32"), out)
    with pytest.raises(ValueError, match="float32; allowed: torch.uint8"):
        host_codes(x.float(), x, "e4m3", "e4m3", spec, out)
    with pytest.raises(ValueError, match="of 4 terms and b_codes .* of 2"):
        host_codes(x, x, "e2m1", "e4m3", spec, out)
    with pytest.raises(ValueError, match="gemm_codes"):
        host_gemm(x, x, spec, out)
