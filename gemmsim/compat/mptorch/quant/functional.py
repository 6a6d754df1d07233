"""mptorch's functional operations. Differentiating a gradient raises ``GradError``."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

import gemmsim as gs

from .formats import (
    QAffineFormats,
    QGELUFormats,
    QLayerNormFormats,
    QSoftmaxFormats,
    Quant,
    identity,
    native_quant,
)

__all__ = [
    "qadd",
    "qdiv",
    "qgelu",
    "qlayernorm",
    "qlinear",
    "qmatmul",
    "qmean",
    "qmm",
    "qmul",
    "qpow",
    "qsoftmax",
    "qsqrt",
    "qsum",
]


def qlinear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, formats: QAffineFormats | None = None
) -> Tensor:  # fmt: skip
    """``gemmsim.qlinear``: any leading dimensions, flattened first."""
    return gs.qlinear(input, weight, bias, formats)


def qmm(input: Tensor, mat2: Tensor, formats: QAffineFormats | None = None) -> Tensor:
    """``gemmsim.qmm``; ``mat2`` is the weight of ``formats``."""
    return gs.qmm(input, mat2, formats)


def qmatmul(input: Tensor, other: Tensor, formats: QAffineFormats | None = None) -> Tensor:
    """``gemmsim.qmatmul``; ``other`` is the weight of ``formats``."""
    return gs.qmatmul(input, other, formats)


def qadd(x: Tensor, y: Tensor, fwd_quant: Quant = identity, bwd_quant: Quant = identity) -> Tensor:
    """``gemmsim.qadd``."""
    return gs.qadd(x, y, native_quant(fwd_quant), native_quant(bwd_quant))


def qmul(x: Tensor, y: Tensor, fwd_quant: Quant = identity, bwd_quant: Quant = identity) -> Tensor:
    """``gemmsim.qmul``."""
    return gs.qmul(x, y, native_quant(fwd_quant), native_quant(bwd_quant))


def qdiv(x: Tensor, y: Tensor, fwd_quant: Quant = identity, bwd_quant: Quant = identity) -> Tensor:
    """``gemmsim.qdiv``."""
    return gs.qdiv(x, y, native_quant(fwd_quant), native_quant(bwd_quant))


def qsqrt(x: Tensor, fwd_quant: Quant = identity, bwd_quant: Quant = identity) -> Tensor:
    """``gemmsim.qsqrt``."""
    return gs.qsqrt(x, native_quant(fwd_quant), native_quant(bwd_quant))


def qpow(x: Tensor, fwd_quant: Quant = identity, bwd_quant: Quant = identity, n: float | Tensor = 2.0) -> Tensor:
    """``gemmsim.qpow``; ``n`` a number, or a tensor whose shape broadcasts with ``x``'s."""
    return gs.qpow(x, native_quant(fwd_quant), native_quant(bwd_quant), n)


def qsum(x: Tensor, dim: int | Sequence[int] | None = None, quant: Quant = identity, keepdim: bool = False) -> Tensor:
    """``gemmsim.qsum``."""
    return gs.qsum(x, dim, native_quant(quant), keepdim)


def qmean(
    x: Tensor,
    fwd_quant: Quant = identity,
    bwd_quant: Quant = identity,
    dim: int | Sequence[int] | None = 3,
    keepdim: bool = False,
) -> Tensor:
    """``gemmsim.qmean``, over dimension 3 by default."""
    return gs.qmean(x, native_quant(fwd_quant), native_quant(bwd_quant), dim, keepdim)


def qlayernorm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    formats: QLayerNormFormats | None = None,
) -> Tensor:
    """``gemmsim.qlayernorm``."""
    return gs.qlayernorm(x, normalized_shape, weight, bias, eps, formats)


def qsoftmax(x: Tensor, dim: int | None = None, formats: QSoftmaxFormats | None = None) -> Tensor:
    """``gemmsim.qsoftmax``; ``dim`` None is the last."""
    return gs.qsoftmax(x, dim, formats)


def qgelu(x: Tensor, formats: QGELUFormats | None = None, approximate: str = "none") -> Tensor:
    """``gemmsim.qgelu``."""
    return gs.qgelu(x, formats, approximate)
