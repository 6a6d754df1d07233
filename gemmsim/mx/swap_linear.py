"""Linear layers of a model exchanged for block-format ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from gemmsim.nn.conversion_report import Conversion
from gemmsim.nn.emulated_marker import Emulated
from gemmsim.nn.transformer_patches import call_children
from gemmsim.nn.undoing import naming, unchanged_on_error
from gemmsim.nn.weights import computed_parameter, own_forward
from gemmsim.ops.errors import message

from .configs import MXInferenceConfig, MXLinearConfig
from .errors import MXConfigError, missing_weight
from .inference import MXInferenceLinear
from .linear import MXLinear

__all__ = ["quantize_", "swap_linear_with_mx_inference_linear", "swap_linear_with_mx_linear"]

#: Decides about a layer and its full name in the model.
FilterFn: TypeAlias = Callable[[nn.Module, str], bool]
#: Takes the table of what was exchanged and what was left.
Report: TypeAlias = Callable[[Conversion], Any]


def swap_linear_with_mx_linear(
    model: nn.Module,
    config: MXLinearConfig | str | None = None,
    filter_fn: FilterFn | None = None,
    *,
    report: Report | None = None,
) -> nn.Module:
    """``model`` with its ``torch.nn.Linear`` layers exchanged, in place, for ``MXLinear`` of the same parameters.

    Hooks of the layers stay. The model is converted, or, where anything raises, as it was.

    Args:
        config: for all layers: an ``MXLinearConfig``, or the one block format of all operands.
        filter_fn: ``filter_fn(module, full_name)`` is true for the layers to exchange, subclasses of other packages
            among them. By default all that compute what ``torch.nn.Linear`` does: a ``forward`` of its own is left.
        report: called with the ``gemmsim.nn.Conversion``, the table of layers exchanged and left. Without it the table
            is logged: to "gemmsim", as a warning where layers were left that nobody asked to leave.

    A model that is itself such a layer is returned exchanged. Layers used in several places stay one layer. The output
    projection of ``torch.nn.MultiheadAttention`` is exchanged too, and called. Not exchanged: layers of gemmsim, the
    other products of ``torch.nn.MultiheadAttention``, which are no layers, layers without a weight, and layers whose
    weight or bias is no parameter, because a parametrisation or a hook (``weight_norm``, ``spectral_norm``, ``prune``)
    computes it.

    Raises:
        FormatError, SpecError: for a config that means nothing.
        MXConfigError: for anything but a module.
        DTypeError, DeviceError: for weights that have no encoding, naming the layer.
    """
    make = functools.partial(MXLinear.from_float, config=MXLinear.read_config(config))
    return _swap("mx.swap_linear_with_mx_linear", model, make, filter_fn, report)


def swap_linear_with_mx_inference_linear(
    model: nn.Module,
    config: MXInferenceConfig | str | None = None,
    filter_fn: FilterFn | None = None,
    *,
    report: Report | None = None,
) -> nn.Module:
    """``model`` with its ``torch.nn.Linear`` layers exchanged, in place, for ``MXInferenceLinear``.

    Arguments, result and errors as ``swap_linear_with_mx_linear``.
    """
    make = functools.partial(MXInferenceLinear.from_float, config=MXInferenceLinear.read_config(config))
    return _swap("mx.swap_linear_with_mx_inference_linear", model, make, filter_fn, report)


def quantize_(
    model: nn.Module,
    config: MXLinearConfig | MXInferenceConfig,
    filter_fn: FilterFn | None = None,
    *,
    report: Report | None = None,
) -> nn.Module:
    """``model`` with its linear layers exchanged, in place, for those of ``config``'s kind.

    ``filter_fn`` and ``report`` as ``swap_linear_with_mx_linear``.

    Raises:
        MXConfigError: for a config of another type.
    """
    if isinstance(config, MXLinearConfig):
        return swap_linear_with_mx_linear(model, config, filter_fn, report=report)
    if isinstance(config, MXInferenceConfig):
        return swap_linear_with_mx_inference_linear(model, config, filter_fn, report=report)
    asked = f"mx.quantize_: config is a {type(config).__name__}"
    allowed = "MXLinearConfig for training, MXInferenceConfig for inference"
    raise MXConfigError(message(asked, allowed, "Give one of the two."))


def _swap(
    owner: str,
    model: nn.Module,
    make: Callable[[nn.Linear], nn.Module],
    filter_fn: FilterFn | None,
    report: Report | None,
) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise MXConfigError(message(f"model is a {type(model).__name__}", "a torch.nn.Module", "Give the model first."))
    done: dict[int, nn.Module] = {}
    originals: list[nn.Module] = []  # keeps the identities in ``done`` from being reused
    exchanged: dict[str, str] = {}

    def visit(module: nn.Module, name: str) -> nn.Module:
        if id(module) in done:
            return done[id(module)]
        originals.append(module)
        done[id(module)] = module
        plain = isinstance(module, nn.Linear) and not isinstance(module, (Emulated, LazyModuleMixin))
        plain = plain and not computed_parameter(module) and not missing_weight(module)
        chosen = _is_linear(module) if filter_fn is None else plain and filter_fn(module, name)
        if isinstance(module, nn.Linear) and plain and chosen:
            exchanged[name] = type(module).__name__
            with naming(name):
                done[id(module)] = make(module)
        else:
            for key, child in list(module._modules.items()):
                if child is not None:
                    module._modules[key] = visit(child, f"{name}.{key}" if name else key)
        return done[id(module)]

    def why(name: str, module: nn.Module) -> tuple[str, bool]:
        if not isinstance(module, nn.Linear):
            return "no linear layer", True
        if isinstance(module, LazyModuleMixin):
            return "lazy, without a weight yet", False
        if computed := computed_parameter(module):
            return computed, False
        if missing := missing_weight(module):
            return missing, False
        return ("its own forward (filter_fn can select it)", False) if filter_fn is None else ("by filter_fn", True)

    with unchanged_on_error(model):
        found = call_children(visit(model, ""))
    Conversion.of(owner, found, exchanged, why).tell(report)
    return found


def _is_linear(module: nn.Module) -> bool:
    """Whether ``module`` computes what ``torch.nn.Linear`` does, neither its class nor itself with another forward."""
    own = getattr(type(module), "forward", None)  # TorchScript's classes have none
    return own is nn.Linear.forward and not own_forward(module)
