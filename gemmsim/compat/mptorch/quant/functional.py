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
    """``gemmsim.qlinear`` with mptorch's formats. It flattens leading dimensions first.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> formats = quant.QAffineFormats(fwd_mac=FloatingPoint(5, 10), input_quant=(FloatingPoint(4, 3), "nearest"))
        >>> quant.qlinear(torch.tensor([[0.3, 0.7]]), torch.ones(1, 2), formats=formats)
        tensor([[1.]])
    """
    return gs.qlinear(input, weight, bias, formats)


def qmm(input: Tensor, mat2: Tensor, formats: QAffineFormats | None = None) -> Tensor:
    """``gemmsim.qmm`` with mptorch's formats; ``mat2`` is the weight of ``formats``.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> formats = quant.QAffineFormats(fwd_mac=FloatingPoint(5, 2))
        >>> quant.qmm(torch.ones(1, 9), torch.ones(9, 1), formats)  # 8 + 1 rounds to 8
        tensor([[8.]])
    """
    return gs.qmm(input, mat2, formats)


def qmatmul(input: Tensor, other: Tensor, formats: QAffineFormats | None = None) -> Tensor:
    """``gemmsim.qmatmul`` with mptorch's formats; ``other`` is the weight of ``formats``.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> formats = quant.QAffineFormats(fwd_mac=FloatingPoint(5, 2))
        >>> quant.qmatmul(torch.ones(2, 1, 9), torch.ones(9, 1), formats).flatten()  # 8 + 1 rounds to 8
        tensor([8., 8.])
    """
    return gs.qmatmul(input, other, formats)


def qadd(x: Tensor, y: Tensor, fwd_quant: Quant = identity, bwd_quant: Quant = identity) -> Tensor:
    """``gemmsim.qadd`` with mptorch's quantisers: ``fwd_quant`` rounds the sum, ``bwd_quant`` the gradients.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> quant.qadd(torch.tensor([8.0]), torch.tensor([0.3]), (FloatingPoint(4, 3), "nearest"))
        tensor([8.])
    """
    return gs.qadd(x, y, native_quant(fwd_quant), native_quant(bwd_quant))


def qmul(x: Tensor, y: Tensor, fwd_quant: Quant = identity, bwd_quant: Quant = identity) -> Tensor:
    """``gemmsim.qmul`` with mptorch's quantisers: ``fwd_quant`` rounds the product, ``bwd_quant`` the gradients.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> quant.qmul(torch.tensor([1.1]), torch.tensor([3.0]), (FloatingPoint(4, 3), "nearest"))
        tensor([3.2500])
    """
    return gs.qmul(x, y, native_quant(fwd_quant), native_quant(bwd_quant))


def qdiv(x: Tensor, y: Tensor, fwd_quant: Quant = identity, bwd_quant: Quant = identity) -> Tensor:
    """``gemmsim.qdiv`` with mptorch's quantisers: ``fwd_quant`` rounds the quotient, ``bwd_quant`` the gradients.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> quant.qdiv(torch.tensor([1.0]), torch.tensor([3.0]), (FloatingPoint(4, 3), "nearest"))
        tensor([0.3438])
    """
    return gs.qdiv(x, y, native_quant(fwd_quant), native_quant(bwd_quant))


def qsqrt(x: Tensor, fwd_quant: Quant = identity, bwd_quant: Quant = identity) -> Tensor:
    """``gemmsim.qsqrt`` with mptorch's quantisers: ``fwd_quant`` rounds the root, ``bwd_quant`` the gradient.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> quant.qsqrt(torch.tensor([2.0]), (FloatingPoint(4, 3), "nearest"))
        tensor([1.3750])
    """
    return gs.qsqrt(x, native_quant(fwd_quant), native_quant(bwd_quant))


def qpow(x: Tensor, fwd_quant: Quant = identity, bwd_quant: Quant = identity, n: float | Tensor = 2.0) -> Tensor:
    """``gemmsim.qpow`` with mptorch's quantisers; ``n`` is a number, or a tensor that broadcasts with ``x``.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> quant.qpow(torch.tensor([1.1, 3.0]), (FloatingPoint(4, 3), "nearest"), n=3)
        tensor([ 1.3750, 28.0000])
    """
    return gs.qpow(x, native_quant(fwd_quant), native_quant(bwd_quant), n)


def qsum(x: Tensor, dim: int | Sequence[int] | None = None, quant: Quant = identity, keepdim: bool = False) -> Tensor:
    """``gemmsim.qsum`` with mptorch's quantiser, which rounds after each addition.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> quant.qsum(torch.ones(9), quant=(FloatingPoint(5, 2), "nearest"))  # 8 + 1 rounds to 8
        tensor(8.)
    """
    return gs.qsum(x, dim, native_quant(quant), keepdim)


def qmean(
    x: Tensor,
    fwd_quant: Quant = identity,
    bwd_quant: Quant = identity,
    dim: int | Sequence[int] | None = 3,
    keepdim: bool = False,
) -> Tensor:
    """``gemmsim.qmean`` with mptorch's quantisers, over dimension 3 by default.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> quant.qmean(torch.tensor([1.0, 2.0, 2.0]), (FloatingPoint(4, 3), "nearest"), dim=0)
        tensor(1.6250)
    """
    return gs.qmean(x, native_quant(fwd_quant), native_quant(bwd_quant), dim, keepdim)


def qlayernorm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    formats: QLayerNormFormats | None = None,
) -> Tensor:
    """``gemmsim.qlayernorm`` with mptorch's formats.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> formats = quant.QLayerNormFormats(*[FloatingPoint(5, 4)] * 4)
        >>> quant.qlayernorm(torch.tensor([1.0, 2.0, 4.0]), 3, formats=formats)
        tensor([-1.1250, -0.2969,  1.3125])
    """
    return gs.qlayernorm(x, normalized_shape, weight, bias, eps, formats)


def qsoftmax(x: Tensor, dim: int | None = None, formats: QSoftmaxFormats | None = None) -> Tensor:
    """``gemmsim.qsoftmax`` with mptorch's formats; ``dim`` None is the last dimension.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> formats = quant.QSoftmaxFormats(*[FloatingPoint(5, 4)] * 3)
        >>> quant.qsoftmax(torch.tensor([0.0, 1.0]), formats=formats)
        tensor([0.2727, 0.7273])
    """
    return gs.qsoftmax(x, dim, formats)


def qgelu(x: Tensor, formats: QGELUFormats | None = None, approximate: str = "none") -> Tensor:
    """``gemmsim.qgelu`` with mptorch's formats.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> formats = quant.QGELUFormats(output_quant=(FloatingPoint(4, 3), "nearest"))
        >>> quant.qgelu(torch.tensor([1.0]), formats)
        tensor([0.8125])
    """
    return gs.qgelu(x, formats, approximate)
