"""Products on a GPU whose additions are watched: there are none."""

from __future__ import annotations

from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.errors import UnsupportedSpec

from ..product import Ran

__all__ = ["count_events"]


def count_events(
    a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, counts: Tensor, seed: int = 0, c: Tensor | None = None
) -> Ran:
    """As ``gemmsim.backends.cpu.count_events``; no kernel here counts.

    Raises:
        UnsupportedSpec: always.
    """
    raise UnsupportedSpec(
        f"count_events of {str(spec)!r} on {a.device}; allowed: tensors on the CPU, whose kernels watch additions.\n"
        "  Move a and b there (a.cpu(), b.cpu()); the value has the same bits."
    )
