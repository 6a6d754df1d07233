"""Tracks where a program is: the path of the running module, the step, and the number of earlier calls of a kind."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock, local
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode

from gemmsim.ops.fx import Whole

from .dynamo_bodies import unseen_change
from .dynamo_support import in_compiled_graph
from .steps import SPREAD, Steps, Taken

__all__ = [
    "ModuleHooks",
    "Placed",
    "Places",
    "after",
    "await_first",
    "before",
    "install_hooks",
    "is_wrapper",
    "paths_of",
    "remove_hooks",
]

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


#: Modules around a model that are not its own. Paths do not include them.
_WRAPPERS = frozenset(
    (
        *("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "OptimizedModule"),
        *("CheckpointWrapper", "Wrapper", "ModuleWrapper"),
    )
)

#: Attributes in which they have the wrapped module.
_INSIDE = ("module", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_export_root", "mod")


def is_wrapper(module: nn.Module) -> bool:
    """Whether ``module`` wraps another one and does not change its paths."""
    kind = type(module)
    return kind.__name__ in _WRAPPERS and kind.__module__.startswith("torch.")


def _is_graph(module: nn.Module) -> bool:
    """Whether ``module`` is part of a graph that a compiler made. Its names are not those of the program."""
    return isinstance(module, GraphModule) and not torch.compiler.is_compiling() and in_compiled_graph()


def _has_weights(module: nn.Module) -> bool:
    return next(iter(module.parameters()), None) is not None


def unwrapped(module: nn.Module) -> nn.Module:
    """The model inside wrappers."""
    while is_wrapper(module):
        inside = [getattr(module, name, None) for name in _INSIDE]
        found = next((inner for inner in inside if isinstance(inner, nn.Module)), None)
        if found is None:
            return module
        module = found
    return module


def paths_of(root: nn.Module) -> dict[int, str]:
    """Path of every module in ``root`` by ``id``, without the names of wrappers.

    A shared module has the first of its paths.
    """
    found: dict[int, str] = {}

    def walk(module: nn.Module, path: str) -> None:
        if id(module) in found:
            return
        found[id(module)] = path
        inner = unwrapped(module)
        if inner is not module:
            found[id(inner)] = path
        for name, child in inner.named_children():
            walk(child, f"{path}.{name}" if path else name)

    walk(root, "")
    return found


#: Code that runs while a module is called: PyTorch's, and that of this package's modules.
_CALLS = (nn.Module._call_impl.__code__, Whole._call_impl.__code__)


def path_running() -> str:
    """Path of the module that is being called, read from the program's frames.

    Errors need it in contexts that track no places. It is "" outside modules, and in code that is traced.
    """
    if torch.compiler.is_compiling():
        return ""
    running: list[nn.Module] = []
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code in _CALLS:
            running.append(frame.f_locals["self"])
        frame = frame.f_back  # type: ignore[assignment]
    return paths_of(running[-1]).get(id(running[0]), "") if running else ""


class Places:
    """Paths and counters of one context.

    ``paths``: the names that the outermost modules give, by ``id``.
    ``stack``: paths of the modules that are running. ``training``: whether each is in training mode.
    ``steps``: the count of steps; None if no random bits are drawn.
    ``counter``: the number of this step, None before the first. It is a tensor, so that compiled code does not depend
    on its value.
    ``offset``: what the step adds to seeds.
    ``taken``: this step in a chain of steps. ``repeats``: whether these places follow a chain.
    ``calls``: number of calls of each kind at each path in this step.
    ``check``: called with the class of an outermost module, its paths, and the class of an earlier model ("" if there
    was none).
    """

    def __init__(
        self,
        root: nn.Module | None = None,
        check: Callable[[str, str, str], None] | None = None,
        steps: Steps | None = None,
    ) -> None:
        self.paths: dict[int, str] = {} if root is None else paths_of(root)
        self.first = "" if root is None else type(root).__name__
        self.rooted = root is not None
        self.stack: list[str] = []
        self.training: list[bool] = []
        self.steps = steps
        self.counter: Tensor | None = None
        self.offset: Tensor | None = None
        self.taken, self.repeats = Taken(), False
        self.calls: dict[str, int] = {}
        self.check = check

    def copy(self, fresh: bool = False) -> Places:
        """A copy of these places as they are now; names are shared.

        The copy takes the steps that these places take from now on, without counting them again. ``fresh``: it takes
        new steps of the same count.
        """
        found = Places()
        if self.steps is not None:
            found.steps = self.steps if fresh else self.steps.copy()
            found.taken, found.repeats = (Taken(), False) if fresh else (self.taken, True)
        found.paths, found.stack, found.calls = self.paths, list(self.stack), dict(self.calls)
        found.training = list(self.training)
        found.counter, found.offset, found.check = self.counter, self.offset, self.check
        found.first, found.rooted = self.first, self.rooted
        return found

    @property
    def path(self) -> str:
        """Path of the running module; "" outside modules."""
        return self.stack[-1] if self.stack else ""

    def enter(self, module: nn.Module) -> None:
        """Records that a module is about to run."""
        if not self.stack:
            self._outermost(module)
        # A module that was made or attached after the outermost call began has the path of the module that calls it.
        self.stack.append(self.paths.get(id(module), self.path))
        self.training.append(module.training)

    def leave(self) -> None:
        """Records that a module has run, or raised."""
        if self.stack:
            self.stack.pop()
            self.training.pop()

    def _outermost(self, module: nn.Module) -> None:
        """Records a call from outside: it takes the next step, and names the modules if they have no names yet."""
        if not self.rooted and id(module) not in self.paths:
            more = paths_of(module)
            if self.check is not None:
                # Losses and other modules without parameters of their own are no second model.
                self.check(type(module).__name__, "\n".join(more.values()), self.first if _has_weights(module) else "")
            if not self.paths:
                self.first = type(module).__name__
            self.paths = {**more, **self.paths}
        self.next_step()

    def next_step(self) -> None:
        """Takes the next step, or the present one again if an external count says so."""
        if self.steps is None:
            return
        if self.counter is None or not self.steps.is_same():
            self.calls = {}
        self.counter = self.steps.next() if torch.compiler.is_compiling() else self._take()
        self.offset = self.counter * SPREAD

    def _take(self) -> Tensor:
        """The number of the next step. Copied places take the step that was taken the first time."""
        steps, taken = self.steps, self.taken.next
        if taken is None:
            taken = Taken(steps.next())  # type: ignore[union-attr]
            if not self.repeats:
                self.taken.next = taken
        elif self.repeats:
            steps.counter = taken.number  # type: ignore[union-attr]
        self.taken = taken
        number: Tensor = taken.number
        return number

    def begun(self) -> Tensor | None:
        """What this step adds to seeds. Outside modules, a context's first product begins a step."""
        if self.counter is None:
            self.next_step()
        return self.offset

    def count(self, name: str) -> int:
        """The number of earlier calls of this name in this step; the present call is counted."""
        n = self.calls.get(name, 0)
        self.calls[name] = n + 1
        return n


