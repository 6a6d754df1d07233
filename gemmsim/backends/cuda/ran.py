"""The record of a product of this backend."""

from __future__ import annotations

from ..product import Ran
from .jit.source import KernelSource

__all__ = ["ran"]


def ran(*kernels: KernelSource) -> Ran:
    """Of a product made by these kernels, in order; none where there was nothing to compute."""
    return Ran("cuda", "cuda: " + "; ".join(map(str, kernels)))
