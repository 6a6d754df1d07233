"""``torchao.float8.float8_linear_utils``: what puts float8 layers into models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

import gemmsim as gs
from gemmsim.nn.undoing import naming
from gemmsim.nn.weights import computed_parameter, own_forward

from ..errors import LayoutError, message, shown
from .config import Float8LinearConfig, Float8LinearRecipeName, recipe_of
from .float8_linear import Float8Linear

__all__ = ["_auto_filter_for_recipe", "convert_to_float8_training", "swap_linear_layers"]

FilterFn = Callable[[nn.Module, str], bool]


def swap_linear_layers(
    module: nn.Module,
    from_float_func: Callable[[nn.Linear], nn.Linear],
    *,
    module_filter_fn: FilterFn | None = None,
) -> nn.Module:
    """Exchange the linear layers of ``module`` that ``module_filter_fn(layer, name)`` is true for, inner ones first.

    The result is ``module``, or what a linear layer without others inside becomes; its name is "". What was converted
    and what was left is logged (``gemmsim.nn.Conversion``). Lazy layers are left, and layers whose weight or bias is no
    parameter, whose ``forward`` is an attribute of their own, or that have modules inside. Errors name the layer, and
    ``module`` is as it was.

    Raises:
        LayoutError: for a linear layer with modules inside, as ``module`` itself; a ShapeError, an AssertionError.
        TypeError: for anything but a module.
    """
    return _swapped("torchao.swap_linear_layers", module, from_float_func, module_filter_fn)


def convert_to_float8_training(
    module: nn.Module,
    *,
    module_filter_fn: FilterFn | None = None,
    config: Float8LinearConfig | None = None,
) -> nn.Module:
    """Make the linear layers of ``module`` that ``module_filter_fn(layer, name)`` is true for ``Float8Linear``.

    Parameters stay the same objects under the same names. Results, what is left and errors as ``swap_linear_layers``.

    Args:
        config: of all layers; default: ``Float8LinearConfig()``, the recipe "tensorwise".

    Raises:
        LayoutError: for a linear layer with modules inside, as ``module`` itself; a ShapeError, an AssertionError.
        TypeError: for anything but a module, and for another config.
        ElementError: for dtypes that Hopper's instructions lack, without ``emulate``; a FormatError.

    Example:
        >>> from torch import nn
        >>> from gemmsim.compat.torchao.float8 import convert_to_float8_training
        >>> model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
        >>> model = convert_to_float8_training(model, module_filter_fn=lambda layer, name: layer.out_features % 16 == 0)
        >>> [type(layer).__name__ for layer in model]
        ['Float8Linear', 'ReLU', 'Linear']
    """
    make = partial(Float8Linear.from_float, config=Float8LinearConfig() if config is None else config)
    return _swapped("torchao.convert_to_float8_training", module, make, module_filter_fn)


def _swapped(
    owner: str, module: nn.Module, make: Callable[[nn.Linear], nn.Module], chosen: FilterFn | None
) -> nn.Module:
    if not isinstance(module, nn.Module):
        raise TypeError(message(f"{owner}: module={shown(module)}", "a module", "Give the model."))
    if isinstance(module, nn.Linear) and (chosen is None or chosen(module, "")):
        if next(module.children(), None) is not None:
            asked = f"{owner} of a {type(module).__name__} with modules inside"
            raise LayoutError(message(asked, "linear layers without", "Convert a model that contains it."))
        made = make(module)
        gs.nn.Conversion.of(owner, made, {"": type(module).__name__}).tell()
        return made
    left: dict[str, tuple[str, bool]] = {}
    with gs.nn.Conversion.watched(
        owner, module, lambda name, layer: left.get(name, ("this converter has no such layer", True))
    ):
        _swap(module, "", make, chosen, left)
        gs.nn.call_children(module)
    return module


def _swap(
    parent: nn.Module,
    prefix: str,
    make: Callable[[nn.Linear], nn.Module],
    chosen: FilterFn | None,
    left: dict[str, tuple[str, bool]],
) -> None:
    """Exchange layers below ``parent``; note in ``left`` why a linear layer stays, and whether that was asked for."""
    for name, child in list(parent.named_children()):
        full = f"{prefix}.{name}" if prefix else name
        _swap(child, full, make, chosen, left)
        if not isinstance(child, nn.Linear):
            continue
        if chosen is not None and not chosen(child, full):
            left[full] = ("by module_filter_fn", True)
        elif own := _own(child):
            left[full] = (own, False)
        else:
            with naming(full):
                setattr(parent, name, make(child))


def _own(layer: nn.Linear) -> str:
    """Why a layer is left that the filter takes; empty for nothing."""
    if isinstance(layer, nn.LazyLinear):  # which becomes a Linear when it is called
        return "its weight has no size before its first call"
    inside = next(layer.children(), None) is not None
    return computed_parameter(layer) or own_forward(layer) or ("it has modules inside" if inside else "")


def _auto_filter_for_recipe(recipe: str | Float8LinearRecipeName, filter_fqns: list[str]) -> FilterFn:
    """A ``module_filter_fn`` that takes linear layers which torchao measured to be faster in float8 on an H100.

    These have sizes that are multiples of 16 and above thresholds of the recipe, and no part of ``filter_fqns`` in
    their name. Speed alone is behind them: here every layer can be converted.

    Raises:
        NotImplementedError: for "rowwise_with_gw_hp", which torchao has no thresholds for.
        ElementError: for another recipe; a FormatError (ValueError) and an AssertionError.
    """
    found = recipe_of(recipe)
    if found is Float8LinearRecipeName.ROWWISE_WITH_GW_HP:
        allowed = "tensorwise, rowwise"
        do = "Give a function of your own as module_filter_fn."
        raise NotImplementedError(message(f"_auto_filter_for_recipe({found.value!r})", allowed, do))
    by_rows = found is Float8LinearRecipeName.ROWWISE
    chosen = _auto_filter_for_rowwise if by_rows else _auto_filter_for_tensorwise
    return partial(chosen, filter_fqns=list(filter_fqns))


def _auto_filter_for_rowwise(mod: nn.Module, fqn: str, filter_fqns: list[str]) -> bool:
    """Whether a layer is taken for "rowwise"."""
    n, k = _sizes(mod, fqn, filter_fqns)
    return n > 2048 and k > 1024 and (n > 4096 or k > 2048)


def _auto_filter_for_tensorwise(mod: nn.Module, fqn: str, filter_fqns: list[str]) -> bool:
    """Whether a layer is taken for "tensorwise"."""
    n, k = _sizes(mod, fqn, filter_fqns)
    return n > 1024 or k > 4096


def _sizes(mod: nn.Module, fqn: str, filter_fqns: list[str]) -> tuple[int, int]:
    """Output and input features; zeros for other modules, names with a part of ``filter_fqns``, no multiples of 16."""
    if not isinstance(mod, nn.Linear) or any(part in fqn for part in filter_fqns):
        return 0, 0
    n, k = mod.out_features, mod.in_features
    return (n, k) if n % 16 == k % 16 == 0 else (0, 0)
