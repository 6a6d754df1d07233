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

from .torch_versions import COMPILES, has

__all__ = ["allow_in_graph", "assume_constant_result", "uncompiled", "when_compiler_loads"]

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
    if has(COMPILES):
        when_compiler_loads(lambda: torch.compiler.allow_in_graph(function))
    return function


def uncompiled(function: _Marked) -> _Marked:
    """With a PyTorch whose compiler does not get through this package: the reason, for errors of ``fullgraph=True``."""
    if not has(COMPILES):
        newer = ".".join(map(str, COMPILES))
        reason = f"gemmsim is compiled by PyTorch {newer} or newer, and this is {torch.__version__}; without "
        reason += "fullgraph=True (torch.export: with strict=False) gemmsim runs as it is, between compiled graphs"
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
        function._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
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


def _leave_package_alone() -> None:
    """Makes the compiler run this package as it is: code that calls it breaks its graph there."""
    from torch._dynamo import trace_rules

    trace_rules.add(__name__.partition(".")[0])


if not has(COMPILES):
    when_compiler_loads(_leave_package_alone)
