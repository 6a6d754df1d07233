"""Which context an error comes from, and where in the model: a program's own mistakes are told apart by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch

__all__ = ["blamed", "is_from", "located"]

_Error = TypeVar("_Error", bound=Exception)


def blamed(error: _Error, text: str) -> _Error:
    """``error``, which remembers that the config of this text is its reason."""
    if not torch.compiler.is_compiling():  # the compiler knows no attributes of exceptions
        error.emulated = text  # type: ignore[attr-defined]
    return error


def is_from(error: BaseException, text: str) -> bool:
    """Whether the config of this text is the reason for ``error``, and not a call of the program's."""
    found: object = getattr(error, "emulated", None)
    return found == text


def located(error: Exception, path: str, kinds: Sequence[str], text: str) -> Exception:
    """``error`` of a call of these kinds, which names the call and the module if it is one of ours."""
    if not type(error).__module__.startswith("gemmsim.") or getattr(error, "located", False):
        return error
    where = f"in {'/'.join(kinds)} of module {path!r}" if path else f"in {'/'.join(kinds)}"
    try:
        found = type(error)(f"{where}: {error}")
    except Exception:
        return error
    found.located = True  # type: ignore[attr-defined]
    return blamed(found, text)
