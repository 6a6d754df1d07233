"""Reads the environment variables of this package. No other module reads them."""

from __future__ import annotations

import os

from gemmsim.formats.errors import shown

__all__ = ["ALLOW_TENSOR_CORES", "CACHE_DIR", "ISA", "VARIABLES", "VariableError", "flag", "text"]

ALLOW_TENSOR_CORES = "GEMMSIM_ALLOW_TENSOR_CORES"
CACHE_DIR = "GEMMSIM_CACHE_DIR"
ISA = "GEMMSIM_ISA"
#: All variables. An empty or blank variable counts as unset.
VARIABLES = (ALLOW_TENSOR_CORES, CACHE_DIR, ISA)
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class VariableError(ValueError):
    """An environment variable has a value that is not allowed."""


def text(name: str) -> str | None:
    """Return the value of the variable without surrounding blanks; None if it is unset."""
    return os.environ.get(name, "").strip() or None


def flag(name: str, default: bool) -> bool:
    """Whether the variable says yes; upper and lower case are equal. ``VariableError`` for any other word."""
    held = text(name)
    if held is None:
        return default
    if held.lower() not in _WORDS:
        raise VariableError(f"{name}={shown(held)}; allowed: {', '.join(_WORDS)}.\n  Correct it, or unset it.")
    return _WORDS[held.lower()]
