"""Normalisation, activation, pooling and embedding modules: ``torch.nn``'s with ``formats`` or quantisers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from torch import Tensor, nn

from gemmsim.functional import (
    qadaptive_avgpool,
    qavgpool,
    qbatchnorm,
    qembedding,
    qgelu,
    qgroupnorm,
    qlayernorm,
    qrmsnorm,
    qsilu,
    qsoftmax,
)
from gemmsim.ops import DTypeError
from gemmsim.ops.affine_formats import QuantLike
from gemmsim.ops.errors import message
from gemmsim.ops.row_formats import QGELUFormats, QLayerNormFormats, QSoftmaxFormats, RowFormatsLike, read_quant

from .emulated import Emulated

__all__ = [
    "QAdaptiveAvgPool2d",
    "QAvgPool1d",
    "QAvgPool2d",
    "QAvgPool3d",
    "QBatchNorm1d",
    "QBatchNorm2d",
    "QBatchNorm3d",
    "QEmbedding",
    "QGELU",
    "QGroupNorm",
    "QLayerNorm",
    "QRMSNorm",
    "QSiLU",
    "QSoftmax",
    "adopt",
]

_M = TypeVar("_M", bound=nn.Module)
_F = TypeVar("_F", bound="_Formats")
_Q = TypeVar("_Q", bound="_Quants")


def adopt(cls: type[_M], module: nn.Module) -> _M:
    """A ``cls`` that shares ``module``'s parameters, buffers and settings; ``DTypeError`` for another kind."""
    base = next(c for c in cls.__mro__ if c.__module__.startswith("torch.nn.modules"))
    if not isinstance(module, base):
        asked = f"{cls.__name__}.from_float of a {type(module).__name__}"
        raise DTypeError(message(asked, f"a torch.nn.{base.__name__}", "Give such a module."))
    new = cls.__new__(cls)
    new.__dict__.update({k: dict(v) if isinstance(v, dict) else v for k, v in module.__dict__.items()})
    return new


def _bias(bias: bool) -> dict[str, Any]:
    """``bias`` as torch.nn takes it: older releases know no such argument and always have one."""
    return {} if bias else {"bias": bias}


class _Formats(Emulated):
    """Modules whose last argument is ``formats``."""

    formats: Any

    @classmethod
    def from_float(cls: type[_F], module: nn.Module, formats: Any = None) -> _F:
        """This module in place of ``module``, of which it shares parameters, buffers and settings."""
        new = adopt(cls, module)  # type: ignore[type-var]
        new.formats = cls._read(formats)
        return new

    def _is_torchs_own(self) -> bool:
        native: bool = self.formats.plan.is_native
        return native

    @classmethod
    def _read(cls, formats: Any) -> Any:
        return cls._KIND.of(formats)  # type: ignore[attr-defined]

    def extra_repr(self) -> str:
        """The arguments of torch's module, and the formats."""
        first = super().extra_repr()  # type: ignore[misc]
        return f"{first}, formats={self.formats!r}" if first else f"formats={self.formats!r}"


class _Quants(Emulated):
    """Modules whose last arguments are ``fwd_quant`` and ``bwd_quant``."""

    fwd_quant: Any
    bwd_quant: Any

    def _put(self, fwd_quant: QuantLike | None, bwd_quant: QuantLike | None) -> None:
        owner = type(self).__name__
        self.fwd_quant = read_quant(owner, "fwd_quant", fwd_quant)
        self.bwd_quant = read_quant(owner, "bwd_quant", bwd_quant)

    @classmethod
    def from_float(
        cls: type[_Q], module: nn.Module, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None
    ) -> _Q:
        """This module in place of ``module``, of which it shares parameters, buffers and settings."""
        new = adopt(cls, module)  # type: ignore[type-var]
        new._put(fwd_quant, bwd_quant)
        return new

    def extra_repr(self) -> str:
        """The arguments of torch's module, and the quantisers."""
        first = super().extra_repr()  # type: ignore[misc]
        quants = [
            f"{n}={v!s}" for n, v in (("fwd_quant", self.fwd_quant), ("bwd_quant", self.bwd_quant)) if v is not None
        ]
        return ", ".join([first, *quants] if first else quants)

    def _is_torchs_own(self) -> bool:
        return self.fwd_quant is None and self.bwd_quant is None

    @property
    def _steps(self) -> dict[str, Any]:
        return {"fwd_quant": self.fwd_quant, "bwd_quant": self.bwd_quant}


class QLayerNorm(_Formats, nn.LayerNorm):
    """``torch.nn.LayerNorm`` with ``formats`` (``QLayerNormFormats``): ``gemmsim.qlayernorm`` of its parameters."""

    _KIND = QLayerNormFormats

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        device: Any = None, dtype: Any = None, *, formats: RowFormatsLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)
        self.formats = self._read(formats)

    def forward(self, input: Tensor) -> Tensor:
        return qlayernorm(input, self.normalized_shape, self.weight, self.bias, self.eps, self.formats)


