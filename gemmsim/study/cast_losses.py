"""What the casts and the sum of a product lose: operands that become zero or saturate, and the bias of the result."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim.formats import E8M0, BlockFormat, Cast, ScaledCast, ScaledCastRule, ScaleRule

from .errors import StudyError

__all__ = ["CastLosses", "ProductLosses", "cast_losses", "product_losses"]

#: Relative distance from a format's largest number that rounding of scales to binary32 may make.
_SLACK = 1 + 2.0**-20
#: The seed of the signs before a transform here; those of a recipe are others, with the same distribution.
_SIGNS = 47


@dataclass(frozen=True)
class CastLosses:
    """Of the elements of a tensor that are not zero: how many, how many became zero, how many were out of range."""

    nonzero: int
    zeros: int
    saturated: int


@dataclass(frozen=True)
class ProductLosses:
    """Both operands together, and of the product, against float64: mean of e sign(t) over mean of |t|, and norm(e) over
    norm(t). None where the product is not finite or the true one is zero."""

    operands: CastLosses
    bias: float | None
    error: float | None


def cast_losses(x: Tensor, cast: object, seed: int = 0) -> CastLosses:
    """What the cast of an operand loses.

    Of a cast with a Hadamard transform the elements are those behind the transform, whose signs are drawn here. An
    element is out of range where its magnitude over its scale, times the gain, exceeds the format's largest number.

    Args:
        x: (rows, terms), float32; the sum runs along the last dimension.
        cast: of an operand of a ``GemmSpec``: a cast, a scaled cast, a block format under powers of two, None.
        seed: of random bits.

    Raises:
        StudyError: for another cast.
    """
    scaled = _as_scaled(cast)
    if scaled is None and not isinstance(cast, Cast):
        if cast is None:
            return CastLosses(int((x != 0).sum()), 0, 0)
        raise StudyError(f"cast {cast}; allowed: casts, scaled casts, block formats under powers of two.")
    if scaled is None:
        assert isinstance(cast, Cast)
        limits: Tensor = torch.tensor(float(cast.format.max), dtype=torch.float64)
        kept, gain = gs.quantize(x, cast, seed=seed), 1.0
    else:
        if scaled.stored is not None:
            x = gs.quantize(x, replace(scaled.stored, dim=-2), seed=seed)
        if scaled.hadamard:
            x = _transformed(x, scaled.hadamard)
        alone = replace(scaled, stored=None, hadamard=0, signs=None)
        limits, gain = _scales(x, alone) * float(alone.cast.format.max), alone.gain
        kept = gs.quantize(x, alone, seed=seed)
    there = x != 0
    return CastLosses(
        int(there.sum()),
        int(((kept == 0) & there).sum()),
        int((x.double().abs() * gain > limits * _SLACK).sum()),
    )


def product_losses(a: Tensor, b: Tensor, spec: gs.GemmSpec, seed: int = 0) -> ProductLosses:
    """What the product ``a @ b.T`` under ``spec`` loses.

    Args:
        a: (M, K), float32.
        b: (N, K), float32.
        spec: of the product.
        seed: of random bits.
    """
    left, right = cast_losses(a, spec.a, seed), cast_losses(b, spec.b, seed + 1)
    operands = CastLosses(left.nonzero + right.nonzero, left.zeros + right.zeros, left.saturated + right.saturated)
    truth = a.double() @ b.double().mT
    wrong = gs.qmatmul(a, b.mT, spec, seed=seed).double() - truth
    size = float(truth.abs().sum())
    if not size or not bool(wrong.isfinite().all()):
        return ProductLosses(operands, None, None)
    bias = float((wrong * truth.sign()).sum()) / size
    return ProductLosses(operands, bias, float(wrong.norm() / truth.norm()))


def _as_scaled(cast: object) -> ScaledCast | None:
    """The scaled cast with the scales of a block format; None for what has no scales."""
    if isinstance(cast, ScaledCast):
        return cast
    if not isinstance(cast, BlockFormat):
        return None
    rules = {ScaleRule.FLOOR: (ScaledCastRule.FLOOR, False), ScaleRule.RCEIL: (ScaledCastRule.DIVIDE, True)}
    if cast.rule not in rules or cast.scale != E8M0:
        raise StudyError(f"block format {cast}; allowed: scales of powers of two, rounded down or up (rceil).")
    rule, power = rules[cast.rule]
    element = gs.formats.parse_cast(f"{cast.element}/sat")
    return ScaledCast(element, terms=cast.block_size, rule=rule, power=power)


def _transformed(x: Tensor, n: int) -> Tensor:
    """The orthonormal Hadamard transform of each ``n`` terms after random signs; missing terms are zeros."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < n:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    signs = torch.randint(2, (n,), generator=torch.Generator().manual_seed(_SIGNS)).double() * 2 - 1
    padded = torch.nn.functional.pad(x.double(), (0, -x.shape[-1] % n))
    groups = padded.reshape(len(x), -1, n) * signs
    return (groups @ matrix * n**-0.5).flatten(1).float()


def _scales(x: Tensor, fmt: ScaledCast) -> Tensor:
    """What an element of each block stands for where it is 1, float64, a number for each element of ``x``."""
    rows, terms = fmt.rows or len(x), fmt.terms or x.shape[1]
    m, n = -(-len(x) // rows), -(-x.shape[1] // terms)
    padded = torch.nn.functional.pad(x.double().abs(), (0, n * terms - x.shape[1], 0, m * rows - len(x)))
    amax = padded.reshape(m, rows, n, terms).amax((1, 3))
    if fmt.least:
        amax = amax.clamp(min=fmt.least)
    found = _scales_of(torch.where(amax > 0, amax, amax.max().clamp(min=2.0**-126)), fmt)
    return found.repeat_interleave(rows, 0).repeat_interleave(terms, 1)[: len(x), : x.shape[1]]


def _scales_of(amax: Tensor, fmt: ScaledCast) -> Tensor:
    if fmt.rule is ScaledCastRule.FLOOR:
        assert fmt.block_format is not None
        return torch.exp2(torch.frexp(amax).exponent.double() - 1 - fmt.block_format.emax)
    if fmt.rule is ScaledCastRule.NVFP4:
        most = gs.formats.E4M3.max
        second = float(amax.max()) / (fmt.largest * float(most))
        return gs.quantize((amax / fmt.largest / second).clamp(2.0**-6, float(most)).float(), "e4m3").double() * second
    found = amax / fmt.largest
    return torch.exp2(torch.ceil(torch.log2(found) - 2.0**-20)) if fmt.power else found
