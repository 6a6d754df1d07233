"""Functions of ``modelopt.torch.quantization.utils`` that are about numbers."""

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
    """Dimensions of ``input`` that share an amax where ``axis`` are those that do not; None for all."""
    if axis is None:
        return None
    kept = axis if isinstance(axis, (list, tuple)) else [axis]
    return [d for d in range(input.dim()) if d not in kept and d - input.dim() not in kept]


@torch.no_grad()
def reduce_amax(
    input: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = True, squeeze_scalar: bool = True
) -> Tensor:
    """Largest magnitude over ``axis``, all dimensions for None (a tensor of no dimensions then).

    ``squeeze_scalar``: a result of one element has no dimensions. NaN in gives NaN.
    """
    if axis is None:
        return input.abs().amax()
    dims = (axis,) if isinstance(axis, int) else tuple(axis)
    found = input.abs().amax(dims, keepdim=keepdims)
    return found.squeeze() if squeeze_scalar and found.numel() == 1 else found


@torch.no_grad()
def reduce_sum(input: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = True) -> Tensor:
    """Sum over ``axis``, all dimensions for None."""
    if axis is None:
        return input.sum()
    return input.sum((axis,) if isinstance(axis, int) else tuple(axis), keepdim=keepdims)


@torch.no_grad()
def reduce_block_amax(input_tensor: Tensor, block_sizes: dict[int, int]) -> Tensor:
    """Largest magnitude of each block; ``block_sizes`` is {dimension: size}, whose blocks fill the dimension.

    Raises:
        AmaxShapeError (ValueError, RuntimeError): for blocks that do not.
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
    """``input`` with ``pad_value`` behind, up to whole blocks along each dimension of ``block_sizes``."""
    for dim, size in block_sizes.items():
        d = dim % input.dim()
        more = -input.shape[d] % size
        if more:
            input = torch.nn.functional.pad(input, [0, 0] * (input.dim() - 1 - d) + [0, more], value=pad_value)
    return input


def get_quantizer_state_dict(model: nn.Module) -> dict[str, Any]:
    """The state dict of each quantiser by its name: amaxes, scales and biases without the weights."""
    return {name: q.state_dict() for name, q in quantizers_of(model)}


def set_quantizer_state_dict(model: nn.Module, quantizer_state_dict: dict[str, Any]) -> None:
    """Load what ``get_quantizer_state_dict`` gave; quantisers that it does not name stay."""
    for name, q in quantizers_of(model):
        if name in quantizer_state_dict:
            q.load_state_dict(quantizer_state_dict[name])


def is_quantized(module: nn.Module) -> bool:
    """Whether ``module`` has a quantiser in it."""
    return any(True for _ in quantizers_of(module))


def is_quantized_linear(module: nn.Module) -> bool:
    """Whether ``module`` has quantisers for its input and for its weight, a matrix."""
    weight = getattr(module, "weight", None)
    quantised = isinstance(getattr(module, "input_quantizer", None), TensorQuantizer)
    return quantised and hasattr(module, "weight_quantizer") and isinstance(weight, Tensor) and weight.dim() == 2


def weight_attr_names(module: nn.Module) -> Iterator[str]:
    """Names of the parameters of ``module`` that have a quantiser: "weight" by "weight_quantizer", others alike."""
    for name, _ in module.named_parameters(recurse=False):
        own = "weight_quantizer" if name == "weight" else f"{name}_weight_quantizer"
        if isinstance(getattr(module, own, None), (TensorQuantizer, SequentialQuantizer)):
            yield name


def quantizer_attr_names(weight_name: str = "weight") -> tuple[str, ...]:
    """Names of the attributes that belong to a weight: its quantisers and scales."""
    prefix = "" if weight_name == "weight" else f"{weight_name}_"
    quantizers = [f"{prefix}{side}_quantizer" for side in ("weight", "input", "output")]
    scales = [f"{prefix}{name}" for name in ("weight_scale", "weight_scale_2", "input_scale", "output_scale")]
    return (*quantizers, *scales)


@contextmanager
def replace_function(package: Any, name: str, new_func: Any) -> Iterator[None]:
    """``package.name`` is ``new_func`` inside, and the old one ``package._name``."""
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
    """A configuration with the patterns of ``kv_cache_quant_cfg`` too, calibrated by "max" unless it says otherwise."""
    found = dict(quant_cfg)
    patterns = found.get("quant_cfg", {"default": {"enable": False}})
    if isinstance(patterns, list):
        more = kv_cache_quant_cfg if isinstance(kv_cache_quant_cfg, list) else [kv_cache_quant_cfg]
        found["quant_cfg"] = [*patterns, *more]
    else:
        found["quant_cfg"] = {**patterns, **dict(kv_cache_quant_cfg)}
    found["algorithm"] = found.get("algorithm") or "max"
    return found
