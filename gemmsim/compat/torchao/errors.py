"""Errors of arguments that torchao and torchmx assert: gemmsim's own kinds, and ``AssertionError``."""

from __future__ import annotations

import gemmsim as gs

__all__ = ["ElementError", "LayoutError", "StorageError", "message", "shown"]


class ElementError(gs.FormatError, AssertionError):
    """An element type or mode that torchao does not have: a ``gemmsim.FormatError`` and an ``AssertionError``.

    Example:
        >>> from gemmsim.compat.torchao.errors import ElementError
        >>> issubclass(ElementError, AssertionError)
        True
    """


class StorageError(gs.DTypeError, AssertionError):
    """Values, codes or scales of another dtype: a ``gemmsim.DTypeError`` and an ``AssertionError``.

    Example:
        >>> from gemmsim.compat.torchao.errors import StorageError
        >>> issubclass(StorageError, AssertionError)
        True
    """


class LayoutError(gs.ShapeError, AssertionError):
    """Sizes, strides, blocks or padding do not fit: a ``gemmsim.ShapeError`` and an ``AssertionError``.

    Example:
        >>> from gemmsim.compat.torchao.errors import LayoutError
        >>> issubclass(LayoutError, AssertionError)
        True
    """


def message(asked: str, allowed: str, do: str) -> str:
    """The three parts of an error: what was asked, what is allowed, what to do."""
    return f"{asked}; allowed: {allowed}.\n  {do}"


def shown(value: object) -> str:
    """``repr(value)`` for a message, of which a long one keeps its beginning."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:150]}... ({len(text)} characters)"
