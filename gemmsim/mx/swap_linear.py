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
    """Replace the ``torch.nn.Linear`` layers of ``model`` by ``MXLinear`` with the same parameters, in place; return
    the model.

    The layers' hooks stay. If anything raises, the model is as it was before the call.

    Args:
        config: configuration of all layers: an ``MXLinearConfig``, or one block format for all operands.
        filter_fn: ``filter_fn(module, full_name)`` returns true for the layers to replace, which may be subclasses
            from other packages. By default all layers that compute what ``torch.nn.Linear`` does; a layer with an
            instance attribute ``forward`` is left.
        report: called with the ``gemmsim.nn.Conversion``, the table of replaced and remaining layers. Without it the
            table is logged to "gemmsim", as a warning if layers remain that the caller did not exclude.

    If ``model`` is itself such a layer, the result is its replacement. A layer that is used in several places is
    replaced by one layer. The output projection of ``torch.nn.MultiheadAttention`` is replaced, too, and called. The
    function does not replace layers of gemmsim, layers without a weight, or the other products of
    ``torch.nn.MultiheadAttention``, which are not layers. Neither does it replace layers whose weight or bias is not
    a parameter, because a parametrisation or a hook (``weight_norm``, ``spectral_norm``, ``prune``) computes it.

    Raises:
        FormatError, SpecError: for a config with unknown formats or accumulators.
        MXConfigError: if ``model`` is not a module.
        DTypeError, DeviceError: for weights that cannot be encoded; the message names the layer.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Bilinear(8, 8, 4))
        >>> model = gs.mx.swap_linear_with_mx_linear(model, "mxfp8_e4m3", report=print)
        mx.swap_linear_with_mx_linear: 1 converted, 1 left
          0  Linear -> MXLinear
          1  Bilinear: stays native, no linear layer
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
    """Replace the ``torch.nn.Linear`` layers of ``model`` by ``MXInferenceLinear``, in place, and return the model.

    Arguments, result and errors are those of ``swap_linear_with_mx_linear``.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU())
        >>> print(gs.mx.swap_linear_with_mx_inference_linear(model, "mxfp4")[0].weight.format)
        mxfp4
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
    """Replace the linear layers of ``model`` in place: ``MXLinearConfig`` gives ``MXLinear``, ``MXInferenceConfig``
    gives ``MXInferenceLinear``.

    ``filter_fn`` and ``report`` are those of ``swap_linear_with_mx_linear``.

    Raises:
        MXConfigError: for a config of another type.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
        >>> found = gs.mx.quantize_(model, gs.mx.MXInferenceConfig("mxfp4"), lambda module, name: name != "2")
        >>> [type(layer).__name__ for layer in found]
        ['MXInferenceLinear', 'ReLU', 'Linear']
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
