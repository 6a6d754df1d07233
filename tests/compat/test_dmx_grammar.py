"""d-Matrix's shorthand over its whole grammar: exact round trips, and every format as an operand, forward and backward."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.compat import dmx

ANY_FLAG = st.sampled_from("CSF_XA9")
ROUNDING = st.sampled_from("UDNS")


@st.composite
def numbers(draw, low: int, high: int) -> tuple[int, str]:
    """A number of a range and a way to write it: with a sign, with zeros before it."""
    value = draw(st.integers(low, high))
    sign = "-" if value < 0 else draw(st.sampled_from(["", "+", "-"] if value == 0 else ["", "+"]))
    return value, sign + "0" * draw(st.integers(0, 2)) + str(abs(value))


@st.composite
def fixed(draw, fraction: st.SearchStrategy | None = None, symmetric: str = "", least: int = 1) -> tuple[str, str]:
    (p, p_text), (f, f_text) = draw(numbers(least, 24)), draw(numbers(-30, 30) if fraction is None else fraction)
    clamp, sym, rnd = draw(ANY_FLAG), symmetric or draw(ANY_FLAG), draw(ROUNDING)
    flags = ("C" if clamp == "C" else "_") + ("S" if sym == "S" else "_") + rnd
    return f"XP[{p_text},{f_text}]({clamp}{sym}{rnd})", f"XP[{p},{f'{f:+d}' if f else 0}]({flags})"


@st.composite
def floating(draw, rounding: st.SearchStrategy = ROUNDING) -> tuple[str, str]:
    sign, (e, e_text), (m, m_text) = draw(st.integers(0, 9)), draw(numbers(1, 8)), draw(numbers(0, 23))
    b, b_text = draw(numbers(127, 127) if e == 8 else numbers(-128 + 2**e, 127))
    flush, rnd = draw(ANY_FLAG), draw(rounding)
    canonical = f"FP[{min(sign, 1)}|{e}|{m},{b}]({'F' if flush == 'F' else '_'}{rnd})"
    return f"FP[{sign}|{e_text}|{m_text},{b_text}]({flush}{rnd})", canonical


@st.composite
def block(draw) -> tuple[str, str]:
    n, n_text = draw(numbers(1, 300))
    if draw(st.booleans()):
        return f"{{{n_text}}}", f"{{{n}}}"
    d, d_text = draw(numbers(-3, 3))
    return f"{{{n_text},{d_text}}}", f"{{{n},{d}}}"


@st.composite
def blocked(draw) -> tuple[str, str]:
    kind, (b_text, b) = draw(st.sampled_from(["BFP", "MXINT", "MXFP", "SBFP"])), draw(block())
    if kind == "BFP":
        (p, p_text), sym, rnd = draw(numbers(2, 25)), draw(ANY_FLAG), draw(ROUNDING)
        return f"BFP[{p_text}|8]{b_text}({sym}{rnd})", f"BFP[{p}|8]{b}({'S' if sym == 'S' else '_'}{rnd})"
    if kind == "MXINT":
        p = draw(st.integers(2, 25))
        return f"MXINT{p}{b_text}", f"MXINT{p}{b}"
    if kind == "MXFP":
        e, m = draw(st.integers(1, 8)), draw(st.integers(0, 23))
        return f"MXFP{1 + e + m}[E{e}M{m}]{b_text}", f"MXFP{1 + e + m}[E{e}M{m}]{b}"
    (x_text, x), (f_text, f) = draw(fixed(numbers(0, 0), "S", 2)), draw(floating(st.sampled_from("UDN")))
    return f"SBFP<{x_text}><{f_text}>{b_text}", f"SBFP<{x}><{f}>{b}"


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.one_of(fixed(), floating(), blocked()))
def test_text_becomes_a_format_and_its_canonical_text(pair):
    text, canonical = pair
    fmt = dmx.Format.from_shorthand(text)
    assert repr(fmt) == str(fmt) == canonical
    again = dmx.Format.from_shorthand(canonical)
    assert again == fmt and hash(again) == hash(fmt) and again.operand == fmt.operand
    assert pickle.loads(pickle.dumps(fmt)) == fmt == copy.deepcopy(fmt)
    parsed = gs.formats.parse_cast(canonical) if canonical.startswith("XP") else gs.formats.parse(canonical)
    assert parsed == fmt.operand
    if getattr(fmt, "block_dim", None) is not None:
        return  # no operand: the product says where its blocks lie
    spec = gs.GemmSpec.parse(f"{canonical} : fp32")
    assert gs.GemmSpec.parse(str(spec)) == spec and spec.a == spec.b == fmt.operand


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.one_of(fixed(), floating(), blocked()), st.integers(0, 40), st.sampled_from(" ,x[]{}()|0"))
def test_a_letter_too_many_is_refused_or_another_format(pair, at, letter):
    text = pair[1][: at % len(pair[1])] + letter + pair[1][at % len(pair[1]) :]
    try:
        fmt = dmx.Format.from_shorthand(text)
    except ValueError as error:
        assert "allowed" in str(error)
    else:
        assert dmx.Format.from_shorthand(repr(fmt)) == fmt


OPERANDS = [
    "XP[8,+4](CSN)", "XP[4,0](__D)", "FP[1|4|3,7](_N)", "FP[1|5|2,15](FN)", "FP[0|4|4,7](FN)", "BFP[8|8]{64}(SN)",
    "BFP[6|8]{5}(_N)", "BFP[4|8]{16}(SU)", "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}",
    "SBFP<XP[8,0](CSN)><FP[0|5|10,15](_N)>{7}", "MXFP8[E4M3]{32}", "MXFP8[E5M2]{9}", "MXFP6[E3M2]{16}", "MXFP4[E2M1]{32}",
    "MXINT8{32}", "MXINT6{11}",
]  # fmt: skip


@pytest.mark.parametrize("text", OPERANDS)
def test_operands_of_products_forward_and_backward(text):
    """K = 37 and N = 10 are multiples of no block: the last block of every row is short."""
    fmt = dmx.Format.from_shorthand(text)
    g = torch.Generator().manual_seed(4)
    x, w = torch.randn(3, 5, 37, generator=g), torch.randn(10, 37, generator=g)

    def cast(t: torch.Tensor, dim: int) -> torch.Tensor:
        return fmt.cast(t, dim) if fmt.blocked else fmt.cast(t)

    want = gs.qmatmul(cast(x, -1), cast(w.t(), 0), ":e5m10")
    assert_bitwise_equal(gs.qmatmul(x, w.t(), f"{text} : e5m10"), want)
    leaf, weight = x.clone().requires_grad_(), w.clone().requires_grad_()
    y = gs.qlinear(leaf, weight, None, f"{text} : e5m10")
    assert_bitwise_equal(y.detach(), want)
    grad = torch.randn(3, 5, 10, generator=g)
    y.backward(grad)
    assert bool(leaf.grad.isfinite().all() and weight.grad.isfinite().all())
    if fmt.blocked:  # each operand anew, along the contraction of its product
        assert_bitwise_equal(leaf.grad, gs.qmatmul(cast(grad, -1), cast(w, 0), ":e5m10"))
        rows, columns = grad.reshape(-1, 10), x.reshape(-1, 37)
        assert_bitwise_equal(weight.grad, gs.qmatmul(cast(rows.t(), -1), cast(columns, 0), ":e5m10"))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from([t for t in OPERANDS if "{" in t]), st.integers(0, 10**6), st.integers(-3, 2))
def test_short_last_blocks_have_their_own_scale(text, seed, dim):
    fmt = dmx.Format.from_shorthand(text)
    x = torch.randn(6, 7, 8, generator=torch.Generator().manual_seed(seed))
    size, n = fmt.block_size, x.shape[dim]
    pieces = [fmt.cast(x.narrow(dim, i, min(size, n - i)), dim) for i in range(0, n, size)]
    assert_bitwise_equal(fmt.cast(x, dim), torch.cat(pieces, dim))
