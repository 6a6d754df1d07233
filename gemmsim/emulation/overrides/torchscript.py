"""Handles TorchScript, whose products are native.

A call of a TorchScript module in a context gives a warning. Tracing a model under emulation is refused.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from gemmsim.arithmetic import UnsupportedSpec
from gemmsim.ops.errors import message
from gemmsim.ops.product.format_warnings import caller

from ..dynamo_support import raised
from ..replaced import Wanted

__all__ = ["is_traced", "refused_trace", "wanted"]

_SEEN: set[tuple[str, str]] = set()
_CLASSES = (("torch.jit._script", "ScriptModule"), ("torch.jit._trace", "TopLevelTracedModule"))


def wanted(current: Callable[[], Any]) -> list[Wanted]:
    """What is replaced while a context is open: ``forward`` of TorchScript's modules. ``current`` returns the mode."""
    found: list[Wanted] = []
    for module, name in _CLASSES:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and "forward" in vars(kind):
            found.append((kind, "forward", lambda theirs: _Noted(theirs, current)))
    return found


class _Noted:
    """``forward`` of a TorchScript class, which warns where an emulation is in force."""

    def __init__(self, theirs: Any, current: Callable[[], Any]) -> None:
        self.theirs, self.current = theirs, current

    def __get__(self, module: Any, kind: Any) -> Any:
        if module is None:
            return self.theirs.__get__(module, kind)
        mode = self.current()
        if mode is not None and not mode.native and not mode.shadowed:
            _warn(module, mode.text)
        found = vars(module).get("forward")
        if found is None:
            raise AttributeError("forward")  # Python asks the module's __getattr__ next, as without this class
        return found

    def __set__(self, module: Any, value: Any) -> None:
        vars(module)["forward"] = value


def _warn(module: Any, text: str) -> None:
    name = getattr(module, "original_name", type(module).__name__)
    if (text, name) in _SEEN:
        return
    _SEEN.add((text, name))
    warnings.warn(
        f"{name} is TorchScript: its products stay native, whatever gemmsim.emulate says.\n"
        "  Call the original module instead.",
        UserWarning,
        stacklevel=caller(),
    )


_state = torch._C._get_tracing_state


def is_traced() -> bool:
    """Whether ``torch.jit.trace`` is recording."""
    return _state() is not None


def refused_trace(kinds: str, text: str) -> Exception:
    """The error for a product under ``torch.jit.trace``."""
    asked = f"{kinds} under emulate, recorded by torch.jit.trace"
    do = "Use torch.export or torch.compile, which keep emulated products, or trace outside the context."
    return raised(UnsupportedSpec, message(asked, "products that run", do), text)
