"""Pooling modules: ``torch.nn``'s with quantisers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from gemmsim.functional import qadaptive_avgpool, qavgpool
from gemmsim.ops.product.affine_formats import QuantLike

from .layer_base import WithQuants

__all__ = ["QAdaptiveAvgPool2d", "QAvgPool1d", "QAvgPool2d", "QAvgPool3d"]


class QAvgPool1d(WithQuants, nn.AvgPool1d):
    """``torch.nn.AvgPool1d`` with ``fwd_quant`` and ``bwd_quant``; values and errors are those of
    ``gemmsim.qavgpool``.

    Example:
        >>> gs.nn.QAvgPool1d(3, fwd_quant="e4m3")(torch.tensor([[1.0, 2.0, 2.0]]))  # 1.6667, rounded
        tensor([[1.6250]])
    """

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, *, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self._put(fwd_quant, bwd_quant)

    def forward(self, input: Tensor) -> Tensor:
        sizes = (self.kernel_size, self.stride, self.padding)
        return qavgpool(
            input, sizes[0], stride=sizes[1], padding=sizes[2], ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad, rank=1, **self._steps,
        )  # fmt: skip


class _QAvgPool(WithQuants):
    _RANK = 2

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None, *,
        fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)  # type: ignore[call-arg]
        self._put(fwd_quant, bwd_quant)

    def forward(self: Any, input: Tensor) -> Tensor:
        return qavgpool(
            input, self.kernel_size, stride=self.stride, padding=self.padding, ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad, divisor_override=self.divisor_override, rank=self._RANK,
            **self._steps,
        )  # fmt: skip


class QAvgPool2d(_QAvgPool, nn.AvgPool2d):
    """``torch.nn.AvgPool2d`` with ``fwd_quant`` and ``bwd_quant``; values and errors are those of
    ``gemmsim.qavgpool``.

    Example:
        >>> gs.nn.QAvgPool2d(2, fwd_quant="e2m1")(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]))  # the sum saturates at 6
        tensor([[[1.5000]]])
    """


class QAvgPool3d(_QAvgPool, nn.AvgPool3d):
    """``torch.nn.AvgPool3d`` with ``fwd_quant`` and ``bwd_quant``; values and errors are those of
    ``gemmsim.qavgpool``.

    Example:
        >>> gs.nn.QAvgPool3d(2, fwd_quant="e4m3")(torch.ones(1, 2, 4, 4, 4)).shape
        torch.Size([1, 2, 2, 2, 2])
    """

    _RANK = 3


class QAdaptiveAvgPool2d(WithQuants, nn.AdaptiveAvgPool2d):
    """``torch.nn.AdaptiveAvgPool2d`` with ``fwd_quant`` and ``bwd_quant``: values are those of
    ``gemmsim.qadaptive_avgpool``.

    Example:
        >>> gs.nn.QAdaptiveAvgPool2d(1, fwd_quant="e4m3")(torch.tensor([[[1.0, 2.0, 2.0]]]))
        tensor([[[1.6250]]])
    """

    def __init__(
        self, output_size: int | Sequence[int | None] | None, *, fwd_quant: QuantLike | None = None,
        bwd_quant: QuantLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(output_size)  # type: ignore[arg-type]
        self._put(fwd_quant, bwd_quant)

    def forward(self, input: Tensor) -> Tensor:
        return qadaptive_avgpool(input, self.output_size, **self._steps)
