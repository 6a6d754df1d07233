"""Marks errors with the config that caused them, which distinguishes them from a program's own mistakes."""

from __future__ import annotations

from typing import TypeVar

import torch

__all__ = ["blamed", "is_from"]

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
