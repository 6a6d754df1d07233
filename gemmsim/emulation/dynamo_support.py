"""Support for ``torch.compile``: code that it must not compile, calls it must ask modes about, and running graphs.

All of it depends on private names of PyTorch's compiler; tests/emulation/test_compiled.py says which one is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import torch

from gemmsim.ops.lazy_dynamo import assume_constant_result, when_compiler_loads

from . import replaced
from .replaced import Wanted

__all__ = [
    "ask_about",
    "blamed",
    "errors_as_they_are",
    "in_compiled_graph",
    "is_from",
    "is_recorded",
    "is_suspicious",
    "leave_alone",
    "note_native",
    "one_graph_error",
    "raised",
    "skip",
    "tracer",
    "wanted",
]

#: Texts of configs under which a traced call stayed native. Its compiled form must not be emulated when it runs.
_LEFT: set[str] = set()
#: Calls of the table about which modes are to be asked.
_CALLS: set[Any] = set()
_OVERRIDABLE = "get_overridable_functions"


def ask_about(calls: Iterable[Any]) -> None:
    """Makes the compiler, if it is loaded, ask modes about these calls while a context is open."""
    _CALLS.update(calls)


def wanted() -> list[Wanted]:
    """What is replaced in the compiler while a context is open: its list of calls about which it asks modes."""
    module: Any = sys.modules.get("torch._dynamo.variables.torch")
    return [(module, _OVERRIDABLE, _asks_more)] if hasattr(module, _OVERRIDABLE) else []


def _asks_more(original: Callable[[], set[Any]]) -> Callable[[], set[Any]]:
    found: set[Any] = set()

    @wraps(original)
    def get_overridable_functions() -> set[Any]:
        if not _CALLS <= found:
            found.update(original(), _CALLS)
        return found

    return get_overridable_functions


def skip(functions: Iterable[Callable[..., Any]]) -> None:
    """Makes the compiler run functions of this package, and what they call, as they are.

    Otherwise it would compile each of their frames where it encounters them on their own.
    """
    skipped = list(functions)

    def tell() -> None:
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

        for function in skipped:
            set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
        replaced.more(wanted)

    when_compiler_loads(tell)


@assume_constant_result
def note_native(text: str) -> None:
    """Records that a call of the table stayed native while it was traced under this config."""
    _LEFT.add(text)


def is_suspicious(func: Any, kwargs: Any, text: str) -> bool:
    """Whether a call looks like one that a compiled graph makes."""
    return (
        isinstance(func, (torch._ops.OpOverload, torch._ops.OpOverloadPacket))
        or "out" in kwargs
        or func is torch.convolution
        or text in _LEFT
    )


def in_compiled_graph() -> bool:
    """Whether the program is running a graph that the compiler made.

    Every product to emulate in such a graph is an emulated operator already.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("runtime_wrappers.py"):
            return True
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.fx.GraphModule) and hasattr(owner, "compile_subgraph_reason"):
            return True
        frame = frame.f_back
    return False


def is_recorded() -> bool:
    """Whether the operators that run are recorded as a program (``torch.export``, ``make_fx``)."""
    kind = torch._C._TorchDispatchModeKey.PROXY
    return (torch._C._get_dispatch_mode(kind) or torch._ops._get_dispatch_mode_pre_dispatch(kind)) is not None


def leave_alone(func: Any, kwargs: Any, text: str) -> bool:
    """Whether the call belongs to a compiled graph, in which native calls are meant to be native."""
    if torch.compiler.is_compiling():
        return False
    return is_suspicious(func, kwargs, text) and in_compiled_graph()


@contextmanager
def errors_as_they_are() -> Iterator[None]:
    """Wraps code that the compiler runs while it traces, so that its errors reach the program unchanged.

    The caller of the compiled function gets ``ConfigError`` or ``SpecError`` instead of the compiler's own error about
    it.
    """
    try:
        yield
    except (ValueError, RuntimeError, TypeError, LookupError) as error:
        if tracer() is None:
            raise
        raise _handed_on(error) from None


def raised(kind: type[Exception], text: str, config: str | None = None) -> Exception:
    """The error to raise in code that may be traced, marked with the config of text ``config``, if there is one.

    If a whole graph is required (``fullgraph=True``), the compiler would raise an error of its own instead. This
    function then raises the error past it. Otherwise the error breaks the graph, and the code that raises it runs as it
    is.
    """
    if torch.compiler.is_dynamo_compiling():
        _raise_in_whole_graphs(kind, text, config)
        return kind(text)
    return kind(text) if config is None else blamed(kind(text), config)


@assume_constant_result
def _raise_in_whole_graphs(kind: type[Exception], text: str, config: str | None) -> None:
    error = kind(text)
    one_graph_error(error if config is None else blamed(error, config))


def one_graph_error(error: Exception) -> None:
    """Raises ``error`` past the compiler if a whole graph is required; otherwise does nothing."""
    if getattr(tracer(), "one_graph", False):
        raise _handed_on(error)


def tracer() -> Any:
    """The tracer of the compiler in this thread; None if nothing is traced."""
    module: Any = sys.modules.get("torch._dynamo.symbolic_convert")
    return None if module is None else getattr(module.tls, "current_tx", None)


def _handed_on(error: Exception) -> Exception:
    """``error`` as an error of the same kind that the compiler lets pass.

    The compiler raises the original error in its place.
    """
    from torch._dynamo.exc import ShortenTraceback

    kind: Any = type(error)
    members = {"__module__": kind.__module__, "remove_dynamo_frames": lambda self: error.with_traceback(None)}
    found: Any = type(kind.__name__, (ShortenTraceback, kind), members)
    given = error.__reduce__()[1]  # as pickles make it again
    passed: Exception = found(*given, first_useful_frame=None)
    return passed


_Error = TypeVar("_Error", bound=Exception)


def blamed(error: _Error, text: str) -> _Error:
    """``error``, marked as caused by the config of this text."""
    if not torch.compiler.is_dynamo_compiling():  # the compiler does not support attributes of exceptions
        error.emulated = text  # type: ignore[attr-defined]
    return error


def is_from(error: BaseException, text: str) -> bool:
    """Whether the config of this text caused ``error``, and not a call of the program."""
    found: object = getattr(error, "emulated", None)
    return found == text
