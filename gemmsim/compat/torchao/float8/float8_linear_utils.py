"""``torchao.float8.float8_linear_utils``: functions that put float8 layers into models."""

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
    """Replace the linear layers of ``module`` for which ``module_filter_fn(layer, name)`` is true, inner ones first.

    The result is ``module``, or the replacement of a linear layer without others inside, which has the name "". A log
    message says what was converted and what was left (``gemmsim.nn.Conversion``). Left are lazy layers, layers whose
    weight or bias is not a parameter, layers with a ``forward`` set on the object, and layers with modules inside.
    Errors name the layer and leave ``module`` unchanged.

    Raises:
        LayoutError: for a linear layer with modules inside, as ``module`` itself; a ShapeError, an AssertionError.
        TypeError: for anything but a module.

    Example:
        >>> from gemmsim.compat.torchao.float8.float8_linear_utils import swap_linear_layers
        >>> swap_linear_layers(torch.nn.Sequential(torch.nn.Linear(2, 1)), lambda layer: torch.nn.Identity())
        Sequential(
          (0): Identity()
        )
    """
    return _swapped("torchao.swap_linear_layers", module, from_float_func, module_filter_fn)


def convert_to_float8_training(
    module: nn.Module,
    *,
    module_filter_fn: FilterFn | None = None,
    config: Float8LinearConfig | None = None,
) -> nn.Module:
    """Convert the linear layers of ``module`` for which ``module_filter_fn(layer, name)`` is true to ``Float8Linear``.

    Parameters stay the same objects under the same names. Results, layers left and errors as ``swap_linear_layers``.

    Args:
        config: of all layers; default: ``Float8LinearConfig()``, the recipe "tensorwise".

    Raises:
        LayoutError: for a linear layer with modules inside, as ``module`` itself; a ShapeError, an AssertionError.
        TypeError: for anything but a module, and for another config.
        ElementError: for dtypes that Hopper's instructions lack, without ``emulate``; a FormatError.

    Example:
        >>> convert = gs.compat.torchao.float8.convert_to_float8_training
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        >>> [type(layer).__name__ for layer in convert(model, module_filter_fn=lambda layer, name: name != "2")]
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
    """A ``module_filter_fn`` that accepts linear layers which torchao measured to be faster in float8 on an H100.

    It accepts sizes that are multiples of 16 and above thresholds of the recipe, unless the name contains one of
    ``filter_fqns``. The filter concerns speed alone: gemmsim can convert every layer.

    Raises:
        NotImplementedError: for "rowwise_with_gw_hp", for which torchao has no thresholds.
        ElementError: for another recipe; a FormatError (ValueError) and an AssertionError.

    Example:
        >>> from gemmsim.compat.torchao.float8 import _auto_filter_for_recipe
        >>> chosen = _auto_filter_for_recipe("rowwise", ["head"])
        >>> [chosen(torch.nn.Linear(n, n, device="meta"), "up") for n in (1024, 4096)]
        [False, True]
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
