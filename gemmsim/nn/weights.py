"""What modules have that their class does not say: a ``forward`` of their own, weights that are no parameters.

Parametrisations and hooks compute such weights from others, anew before each call.
``torch.nn.utils.weight_norm`` and ``spectral_norm`` and ``torch.nn.utils.prune`` put a forward pre-hook on a module,
which sets ``module.weight`` when the module is called: between two calls the attribute holds what the last one used,
whatever became of the parameters behind it. ``torch.nn.utils.parametrize`` computes a weight at every look.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from gemmsim.ops.errors import message

from .emulated_marker import is_ours, keep_called

__all__ = [
    "ComputedWeightError",
    "computed_parameter",
    "current_weight",
    "is_computed_elsewhere",
    "linear_like",
    "own_forward",
    "refuse_computed",
    "refuse_own_forward",
    "take_hooks",
]

_Linear = TypeVar("_Linear", bound=nn.Linear)
_DO = (
    "Make it a parameter first: torch.nn.utils.parametrize.remove_parametrizations, remove_weight_norm, "
    "remove_spectral_norm, prune.remove."
)
#: Hooks of a module that are called with it, and what is noted of them.
_HOOKS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_pre_hooks",
    "_backward_hooks",
)


class ComputedWeightError(TypeError):
    """Raised when a layer's weight or bias is not a parameter but the operation must share it or write to it.

    Example:
        >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(8, 8))
        >>> gs.mx.MXLinear.from_float(layer, "mxfp8_e4m3")
        Traceback (most recent call last):
            ...
        gemmsim.nn.weights.ComputedWeightError: MXLinear.from_float of a ParametrizedLinear: parametrised ...
    """


def computed_parameter(module: nn.Module, *names: str) -> str:
    """Why one of these attributes (by default weight and bias) is no parameter; empty if all are, or are None.

    Nothing is computed: a look at a parametrised weight may change its module.
    """
    for name in names or ("weight", "bias"):
        if is_parametrized(module, name):
            return "parametrised (torch.nn.utils.parametrize)"
        if name in module._parameters:
            continue
        hook = next((hook for hook in module._forward_pre_hooks.values() if _sets(hook) == name), None)
        if hook is not None:
            return f"its {name} is computed by a hook ({type(hook).__name__})"
        own = vars(module).get(name, module._buffers.get(name))
        if own is not None or hasattr(type(module), name):
            return f"its {name} is no parameter"
    return ""


def own_forward(module: nn.Module) -> str:
    """Why a module computes another thing than its class: it has a ``forward`` of its own; empty if it has none.

    An attribute of the instance goes before the method of its class, so it stays where the class is exchanged. Others
    wrap modules so (accelerate's hooks).
    """
    return "it has its own forward (an attribute of the module)" if "forward" in vars(module) else ""


def refuse_computed(owner: str, module: nn.Module, *names: str) -> None:
    """``ComputedWeightError`` for a layer of which one of these attributes (weight and bias) is no parameter."""
    why = computed_parameter(module, *names)
    if why:
        asked = f"{owner} of a {type(module).__name__}: {why}"
        raise ComputedWeightError(message(asked, "layers whose weight and bias are parameters", _DO))


def refuse_own_forward(owner: str, module: nn.Module) -> None:
    """``TypeError`` for a module that computes with a ``forward`` of its own, which no class would replace."""
    if why := own_forward(module):
        asked = f"{owner} of a {type(module).__name__}: {why}"
        do = "Convert it before, or open gemmsim.emulate, which replaces its products."
        raise TypeError(message(asked, "modules that use their class's forward", do))


def current_weight(module: nn.Module, name: str = "weight") -> Tensor:
    """What the next call of ``module`` finds as its ``name``, computed as that call does; ``module`` stays as it is.

    In training mode ``spectral_norm`` goes a step of its power iteration further at each call: so does this, and
    takes the step back. Random parametrisations draw what the next call draws.

    Raises:
        ComputedWeightError: for an attribute that is neither parameter nor buffer, and that no hook of
            ``torch.nn.utils`` computes: whoever set it may set it anew before the next call.
    """
    if is_parametrized(module, name):
        with _kept(module):
            return cast(Tensor, getattr(module, name))
    if name not in vars(module):
        return cast(Tensor, getattr(module, name))
    hooks = [hook for hook in module._forward_pre_hooks.values() if _sets(hook) == name]
    if is_computed_elsewhere(module, name):
        foreign = [hook for hook in module._forward_pre_hooks.values() if _sets(hook) is None and not is_ours(hook)]
        who = f"{foreign[0]!r}" if foreign else "the code around the layer"
        asked = f"the weight of a {type(module).__name__}: its {name} is no parameter, and {who} may set it"
        do = "Calibrate with data, which calls the layer, or make it a parameter."
        raise ComputedWeightError(message(asked, "parameters, buffers, and hooks of torch.nn.utils", do))
    with _kept(module):
        for hook in hooks:
            hook(module, ())
        return cast(Tensor, vars(module)[name])


def is_computed_elsewhere(module: nn.Module, name: str = "weight") -> bool:
    """Whether ``name`` is a plain attribute without a known hook that sets it: only a call shows its value."""
    return name in vars(module) and all(_sets(hook) != name for hook in module._forward_pre_hooks.values())


def take_hooks(made: Any, module: Any) -> None:
    """Give ``made`` the hooks of ``module``, in whose place it is called."""
    for name in _HOOKS:
        setattr(made, name, getattr(module, name).copy())
    made._is_full_backward_hook = module._is_full_backward_hook
    keep_called(made)


def linear_like(cls: type[_Linear], module: nn.Linear, **options: Any) -> _Linear:
    """A ``cls`` of the sizes of ``module``, with its bias, hooks and mode; its weight has no values yet.

    Raises:
        ComputedWeightError: where a parametrisation or a hook computes the weight or the bias.
    """
    refuse_computed(f"{cls.__name__}.from_float", module)
    made = cls(module.in_features, module.out_features, module.bias is not None, device="meta", **options)
    made.bias = module.bias
    take_hooks(made, module)
    return made.train(module.training)


def _sets(hook: Any) -> str | None:
    """The attribute that a hook of ``torch.nn.utils`` computes; None of others."""
    if isinstance(hook, (WeightNorm, SpectralNorm)):
        return hook.name
    return hook._tensor_name if isinstance(hook, BasePruningMethod) else None


@contextmanager
def _kept(module: nn.Module) -> Iterator[None]:
    """After it, attributes, buffers and random generators are as before."""
    attributes = dict(vars(module))
    buffers = [(t, t.detach().clone()) for t in module.buffers() if t is not None]
    devices = sorted({t.device.index for t in module.parameters() if t.device.type == "cuda"})
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        for name in vars(module).keys() - attributes.keys():
            del vars(module)[name]
        vars(module).update(attributes)
        with torch.no_grad():
            for t, values in buffers:
                if not torch.equal(t, values):
                    t.copy_(values)
