"""Calibration inputs as batches of samples, and their division into those searched with and those held back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import refusal

__all__ = ["Batch", "divided", "read_batches", "samples_in"]

_ALLOWED = "a tensor, a tuple (model(*inputs)), a dict (model(**inputs)), or a list of these"


@dataclass(frozen=True)
class Batch:
    """Arguments of one call of the model. ``samples``: the size that dimension 0 of all its tensors shares, else 1."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    samples: int
    is_divisible: bool

    def take(self, rows: Sequence[int]) -> Batch:
        """The batch of these samples."""
        at = torch.tensor(list(rows), dtype=torch.long)
        args = tuple(_taken(value, at) for value in self.args)
        return Batch(args, {name: _taken(value, at) for name, value in self.kwargs.items()}, len(rows), True)

    def first(self, most: int) -> Batch:
        """The batch of its first ``most`` samples."""
        return self.take(range(most)) if self.is_divisible and self.samples > most else self


def read_batches(inputs: Any, name: str = "inputs") -> list[Batch]:
    """The batches that ``inputs`` means.

    Raises:
        SearchError: for anything but tensors, tuples and dicts with a tensor in them, and for batches without a sample.
    """
    entries = inputs if isinstance(inputs, list) else [inputs]
    found = [_batch(entry, name) for entry in entries]
    if not sum(batch.samples for batch in found):
        raise refusal(f"{name} without a sample", "at least one sample, better hundreds", f"Give {_ALLOWED}.")
    return [batch for batch in found if batch.samples]


def _batch(entry: Any, name: str) -> Batch:
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(entry, Mapping):
        kwargs = dict(entry)
    elif isinstance(entry, tuple):
        args = entry
    else:
        args = (entry,)
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    if not tensors or not all(isinstance(key, str) for key in kwargs):
        raise refusal(f"{name} with a {type(entry).__name__} without tensors", _ALLOWED, "Give what the model takes.")
    sizes = {value.shape[0] if value.dim() else None for value in tensors}
    size = next(iter(sizes)) if len(sizes) == 1 else None
    if any(value.numel() == 0 for value in tensors) and size != 0:
        raise refusal(
            f"{name} with a tensor of shape {tuple(next(t for t in tensors if not t.numel()).shape)}",
            "tensors with elements",
            "Leave out empty tensors.",
        )
    return Batch(args, kwargs, 1 if size is None else int(size), size is not None)


def _taken(value: Any, rows: Tensor) -> Any:
    return value.index_select(0, rows.to(value.device)) if isinstance(value, Tensor) else value


def samples_in(batches: Sequence[Batch]) -> int:
    """How many samples they have together."""
    return sum(batch.samples for batch in batches)


def divided(batches: Sequence[Batch], share: float, seed: int) -> tuple[list[Batch], list[Batch]]:
    """(batches to search with, batches held back): ``share`` of the samples, chosen by ``seed``, is held back.

    At least one sample stays on each side where there are two or more and ``share`` is not 0. A batch that is not
    divisible counts as one sample.
    """
    units = [(i, j) for i, batch in enumerate(batches) for j in range(batch.samples if batch.is_divisible else 1)]
    count = min(max(round(share * len(units)), 1), len(units) - 1) if share else 0
    order = torch.randperm(len(units), generator=torch.Generator().manual_seed(seed & (2**63 - 1))).tolist()
    held = {units[at] for at in order[:count]}
    ours: list[Batch] = []
    theirs: list[Batch] = []
    for i, batch in enumerate(batches):
        if not batch.is_divisible:
            (theirs if (i, 0) in held else ours).append(batch)
            continue
        for rows, into in (
            ([j for j in range(batch.samples) if (i, j) not in held], ours),
            ([j for j in range(batch.samples) if (i, j) in held], theirs),
        ):
            if rows:
                into.append(batch.take(rows))
    return ours, theirs
