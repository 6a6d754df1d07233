"""Qwen2's layers for inference in MX. Their first use needs gemmsim[transformers]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...._lazy import exports

if TYPE_CHECKING:
    from .llm import MXInferenceQwen2Attention as MXInferenceQwen2Attention
    from .llm import MXInferenceQwen2MLP as MXInferenceQwen2MLP
else:
    __getattr__, __dir__ = exports(__name__)
