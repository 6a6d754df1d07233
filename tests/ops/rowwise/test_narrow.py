"""Rows on float lanes against the scalar steps that float64 tensors take, bit for bit; gates over all 16-bit numbers.

float64 tensors never reach the vector kernels, and the scalar steps are those that test_rows.py ties to the reference.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.backends import cpu
from gemmsim.ops.rowwise.operators import row_norm_grad_op, row_norm_op, row_softmax_grad_op, row_softmax_op, row_sum_op

#: steps of softmax (offset, exponential, sum, result)
SOFTMAX = [
    "e5m10;e5m10;e5m10;e5m10",
    "e4m3;e4m3;e4m3;e4m3",
    "e5m2;e5m10;e6m9;e4m3",
    "e5m10/sat;e5m10;e5m13;e5m10",
    "e4m3/sat;e3m4;e5m7;e3m4",
    "fixed(12,6,symmetric);fixed(10,8,symmetric);fixed(14,6,symmetric);e5m10",
]
NORM = ["e5m10", "e4m3", "e6m13", "e5m7", "fixed(14,6,symmetric)"]
KINDS = ["narrow", "any", "tiny", "large", "masked", "odd-ends", "quanta", "between quanta"]


def data(kind: str, rows: int, cols: int, seed: int) -> torch.Tensor:
    """Numbers of e5m10 (float lanes need no odd rounding, nor with "quanta"), any, subnormal ones, overflows, masks, NaN and infinities."""
    x = 2 * torch.randn(rows, cols, generator=torch.Generator().manual_seed(seed))
    if kind in ("narrow", "masked"):
        x = x.half().float()
    if kind == "tiny":
        x = x * torch.tensor([2.0**-70, 2.0**-24, 2.0**-14, 1.0]).repeat_interleave(-(-cols // 4))[:cols]
    if kind == "large":
        x[::3] *= 2.0**15
        x[1, 0] = 1e38
    if kind == "masked":
        x = x.masked_fill(torch.ones(rows, cols).triu(2) > 0, -torch.inf)
    if kind == "quanta":  # few of e5m10's, most of them subnormal
        x = (x * torch.tensor([2.0**3, 2.0**9, 2.0**14]).repeat(cols)[:cols]).round() * 2.0**-24
    if kind == "between quanta":  # eleven bits, ties of e5m10's subnormals, and what decides them
        x = (x * 2.0**7).round() * torch.tensor([2.0**-25, 2.0**-50]).repeat(cols)[:cols]
    if kind == "odd-ends":
        x[0, 1], x[rows // 2, 0], x[rows - 1, 2] = torch.nan, torch.inf, -torch.inf
        x[1] = -torch.inf
    return x


def same(got: tuple[torch.Tensor, ...], want: tuple[torch.Tensor, ...], context: str) -> None:
    for g, w in zip(got, want, strict=True):
        assert_bitwise_equal(g, w.float(), nan_is_nan=True, context=context)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("casts", SOFTMAX)
def test_softmax_and_gradient(casts, kind):
    for rows, cols in ((37, 33), (3, 64)):
        x = data(kind, rows, cols, rows)
        y = row_softmax_op(x, casts, 1, False, None, 0)
        same((y,), (row_softmax_op(x.double(), casts, 1, False, None, 0),), kind)
        g = data("narrow" if kind == "narrow" else "any", rows, cols, 5)
        text = ";".join([casts.split(";")[1]] * 4)
        got = row_softmax_grad_op(y, g, text, 8, None, 0)
        same((got,), (row_softmax_grad_op(y.double(), g.double(), text, 8, None, 0),), kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmt", NORM)
def test_norms_gradients_and_sums(fmt, kind):
    for centered, order in ((True, 1), (False, 4)):
        x, g = data(kind, 21, 35, 7), data("any", 21, 35, 8)
        w, b = data(kind if kind == "narrow" else "any", 2, 35, 9)
        forward, backward = ";".join([fmt] * 12), ";".join([fmt] * 13)
        wide = [t.double() for t in (x, w, b)]
        got = row_norm_op(x, w, b, forward, 1e-5, order, centered, None, 0)
        same(got, row_norm_op(*wide, forward, 1e-5, order, centered, None, 0), f"{fmt} {kind}")
        arguments = (x, w, got[1], got[2], g)
        found = row_norm_grad_op(*arguments, backward, order, centered, None, 0)
        wide = [t.double() for t in arguments]
        same(found, row_norm_grad_op(*wide, backward, order, centered, None, 0), f"{fmt} {kind}")
        sums = row_sum_op(x, fmt, order, None, 0), row_sum_op(x.double(), fmt, order, None, 0)
        same(sums[:1], sums[1:], f"{fmt} {kind}")


@pytest.mark.parametrize("isa", cpu.ISAS)
def test_every_offset_of_e5m10_has_the_same_exponential_everywhere(isa):
    """All 2^15 exponentials that a softmax in e5m10 can meet, 64 in a row with the row's largest, 0."""
    chosen = cpu.isa()
    try:
        cpu.set_isa(isa)
        offsets = torch.arange(0x8000, 0xFC00, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
        x = torch.cat((torch.zeros(len(offsets) // 64, 1), offsets.reshape(-1, 64)), 1)
        for p in ("e5m10", "e4m3", "e5m13"):
            casts = f"e5m10;{p};e8m23;e8m23" if p == "e5m13" else f"e5m10;{p};{p};{p}"
            want = row_softmax_op(x.double(), casts, 1, False, None, 0)
            same((row_softmax_op(x, casts, 1, False, None, 0),), (want,), casts)
    except cpu.LibraryError as error:
        pytest.skip(str(error))
    finally:
        cpu.set_isa(chosen)


def rounded(x: np.ndarray) -> np.ndarray:
    """To binary16 in one rounding."""
    return x.astype(np.float16).astype(np.float64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("name", ["silu", "gelu", "gelu-tanh"])
def test_activations_of_every_16_bit_number(name, dtype):
    """Steps in e5m10: float64 functions come within 2^-50 of the value, and no argument is that near to a midpoint."""
    codes = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    x = codes.view(dtype).float()
    x = x[x.isfinite()]
    a = x.double()
    formats = gs.QGELUFormats(inter_quant="e5m10", output_quant="e5m10")
    with np.errstate(over="ignore"):
        if name == "silu":
            got = gs.qsilu(x, formats)
            want = rounded((a * torch.from_numpy(rounded(torch.sigmoid(a).numpy()))).numpy())
        else:
            tanh = name == "gelu-tanh"
            got = gs.qgelu(x, formats, "tanh" if tanh else "none")
            inner = torch.tanh((2 / torch.pi) ** 0.5 * (a + 0.044715 * a**3)) if tanh else torch.erf(a / 2**0.5)
            one_more = torch.from_numpy(rounded(inner.numpy())).float() + 1.0
            want = rounded((0.5 * a * one_more.double()).numpy())
    assert_bitwise_equal(got, torch.from_numpy(want).float(), nan_is_nan=True, context=name)