class QRMSNorm(_Formats, nn.RMSNorm):
    """``torch.nn.RMSNorm`` with ``formats`` (``QLayerNormFormats``)."""

    _KIND = QLayerNormFormats

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True, device: Any = None,
        dtype: Any = None, *, formats: RowFormatsLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)
        self.formats = self._read(formats)

    def forward(self, x: Tensor) -> Tensor:
        return qrmsnorm(x, self.normalized_shape, self.weight, self.eps, self.formats)


class QGroupNorm(_Formats, nn.GroupNorm):
    """``torch.nn.GroupNorm`` with ``formats`` (``QLayerNormFormats``)."""

    _KIND = QLayerNormFormats

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True, formats: RowFormatsLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_groups, num_channels, eps, affine, device, dtype, **_bias(bias))
        self.formats = self._read(formats)

    def forward(self, input: Tensor) -> Tensor:
        return qgroupnorm(input, self.num_groups, self.weight, self.bias, self.eps, self.formats)


class QSoftmax(_Formats, nn.Softmax):
    """``torch.nn.Softmax`` with ``formats`` (``QSoftmaxFormats``)."""

    _KIND = QSoftmaxFormats

    def __init__(self, dim: int | None = None, *, formats: RowFormatsLike | None = None) -> None:
        super().__init__(dim)
        self.formats = self._read(formats)

    def forward(self, input: Tensor) -> Tensor:
        return qsoftmax(input, self.dim, self.formats)


class QGELU(_Formats, nn.GELU):
    """``torch.nn.GELU`` with ``formats`` (``QGELUFormats``)."""

    _KIND = QGELUFormats

    def __init__(self, approximate: str = "none", *, formats: RowFormatsLike | None = None) -> None:
        super().__init__(approximate)
        self.formats = self._read(formats)

    def forward(self, input: Tensor) -> Tensor:
        return qgelu(input, self.formats, self.approximate)


class QSiLU(_Formats, nn.SiLU):
    """``torch.nn.SiLU`` with ``formats`` (``QGELUFormats``). ``inplace`` is accepted and changes nothing."""

    _KIND = QGELUFormats

    def __init__(self, inplace: bool = False, *, formats: RowFormatsLike | None = None) -> None:
        super().__init__(inplace)
        self.formats = self._read(formats)

    def forward(self, input: Tensor) -> Tensor:
        return qsilu(input, self.formats)


class _QBatchNorm(_Quants):
    """``torch.nn.BatchNorm`` of one rank with quantisers: ``gemmsim.qbatchnorm`` of its parameters and buffers."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True,
        fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None,
    ) -> None:  # fmt: skip
        first = (num_features, eps, momentum, affine, track_running_stats)
        super().__init__(*first, device, dtype, **_bias(bias))  # type: ignore[call-arg]
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
    """``torch.nn.BatchNorm1d`` with ``fwd_quant`` and ``bwd_quant``; (N, C) or (N, C, L)."""


class QBatchNorm2d(_QBatchNorm, nn.BatchNorm2d):
    """``torch.nn.BatchNorm2d`` with ``fwd_quant`` and ``bwd_quant``."""


class QBatchNorm3d(_QBatchNorm, nn.BatchNorm3d):
    """``torch.nn.BatchNorm3d`` with ``fwd_quant`` and ``bwd_quant``."""


class QAvgPool1d(_Quants, nn.AvgPool1d):
    """``torch.nn.AvgPool1d`` with ``fwd_quant`` and ``bwd_quant``."""

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


class _QAvgPool(_Quants):
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
    """``torch.nn.AvgPool2d`` with ``fwd_quant`` and ``bwd_quant``."""


class QAvgPool3d(_QAvgPool, nn.AvgPool3d):
    """``torch.nn.AvgPool3d`` with ``fwd_quant`` and ``bwd_quant``."""

    _RANK = 3


class QAdaptiveAvgPool2d(_Quants, nn.AdaptiveAvgPool2d):
    """``torch.nn.AdaptiveAvgPool2d`` with ``fwd_quant`` and ``bwd_quant``."""

    def __init__(
        self, output_size: int | Sequence[int | None] | None, *, fwd_quant: QuantLike | None = None,
        bwd_quant: QuantLike | None = None,
    ) -> None:  # fmt: skip
        super().__init__(output_size)  # type: ignore[arg-type]
        self._put(fwd_quant, bwd_quant)

    def forward(self, input: Tensor) -> Tensor:
        return qadaptive_avgpool(input, self.output_size, **self._steps)


class QEmbedding(_Quants, nn.Embedding):
    """``torch.nn.Embedding`` with ``fwd_quant`` (of the weight) and ``bwd_quant`` (of its gradient's sums)."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
        _freeze: bool = False, device: Any = None, dtype: Any = None, *, fwd_quant: QuantLike | None = None,
        bwd_quant: QuantLike | None = None,
    ) -> None:  # fmt: skip
        more = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, _freeze, device, dtype)
        super().__init__(num_embeddings, embedding_dim, *more)
        self._put(fwd_quant, bwd_quant)

    def forward(self, input: Tensor) -> Tensor:
        settings = (self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)
        return qembedding(input, self.weight, *settings, **self._steps)
