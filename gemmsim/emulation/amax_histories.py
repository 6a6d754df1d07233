"""The amax histories of emulated products with delayed scales: one for each call of a kind of product in a step."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from gemmsim.arithmetic import UnsupportedSpec
from gemmsim.ops.errors import message
from gemmsim.ops.product.amax_history import Lengths, empty_history, scales_of_call

from .rules import ConfigError

__all__ = ["Delayed", "Histories", "as_lists", "delayed_scales", "from_lists", "history_at", "refuse_compiled"]

#: "path|kind|number of the call in its step" -> its history (``ops.product.amax_history``).
Histories: TypeAlias = dict[str, Tensor]


class Delayed(NamedTuple):
    """What a call site with delayed scales has: where its history is kept, under which name, for how many calls, and
    whether the call is one of training, which adds to it."""

    histories: Histories
    name: str
    lengths: Lengths
    training: bool


def history_at(site: Delayed, device: torch.device) -> Tensor:
    """The history of a call, on ``device``; an empty one for the first call.

    Raises:
        ConfigError: where a restored history is of another number of calls.
    """
    found = site.histories.get(site.name)
    if found is None:
        found = site.histories[site.name] = empty_history(site.lengths, device)
    if found.shape[-1] != 2 + max(site.lengths):
        asked = f"emulate: {site.name!r} has the amax of {found.shape[-1] - 2} calls, not {max(site.lengths)}"
        raise ConfigError(message(asked, "the same number", "Restore it under the recipe that it was saved with."))
    if found.device != device:
        found = site.histories[site.name] = found.to(device)
    return found


def delayed_scales(site: Delayed, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor | None]:
    """What ``ops.product.matmul.affine`` takes as ``amax`` and ``history``."""
    history = history_at(site, a.device)
    amax = scales_of_call(history, site.lengths, a, b, site.training)
    return amax, history if site.training and site.lengths[2] else None


def refuse_compiled() -> None:
    """The error of a product with delayed scales in compiled code.

    Raises:
        UnsupportedSpec: always.
    """
    asked = "emulate with delayed scales inside torch.compile, which cannot create amax histories"
    do = "Make its linear layers gemmsim.nn.QLinear(..., spec='hopper_fp8_delayed'), which compile."
    raise UnsupportedSpec(message(asked, "uncompiled models", do))


def as_lists(histories: Histories) -> dict[str, list[list[float]]]:
    """Histories as numbers, without the entries behind the last one that is not zero."""
    return {name: [_shortened(row) for row in history.tolist()] for name, history in histories.items()}


def _shortened(row: list[float]) -> list[float]:
    last = max((i for i, x in enumerate(row) if x != 0.0), default=0)
    return [*row[: last + 1], float(len(row))]


def from_lists(stored: Any) -> Histories:
    """The histories that ``as_lists`` wrote.

    Raises:
        ConfigError: for anything else.
    """
    try:
        return {str(name): torch.tensor([_whole(row) for row in rows]) for name, rows in dict(stored).items()}
    except (TypeError, ValueError, IndexError) as error:
        asked = f"load_state_dict: amax histories, {type(error).__name__}: {error}"
        raise ConfigError(message(asked, "what state_dict saved", "Give what it returned.")) from None


def _whole(row: list[float]) -> list[float]:
    *numbers, size = row
    return [*numbers, *[0.0] * (int(size) - len(numbers))]
