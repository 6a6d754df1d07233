"""Which config is the reason for an error: a program's own mistakes are told apart by it."""

from __future__ import annotations

from typing import TypeVar

import torch

__all__ = ["blamed", "is_from"]

_Error = TypeVar("_Error", bound=Exception)


def blamed(error: _Error, text: str) -> _Error:
    """``error``, which remembers that the config of this text is its reason."""
    if not torch.compiler.is_dynamo_compiling():  # the compiler knows no attributes of exceptions
        error.emulated = text  # type: ignore[attr-defined]
    return error


def is_from(error: BaseException, text: str) -> bool:
    """Whether the config of this text is the reason for ``error``, and not a call of the program's."""
    found: object = getattr(error, "emulated", None)
    return found == text
