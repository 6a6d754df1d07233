"""The kinds by name, as "module:class", so that listing them loads none."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import StudyError, nearest
from .kind import Kind

__all__ = ["KINDS", "kinds", "load"]

KINDS = {
    "accuracy": "gemmsim.study.kinds.accuracy:Accuracy",
    "chunk": "gemmsim.study.kinds.chunk:Chunk",
    "gemm": "gemmsim.study.kinds.gemm:Gemm",
    "growth": "gemmsim.study.kinds.growth:Growth",
    "hardware": "gemmsim.study.kinds.hardware:Hardware",
    "integer": "gemmsim.study.kinds.integer:IntegerStudy",
    "layers": "gemmsim.study.kinds.layers:Layers",
    "order": "gemmsim.study.kinds.order:Order",
    "sliced": "gemmsim.study.kinds.sliced:Slicing",
    "sr": "gemmsim.study.kinds.stochastic_rounding:RandomBits",
    "swamping": "gemmsim.study.kinds.swamping:Swamping",
    "train": "gemmsim.study.kinds.train:Train",
}


def kinds() -> list[str]:
    """Names of all kinds, sorted."""
    return sorted(KINDS)


def load(name: str) -> type[Kind[Any]]:
    """The kind of this name.

    Raises:
        StudyError: there is none; it tells the nearest name.
    """
    if name not in KINDS:
        raise StudyError(
            f"unknown kind of study {name!r}.{nearest(name, list(KINDS))} Known: {', '.join(sorted(KINDS))}."
        )
    module, _, attribute = KINDS[name].partition(":")
    kind = getattr(importlib.import_module(module), attribute)
    assert issubclass(kind, Kind)
    return kind
