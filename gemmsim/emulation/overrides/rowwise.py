"""Overrides of softmax, normalisations and activations, which only a rule that names them reaches."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from gemmsim.ops.rowwise import activations, batchnorm, elementwise, logsoftmax, lstm_gates, normalization
from gemmsim.ops.rowwise import softmax as softmaxes
from gemmsim.ops.rowwise.formats import RowFormats
from gemmsim.ops.seeds import Bits

from ..autocast import full_precision
from .layouts import as_elementwise, gradient_laid, in_rows, like_images, like_operand
from .matmul import FLOATS
from .table import TABLE, Entry, Site, overrides, packets, unseen

__all__ = ["gate", "softmax"]

_F: Any = torch.nn.functional
_NN: Any = torch._C._nn


def _bits(at: Site) -> Bits:
    """The random bits of this call, for formats without a seed of their own."""
    return Bits(at.seed, at.counter) if at.plan.draws else Bits()  # type: ignore[union-attr]


def _formats(at: Site, hidden: bool = False) -> tuple[RowFormats, Bits | None]:
    """The formats of this call and its random bits. The bits are None if the formats' own seed or no bits apply."""
    plan: Any = at.plan
    return plan.hidden if hidden else plan.value, _bits(at) if plan.draws else None


def _wide(x: Tensor, *more: Tensor | None) -> tuple[Any, ...]:
    """Operands as autocast passes them to row operations: in float32 on a GPU, unchanged on a CPU."""
    return (x, *more) if x.device.type == "cpu" else full_precision(x, *more)


def softmax(at: Site, x: Tensor, dim: Any, dtype: torch.dtype | None = None, hidden: bool = False) -> Any:
    """``torch.softmax(x, dim, dtype)`` as the call site says.

    ``hidden``: rows of -inf alone give 0, unless the formats say otherwise.
    """
    (x,) = _wide(x) if dtype is None else (x.to(dtype),)
    if x.dtype not in FLOATS or not isinstance(dim, int):
        return NotImplemented
    x = gradient_laid(x, in_rows)
    return in_rows(softmaxes.softmax(x, dim, *_formats(at, hidden)))


