"""Qwen2's layers for inference in MX. Needs gemmsim[transformers], when they are first named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .llm import MXInferenceQwen2Attention as MXInferenceQwen2Attention
    from .llm import MXInferenceQwen2MLP as MXInferenceQwen2MLP

__all__ = ["MXInferenceQwen2Attention", "MXInferenceQwen2MLP"]


def __getattr__(name: str) -> Any:
    """Load the layers on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import llm

    return getattr(llm, name)
