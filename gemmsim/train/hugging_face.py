"""Checkpoints of Hugging Face's Trainer that know how many steps of random bits were drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gemmsim as gs
from gemmsim._files import write_text

from .files import TrainError

__all__ = ["trainer_callback"]

_NAME = "gemmsim_steps_{}.json"


def trainer_callback(resume_from: str | Path | None = None) -> Any:
    """Return a ``transformers.TrainerCallback`` that saves ``gemmsim.emulation.state_dict`` with checkpoints and
    restores it.

    With it, a run that ``Trainer.train(resume_from_checkpoint=...)`` resumes has the random bits of an uninterrupted
    one, in contexts without ``step`` and in converted models. Each process writes its own file,
    ``checkpoint-N/gemmsim_steps_RANK.json``, under another name first.

        Trainer(model, args, train_dataset=data, callbacks=[gs.train.trainer_callback()])

    Args:
        resume_from: the checkpoint's folder, if it is not ``checkpoint-N`` in ``output_dir``.

    Raises:
        ImportError: without transformers.
        TrainError: when training begins at a later step and the checkpoint has no such file.

    Example:
        >>> from contextlib import suppress
        >>> with suppress(ImportError):  # without transformers
        ...     callbacks = [gs.train.trainer_callback()]
    """
    from transformers import TrainerCallback

    class StepsCallback(TrainerCallback):
        """Saves and restores the counts of steps."""

        def on_save(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
            path = _path(args, state, None)
            write_text(path, json.dumps(gs.emulation.state_dict(model)) + "\n")

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
            if state.global_step:
                gs.emulation.load_state_dict(_read(_path(args, state, resume_from)), model)

    return StepsCallback()


def _path(args: Any, state: Any, folder: str | Path | None) -> Path:
    home = Path(args.output_dir) / f"checkpoint-{state.global_step}" if folder is None else Path(folder)
    return home / _NAME.format(args.process_index)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        asked = f"trainer_callback: '{path}': {type(error).__name__}; allowed: a file that it saved with the checkpoint"
        do = "Name the checkpoint's folder, trainer_callback(resume_from=folder), or continue without this callback."
        raise TrainError(f"{asked}.\n  {do}") from error
    return found
