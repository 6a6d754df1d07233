"""Linear layers of a model exchanged for block-format ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import nn

from gemmsim.ops.errors import message

from .configs import MXInferenceConfig, MXLinearConfig
from .errors import MXConfigError
from .inference import MXInferenceLinear
from .linear import MXLinear

__all__ = ["quantize_", "swap_linear_with_mx_inference_linear", "swap_linear_with_mx_linear"]

#: Decides about a layer and its full name in the model.
FilterFn: TypeAlias = Callable[[nn.Module, str], bool]


def swap_linear_with_mx_linear(
    model: nn.Module, config: MXLinearConfig | str | None = None, filter_fn: FilterFn | None = None
) -> nn.Module:
    """``model`` with its ``torch.nn.Linear`` layers exchanged, in place, for ``MXLinear`` of the same parameters.

    Args:
        config: for all layers: an ``MXLinearConfig``, or the one block format of all operands.
        filter_fn: ``filter_fn(module, full_name)`` is true for the layers to exchange; by default all.

    A model that is itself such a layer is returned exchanged. Layers used in several places stay one layer. Not
    exchanged: layers that have a block format already, and the projection inside ``torch.nn.MultiheadAttention``,
    which never calls it.
    """
    return _swap(model, lambda module: MXLinear.from_float(module, config), filter_fn)


def swap_linear_with_mx_inference_linear(
    model: nn.Module, config: MXInferenceConfig | str | None = None, filter_fn: FilterFn | None = None
) -> nn.Module:
    """``model`` with its ``torch.nn.Linear`` layers exchanged, in place, for ``MXInferenceLinear``.

    Arguments and result as ``swap_linear_with_mx_linear``.
    """
    return _swap(model, lambda module: MXInferenceLinear.from_float(module, config), filter_fn)


def quantize_(
    model: nn.Module, config: MXLinearConfig | MXInferenceConfig, filter_fn: FilterFn | None = None
) -> nn.Module:
    """``model`` with its linear layers exchanged, in place, for those of ``config``'s kind.

    Raises:
        MXConfigError: for a config of another type.
    """
    if isinstance(config, MXLinearConfig):
        return swap_linear_with_mx_linear(model, config, filter_fn)
    if isinstance(config, MXInferenceConfig):
        return swap_linear_with_mx_inference_linear(model, config, filter_fn)
    asked = f"mx.quantize_: config is a {type(config).__name__}"
    allowed = "MXLinearConfig for training, MXInferenceConfig for inference"
    raise MXConfigError(message(asked, allowed, "Give one of the two."))


def _swap(model: nn.Module, make: Callable[[nn.Linear], nn.Module], filter_fn: FilterFn | None) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise MXConfigError(message(f"model is a {type(model).__name__}", "a torch.nn.Module", "Give the model first."))
    done: dict[int, nn.Module] = {}
    originals: list[nn.Module] = []  # keeps the identities in ``done`` from being reused

    def visit(module: nn.Module, name: str) -> nn.Module:
        if id(module) in done:
            return done[id(module)]
        originals.append(module)
        done[id(module)] = module
        plain = isinstance(module, nn.Linear) and not isinstance(module, (MXLinear, MXInferenceLinear))
        if isinstance(module, nn.Linear) and plain and (filter_fn is None or filter_fn(module, name)):
            done[id(module)] = make(module)
        elif not isinstance(module, nn.MultiheadAttention):
            for key, child in list(module._modules.items()):
                if child is not None:
                    module._modules[key] = visit(child, f"{name}.{key}" if name else key)
        return done[id(module)]

    return visit(model, "")
