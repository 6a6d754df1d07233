"""The environment variables of this package, read here and nowhere else."""

from __future__ import annotations

import os

from gemmsim.formats.errors import shown

__all__ = ["ALLOW_TENSOR_CORES", "CACHE_DIR", "ISA", "VARIABLES", "VariableError", "flag", "text"]

ALLOW_TENSOR_CORES = "GEMMSIM_ALLOW_TENSOR_CORES"
CACHE_DIR = "GEMMSIM_CACHE_DIR"
ISA = "GEMMSIM_ISA"
#: Every variable; one that is empty or blank counts as unset.
VARIABLES = (ALLOW_TENSOR_CORES, CACHE_DIR, ISA)
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class VariableError(ValueError):
    """An environment variable that holds something else than it takes."""


def text(name: str) -> str | None:
    """What the variable holds, without blanks around it; None where unset."""
    return os.environ.get(name, "").strip() or None


def flag(name: str, default: bool) -> bool:
    """Whether the variable says yes; capitals do not matter. ``VariableError`` for any other word."""
    held = text(name)
    if held is None:
        return default
    if held.lower() not in _WORDS:
        raise VariableError(f"{name}={shown(held)}; allowed: {', '.join(_WORDS)}.\n  Correct it, or unset it.")
    return _WORDS[held.lower()]
