"""Llama's layers for inference in MX. Their first use needs gemmsim[transformers]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...._lazy import exports

if TYPE_CHECKING:
    from .llm import MXInferenceLlamaAttention as MXInferenceLlamaAttention
    from .llm import MXInferenceLlamaMLP as MXInferenceLlamaMLP
else:
    __getattr__, __dir__ = exports(__name__)