@overrides("softmax", _F.softmax, names=("input", "dim", "_stacklevel", "dtype"))
def _f_softmax(at: Site, x: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    if dim is None:  # PyTorch chooses, and warns that it does
        dim = _F._get_softmax_dim("softmax", x.dim(), _stacklevel)
    return softmax(at, x, dim, dtype)


@overrides(
    "softmax",
    *(torch.softmax, Tensor.softmax, torch.special.softmax, *packets("softmax", "int")),
    names=("input|self", "dim", "dtype"),
)
def _softmax(at: Site, x: Tensor, dim: Any, dtype: torch.dtype | None = None) -> Any:
    return softmax(at, x, dim, dtype)


@overrides("softmax", torch._softmax, *packets("_softmax", "default"), names=("input|self", "dim", "half_to_float"))
def _to_float(at: Site, x: Tensor, dim: int, half_to_float: bool) -> Any:
    return softmax(at, x, dim, torch.float32 if half_to_float else None)


def _log_softmax(at: Site, x: Tensor, dim: Any, dtype: torch.dtype | None = None) -> Any:
    (x,) = _wide(x) if dtype is None else (x.to(dtype),)
    if x.dtype not in FLOATS or not isinstance(dim, int):
        return NotImplemented
    x = gradient_laid(x, in_rows)
    return in_rows(logsoftmax.logsoftmax(x, dim, at.plan.maps, "sequential", _bits(at)))  # type: ignore[union-attr]


@overrides("log_softmax", _F.log_softmax, names=("input", "dim", "_stacklevel", "dtype"))
def _f_log_softmax(at: Site, x: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    if dim is None:
        dim = _F._get_softmax_dim("log_softmax", x.dim(), _stacklevel)
    return _log_softmax(at, x, dim, dtype)


overrides(
    "log_softmax",
    *(torch.log_softmax, Tensor.log_softmax, torch.special.log_softmax, *packets("log_softmax", "int")),
    names=("input|self", "dim", "dtype"),
)(_log_softmax)


@overrides(
    "log_softmax", torch._log_softmax, *packets("_log_softmax", "default"), names=("input|self", "dim", "half_to_float")
)
def _log_to_float(at: Site, x: Tensor, dim: int, half_to_float: bool) -> Any:
    return _log_softmax(at, x, dim, torch.float32 if half_to_float else None)


_AFFINE = ("weight", "bias", "eps", "cudnn_enable|cudnn_enabled")


@overrides(
    "layer_norm",
    *(_F.layer_norm, torch.layer_norm, *packets("layer_norm", "default")),
    names=("input", "normalized_shape", *_AFFINE),
)
def _layer_norm(
    at: Site, x: Tensor, shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn: bool = True,
) -> Any:  # fmt: skip
    x, weight, bias = _wide(x, weight, bias)
    if x.dtype not in FLOATS:
        return NotImplemented
    return normalization.layernorm(x, shape, (weight, bias), eps, *_formats(at))


@overrides(
    "rms_norm",
    *(_F.rms_norm, torch.rms_norm, *packets("rms_norm", "default")),
    names=("input", "normalized_shape", "weight", "eps"),
)
def _rms_norm(at: Site, x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Any:
    x, weight = _wide(x, weight)
    if x.dtype not in FLOATS:
        return NotImplemented

    def run(given: Tensor) -> Any:
        return like_images(normalization.rmsnorm(given, shape, weight, eps, *_formats(at)), x)

    return as_elementwise(run, x, saved=None)


@overrides(
    "group_norm",
    *(_F.group_norm, torch.group_norm, *packets("group_norm", "default")),
    names=("input", "num_groups", *_AFFINE),
)
def _group_norm(
    at: Site, x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn: bool = True,
) -> Any:  # fmt: skip
    x, weight, bias = _wide(x, weight, bias)
    if x.dtype not in FLOATS:
        return NotImplemented
    given = gradient_laid(x, partial(like_images, x=x.detach()))
    return like_images(normalization.groupnorm(given, groups, (weight, bias), eps, *_formats(at)), x)


@overrides(
    "batch_norm",
    _F.batch_norm,
    names=("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
)
def _batch_norm(
    at: Site, x: Tensor, mean: Tensor | None, var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    x, weight, bias = _wide(x, weight, bias)
    if x.dtype not in FLOATS:
        return NotImplemented
    tensors, numbers = (mean, var, weight, bias), (training, momentum, eps)
    given = gradient_laid(x, partial(like_images, x=x.detach()))
    found = batchnorm.batchnorm(given, tensors, numbers, at.plan.maps, "sequential", _bits(at))  # type: ignore[union-attr]
    return like_images(found, x)


@overrides(
    "batch_norm",
    *(torch.batch_norm, *packets("batch_norm", "default")),
    names=("input", "weight", "bias", "running_mean", "running_var", "training", "momentum", *_AFFINE[2:]),
)
def _batch_norm_of_aten(
    at: Site, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None,
    training: bool, momentum: float, eps: float, cudnn: bool,
) -> Any:  # fmt: skip
    return _batch_norm(at, x, mean, var, weight, bias, training, momentum, eps)


@overrides(
    "instance_norm",
    _F.instance_norm,
    names=("input", "running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps"),
)
def _instance_norm(
    at: Site, x: Tensor, mean: Tensor | None = None, var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Instance norm as PyTorch computes it: batch norm of one example that has the channels of all examples.

    The running statistics are averaged afterwards.
    """
    if x.dim() < 3 or x.dtype not in FLOATS or (mean is None) is not (var is None):
        return NotImplemented
    if x.shape[2:].numel() < 2 if use_input_stats else mean is None:  # PyTorch raises its own error
        return NotImplemented
    examples, channels = x.shape[:2]
    repeated = [None if t is None else t.repeat(examples) for t in (mean, var, weight, bias)]
    flat = x.reshape(1, examples * channels, *x.shape[2:])
    found = _batch_norm(at, flat, *repeated, use_input_stats, momentum, eps)
    with torch.no_grad():
        for running, new in ((mean, repeated[0]), (var, repeated[1])):
            if use_input_stats and running is not None and new is not None:
                running.copy_(new.reshape(examples, channels).mean(0))
    return found.reshape(x.shape)


@overrides(
    "instance_norm",
    *(torch.instance_norm, *packets("instance_norm", "default")),
    names=("input", "weight", "bias", "running_mean", "running_var", "use_input_stats", "momentum", *_AFFINE[2:]),
)
def _instance_norm_of_aten(
    at: Site, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None,
    use_input_stats: bool, momentum: float, eps: float, cudnn: bool,
) -> Any:  # fmt: skip
    return _instance_norm(at, x, mean, var, weight, bias, use_input_stats, momentum, eps)


def _gelu(at: Site, x: Tensor, approximate: str = "none") -> Any:
    if x.dtype not in FLOATS:
        return NotImplemented
    formats, bits = _formats(at)
    return as_elementwise(
        lambda given: like_operand(activations.gelu(given, formats, approximate, bits), x), x, saved="x"
    )


def _silu(at: Site, x: Tensor) -> Any:
    if x.dtype not in FLOATS:
        return NotImplemented
    return as_elementwise(lambda given: like_operand(activations.silu(given, *_formats(at)), x), x, saved="x")


def _map(function: Any, saved: Literal["x", "result"] = "x") -> Any:
    def run(at: Site, x: Tensor) -> Any:
        if x.dtype not in FLOATS:
            return NotImplemented
        maps: Any = at.plan.maps  # type: ignore[union-attr]
        return as_elementwise(lambda given: like_operand(function(given, *maps, _bits(at)), x), x, saved=saved)

    return run


_MAPS = {
    "sigmoid": _map(partial(lstm_gates.gate, "sigmoid")),
    "tanh": _map(partial(lstm_gates.gate, "tanh")),
    "relu": _map(elementwise.relu, saved="result"),
}


def gate(at: Site, x: Tensor) -> Tensor:
    """sigmoid, tanh or relu of ``x``: the call site's kind says which, and the site says how."""
    found: Tensor = getattr(torch, at.kind)(x) if at.plan is None else _MAPS[at.kind](at, x)
    return found


def _either(run: Any) -> Any:
    """``run`` with PyTorch's argument ``inplace``."""

    def either(at: Site, x: Tensor, inplace: bool = False) -> Any:
        found = run(at, x)
        return found if found is NotImplemented or not inplace else x.copy_(found)

    return either


def _register() -> None:
    runs = {"gelu": _gelu, "silu": _silu, **_MAPS}
    for kind, run in runs.items():
        apart = _F.__dict__[kind] if kind in ("silu", "relu") else None
        if apart is not None:
            overrides(kind, apart, names=("input", "inplace"))(_either(run))
        for name, inplace in ((kind, False), (f"{kind}_", True)):
            found = [getattr(owner, name, None) for owner in (torch, Tensor, _NN)]
            if name == "sigmoid":
                found.append(torch.special.expit)
            overrides(kind, *found, *packets(name, "default"), names=("input|self",), inplace=inplace)(run)
    # PyTorch's Python functions that reach a mode as one call, and make these calls in their bodies.
    for body in (_F.softmin, _F.gumbel_softmax, _F.tanhshrink):
        TABLE[body] = Entry((), unseen(body), body=True)


_register()
