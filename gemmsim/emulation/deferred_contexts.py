"""Restores contexts for deferred code of the forward pass: recomputation in checkpoints, custom backward passes.

Such code belongs to the context in which its forward pass ran, wherever and in whichever thread it runs. A snapshot
stores the state of that context: the config, the position and the counters.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from threading import local
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor

from gemmsim.arithmetic import UnsupportedSpec
from gemmsim.ops.errors import message

from . import dynamo_support, replaced
from .dynamo_configs import formats_at
from .dynamo_support import raised
from .module_paths import Placed, Places, path_running
from .overrides import torchscript
from .replaced import Wanted

__all__ = [
    "OWNERS",
    "Snapshot",
    "apply",
    "carry",
    "checkpoint_contexts",
    "closed",
    "current",
    "is_engine",
    "leaves_attention",
    "opened",
    "unseen_products",
]

#: Calls that run a backward pass. A mode is not in force while it handles one.
_ENGINE = frozenset((Tensor.backward, torch.autograd.backward, torch.autograd.grad))
_CHECKPOINTS = ("torch.utils.checkpoint", "torch.distributed._composable.checkpoint_activation")
#: Modules of autograd functions whose backward passes multiply as their forward passes did.
_KNOWN = ("gemmsim.", "torch._functorch.")
#: What a checkpoint runs: the first in PyTorch 2.15, the second before. PyTorch 2.15 has the second as well, which
#: calls the first.
_GENERATORS = ("_checkpoint_without_reentrant_generator_impl", "_checkpoint_without_reentrant_generator")

_COMPILES = "setup_compilation_env"

#: Arithmetics of converted models that draw random bits.
OWNERS: WeakSet[Any] = WeakSet()


class Snapshot(NamedTuple):
    """The state at one moment.

    It has the emulation in force (None if there was none), its places, and the steps of converted models.
    """

    mode: Any
    places: Places | None
    marks: tuple[tuple[Any, Any], ...]

    @classmethod
    def take(cls) -> Snapshot | None:
        """A snapshot of this thread; None if nothing is emulated."""
        mode = current()
        marks = tuple((owner, owner.mark()) for owner in OWNERS) if OWNERS else ()
        if mode is None:
            return cls(None, None, marks) if marks else None
        return cls(mode, None if mode.places is None else mode.places.copy(), marks)

    @contextmanager
    def restored(self, fresh: bool = False) -> Iterator[None]:
        """Restores the state of the snapshot inside the context; afterwards the present state applies again.

        ``fresh``: for calls that repeat nothing, and take steps of their own.
        """
        # If a backward pass runs inside its context, that context does not count steps of the code that runs again.
        waiting = [m for m in torch.overrides._get_current_function_mode_stack() if isinstance(m, Placed)]
        for mode in waiting:
            mode.paused += 1
        try:
            with ExitStack() as stack:
                for owner, mark in () if fresh else self.marks:
                    stack.enter_context(owner.repeating(mark))
                if self.mode is not None:
                    stack.enter_context(self.mode.at(None if self.places is None else self.places.copy(fresh)))
                yield
        finally:
            for mode in waiting:
                mode.paused -= 1


def current() -> Any:
    """The emulation in force in this thread, None if there is none."""
    found = None
    for mode in torch.overrides._get_current_function_mode_stack():
        if isinstance(mode, Placed) and not mode.gone:
            found = mode
    return found


def is_engine(func: Any) -> bool:
    """Whether ``func`` runs a backward pass."""
    return func in _ENGINE


def opened() -> None:
    """Records that a context opens.

    From the first one on, checkpoints and custom autograd functions take snapshots.
    """
    replaced.opened(_wanted)


def closed() -> None:
    """Records that a context closes; the last one restores PyTorch."""
    replaced.closed()


def _wanted() -> list[Wanted]:
    """What is replaced in PyTorch while a context is open."""
    return [
        (torch.autograd.Function, "apply", _replace_apply),
        (torch.nn.DataParallel, "parallel_apply", _replace_replicas),
        *_replace_generators(),
        *_replace_flex(),
        *dynamo_support.wanted(),
        *torchscript.wanted(current),
    ]


def checkpoint_contexts() -> tuple[Any, Any]:
    """``context_fn`` of ``torch.utils.checkpoint.checkpoint``: recomputation runs in the context of the forward pass.

    While a context of ``emulate`` is open, checkpoints do this by themselves. This function is for PyTorch versions
    that lack the private name that this requires. There, recomputation outside the context would be native.

    Example:
        >>> layer, x = torch.nn.Linear(4, 2), torch.ones(4)
        >>> options = {"use_reentrant": False, "context_fn": gs.emulation.checkpoint_contexts}
        >>> with gs.emulate(":bf16"):
        ...     torch.utils.checkpoint.checkpoint(layer, x, **options).sum().backward()
    """
    taken = Snapshot.take()
    return _nothing(), _nothing() if taken is None else taken.restored()


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def carry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function``, made to run in the present context in any thread; new threads inherit no context.

    Its calls of models take steps of random bits like other calls of that config and seed.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> with gs.emulate("e4m3 : bf16"), ThreadPoolExecutor() as pool:
        ...     dot = lambda: (torch.ones(600) @ torch.ones(600)).item()
        ...     print(pool.submit(dot).result(), pool.submit(gs.emulation.carry(dot)).result())
        600.0 256.0
    """
    taken = Snapshot.take()
    return function if taken is None else _carried(function, taken, True)


