"""One step of each model on tensors of int64: some products and the running addend c give the next c.

Each function (here and in ``binary``) takes the step's model, the operands of the step and c as codes, and returns
codes of the result's format. ``product.STEPS`` names the function of each model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor

from .codes import ZERO_EXPONENT, Decoded, bit_length, decode, encode, infinity, shift_down, shift_floor, sign_bit
from .operands import Operand, operand
from .step_parameters import LEAST_EXPONENT, FlooredSum, FusedBlock, Model, ScaledGroups

__all__ = [
    "NVIDIA_NAN",
    "QUIET_NAN",
    "Step",
    "StepFunction",
    "apply_verdict",
    "floored_sum",
    "fused_block",
    "multiply",
    "scaled_groups",
    "verdict_of",
]

#: The NaN that NVIDIA's instructions give, whatever came in.
NVIDIA_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}
QUIET_NAN = 0x7FC00000


class Step(NamedTuple):
    """What goes into one step. a (..., m, 1, N) and b (..., 1, n, N) decoded, c (..., m, n) codes of ``c_kind``.

    scale_a (..., m, 1, G), scale_b (..., 1, n, G): decoded scales, one per group of the step; None without scales.
    """

    a: Decoded
    b: Decoded
    a_kind: Operand
    b_kind: Operand
    c: Tensor
    c_kind: Operand
    scale_a: Decoded | None = None
    scale_b: Decoded | None = None
    scale_kind: Operand | None = None


StepFunction = Callable[[Model, Step], Tensor]


class Products(NamedTuple):
    """Exact products: value = signed * 2**(exponent - fraction_bits), not normalised; 0 * infinity is NaN."""

    signed: Tensor
    exponent: Tensor
    fraction_bits: int
    nan: Tensor
    plus: Tensor
    minus: Tensor


def multiply(step: Step) -> Products:
    """a_k * b_k for every output, along the last axis."""
    a, b = step.a, step.b
    nan = a.nan | b.nan | (a.infinite & b.zero) | (a.zero & b.infinite)
    infinite = (a.infinite | b.infinite) & ~nan
    sign = a.sign * b.sign
    return Products(
        a.signed * b.signed,
        a.exponent + b.exponent,
        step.a_kind.fraction_bits + step.b_kind.fraction_bits,
        nan,
        infinite & (sign > 0),
        infinite & (sign < 0),
    )


def _cut(signed: Tensor, by: Tensor) -> Tensor:
    """trunc(signed * 2**by), toward zero."""
    return torch.sign(signed) * shift_down(signed.abs(), by)


class _Verdict(NamedTuple):
    """What specials alone decide about an output."""

    nan: Tensor
    plus: Tensor
    minus: Tensor


def verdict_of(products: Products, c: Decoded) -> _Verdict:
    """Of the products and c."""
    plus = products.plus.any(-1) | (c.infinite & (c.sign > 0))
    minus = products.minus.any(-1) | (c.infinite & (c.sign < 0))
    return _Verdict(products.nan.any(-1) | c.nan | (plus & minus), plus, minus)


def apply_verdict(verdict: _Verdict, codes: Tensor, out: Operand, nan: int) -> Tensor:
    """``codes`` where specials decide nothing, else what they say."""
    negative = infinity(out) | sign_bit(out)
    codes = torch.where(verdict.plus, infinity(out), codes)
    codes = torch.where(verdict.minus, negative, codes)
    return torch.where(verdict.nan, nan, codes)


def fused_block(model: Model, step: Step) -> Tensor:
    """E = largest exponent of what is not zero; addends cut toward zero F bits below it; exact sum; one conversion.

    Any NaN, 0 * infinity, infinities of both signs: NVIDIA's NaN. Scale exponents are added to each product's.
    """
    model = cast(FusedBlock, model)
    products, c = multiply(step), decode(step.c, step.c_kind)
    verdict = verdict_of(products, c)
    exponent = products.exponent
    if step.scale_a is not None and step.scale_b is not None:
        exponent = exponent + step.scale_a.exponent + step.scale_b.exponent
        verdict = verdict._replace(nan=verdict.nan | (step.scale_a.nan | step.scale_b.nan).any(-1))
    largest = torch.maximum(exponent.amax(-1), c.exponent).clamp(min=model.least)
    down = model.kept - products.fraction_bits
    total = _cut(products.signed, exponent - largest[..., None] + down).sum(-1)
    total = total + _cut(c.signed, model.kept - step.c_kind.fraction_bits + c.exponent - largest)
    out = operand(model.conversion.operand)
    return apply_verdict(verdict, encode(total, largest - model.kept, model.conversion), out, NVIDIA_NAN[out.name])


def scaled_groups(model: Model, step: Step) -> Tensor:
    """Exact sums of groups of e2m1 products, times both scale significands; then as ``fused_block``.

    Only scale exponents align, of groups in which a product is not zero. NaN scale or c: NVIDIA's NaN. An infinite c
    passes.
    """
    model = cast(ScaledGroups, model)
    assert step.scale_a is not None and step.scale_b is not None and step.scale_kind is not None
    products, c = multiply(step), decode(step.c, step.c_kind)
    # Every product is a multiple of 2**-2; a zero's exponent means nothing here.
    whole = products.signed << torch.where(products.signed == 0, 0, products.exponent)
    groups = whole.reshape(*whole.shape[:-1], -1, model.group)
    sums, counts = groups.sum(-1), (groups != 0).any(-1)
    signed = sums * step.scale_a.significand * step.scale_b.significand
    fraction_bits = products.fraction_bits + 2 * step.scale_kind.fraction_bits
    exponent = torch.where(counts, step.scale_a.exponent + step.scale_b.exponent, ZERO_EXPONENT)
    largest = torch.maximum(exponent.amax(-1), c.exponent).clamp(min=model.least)
    total = _cut(signed, exponent - largest[..., None] + (model.kept - fraction_bits)).sum(-1)
    total = total + _cut(c.signed, model.kept - step.c_kind.fraction_bits + c.exponent - largest)
    nan = (step.scale_a.nan | step.scale_b.nan).any(-1) | c.nan
    verdict = _Verdict(nan, c.infinite & (c.sign > 0), c.infinite & (c.sign < 0))
    out = operand(model.conversion.operand)
    return apply_verdict(verdict, encode(total, largest - model.kept, model.conversion), out, NVIDIA_NAN[out.name])


def floored_sum(model: Model, step: Step) -> Tensor:
    """Products cut below their own largest exponent; their total and c floored below the larger of both; added; the sum
    floored below its own exponent; RNE.

    A finite product of 2**128 or more counts as infinite; true infinities come before those. NaN as a class.
    """
    model = cast(FlooredSum, model)
    products, c = multiply(step), decode(step.c, step.c_kind)
    verdict = verdict_of(products, c)
    if model.halves:
        total, exponent = _halves(model, products)
    else:
        total, exponent = _cut_sum(model, products, slice(None))
    own = c.exponent.clamp(min=-126)
    largest = torch.maximum(exponent, own)
    total = shift_floor(total, model.total_bits - model.kept + exponent - largest)
    addend = shift_floor(c.signed, model.addend_bits - step.c_kind.fraction_bits + own - largest)
    if model.window is not None:
        addend = torch.where(own >= largest - model.window, addend, 0)
    total = total + (addend << (model.total_bits - model.addend_bits))
    last = largest - model.total_bits
    drop = ((bit_length(total.abs()) - 1 + last).clamp(min=-126) - model.sum_bits - last).clamp(min=0)
    total = shift_floor(total, -drop) << drop
    out = operand(model.conversion.operand)
    codes = encode(total, largest - model.total_bits, model.conversion)
    codes = apply_verdict(_too_large(products), codes, out, QUIET_NAN)
    return apply_verdict(verdict, codes, out, QUIET_NAN)


def _cut_sum(model: FlooredSum, products: Products, which: slice) -> tuple[Tensor, Tensor]:
    """Sum of ``which`` products on the grid ``kept`` bits below their largest exponent, and that exponent."""
    exponent = products.exponent[..., which]
    largest = exponent.amax(-1).clamp(min=LEAST_EXPONENT)
    down = model.kept - products.fraction_bits
    return _cut(products.signed[..., which], exponent - largest[..., None] + down).sum(-1), largest


def _halves(model: FlooredSum, products: Products) -> tuple[Tensor, Tensor]:
    """Even and odd products summed apart, each floored at the larger exponent of both, then added."""
    even, even_exponent = _cut_sum(model, products, slice(0, None, 2))
    odd, odd_exponent = _cut_sum(model, products, slice(1, None, 2))
    largest = torch.maximum(even_exponent, odd_exponent)
    return shift_floor(even, even_exponent - largest) + shift_floor(odd, odd_exponent - largest), largest


def _too_large(products: Products) -> _Verdict:
    """Products of finite operands that are 2**128 or more in magnitude."""
    # Significands lie in [0, 4): the product reaches 2**128 if its bits do.
    room = 128 + products.fraction_bits - products.exponent
    finite = ~(products.nan | products.plus | products.minus)
    big = (products.signed.abs() >> room.clamp(0, 62) != 0) & finite
    plus, minus = (big & (products.signed > 0)).any(-1), (big & (products.signed < 0)).any(-1)
    return _Verdict(plus & minus, plus, minus)
