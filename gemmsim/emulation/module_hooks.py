"""Puts hooks on the calls of all modules, and removes them when the last request for them ends."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any

import torch
from torch.nn.modules import module as hooks

from .dynamo_bodies import unseen_change

__all__ = ["ModuleHooks"]

_lock = Lock()
#: Number of requests for hooks of any kind, and the filter that hides a warning of PyTorch meanwhile.
_asking = 0
_TEXT = re.compile(r"Using `torch.compile\(module\)` when there are global hooks")
_QUIET: Any = ("ignore", _TEXT, UserWarning, None, 0)


class ModuleHooks:
    """A hook before every call of a module, and an optional one after it, which is called after errors as well.

    ``key``: the hooks' key among those on all modules. It never changes, because compiled code remembers it.
    """

    def __init__(self, key: int, before: Callable[..., Any], after: Callable[..., Any] | None = None) -> None:
        self.key, self.before, self.after = key, before, after
        self.count = 0

    def put(self) -> None:
        """Requests the hooks."""
        if torch.compiler.is_compiling():  # the compiled code repeats this when it runs
            unseen_change(self._put)
            return
        with _lock:
            self._put()
            _warn_less(1)

    def take(self) -> None:
        """Ends one request; the last one removes the hooks."""
        if torch.compiler.is_compiling():
            unseen_change(self._take)
            return
        with _lock:
            self._take()
            _warn_less(-1)

    def _put(self) -> None:
        self.count += 1
        hooks._global_forward_pre_hooks[self.key] = self.before
        if self.after is not None:
            hooks._global_forward_hooks[self.key] = self.after
            hooks._global_forward_hooks_always_called[self.key] = True

    def _take(self) -> None:
        self.count -= 1
        if self.count == 0:
            hooks._global_forward_pre_hooks.pop(self.key, None)
            hooks._global_forward_hooks.pop(self.key, None)
            hooks._global_forward_hooks_always_called.pop(self.key, None)


def _warn_less(change: int) -> None:
    """Hides a warning of the compiler while any hooks are requested.

    It says that hooks on all modules also run for the compiler's wrapper of a module. These hooks ignore wrappers.
    """
    global _asking
    _asking += change
    if _asking == change == 1:
        warnings.filters.insert(0, _QUIET)  # type: ignore[attr-defined]
    elif not _asking:
        with suppress(ValueError):  # the program has replaced all filters
            warnings.filters.remove(_QUIET)  # type: ignore[attr-defined]
