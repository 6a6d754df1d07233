"""Code of the forward pass that runs later: recomputation in checkpoints, backward passes of others' functions.

It belongs to the context in which its forward pass ran, wherever and in whichever thread it runs. A snapshot keeps what
held there: the config, the place and the counters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from threading import Lock, local
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .places import Placed, Places

__all__ = ["Snapshot", "checkpoint_contexts", "closed", "current", "is_engine", "opened"]

#: Calls that run a backward pass: a mode is not in force while it handles one.
_ENGINE = frozenset((Tensor.backward, torch.autograd.backward, torch.autograd.grad))
_CHECKPOINTS = ("torch.utils.checkpoint", "torch.distributed._composable.checkpoint_activation")
_GENERATOR = "_checkpoint_without_reentrant_generator"

_lock = Lock()
_open = 0
_undo: list[Callable[[], None]] = []


class Snapshot(NamedTuple):
    """A context at one moment."""

    mode: Any
    places: Places | None

    @classmethod
    def take(cls) -> Snapshot | None:
        """Of the emulation in force in this thread, if there is one."""
        mode = current()
        if mode is None:
            return None
        return cls(mode, None if mode.places is None else mode.places.copy())

    @contextmanager
    def restored(self) -> Iterator[None]:
        """The context as it was."""
        with self.mode.at(None if self.places is None else self.places.copy()):
            yield


def current() -> Any:
    """The emulation in force in this thread, None if there is none."""
    stack = torch.overrides._get_current_function_mode_stack()
    return next((mode for mode in reversed(stack) if isinstance(mode, Placed)), None)


def is_engine(func: Any) -> bool:
    """Whether ``func`` runs a backward pass."""
    return func in _ENGINE


def opened() -> None:
    """A context opens: from the first one on, checkpoints and others' functions take snapshots."""
    global _open
    with _lock:
        _open += 1
        if _open == 1:
            _undo.append(_replace_apply())
            _undo.extend(_replace_generators())


def closed() -> None:
    """A context closes: after the last one PyTorch is as it was."""
    global _open
    with _lock:
        _open -= 1
        while not _open and _undo:
            _undo.pop()()


def checkpoint_contexts() -> tuple[Any, Any]:
    """``context_fn`` of ``torch.utils.checkpoint.checkpoint``: recomputation in the context of the forward pass.

    While a context of ``emulate`` is open checkpoints do so by themselves; this is for PyTorch versions in which the
    private name that takes is missing, where a checkpoint's recomputation outside the context would be PyTorch's own.
    """
    taken = Snapshot.take()
    return _nothing(), _nothing() if taken is None else taken.restored()


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _replace_generators() -> list[Callable[[], None]]:
    """Non-reentrant checkpoints whose recomputation restores the context."""
    undo: list[Callable[[], None]] = []
    for name in _CHECKPOINTS:
        module = sys.modules.get(name)
        original = getattr(module, _GENERATOR, None)
        if original is not None:
            setattr(module, _GENERATOR, _with_snapshot(original))
            undo.append(partial(setattr, module, _GENERATOR, original))
    return undo


def _with_snapshot(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def generator(fn: Any, preserve_rng_state: Any = True, context_fn: Any = None, *args: Any, **kwargs: Any) -> Any:
        given = torch.utils.checkpoint.noop_context_fn if context_fn is None else context_fn
        if torch.compiler.is_compiling():
            return original(fn, preserve_rng_state, given, *args, **kwargs)

        def contexts() -> tuple[Any, Any]:
            taken = Snapshot.take()
            forward, recompute = given()
            return forward, recompute if taken is None else _both(taken, recompute)

        return original(fn, preserve_rng_state, contexts, *args, **kwargs)

    return generator


@contextmanager
def _both(taken: Snapshot, recompute: Any) -> Iterator[None]:
    with taken.restored(), recompute:
        yield


class _Calls(local):
    """Snapshots of the calls of ``Function.apply`` that run in this thread, innermost last."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []


_CALLS = _Calls()
#: The class that stands for one of others' functions.
_TIED: WeakKeyDictionary[type, type] = WeakKeyDictionary()


def _replace_apply() -> Callable[[], None]:
    """Functions of others whose backward pass restores the context."""
    original = torch.autograd.Function.__dict__["apply"]

    @wraps(original.__func__)
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or cls.__module__.startswith("gemmsim.") or hasattr(cls, "_gemmsim_tied"):
            return original.__func__(cls, *args, **kwargs)
        taken = Snapshot.take()
        if taken is None:
            return original.__func__(cls, *args, **kwargs)
        _CALLS.snapshots.append(taken)
        try:
            return original.__func__(_tied(cls), *args, **kwargs)
        finally:
            _CALLS.snapshots.pop()

    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[method-assign, assignment]
    return partial(setattr, torch.autograd.Function, "apply", original)


def _tied(function: Any) -> Any:
    """``function`` with a backward pass in the context of its forward pass, under the same name."""
    found = _TIED.get(function)
    if found is None:
        two_steps = function.setup_context is not torch.autograd.Function.setup_context
        members: dict[str, Any] = {"_gemmsim_tied": True, "__module__": function.__module__}
        first = "setup_context" if two_steps else "forward"
        members[first] = staticmethod(_remembering(getattr(function, first)))
        for name in ("backward", "vjp"):
            if name in dir(function) and getattr(function, name) is not getattr(torch.autograd.Function, name, None):
                members[name] = staticmethod(_restoring(getattr(function, name)))
        found = _TIED[function] = type(function.__name__, (function,), members)
    return found


def _remembering(first: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(first)
    def remember(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._gemmsim_snapshot = _CALLS.snapshots[-1]
        return first(ctx, *args, **kwargs)

    return remember


def _restoring(backward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(backward)
    def restore(ctx: Any, *grads: Any) -> Any:
        taken = getattr(ctx, "_gemmsim_snapshot", None)
        if taken is None:
            return backward(ctx, *grads)
        with taken.restored():
            return backward(ctx, *grads)

    return restore
