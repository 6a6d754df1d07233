"""``qtorch.auto_low``: round the results of a model's layers, forward and backward, without rewriting the model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from gemmsim.nn import call_children

from ..number import Number
from ..quantizers import Quantizer, quantizer

__all__ = ["lower", "sequential_lower"]

#: Modules of ``torch.nn.modules`` whose classes a layer type stands for.
_FAMILIES = {
    "conv": ("conv",),
    "linear": ("linear",),
    "pool": ("pooling",),
    "pad": ("padding",),
    "activation": ("activation",),
    "normalization": ("batchnorm", "instancenorm", "normalization"),
    "dropout": ("dropout",),
    "loss": ("loss",),
}


def _chosen(owner: str, layer_types: Sequence[str]) -> Callable[[nn.Module], bool]:
    """Whether a layer is of one of the types."""
    unknown = [name for name in layer_types if name not in _FAMILIES]
    if unknown:
        asked, allowed = f"{owner}: layer_types {unknown}", ", ".join(_FAMILIES)
        raise AssertionError(f"{asked}; allowed: {allowed}.\n  Name some of these.")
    homes = {f"torch.nn.modules.{home}" for name in layer_types for home in _FAMILIES[name]}

    def chosen(layer: nn.Module) -> bool:
        return any(base.__module__ in homes for base in type(layer).__mro__)

    return chosen


def _rounded(result: Any, quant: Callable[[Tensor], Tensor]) -> Any:
    """``result`` with its float tensors rounded; results of several parts keep their kind."""
    if isinstance(result, Tensor):
        return quant(result) if result.is_floating_point() else result
    if isinstance(result, tuple):
        return tuple(_rounded(part, quant) for part in result)
    return result


def lower(
    model: nn.Module,
    layer_types: Sequence[str] = (),
    forward_number: Number | None = None,
    backward_number: Number | None = None,
    forward_rounding: str = "stochastic",
    backward_rounding: str = "stochastic",
) -> None:
    """Round the results of layers of ``model``, and the gradients of these results, in place.

    Args:
        layer_types: of "conv", "linear", "pool", "pad", "activation", "normalization", "dropout", "loss". Every layer
            of these kinds in the model is rounded, including subclasses.
        Others: as ``quantizer``.

    Parameters and state dict keys stay. Integer results (indices of pooling) are left alone.

    Raises:
        AssertionError: for other layer types and roundings.

    Example:
        >>> relu, number = torch.nn.ReLU(), gs.compat.qtorch.FixedPoint(8, 4)
        >>> gs.compat.qtorch.auto_low.lower(relu, ["activation"], number, forward_rounding="nearest")
        >>> relu(torch.tensor([-1.0, 0.3]))
        tensor([0.0000, 0.3125])
    """
    chosen = _chosen("lower", layer_types)
    quant = quantizer(forward_number, backward_number, forward_rounding, backward_rounding)
    for layer in model.modules():
        if chosen(layer):
            layer.register_forward_hook(lambda _, args, result: _rounded(result, quant))
    call_children(model)


def sequential_lower(
    model: nn.Module,
    layer_types: Sequence[str] = (),
    forward_number: Number | None = None,
    backward_number: Number | None = None,
    forward_rounding: str = "stochastic",
    backward_rounding: str = "stochastic",
) -> nn.Module:
    """A copy of ``model`` with ``nn.Sequential(layer, Quantizer)`` in place of each layer of these types.

    Arguments and errors are those of ``lower``. ``model`` itself is not changed; a model that is one such layer becomes
    the sequence. State dict keys of the layers get a ".0".

    Example:
        >>> from gemmsim.compat import qtorch
        >>> number = qtorch.FixedPoint(8, 4)
        >>> qtorch.auto_low.sequential_lower(torch.nn.ReLU(), ["activation"], number, forward_rounding="nearest")
        Sequential(
          (0): ReLU()
          (1): Quantizer()
        )
    """
    chosen = _chosen("sequential_lower", layer_types)
    numbers = forward_number, backward_number, forward_rounding, backward_rounding

    def replaced(layer: nn.Module) -> nn.Module:
        if chosen(layer):
            return nn.Sequential(layer, Quantizer(*numbers))
        for name, child in layer.named_children():
            setattr(layer, name, replaced(child))
        return layer

    return call_children(replaced(copy.deepcopy(model)))
