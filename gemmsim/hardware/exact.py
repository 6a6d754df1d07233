"""Steps whose products and c are summed exactly: a long accumulator in limbs of 32 bits, one for each output."""

from __future__ import annotations

import torch
from torch import Tensor

from .codes import decode, encode
from .operands import operand
from .step_models import QUIET_NAN, Step, apply_verdict, multiply, verdict_of
from .step_parameters import Model

__all__ = ["exact_sum"]

#: Exponent of the first limb's last bit, below every bit of a product; limbs reach above every sum.
_LOWEST, _LIMBS, _BITS = -320, 20, 32
_MASK = (1 << _BITS) - 1


def exact_sum(model: Model, step: Step) -> Tensor:
    """The exact sum, rounded once to nearest even; zero sums are +0. NaN as a class."""
    products, c = multiply(step), decode(step.c, step.c_kind)
    signed = torch.cat((products.signed, c.signed[..., None]), -1)
    last = (products.exponent - products.fraction_bits, (c.exponent - step.c_kind.fraction_bits)[..., None])
    limbs = signed.new_zeros((*signed.shape[:-1], _LIMBS))
    for value, place in zip(signed.unbind(-1), torch.cat(last, -1).unbind(-1), strict=True):
        place = torch.where(value == 0, 0, place - _LOWEST)
        index, moved = (place // _BITS)[..., None], value << (place % _BITS)
        limbs.scatter_add_(-1, index, (moved & _MASK)[..., None])
        limbs.scatter_add_(-1, index + 1, (moved >> _BITS)[..., None])
    negative = _carried(limbs)[..., -1] < 0
    magnitude = _carried(torch.where(negative[..., None], -limbs, limbs))
    value, exponent = _leading(magnitude)
    codes = encode(torch.where(negative, -value, value), exponent, model.conversion)
    return apply_verdict(verdict_of(products, c), codes, operand(model.conversion.operand), QUIET_NAN)


def _carried(limbs: Tensor) -> Tensor:
    """Every limb but the last, which has the sign, from 0 to 2**32 - 1."""
    out = limbs.clone()
    for i in range(_LIMBS - 1):
        out[..., i + 1] += out[..., i] >> _BITS
        out[..., i] &= _MASK
    return out


def _leading(magnitude: Tensor) -> tuple[Tensor, Tensor]:
    """(value, exponent): the uppermost 62 bits or fewer; the last of them is odd where there is anything below."""
    top = (torch.arange(_LIMBS, device=magnitude.device) * (magnitude != 0)).amax(-1, keepdim=True).clamp(min=1)
    high, low = magnitude.gather(-1, top), magnitude.gather(-1, top - 1)
    below = (low & 3 != 0) | ((magnitude != 0).cumsum(-1).gather(-1, (top - 2).clamp(min=0)) * (top > 1) != 0)
    value = (high << (_BITS - 2)) | (low >> 2) | below
    return value[..., 0], (_LOWEST + _BITS * (top - 1) + 2)[..., 0]
