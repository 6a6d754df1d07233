"""Makes the record of a product of the CUDA backend."""

from __future__ import annotations

from ..product import Ran
from .jit.source import KernelSource

__all__ = ["ran"]


def ran(*kernels: KernelSource) -> Ran:
    """Return the record of a product that these kernels computed in this order; none where there was nothing to
    compute.
    """
    return Ran("cuda", "cuda: " + "; ".join(map(str, kernels)))
