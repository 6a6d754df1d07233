"""Steps of two blocks: FP8 by ``mma.sync`` on chips that have no unit for it, through binary16."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from .codes import Decoded, bit_length, decode, encode, infinity, sign_bit
from .ieee_chain_steps import add32
from .operands import OPERANDS, Operand
from .step_models import NVIDIA_NAN, Step, fused_block
from .step_parameters import CONVERSIONS, FusedBlock, Model, TwoBlocks

__all__ = ["two_blocks"]

_F16 = OPERANDS["f16"]


def two_blocks(model: Model, step: Step) -> Tensor:
    """Two fused blocks of binary16 products from +0, then c by one addition to nearest even. NaN: NVIDIA's."""
    model = cast(TwoBlocks, model)
    out = OPERANDS[model.conversion.operand]
    block = FusedBlock(model.products // 2, model.out, model.kept, model.least)
    a, b = _as_binary16(step.a, step.a_kind), _as_binary16(step.b, step.b_kind)
    k = torch.arange(model.products)
    total = torch.zeros_like(step.c)
    for part in (k % 4 < 2, k % 4 >= 2):
        left, right = a.part(..., part), b.part(..., part)
        total = fused_block(block, Step(left, right, _F16, _F16, total, out))
    return _added(step.c, total, out)


def _as_binary16(x: Decoded, kind: Operand) -> Decoded:
    """The same numbers with significands and exponents of binary16."""
    up = _F16.fraction_bits + 1 - bit_length(x.significand)
    exponent = x.exponent - kind.fraction_bits - up + _F16.fraction_bits
    short = (_F16.storage.emin - exponent).clamp(min=0)  # places that a subnormal keeps
    significand = (x.significand << up.clamp(min=0)) >> short
    zero = x.significand == 0
    return x._replace(
        significand=torch.where(zero, 0, significand), exponent=torch.where(zero, x.exponent, exponent + short)
    )


def _added(x: Tensor, y: Tensor, kind: Operand) -> Tensor:
    """Codes of the number of ``kind`` nearest to x + y; y is never -0."""
    if kind.name == "f32":
        codes = add32(x, y)
        return torch.where(decode(codes, kind).nan, NVIDIA_NAN["f32"], codes)
    left, right = decode(x, kind), decode(y, kind)
    unit = kind.storage.emin - kind.fraction_bits
    total = sum(
        torch.where(one.zero, 0, one.signed << (one.exponent - kind.fraction_bits - unit).clamp(min=0))
        for one in (left, right)
    )
    assert isinstance(total, Tensor)
    codes = encode(total, torch.full_like(total, unit), CONVERSIONS["rne10"])
    negative = torch.where(left.infinite, left.sign, right.sign) < 0
    codes = torch.where(left.infinite | right.infinite, infinity(kind) + negative * sign_bit(kind), codes)
    clash = left.infinite & right.infinite & (left.sign != right.sign)
    return torch.where(left.nan | right.nan | clash, NVIDIA_NAN["f16"], codes)
