"""PyTorch's functions and modules exchanged for quantised ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from . import activations, adaptive_avg_pooling, convolutions, gemms, norms, rnn, simd_ops

__all__ = ["FUNCTION_MAPPING", "MODULE_MAPPING", "inject_pyt_ops", "tracer_decorator"]

#: Names in ``torch`` and ``torch.nn.functional``.
FUNCTION_MAPPING: dict[str, Callable[..., Any]] = {
    **{name: getattr(convolutions, name) for name in ("conv1d", "conv2d", "conv3d")},
    **{name: getattr(norms, name) for name in ("batch_norm", "group_norm", "layer_norm")},
    **{
        name: getattr(activations, name)
        for name in ("gelu", "leaky_relu", "relu", "relu6", "sigmoid", "silu", "softmax", "tanh")
    },
    **{
        name: getattr(simd_ops, f"simd_{name}") for name in ("add", "sub", "mul", "div", "exp", "log", "norm", "square")
    },
    "adaptive_avg_pool2d": adaptive_avg_pooling.adaptive_avg_pool2d,
    "sum": simd_ops.simd_reduce_sum,
    "mean": simd_ops.simd_reduce_mean,
    "linear": gemms.linear,
    "matmul": gemms.matmul,
    "mm": gemms.matmul,
    "addmm": gemms.addmm,
    "bmm": gemms.bmm,
}
#: Names in ``torch.nn``.
MODULE_MAPPING: dict[str, type[torch.nn.Module]] = {
    kind.__name__: kind
    for kind in (
        activations.GELU,
        activations.LeakyReLU,
        activations.ReLU,
        activations.ReLU6,
        activations.SiLU,
        activations.Sigmoid,
        activations.Softmax,
        activations.Tanh,
        convolutions.Conv1d,
        convolutions.Conv2d,
        convolutions.Conv3d,
        convolutions.ConvTranspose2d,
        gemms.Linear,
        rnn.LSTM,
        norms.BatchNorm1d,
        norms.BatchNorm2d,
        norms.BatchNorm3d,
        norms.GroupNorm,
        norms.LayerNorm,
        adaptive_avg_pooling.AdaptiveAvgPool2d,
    )
}


def tracer_decorator(function: Callable[..., Any], mx_specs: Any) -> Callable[..., Any]:
    """``function`` with these settings; a ``dtype`` argument converts its result."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        dtype = kwargs.pop("dtype", None)
        result = function(*args, mx_specs=mx_specs, **kwargs)
        return result if dtype is None else result.to(dtype)

    return call


def _class_with_specs(kind: type[torch.nn.Module], mx_specs: Any) -> type[torch.nn.Module]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, *args, mx_specs=mx_specs, **kwargs)

    return type(f"{kind.__name__}_inj", (kind,), {"__init__": __init__})


def inject_pyt_ops(mx_specs: Any) -> None:
    """Replace PyTorch's functions and modules by those of this package, with ``mx_specs``.

    The change affects the whole process and cannot be undone: names in ``torch``, ``torch.nn.functional`` and
    ``torch.nn`` are replaced. Operators such as ``@`` and methods of tensors stay PyTorch's. A ``dtype`` argument
    converts the result. PyTorch's fused attention and encoder layers (``torch.backends.mha``), which call none of these
    functions, are switched off.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.inject_pyt_ops(mx.MxSpecs(bfloat=16))  # doctest: +SKIP
        >>> torch.nn.functional.linear(torch.ones(1, 3), torch.full((1, 3), 0.3))  # doctest: +SKIP
        tensor([[0.9023]])
    """
    torch.backends.mha.set_fastpath_enabled(False)
    for name, function in FUNCTION_MAPPING.items():
        for home in (torch, torch.nn.functional):
            if name in vars(home):
                setattr(home, name, tracer_decorator(function, mx_specs))
    for name, kind in MODULE_MAPPING.items():
        setattr(torch.nn, name, _class_with_specs(kind, mx_specs))
