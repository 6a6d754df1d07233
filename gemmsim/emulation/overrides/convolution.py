"""Overrides of convolutions and transposed convolutions over one to three dimensions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.conv.arguments import ConvArguments, Geometry, conv_geometry, transposed_geometry
from gemmsim.ops.conv.convolution import affine_conv
from gemmsim.ops.errors import DeviceError, DTypeError, ShapeError

from ..autocast import autocast
from .layouts import gradient_laid, in_rows
from .library_sites import settled_as_chain
from .matmul import FLOATS
from .table import Site, overrides, packets

__all__: list[str] = []

_KINDS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")


def _geometry(n: int, x: Tensor, weight: Tensor, bias: Tensor | None, given: ConvArguments, transposed: bool) -> Any:
    """The index map; None for arguments that PyTorch refuses or that have nothing to multiply.

    PyTorch computes those or raises its own error.
    """
    tensors = (x, weight) if bias is None else (x, weight, bias)
    if any(not isinstance(t, Tensor) or t.dtype not in FLOATS or t.dtype != x.dtype for t in tensors):
        return None
    try:
        if transposed:
            return transposed_geometry("convolution", n, x, weight, bias, given)
        return conv_geometry("convolution", n, x, weight, bias, given)[0]
    except (ShapeError, DTypeError, DeviceError):
        return None


def _conv(
    at: Site, n: int, x: Tensor, weight: Tensor, bias: Tensor | None, given: ConvArguments, transposed: bool = False
) -> Any:
    """A convolution over n dimensions of a batch of images or of one image."""
    x, weight, bias = autocast(x, weight, bias)
    where = _geometry(n, x, weight, bias, given, transposed)
    if where is None or at.plan is None:
        return NotImplemented
    at = settled_as_chain(at, x.dtype)
    assert at.plan is not None
    images = x if x.dim() == n + 2 else x.unsqueeze(0)
    out = affine_conv(images, weight, bias, at.plan, at.seed, Geometry(*where), x.dtype, at.counter, at.name)
    return out if x.dim() == n + 2 else out.squeeze(0)


def _forward(n: int) -> Any:
    """The override of ``torch.conv{n}d``."""

    def conv(
        at: Site, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: Any = 1,
    ) -> Any:  # fmt: skip
        return _conv(at, n, x, weight, bias, ConvArguments(stride, padding, dilation, groups))

    return conv


def _transpose(n: int) -> Any:
    """The override of ``torch.conv_transpose{n}d``."""

    def conv_transpose(
        at: Site, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: Any = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        given = ConvArguments(stride, padding, dilation, groups, output_padding)
        return _conv(at, n, x, weight, bias, given, True)

    return conv_transpose


_NAMES = ("input", "weight", "bias")
for _n in (1, 2, 3):
    _direct, _back = getattr(torch, f"conv{_n}d"), getattr(torch, f"conv_transpose{_n}d")
    overrides(f"conv{_n}d", _direct, *packets(f"conv{_n}d"), names=_NAMES)(_forward(_n))
    overrides(f"conv_transpose{_n}d", _back, *packets(f"conv_transpose{_n}d"), names=_NAMES)(_transpose(_n))


@overrides(
    _KINDS,
    *(torch.convolution, *packets("convolution", "default"), *packets("convolution_overrideable", "default")),
    *(torch._convolution, *packets("_convolution", "default", "deprecated")),
    names=_NAMES,
)
def _convolution(*given: Any, **more: Any) -> Any:
    """Any of the six convolutions; the rank of the weight gives the number of dimensions.

    The switches of libraries at the end of the arguments have no effect.
    """
    sites, rest = given[: len(_KINDS)], given[len(_KINDS) :]
    return _any_convolution(sites, *rest, **more)


def _any_convolution(
    sites: tuple[Site, ...], x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *switches: Any, **more_switches: Any,
) -> Any:  # fmt: skip
    n = weight.dim() - 2
    if n not in (1, 2, 3) or x.dim() != weight.dim():
        return NotImplemented
    given = ConvArguments(stride, padding, dilation, groups, output_padding if transposed else 0)
    at = sites[n - 1 + 3 * bool(transposed)]
    if at.plan is None:  # a rule makes this kind native
        return NotImplemented
    return _conv(at, n, x, weight, bias, given, bool(transposed))


@overrides(_KINDS[:3], *(getattr(torch, "_convolution_mode", None), *packets("_convolution_mode")), names=_NAMES)
def _convolution_mode(
    at1: Site,
    at2: Site,
    at3: Site,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: str,
    dilation: Any,
    groups: int,
) -> Any:
    """A convolution with padding "same" or "valid"."""
    n = weight.dim() - 2
    if n not in (1, 2, 3) or x.dim() != weight.dim():
        return NotImplemented
    return _conv((at1, at2, at3)[n - 1], n, x, weight, bias, ConvArguments(stride, padding, dilation, groups))


@overrides("conv1d", torch.conv_tbc, *packets("conv_tbc", "default"), names=("input|self", "weight", "bias", "pad"))
def _conv_tbc(at: Site, x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Any:
    """A convolution of x (time, batch, channels) with a weight (positions, channels, channels of the result)."""
    if not isinstance(bias, Tensor) or x.dim() != 3 or weight.dim() != 3 or bias.dim() != 1:
        return NotImplemented
    given = ConvArguments(1, pad, 1, 1)
    x, weight = gradient_laid(x, in_rows), gradient_laid(weight, in_rows)
    out = _conv(at, 1, x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, given)
    return out if out is NotImplemented else in_rows(out.permute(2, 0, 1))
