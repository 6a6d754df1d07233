"""Activation modules: ``torch.nn``'s with ``spec``."""

from __future__ import annotations

from torch import Tensor, nn

from gemmsim._keywords import takes_spec
from gemmsim.functional import qgelu, qsilu, qsoftmax
from gemmsim.ops.rowwise.formats import QGELUFormats, QSoftmaxFormats, RowFormatsLike

from .layer_base import WithFormats

__all__ = ["QGELU", "QSiLU", "QSoftmax"]


class QSoftmax(WithFormats, nn.Softmax):
    """``torch.nn.Softmax`` with ``spec`` (``QSoftmaxFormats``)."""

    _KIND = QSoftmaxFormats

    @takes_spec("formats")
    def __init__(self, dim: int | None = None, *, spec: RowFormatsLike | None = None) -> None:
        super().__init__(dim)
        self.formats = self._read(spec)

    def forward(self, input: Tensor) -> Tensor:
        return qsoftmax(input, self.dim, self.formats)


class QGELU(WithFormats, nn.GELU):
    """``torch.nn.GELU`` with ``spec`` (``QGELUFormats``)."""

    _KIND = QGELUFormats

    @takes_spec("formats")
    def __init__(self, approximate: str = "none", *, spec: RowFormatsLike | None = None) -> None:
        super().__init__(approximate)
        self.formats = self._read(spec)

    def forward(self, input: Tensor) -> Tensor:
        return qgelu(input, self.formats, self.approximate)


class QSiLU(WithFormats, nn.SiLU):
    """``torch.nn.SiLU`` with ``spec`` (``QGELUFormats``). ``inplace`` is accepted and changes nothing."""

    _KIND = QGELUFormats

    @takes_spec("formats")
    def __init__(self, inplace: bool = False, *, spec: RowFormatsLike | None = None) -> None:
        super().__init__(inplace)
        self.formats = self._read(spec)

    def forward(self, input: Tensor) -> Tensor:
        return qsilu(input, self.formats)