class Placed(TorchFunctionMode):
    """A mode that knows where the program is.

    ``places``: None if nothing depends on them. ``paused``: how many pieces of code that belong to another moment are
    running; they have places of their own. ``gone``: whether it was left in another thread than entered. ``steppers``:
    frames of the optimizer steps that run in its context, innermost last; None in compiled code.
    """

    places: Places | None = None
    paused: int = 0
    gone: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.steppers: list[FrameType | None] = []


def before(module: nn.Module, args: Any) -> None:
    """Hook: a module is about to run."""
    if is_wrapper(module) or _is_graph(module):
        return
    for mode in torch.overrides._get_current_function_mode_stack():
        if isinstance(mode, Placed) and mode.places is not None and not mode.paused:
            mode.places.enter(module)


def after(module: nn.Module, args: Any, result: Any) -> None:
    """Hook: a module has run, or raised."""
    if is_wrapper(module) or _is_graph(module):
        return
    for mode in torch.overrides._get_current_function_mode_stack():
        if isinstance(mode, Placed) and mode.places is not None and not mode.paused:
            mode.places.leave()


_PLACES = ModuleHooks(-0x6E6D, before, after)


def install_hooks() -> None:
    """Requests hooks on all modules, which update the places of the modes in force."""
    _PLACES.put()


def remove_hooks() -> None:
    """Ends one request; the last one removes the hooks."""
    _PLACES.take()


class _Waiting(local):
    """The checks that wait for the first module that this thread calls."""

    def __init__(self) -> None:
        self.checks: list[Callable[[nn.Module], None]] = []


_WAITING = _Waiting()


def await_first(check: Callable[[nn.Module], None]) -> Callable[[], None]:
    """Calls ``check`` once, with the first model that this thread calls, and returns a function that ends the wait.

    The function may be called whether ``check`` was called or not. A context needs no more if no position matters:
    subsequent calls of modules find no hook. In compiled code, whose trace would include a hook, nothing is called.
    """
    _FIRST.put()
    _WAITING.checks.append(check)
    return partial(_stop_waiting, _WAITING.checks, check)


def _stop_waiting(checks: list[Callable[[nn.Module], None]], check: Callable[[nn.Module], None]) -> None:
    if check in checks:
        checks.remove(check)
        _FIRST.take()


def _first(module: nn.Module, args: Any) -> None:
    """Hook: a module is about to run, the first one for the checks that wait."""
    if torch.compiler.is_compiling() or _is_graph(module):
        return
    for check in list(_WAITING.checks):
        _stop_waiting(_WAITING.checks, check)
        check(unwrapped(module))


#: Separate from the hooks of contexts that need places, which run for every call, and from an audit's.
_FIRST = ModuleHooks(-0x6E6C, _first)
