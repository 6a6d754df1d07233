"""Normalisation modules: ``torch.nn``'s with ``spec``, and batch normalisation with quantisers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from gemmsim._keywords import takes_spec
from gemmsim.functional import qbatchnorm, qgroupnorm, qlayernorm, qrmsnorm
from gemmsim.ops.product.affine_formats import QuantLike
from gemmsim.ops.rowwise.formats import QLayerNormFormats, RowFormatsLike

from .layer_base import WithFormats, WithQuants, bias_argument

__all__ = ["QBatchNorm1d", "QBatchNorm2d", "QBatchNorm3d", "QGroupNorm", "QLayerNorm", "QRMSNorm"]


class QLayerNorm(WithFormats, nn.LayerNorm):
    """``torch.nn.LayerNorm`` whose steps are rounded as ``spec`` says: a ``QLayerNormFormats``, or one format for
    every step.

    The values, errors and special values are those of ``gemmsim.qlayernorm`` with the layer's parameters.

    Example:
        >>> gs.nn.QLayerNorm(4, spec="e4m3")(torch.tensor([1.0, 2.0, 3.0, 4.0])).detach()
        tensor([-1.3750, -0.4375,  0.4375,  1.3750])
    """

    _KIND = QLayerNormFormats

    @takes_spec("formats")
    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        device: Any = None, dtype: Any = None, *, spec: RowFormatsLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)
        self.formats = self._read(spec)

    def forward(self, input: Tensor) -> Tensor:
        return qlayernorm(input, self.normalized_shape, self.weight, self.bias, self.eps, self.formats)


class QRMSNorm(WithFormats, nn.RMSNorm):
    """``torch.nn.RMSNorm`` whose steps are rounded as ``spec`` says: a ``QLayerNormFormats``, or one format for every
    step.

    The values, errors and special values are those of ``gemmsim.qrmsnorm`` with the layer's parameters.

    Example:
        >>> gs.nn.QRMSNorm(4, spec="e4m3")(torch.tensor([1.0, 2.0, 3.0, 4.0])).detach()
        tensor([0.3750, 0.7500, 1.1250, 1.5000])
    """

    _KIND = QLayerNormFormats

    @takes_spec("formats")
    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True, device: Any = None,
        dtype: Any = None, *, spec: RowFormatsLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)
        self.formats = self._read(spec)

    def forward(self, x: Tensor) -> Tensor:
        return qrmsnorm(x, self.normalized_shape, self.weight, self.eps, self.formats)


class QGroupNorm(WithFormats, nn.GroupNorm):
    """``torch.nn.GroupNorm`` whose steps are rounded as ``spec`` says: a ``QLayerNormFormats``, or one format for
    every step.

    The values, errors and special values are those of ``gemmsim.qgroupnorm`` with the layer's parameters.

    Example:
        >>> layer = gs.nn.QGroupNorm(2, 4, spec="e4m3")  # two groups of two channels
        >>> layer(torch.tensor([[1.0, 2.0, 30.0, 40.0]])).detach()
        tensor([[-1.0000,  1.0000, -1.2500,  0.8125]])
    """

    _KIND = QLayerNormFormats

    @takes_spec("formats")
    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True, spec: RowFormatsLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_groups, num_channels, eps, affine, device, dtype, **bias_argument(bias))
        self.formats = self._read(spec)

    def forward(self, input: Tensor) -> Tensor:
        return qgroupnorm(input, self.num_groups, self.weight, self.bias, self.eps, self.formats)


class _QBatchNorm(WithQuants):
    """``torch.nn.BatchNorm`` of one rank with quantisers: ``gemmsim.qbatchnorm`` of its parameters and buffers."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True,
        fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None,
    ) -> None:  # fmt: skip
        first = (num_features, eps, momentum, affine, track_running_stats)
        super().__init__(*first, device, dtype, **bias_argument(bias))  # type: ignore[call-arg]
        self._put(fwd_quant, bwd_quant)

    def forward(self: Any, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        tracked = self.training and self.track_running_stats
        if tracked and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        keep = not self.training or self.track_running_stats
        mean, var = (self.running_mean, self.running_var) if keep else (None, None)
        return qbatchnorm(input, mean, var, self.weight, self.bias, by_batch, factor, self.eps, **self._steps)


class QBatchNorm1d(_QBatchNorm, nn.BatchNorm1d):
    """``torch.nn.BatchNorm1d`` with ``fwd_quant`` and ``bwd_quant``, for inputs (N, C) or (N, C, L).

    The values and errors are those of ``gemmsim.qbatchnorm`` with the layer's parameters and buffers.

    Example:
        >>> layer = gs.nn.QBatchNorm1d(1, fwd_quant="e4m3")
        >>> layer(torch.tensor([[1.0], [2.0], [4.0]])).detach().flatten()
        tensor([-1.0000, -0.2031,  1.3750])
    """


class QBatchNorm2d(_QBatchNorm, nn.BatchNorm2d):
    """``torch.nn.BatchNorm2d`` with ``fwd_quant`` and ``bwd_quant``, for inputs (N, C, H, W).

    The values and errors are those of ``gemmsim.qbatchnorm`` with the layer's parameters and buffers.

    Example:
        >>> layer = gs.nn.QBatchNorm2d(1, fwd_quant="e4m3").eval()  # evaluation uses the running mean 0 and variance 1
        >>> layer(torch.tensor([[[[1.0, 3.3]]]])).detach().flatten()
        tensor([1.0000, 3.2500])
    """


class QBatchNorm3d(_QBatchNorm, nn.BatchNorm3d):
    """``torch.nn.BatchNorm3d`` with ``fwd_quant`` and ``bwd_quant``, for inputs (N, C, D, H, W).

    The values and errors are those of ``gemmsim.qbatchnorm`` with the layer's parameters and buffers.

    Example:
        >>> layer = gs.nn.QBatchNorm3d.from_float(torch.nn.BatchNorm3d(2), fwd_quant="e5m10", bwd_quant="e5m10")
        >>> layer(torch.ones(2, 2, 3, 3, 3)).shape
        torch.Size([2, 2, 3, 3, 3])
    """
