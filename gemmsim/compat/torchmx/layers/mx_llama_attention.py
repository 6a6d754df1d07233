"""Llama's layers for inference in MX. Needs gemmsim[transformers], when they are first named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .llm import MXInferenceLlamaAttention as MXInferenceLlamaAttention
    from .llm import MXInferenceLlamaMLP as MXInferenceLlamaMLP

__all__ = ["MXInferenceLlamaAttention", "MXInferenceLlamaMLP"]


def __getattr__(name: str) -> Any:
    """Load the layers on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import llm

    return getattr(llm, name)
