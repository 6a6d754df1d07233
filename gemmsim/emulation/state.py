"""Saves and restores the counts of steps, which decide random bits together with seeds, and delayed scales."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from gemmsim.ops.errors import SeedError, message

from .amax_histories import as_lists, from_lists
from .conversion import Arithmetic, arithmetic_of
from .rules import ConfigError
from .steps import checked, counts, load_counts

__all__ = ["load_state_dict", "state_dict"]

_VERSION = 1


def state_dict(model: nn.Module | None = None) -> dict[str, Any]:
    """The numbers of the steps that the next calls take, as a dictionary of strings, numbers and lists.

    ``contexts`` has the counts of this process: one for each config and seed of ``emulate`` without ``step``.
    ``models`` has those of the converted modules in ``model``, by path: config, seed and step. A run that saves them
    with a model's weights and restores them by ``load_state_dict`` continues with the bits of an uninterrupted run.
    Where scales are delayed, both have the amax histories, too. In a checkpoint:

        torch.save({"model": model.state_dict(), "steps": gs.emulation.state_dict(model)}, "checkpoint.pt")

    Args:
        model: a model with converted modules, or None.

    Example:
        >>> model = torch.nn.Sequential(gs.convert(torch.nn.Linear(4, 2), "e4m3 : fp32/sr16", seed=7))
        >>> model(torch.ones(4)).shape
        torch.Size([2])
        >>> {path: counts["step"] for path, counts in gs.emulation.state_dict(model)["models"].items()}
        {'0': 1}
    """
    models = {path: _of(arithmetic) for path, arithmetic in _converted(model).items()}
    return {"version": _VERSION, "contexts": counts(), "models": models}


def load_state_dict(state: Mapping[str, Any], model: nn.Module | None = None) -> None:
    """Restores the counts of steps from the time when ``state_dict`` was called.

    Counts that the state does not have begin anew, in this process as in a new one. Open contexts continue from the
    restored number.

    Args:
        state: what ``state_dict`` returned.
        model: the model whose converted modules continue their counts, too.

    Raises:
        ConfigError: for anything else, a later version, and a model that is not converted as it was.

    Example:
        >>> old, new = (gs.convert(torch.nn.Linear(4, 2), "e4m3 : fp32/sr16", step=step) for step in (3, 0))
        >>> gs.emulation.load_state_dict(gs.emulation.state_dict(old), new)
        >>> gs.emulation.arithmetic_of(new).step
        3
    """
    try:
        version, contexts, models = state["version"], list(state["contexts"]), dict(state["models"])
    except (TypeError, KeyError, ValueError) as error:
        asked = f"load_state_dict: a {type(state).__name__} ({type(error).__name__}: {error})"
        do = "Give what gemmsim.emulation.state_dict returned."
        raise ConfigError(message(asked, "a mapping with version, contexts and models", do)) from None
    if version != _VERSION:
        asked = f"load_state_dict: a state of version {version!r}"
        raise ConfigError(message(asked, f"version {_VERSION}", "Use the version of gemmsim that saved it."))
    found = _converted(model)
    steps = {path: _step(path, stored, found.get(path)) for path, stored in models.items()} if found else {}
    histories = {path: from_lists(models[path].get("amax_histories", {})) for path in steps}
    load_counts(contexts)
    for path, step in steps.items():
        found[path].step = step
        found[path].steps.histories.clear()
        found[path].steps.histories.update(histories[path])


def _converted(model: nn.Module | None) -> dict[str, Arithmetic]:
    """The arithmetics in ``model`` that draw random bits, by the path of the outermost module of each."""
    found: dict[str, Arithmetic] = {}
    for path, module in model.named_modules() if model is not None else ():
        arithmetic = arithmetic_of(module)
        if arithmetic is not None and arithmetic.config.draws and not any(arithmetic is one for one in found.values()):
            found[path] = arithmetic
    return found


def _of(arithmetic: Arithmetic) -> dict[str, Any]:
    more = {"amax_histories": as_lists(arithmetic.steps.histories)} if arithmetic.steps.histories else {}
    return {"config": arithmetic.text, "seed": arithmetic.seed, "step": arithmetic.step, **more}


def _step(path: str, stored: Mapping[str, Any], arithmetic: Arithmetic | None) -> int:
    """The stored step of the module at ``path``, which must be converted as it was."""
    now = None if arithmetic is None else (arithmetic.text, arithmetic.seed)
    try:
        before, step = (stored["config"], stored["seed"]), checked("load_state_dict", stored["step"])
    except (TypeError, KeyError, SeedError):
        before, step = None, 0
    if before is None or before != now:
        asked = f"load_state_dict: module {path!r} was converted with {before}, and now with {now}"
        do = "Convert the model with the same config and seed before its state is loaded."
        raise ConfigError(message(asked, "the same config and seed", do))
    return step
