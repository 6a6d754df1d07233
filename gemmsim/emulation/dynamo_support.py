"""What only compiled code needs: code that the compiler must not compile, calls it must ask about, graphs that run.

All of it leans on private names of PyTorch's compiler; tests/emulation/test_compiled.py says which one is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

from gemmsim.ops.lazy_dynamo import assume_constant_result, when_compiler_loads

from .error_origin import blamed
from .overrides import replaced
from .overrides.replaced import Wanted

__all__ = [
    "ask_about",
    "errors_as_they_are",
    "in_compiled_graph",
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

#: Texts of configs under which a traced call was left to PyTorch: its compiled form must not be emulated when it runs.
_LEFT: set[str] = set()
#: Calls of the table that modes are to be asked about.
_CALLS: set[Any] = set()
_OVERRIDABLE = "get_overridable_functions"


def ask_about(calls: Iterable[Any]) -> None:
    """The compiler, where it is, asks modes about these calls while a context is open."""
    _CALLS.update(calls)


def wanted() -> list[Wanted]:
    """What is replaced in the compiler while a context is open: which calls it asks modes about."""
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
    """Functions of this package, which the compiler runs as they are, with what they call, where it meets them on their
    own: it would compile each frame of theirs."""
    skipped = list(functions)

    def tell() -> None:
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

        for function in skipped:
            set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
        replaced.more(wanted)

    when_compiler_loads(tell)


@assume_constant_result
def note_native(text: str) -> None:
    """A call of the table was left to PyTorch while it was traced under this config."""
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
    """Whether the program runs a graph that the compiler made, in which every emulated product is one already."""
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
    """Whether the operators that run become a program (``torch.export``, ``make_fx``)."""
    kind = torch._C._TorchDispatchModeKey.PROXY
    return (torch._C._get_dispatch_mode(kind) or torch._ops._get_dispatch_mode_pre_dispatch(kind)) is not None


def leave_alone(func: Any, kwargs: Any, text: str) -> bool:
    """Whether the call belongs to a compiled graph, where what is native is meant to be."""
    if torch.compiler.is_compiling():
        return False
    return is_suspicious(func, kwargs, text) and in_compiled_graph()


@contextmanager
def errors_as_they_are() -> Iterator[None]:
    """Around code that the compiler runs while it traces: whoever calls the compiled function gets its errors as they
    are (``ConfigError``, ``SpecError``), and not the compiler's own error about them."""
    try:
        yield
    except (ValueError, RuntimeError, TypeError) as error:
        if tracer() is None:
            raise
        raise _handed_on(error) from None


def raised(kind: type[Exception], text: str, config: str | None = None) -> Exception:
    """The error to raise in code that may be traced, from the config of that text, if from any.

    Where a whole graph is asked for (``fullgraph=True``) the compiler would raise an error of its own instead: this is
    raised past it. Otherwise it breaks the graph, and the code that raises runs as it is.
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
    """Raises ``error`` past the compiler where a whole graph is asked for; elsewhere nothing."""
    if getattr(tracer(), "one_graph", False):
        raise _handed_on(error)


def tracer() -> Any:
    """What traces in this thread; None for nothing."""
    module: Any = sys.modules.get("torch._dynamo.symbolic_convert")
    return None if module is None else getattr(module.tls, "current_tx", None)


def _handed_on(error: Exception) -> Exception:
    """``error`` in one of the same kind that the compiler lets pass, and of which it raises what is inside."""
    from torch._dynamo.exc import ShortenTraceback

    kind: Any = type(error)
    members = {"__module__": kind.__module__, "remove_dynamo_frames": lambda self: error.with_traceback(None)}
    found: Any = type(kind.__name__, (ShortenTraceback, kind), members)
    passed: Exception = found(str(error), first_useful_frame=None)
    return passed