def _carried(function: Callable[..., Any], taken: Snapshot, fresh: bool) -> Callable[..., Any]:
    def carried(*args: Any, **kwargs: Any) -> Any:
        with taken.restored(fresh):
            return function(*args, **kwargs)

    return carried


def _replace_replicas(original: Any) -> Any:
    """Replaces ``parallel_apply`` of ``DataParallel``: its threads run in the context, all of them in its next step."""

    @wraps(original)
    def parallel_apply(self: Any, replicas: Any, *args: Any, **kwargs: Any) -> Any:
        taken, mode = Snapshot.take(), current()
        if taken is None:
            return original(self, replicas, *args, **kwargs)
        carried = [_carried(replica, taken, False) for replica in replicas]
        if mode is not None and mode.places is not None:
            mode.places.next_step()
        modules = list(self.module.modules()) if OWNERS else []
        for owner in OWNERS:
            if any(module.__dict__.get("_gemmsim") is owner for module in modules):
                owner.advance()
        return original(self, carried, *args, **kwargs)

    return parallel_apply


def unseen_products(name: str, mode: Any) -> Exception:
    """The error for a call under an emulation that cannot see the products of the call."""
    path = path_running() if mode.places is None else mode.places.path
    asked = f"{name} in module {path!r} under emulate" if path else f"{name} under emulate"
    allowed = "products that the emulation sees: scaled_dot_product_attention, matmul, and so on"
    do = "Use scaled_dot_product_attention in the model, or call it outside the emulation."
    return raised(UnsupportedSpec, message(asked, allowed, do), mode.text)


def leaves_attention(mode: Any) -> bool:
    """Whether attention's products are native at the program's present path."""
    path = "" if mode.places is None else mode.places.path
    return all(formats_at(mode.text, path, kind) is None for kind in ("sdpa.qk", "sdpa.pv"))


def _replace_flex() -> list[Wanted]:
    """Refuses ``flex_attention`` outside compiled code before it compiles itself."""
    module: Any = sys.modules.get("torch.nn.attention.flex_attention")
    return [(module, _COMPILES, _refuses)] if hasattr(module, _COMPILES) else []


def _refuses(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def refuse(*args: Any, **kwargs: Any) -> Any:
        mode = current()
        if mode is None or leaves_attention(mode):
            return original(*args, **kwargs)
        raise unseen_products("flex_attention", mode)

    return refuse


def _replace_generators() -> list[Wanted]:
    """Makes the recomputation of non-reentrant checkpoints restore the context."""
    found: list[Wanted] = []
    for module in map(sys.modules.get, _CHECKPOINTS):
        names = [name for name in _GENERATORS if hasattr(module, name)]
        found += [(module, name, _with_snapshot) for name in names[:1]]
    return found


def _with_snapshot(original: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(original).parameters
    named = parameters["context_fn"].kind is inspect.Parameter.KEYWORD_ONLY
    at = len(parameters) if named else list(parameters).index("context_fn")

    @wraps(original)
    def generator(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        given = args[at] if len(args) > at else kwargs.get("context_fn", torch.utils.checkpoint.noop_context_fn)

        def contexts() -> tuple[Any, Any]:
            taken = Snapshot.take()
            forward, recompute = given()
            return forward, recompute if taken is None else _both(taken, recompute)

        if len(args) > at:
            return original(*args[:at], contexts, *args[at + 1 :], **kwargs)
        return original(*args, **{**kwargs, "context_fn": contexts})

    return generator


@contextmanager
def _both(taken: Snapshot, recompute: Any) -> Iterator[None]:
    with taken.restored(), recompute:
        yield


class _Calls(local):
    """Snapshots of the calls of ``Function.apply`` that are running in this thread, innermost last."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []


_CALLS = _Calls()
#: Autograd function of the program -> the class that replaces it.
_TIED: WeakKeyDictionary[type, type] = WeakKeyDictionary()


def _replace_apply(original: Any) -> Any:
    """Replaces ``torch.autograd.Function.apply`` while a context is open: its backward passes restore the context."""
    theirs = getattr(original, "__func__", original)
    # In PyTorch 2.15 this is a method written in C++.
    call = (lambda cls, *args: original.__get__(None, cls)(*args)) if theirs is original else theirs

    @wraps(theirs)
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        # Functions of compiled graphs contain no code of the program.
        if torch.compiler.is_compiling() or cls.__module__.startswith(_KNOWN) or hasattr(cls, "_gemmsim_tied"):
            return call(cls, *args, **kwargs)
        taken = Snapshot.take()
        if taken is None:
            return call(cls, *args, **kwargs)
        _CALLS.snapshots.append(taken)
        try:
            return call(_tied(cls), *args, **kwargs)
        finally:
            _CALLS.snapshots.pop()

    return classmethod(apply)


#: A replacement that is never put in place. All of them have the same code, which the compiler must not compile.
apply = _replace_apply(vars(torch.autograd.Function)["apply"]).__func__


def _tied(function: Any) -> Any:
    """A subclass of ``function`` under the same name, whose backward pass runs in the context of its forward pass."""
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
