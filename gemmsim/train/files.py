"""What a run leaves in its folder: metrics and a checkpoint, each either complete or as it was before."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from gemmsim._files import replacing, write_text

__all__ = ["TrainError", "load_checkpoint", "read_metrics", "save_checkpoint", "write_metrics"]

#: Columns of a metrics row.
Row = dict[str, Any]

METRICS, CHECKPOINT = "metrics.jsonl", "checkpoint.pt"


class TrainError(ValueError):
    """Raised for a folder, checkpoint or argument that a run cannot use.

    Example:
        >>> gs.train.Batches(torch.ones(2), torch.ones(3), size=1)
        Traceback (most recent call last):
            ...
        gemmsim.train.files.TrainError: Batches of tensors with [2, 3] rows, size 1; allowed: equal ...
    """


def write_metrics(folder: Path, rows: Sequence[Row]) -> None:
    """One JSON object a line, a new file under the old name. Infinite and NaN metrics are null."""
    text = "".join(json.dumps({k: _plain(v) for k, v in row.items()}, allow_nan=False) + "\n" for row in rows)
    write_text(folder / METRICS, text)


def read_metrics(folder: str | Path) -> list[Row]:
    """Return the rows of a run's ``metrics.jsonl``, oldest first; an empty list if there is no such file.

    Example:
        >>> gs.train.read_metrics("no such folder")
        []
    """
    path = Path(folder) / METRICS
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def save_checkpoint(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the folder's checkpoint; the one before stays until this one is complete."""
    with replacing(folder / CHECKPOINT) as path:
        torch.save(dict(content), path)


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The folder's checkpoint, None if there is none. ``TrainError`` for a file that is none."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
        raise TrainError(f"'{path}' is not a checkpoint ({error}).\n  Remove it, or choose another folder.") from error
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
