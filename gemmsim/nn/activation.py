"""Activation modules: ``torch.nn``'s with ``spec``."""

from __future__ import annotations

from torch import Tensor, nn

from gemmsim._keywords import takes_spec
from gemmsim.functional import qgelu, qsilu, qsoftmax
from gemmsim.ops.rowwise.formats import QGELUFormats, QSoftmaxFormats, RowFormatsLike

from .layer_base import WithFormats

__all__ = ["QGELU", "QSiLU", "QSoftmax"]


class QSoftmax(WithFormats, nn.Softmax):
    """``torch.nn.Softmax`` whose steps are rounded as ``spec`` says: a ``QSoftmaxFormats``, or one format for every
    step.

    The values, errors and special values are those of ``gemmsim.qsoftmax``; None computes PyTorch's own softmax.

    Example:
        >>> gs.nn.QSoftmax(-1, spec="e4m3")(torch.tensor([0.0, 1.0, 2.0]))
        tensor([0.0938, 0.2500, 0.6667])
    """

    _KIND = QSoftmaxFormats

    @takes_spec("formats")
    def __init__(self, dim: int | None = None, *, spec: RowFormatsLike | None = None) -> None:
        super().__init__(dim)
        self.formats = self._read(spec)

    def forward(self, input: Tensor) -> Tensor:
        return qsoftmax(input, self.dim, self.formats)


class QGELU(WithFormats, nn.GELU):
    """``torch.nn.GELU`` whose steps are rounded as ``spec`` says: a ``QGELUFormats``, or one format for every step.

    The values, errors and special values are those of ``gemmsim.qgelu``; None computes PyTorch's own GELU.

    Example:
        >>> gs.nn.QGELU(spec="e4m3")(torch.tensor([-1.0, 0.5, 2.0]))
        tensor([-0.1562,  0.3438,  2.0000])
    """

    _KIND = QGELUFormats

    @takes_spec("formats")
    def __init__(self, approximate: str = "none", *, spec: RowFormatsLike | None = None) -> None:
        super().__init__(approximate)
        self.formats = self._read(spec)

    def forward(self, input: Tensor) -> Tensor:
        return qgelu(input, self.formats, self.approximate)


class QSiLU(WithFormats, nn.SiLU):
    """``torch.nn.SiLU`` whose steps are rounded as ``spec`` says: a ``QGELUFormats``, or one format for every step.

    The values, errors and special values are those of ``gemmsim.qsilu``; None computes PyTorch's own SiLU.
    ``inplace`` is accepted and has no effect: the result is always a new tensor.

    Example:
        >>> gs.nn.QSiLU(spec="e4m3")(torch.tensor([-1.0, 0.5, 2.0]))
        tensor([-0.2812,  0.3125,  1.7500])
    """

    _KIND = QGELUFormats

    @takes_spec("formats")
    def __init__(self, inplace: bool = False, *, spec: RowFormatsLike | None = None) -> None:
        super().__init__(inplace)
        self.formats = self._read(spec)

    def forward(self, input: Tensor) -> Tensor:
        return qsilu(input, self.formats)
