"""Marks for ``torch.compile`` that do not load the compiler: that takes seconds, and most processes do not need it.

``torch.compiler``'s own decorators import ``torch._dynamo`` at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any, TypeVar

import torch

__all__ = ["allow_in_graph", "assume_constant_result", "when_compiler_loads"]

_Marked = TypeVar("_Marked", bound=Callable[..., Any])
_COMPILER = "torch._dynamo"
#: What is to be done as soon as there is a compiler.
_waiting: list[Callable[[], Any]] = []


def assume_constant_result(function: _Marked) -> _Marked:
    """``torch.compiler.assume_constant_result``: the tracer calls ``function`` and takes its result for a constant."""
    if _COMPILER in sys.modules:
        torch.compiler.assume_constant_result(function)
    else:
        function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # all that it does; a test compares
    return function


def allow_in_graph(function: _Marked) -> _Marked:
    """``torch.compiler.allow_in_graph``: the tracer does not look inside ``function`` (or autograd class)."""
    when_compiler_loads(lambda: torch.compiler.allow_in_graph(function))
    return function


def when_compiler_loads(then: Callable[[], Any]) -> None:
    """Calls ``then`` once ``torch._dynamo`` is loaded: now, if it is."""
    if _COMPILER in sys.modules:
        then()
        return
    if not _waiting:
        sys.meta_path.insert(0, _AfterCompiler())
    _waiting.append(then)


class _AfterCompiler(MetaPathFinder):
    """Finds the compiler as ever, and does what waits for it once it is loaded. Then it goes away."""

    def __init__(self) -> None:
        self._busy = False

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != _COMPILER or self._busy:
            return None
        self._busy = True
        try:
            spec = find_spec(fullname)
        finally:
            self._busy = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def then_do(module: Any) -> None:
            execute(module)
            while _waiting:
                _waiting.pop()()
            if self in sys.meta_path:
                sys.meta_path.remove(self)

        spec.loader.exec_module = then_do  # type: ignore[method-assign]
        return spec
