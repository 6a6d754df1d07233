"""The numerical functions of ``modelopt.torch.quantization.utils``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.tensor_quant import AmaxShapeError, TensorQuantizer

from ..nn.modules.tensor_quantizer import SequentialQuantizer, quantizers_of

__all__ = [
    "convert_quantization_axis_to_reduce_axis",
    "get_quantizer_state_dict",
    "is_quantized",
    "is_quantized_linear",
    "quantizer_attr_names",
    "reduce_amax",
    "reduce_block_amax",
    "reduce_block_padding",
    "reduce_sum",
    "replace_function",
    "set_quantizer_state_dict",
    "update_quant_cfg_with_kv_cache_quant",
    "weight_attr_names",
]


def convert_quantization_axis_to_reduce_axis(input: Tensor, axis: int | Sequence[int] | None) -> list[int] | None:
    """The dimensions of ``input`` that share an amax if those of ``axis`` do not; None for all.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.utils.convert_quantization_axis_to_reduce_axis(torch.ones(2, 3, 4), 0)
        [1, 2]
    """
    if axis is None:
        return None
    kept = axis if isinstance(axis, (list, tuple)) else [axis]
    return [d for d in range(input.dim()) if d not in kept and d - input.dim() not in kept]


@torch.no_grad()
def reduce_amax(
    input: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = True, squeeze_scalar: bool = True
) -> Tensor:
    """The largest magnitude over ``axis``; over all dimensions for None, which gives a tensor without dimensions.

    With ``squeeze_scalar`` a result of one element has no dimensions. A NaN gives NaN.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.utils.reduce_amax(torch.tensor([[1.0, -3.0], [2.0, 0.5]]), axis=1)
        tensor([[3.],
                [2.]])
    """
    if axis is None:
        return input.abs().amax()
    dims = (axis,) if isinstance(axis, int) else tuple(axis)
    found = input.abs().amax(dims, keepdim=keepdims)
    return found.squeeze() if squeeze_scalar and found.numel() == 1 else found


@torch.no_grad()
def reduce_sum(input: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = True) -> Tensor:
    """The sum over ``axis``; over all dimensions for None.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.utils.reduce_sum(torch.tensor([[1.0, -3.0], [2.0, 0.5]]), axis=1)
        tensor([[-2.0000],
                [ 2.5000]])
    """
    if axis is None:
        return input.sum()
    return input.sum((axis,) if isinstance(axis, int) else tuple(axis), keepdim=keepdims)


@torch.no_grad()
def reduce_block_amax(input_tensor: Tensor, block_sizes: dict[int, int]) -> Tensor:
    """The largest magnitude of each block. ``block_sizes`` is {dimension: size}; the blocks fill the dimension.

    Raises:
        AmaxShapeError (ValueError, RuntimeError): for blocks that do not fill the dimension.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.utils.reduce_block_amax(torch.tensor([1.0, -3.0, 2.0, 0.5]), {-1: 2})
        tensor([3., 2.])
    """
    amax = input_tensor.abs()
    for dim, size in block_sizes.items():
        d = dim % amax.dim()
        if amax.shape[d] % size:
            asked = f"reduce_block_amax: blocks of {size} in {amax.shape[d]} elements"
            raise AmaxShapeError(f"{asked}; allowed: a divisor.\n  Use reduce_block_padding first.")
        amax = amax.unflatten(d, (amax.shape[d] // size, size)).amax(d + 1)
    return amax


def reduce_block_padding(input: Tensor, block_sizes: dict[int, int], pad_value: float = 0) -> Tensor:
    """``input`` padded at the end with ``pad_value``, up to whole blocks along each dimension of ``block_sizes``.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.utils.reduce_block_padding(torch.tensor([1.0, -3.0, 2.0]), {-1: 2})
        tensor([ 1., -3.,  2.,  0.])
    """
    for dim, size in block_sizes.items():
        d = dim % input.dim()
        more = -input.shape[d] % size
        if more:
            input = torch.nn.functional.pad(input, [0, 0] * (input.dim() - 1 - d) + [0, more], value=pad_value)
    return input


def get_quantizer_state_dict(model: nn.Module) -> dict[str, Any]:
    """The state dict of each quantiser by its name: amaxes, scales and biases without the weights.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> layer = mtq.calibrate(mtq.nn.QuantLinear(4, 2))
        >>> list(mtq.utils.get_quantizer_state_dict(layer)["weight_quantizer"])
        ['_amax']
    """
    return {name: q.state_dict() for name, q in quantizers_of(model)}


def set_quantizer_state_dict(model: nn.Module, quantizer_state_dict: dict[str, Any]) -> None:
    """Load the result of ``get_quantizer_state_dict``. Quantisers that it does not name stay as they are.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> layer = mtq.calibrate(mtq.nn.QuantLinear(4, 2))
        >>> mtq.utils.set_quantizer_state_dict(layer, mtq.utils.get_quantizer_state_dict(layer))
    """
    for name, q in quantizers_of(model):
        if name in quantizer_state_dict:
            q.load_state_dict(quantizer_state_dict[name])


def is_quantized(module: nn.Module) -> bool:
    """Whether ``module`` contains a quantiser.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> [mtq.utils.is_quantized(layer) for layer in (mtq.nn.QuantLinear(4, 2), torch.nn.Linear(4, 2))]
        [True, False]
    """
    return any(True for _ in quantizers_of(module))


def is_quantized_linear(module: nn.Module) -> bool:
    """Whether ``module`` has quantisers for its input and for its weight, a matrix.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> [mtq.utils.is_quantized_linear(layer) for layer in (mtq.nn.QuantLinear(4, 2), mtq.nn.QuantConv2d(4, 2, 3))]
        [True, False]
    """
    weight = getattr(module, "weight", None)
    quantised = isinstance(getattr(module, "input_quantizer", None), TensorQuantizer)
    return quantised and hasattr(module, "weight_quantizer") and isinstance(weight, Tensor) and weight.dim() == 2


def weight_attr_names(module: nn.Module) -> Iterator[str]:
    """The names of the parameters of ``module`` that have a quantiser, such as "weight" with "weight_quantizer".

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> list(mtq.utils.weight_attr_names(mtq.nn.QuantLinear(4, 2)))
        ['weight']
    """
    for name, _ in module.named_parameters(recurse=False):
        own = "weight_quantizer" if name == "weight" else f"{name}_weight_quantizer"
        if isinstance(getattr(module, own, None), (TensorQuantizer, SequentialQuantizer)):
            yield name


def quantizer_attr_names(weight_name: str = "weight") -> tuple[str, ...]:
    """The names of the attributes that belong to a weight: its quantisers and scales.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.utils.quantizer_attr_names()[:3]
        ('weight_quantizer', 'input_quantizer', 'output_quantizer')
    """
    prefix = "" if weight_name == "weight" else f"{weight_name}_"
    quantizers = [f"{prefix}{side}_quantizer" for side in ("weight", "input", "output")]
    scales = [f"{prefix}{name}" for name in ("weight_scale", "weight_scale_2", "input_scale", "output_scale")]
    return (*quantizers, *scales)


@contextmanager
def replace_function(package: Any, name: str, new_func: Any) -> Iterator[None]:
    """Replace ``package.name`` by ``new_func`` inside; the old function is ``package._name``.

    Example:
        >>> import math
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> with mtq.utils.replace_function(math, "sqrt", lambda x: math._sqrt(x) + 1):
        ...     math.sqrt(4.0)
        3.0
    """
    old = getattr(package, name)
    setattr(package, name, new_func)
    setattr(package, f"_{name}", old)
    try:
        yield
    finally:
        setattr(package, name, old)
        delattr(package, f"_{name}")


def update_quant_cfg_with_kv_cache_quant(
    quant_cfg: dict[str, Any], kv_cache_quant_cfg: dict[str, Any] | list[Any]
) -> dict[str, Any]:
    """``quant_cfg`` with the patterns of ``kv_cache_quant_cfg`` added. Its algorithm is "max" unless it names one.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> config = mtq.update_quant_cfg_with_kv_cache_quant(mtq.INT8_DEFAULT_CFG, mtq.FP8_KV_CFG["quant_cfg"])
        >>> sorted(set(config["quant_cfg"]) - set(mtq.INT8_DEFAULT_CFG["quant_cfg"]))
        ['*[kv]_bmm_quantizer']
    """
    found = dict(quant_cfg)
    patterns = found.get("quant_cfg", {"default": {"enable": False}})
    if isinstance(patterns, list):
        more = kv_cache_quant_cfg if isinstance(kv_cache_quant_cfg, list) else [kv_cache_quant_cfg]
        found["quant_cfg"] = [*patterns, *more]
    else:
        found["quant_cfg"] = {**patterns, **dict(kv_cache_quant_cfg)}
    found["algorithm"] = found.get("algorithm") or "max"
    return found
