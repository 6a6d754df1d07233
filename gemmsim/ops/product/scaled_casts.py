"""Products of operands under scales of blocks (``ScaledCast``), below PyTorch's dispatcher."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.scaled import Scaled
from gemmsim.backends.code_tables import codes_of_elements
from gemmsim.backends.convert import cast_into
from gemmsim.backends.division import divided_by
from gemmsim.backends.encoded_operand import Coded
from gemmsim.backends.epilogue import Finish
from gemmsim.backends.epilogue_passes import followed
from gemmsim.backends.scaled_cast import ScaledOperand
from gemmsim.backends.scaled_specs import inner_spec
from gemmsim.formats import E8M0, FP32, BlockFormat, Cast, Rounding

from .. import quantize_eager
from ..seeds import Site, derive_seed
from .broadcasting import general_matmul

__all__ = ["as_codes", "multiply", "rescaled"]


def as_codes(x: ScaledOperand, fmt: BlockFormat) -> Coded:
    """Elements and scales as codes of a block format. A block with an element that is no number there is NaN."""
    elements, scales = x.elements, x.scales
    across = -3 - x.dim
    if fmt.scale == E8M0:
        coded = (torch.frexp(scales).exponent + 126).clamp(0, 254).to(torch.uint8)
    else:
        coded = codes_of_elements(scales, fmt.scale)
    coded = coded.repeat_interleave(x.rows, across).narrow(across, 0, elements.shape[across])
    if elements.is_cuda or not bool(elements.sum().isfinite()):
        spoilt = _blocks_with(~elements.isfinite(), coded.shape, fmt.block_size, x.dim)
        coded = torch.where(spoilt, 255 if fmt.scale == E8M0 else 0x7F, coded)
    codes = codes_of_elements(elements, fmt.element)
    second = 1.0 if x.second is None else x.second if x.second.is_cuda else float(x.second)
    return Coded(codes, coded, fmt, x.dim, elements.shape[x.dim], "bytes", second)


def _blocks_with(marked: Tensor, shape: torch.Size, size: int, dim: int) -> Tensor:
    count = shape[dim]
    wide = marked.movedim(dim, -1)
    wide = torch.nn.functional.pad(wide, (0, count * size - wide.shape[-1]))
    return wide.reshape(*wide.shape[:-1], count, size).any(-1).movedim(-1, dim)


def rescaled(raw: Tensor, gain: float, finish: Finish | None, out: Tensor, spec: GemmSpec, seed: int) -> None:
    """Writes ``raw`` over ``gain``, a float32 tensor, to ``out``: rounded to binary32, then as ``spec`` ends."""

    def write(result: Tensor) -> None:
        found = raw if gain == 1.0 else divided_by(raw, gain)
        if spec.out is None:
            result.copy_(found)
        else:
            cast_into(found, spec.out, result, seed, Site.OUTPUT)

    followed(write, finish, out, cast_into)


def multiply(a: Tensor | ScaledOperand, b: Tensor | ScaledOperand, spec: GemmSpec, seed: int) -> tuple[Tensor, object]:
    """``S = R_outer(S + X * s)`` over the groups of terms that share scales, S from +0, in float32; and what ran.

    ``X`` is the product of both scales, rounded to binary32, ``s`` what the inner accumulator makes of a group's
    elements. Scales of whole tensors multiply the last S, once more rounded.

    Raises:
        UnsupportedSpec: for an inner accumulator whose totals have more than 29 bits, and wider outer ones than fp32.
    """
    accumulator = spec.accumulator
    assert isinstance(accumulator, Scaled)
    inner = inner_spec(spec)
    left, right = (x.elements if isinstance(x, ScaledOperand) else x for x in (a, b))
    size = left.shape[-1]
    group = _group(a, b, accumulator, size)
    total: Tensor | None = None
    ran: object = ""
    for index, start in enumerate(range(0, size, group)):
        part = slice(start, start + group)
        bits = derive_seed(seed, index) if inner.is_stochastic or accumulator.outer.is_stochastic else 0
        found, ran = general_matmul(left[..., part], right[..., part, :], inner, bits, torch.float32, None, None)
        total = _added(total, found, _scale_at(a, b, start), accumulator.outer, bits)
    if total is None:
        total = general_matmul(left, right, inner, 0, torch.float32, None, None)[0]
    seconds = [x.second for x in (a, b) if isinstance(x, ScaledOperand) and x.second is not None]
    if seconds:
        total = _added(None, total, math.prod(seconds[1:], start=seconds[0]), accumulator.outer, seed)
    if total.is_cuda or not bool(total.sum().isfinite()):
        total.masked_fill_(total.isnan(), math.nan)  # quiet and positive, as everywhere
    return total, ran


def _group(a: object, b: object, accumulator: Scaled, size: int) -> int:
    terms = [x.terms for x in (a, b) if isinstance(x, ScaledOperand) and x.terms < size]
    found = accumulator.n or (math.gcd(*terms) if terms else size)
    return max(1, min(found, size) if size else 1)


def _scale_at(a: object, b: object, start: int) -> Tensor:
    """The product of the scales of the terms from ``start`` on, (..., M, N) or smaller, rounded to binary32."""
    factors = []
    for x, across in ((a, -2), (b, -1)):
        if isinstance(x, ScaledOperand):
            one = x.scales.narrow(x.dim, min(start // x.terms, x.scales.shape[x.dim] - 1), 1)
            factors.append(one.repeat_interleave(x.rows, across).narrow(across, 0, x.elements.shape[across]))
    return math.prod(factors[1:], start=factors[0])


def _added(total: Tensor | None, found: Tensor, scale: Tensor, outer: Cast, seed: int) -> Tensor:
    """``R_outer(total + found * scale)`` from the exact value, float32; ``total`` None is +0."""
    nearest = outer.format == FP32 and outer.rounding == Rounding.RNE
    if nearest and total is None and found.dtype == torch.float32:
        return found.mul_(scale).add_(0.0)
    product = found.double().mul_(scale)  # exact: at most 29 and 24 bits
    if nearest:
        return (product + 0.0).float() if total is None else _sum_in_fp32(total, product)
    start = torch.zeros((), dtype=torch.float64, device=found.device) if total is None else total.double()
    odd = _rounded_to_odd(start, product, start + product)
    return quantize_eager.quantize(odd, outer, seed, Site.ACCUMULATE, widen=True).float()


def _sum_in_fp32(total: Tensor, product: Tensor) -> Tensor:
    """total + product, binary32 and float64, rounded once to binary32."""
    wide = total + product
    result = wide.float()
    # A rounding to float64 first is no rounding to binary32 where it makes a tie, or where that has fewer bits.
    tie = (wide.view(torch.int64) & 0x1FFFFFFF).eq(0x10000000)
    where = tie.logical_or_(result.abs() < 2.0**-125).flatten().nonzero()[:, 0]
    if len(where):
        x, y, s = (t.reshape(-1)[where] for t in (total.double(), product, wide))
        result.view(-1)[where] = _rounded_to_odd(x, y, s).float()
    return result


def _rounded_to_odd(x: Tensor, y: Tensor, s: Tensor) -> Tensor:
    """x + y in float64, an inexact sum with an odd last bit, which a rounding to fewer bits takes for what it is."""
    z = s - x
    error = (x - (s - z)) + (y - z)
    bits = s.view(torch.int64)
    inexact = (error != 0) & error.isfinite() & s.isfinite() & (bits & 1 == 0)
    toward = torch.where((error > 0) == (s > 0), 1, -1)
    return torch.where(inexact, bits + toward, bits).view(torch.float64)
