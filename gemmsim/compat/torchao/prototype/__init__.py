"""torchao's prototypes: ``mx_formats``, and the training layers of ``moe_training``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["moe_training", "mx_formats"]


def __getattr__(name: str) -> Any:
    """Load a package on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
