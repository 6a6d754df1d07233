"""Keeps the steps of optimizers native: what an optimizer multiplies is no part of the model.

A context that is opened inside a step applies there. The closure that a step calls is code of the model.
"""

from __future__ import annotations

import sys
from functools import wraps
from threading import Lock
from types import FrameType
from typing import Any

import torch
from torch.optim import optimizer as hooks

from ..module_paths import Placed

__all__ = ["is_stepping", "remove_hooks", "install_hooks"]

_KEY = -0x6E6F
_lock = Lock()
_count = 0


def install_hooks() -> None:
    """Requests hooks around the steps of all optimizers."""
    global _count
    with _lock:
        _count += 1
        hooks._global_optimizer_pre_hooks[_KEY] = _before
        hooks._global_optimizer_post_hooks[_KEY] = _after


def remove_hooks() -> None:
    """Ends one request; the last one removes the hooks."""
    global _count
    with _lock:
        _count -= 1
        if not _count:
            hooks._global_optimizer_pre_hooks.pop(_KEY, None)
            hooks._global_optimizer_post_hooks.pop(_KEY, None)


def is_stepping(mode: Placed) -> bool:
    """Whether an optimizer that was called inside the mode's context is running."""
    frame = mode.steppers[-1]
    if frame is None or _runs(frame):
        return True
    mode.steppers.clear()  # the step ended by an error
    return False


def _runs(sought: FrameType) -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame is sought:
            return True
        frame = frame.f_back
    return False


def _modes() -> list[Placed]:
    return [mode for mode in torch.overrides._get_current_function_mode_stack() if isinstance(mode, Placed)]


def _before(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Hook: an optimizer is about to step. Its closure runs as code outside the step does."""
    modes = _modes()
    frame = None if torch.compiler.is_compiling() else sys._getframe(1)
    for mode in modes:
        mode.steppers.append(frame)
    if frame is None or not any(callable(value) for value in (*args[1:], *kwargs.values())):
        return None
    given = (*args[:1], *(_outside(value, modes) for value in args[1:]))
    return given, {name: _outside(value, modes) for name, value in kwargs.items()}


def _after(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Hook: an optimizer has stepped."""
    for mode in _modes():
        if mode.steppers:
            mode.steppers.pop()


def _outside(value: Any, modes: list[Placed]) -> Any:
    """``value``; if it is a function, it runs as it would outside the step."""
    if not callable(value):
        return value

    @wraps(value)
    def closure(*args: Any, **kwargs: Any) -> Any:
        held = [mode.steppers for mode in modes]
        for mode in modes:
            mode.steppers = []
        try:
            return value(*args, **kwargs)
        finally:
            for mode, steppers in zip(modes, held, strict=True):
                mode.steppers = steppers

    return closure
