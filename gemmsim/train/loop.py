"""The loop."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import gemmsim as gs

from .files import TrainError, load_checkpoint, save_checkpoint, write_metrics

__all__ = ["Progress", "fit"]

Row = dict[str, Any]


def fit(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[..., Tensor],
    data: Iterable[Any] | Callable[[int], Iterable[Any]],
    *,
    epochs: int,
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    scheduler: Any = None,
    folder: str | Path | None = None,
    resume: bool = True,
    setting: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> list[Row]:
    """Train ``model`` until it has seen ``epochs`` epochs; return one row of metrics for each.

    Args:
        loss: ``loss(model, *batch)`` returns the mean over the batch.
        data: batches as tuples, or a function that returns those of an epoch (``Batches``). Epochs count from 0.
        evaluate: returns metrics of the model after each epoch, in evaluation mode and without gradients.
        scheduler: its ``step()`` is called after each epoch.
        folder: receives ``metrics.jsonl`` and ``checkpoint.pt`` after each epoch; created if missing.
        resume: continue from the folder's checkpoint; if false, start anew and overwrite it.
        setting: plain values that say what is trained; a checkpoint of another setting is refused.
        progress: print a line for each epoch.

    A row has ``epoch`` (counted from 1), ``loss`` (mean of the batches' losses, weighted by their first tensors'
    lengths), ``lr``, ``seconds``, and what ``evaluate`` returns.

    A run that is interrupted and resumed has the bits of an uninterrupted one. The checkpoint holds model, optimizer,
    scheduler and the state of torch's generators (CPU and CUDA), which stochastic roundings use. It also holds the
    counts of steps on which the random bits of ``emulate`` and of converted models depend. Other sources of random
    numbers (``random``, NumPy) are not restored, nor are contexts with ``step``. Each file is complete, or as it was
    before.

    Raises:
        TrainError: for a checkpoint of another setting or model, and if there are no batches.

    Example:
        >>> model, x = torch.nn.utils.skip_init(torch.nn.Linear, 1, 1, bias=False), torch.ones(4, 1)
        >>> optimizer = torch.optim.SGD([torch.nn.init.zeros_(model.weight)], lr=0.25)
        >>> [row["loss"] for row in gs.train.fit(model, optimizer, lambda model, x: (model(x) - 1).square().mean(),
        ...     gs.train.Batches(x, size=4), epochs=3, progress=False)]
        [1.0, 0.25, 0.0625]
    """
    target = None if folder is None else Path(folder)
    rows: list[Row] = []
    if target is not None:
        target.mkdir(parents=True, exist_ok=True)
        stored = load_checkpoint(target) if resume else None
        if stored is not None:
            rows = _restore(target, stored, model, optimizer, scheduler, setting)
    shown = Progress(epochs, progress)
    for epoch in range(len(rows), epochs):
        started = time.perf_counter()
        row: Row = {"epoch": epoch + 1, "loss": _train_epoch(model, optimizer, loss, data, epoch, shown)}
        row["lr"] = float(optimizer.param_groups[0]["lr"])
        if scheduler is not None:
            scheduler.step()
        if evaluate is not None:
            row.update(_evaluated(model, evaluate))
        row["seconds"] = round(time.perf_counter() - started, 3)
        rows.append(row)
        if target is not None:
            write_metrics(target, rows)
            save_checkpoint(target, _state(model, optimizer, scheduler, setting, rows))
        shown.row(row)
    return rows


def _train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[..., Tensor], data: Any, epoch: int,
    shown: Progress,
) -> float:  # fmt: skip
    model.train()
    total, count = 0.0, 0
    for batch in data(epoch) if callable(data) else data:
        optimizer.zero_grad()
        value = loss(model, *batch)
        value.backward()
        optimizer.step()
        size = len(batch[0])
        total, count = total + float(value.detach()) * size, count + size
        shown.batch(epoch, total / count)
    if count == 0:
        raise TrainError(f"fit: no batches in epoch {epoch}; allowed: some.\n  An iterator is used up after one epoch.")
    return total / count


def _evaluated(model: nn.Module, evaluate: Callable[[nn.Module], Mapping[str, float]]) -> dict[str, float]:
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return dict(evaluate(model))
    finally:
        model.train(training)


def _state(model: nn.Module, optimizer: Any, scheduler: Any, setting: Any, rows: list[Row]) -> dict[str, Any]:
    return {
        "setting": dict(setting or {}),
        "rows": rows,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": None if scheduler is None else scheduler.state_dict(),
        "steps": gs.emulation.state_dict(model),
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def _restore(
    folder: Path, stored: dict[str, Any], model: nn.Module, optimizer: Any, scheduler: Any, setting: Any
) -> list[Row]:
    if stored["setting"] != dict(setting or {}):
        asked = f"fit: '{folder}' holds a run of {stored['setting']}, this one is {dict(setting or {})}"
        raise TrainError(f"{asked}; allowed: the same setting.\n  Choose another folder, or resume=False.")
    try:
        model.load_state_dict(stored["model"])
        optimizer.load_state_dict(stored["optimizer"])
    except (RuntimeError, ValueError) as error:
        do = "Choose another folder, or resume=False."
        raise TrainError(f"fit: the checkpoint in '{folder}' is of another model: {error}\n  {do}") from error
    if scheduler is not None and stored["scheduler"] is not None:
        scheduler.load_state_dict(stored["scheduler"])
    if "steps" in stored:
        gs.emulation.load_state_dict(stored["steps"], model)
    torch.set_rng_state(stored["random"])
    if torch.cuda.is_available() and len(stored["random_cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(stored["random_cuda"])
    rows: list[Row] = stored["rows"]
    return rows


class Progress:
    """Writes to standard error; moving lines only where that is a terminal."""

    def __init__(self, epochs: int, enabled: bool) -> None:
        self.epochs, self.enabled = epochs, enabled
        self.moves = enabled and sys.stderr.isatty()
        self._last = 0.0

    def batch(self, epoch: int, loss: float) -> None:
        """The running loss, ten times a second at most."""
        if self.moves and time.perf_counter() - self._last > 0.1:
            self._last = time.perf_counter()
            sys.stderr.write(f"\r\x1b[Kepoch {epoch + 1}/{self.epochs}  loss {loss:.4f} ...")
            sys.stderr.flush()

    def row(self, row: dict[str, Any]) -> None:
        """An epoch's metrics."""
        if not self.enabled:
            return
        shown = [f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items() if k != "epoch"]
        start = "\r\x1b[K" if self.moves else ""
        sys.stderr.write(f"{start}epoch {row['epoch']}/{self.epochs}  {'  '.join(shown)}\n")
        sys.stderr.flush()
