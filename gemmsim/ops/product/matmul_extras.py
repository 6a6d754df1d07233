"""What the operators of a product take in addition to the operands and the spec, as one value."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["MatmulExtras"]


class MatmulExtras(NamedTuple):
    """The arguments of ``gemmsim::matmul`` after a, b and spec, in the order of its schema and with its defaults.

    Attributes:
        seed: of random bits; None draws one when the kernel runs, if the spec needs it.
        out_dtype: of the result; None: what the operands promote to.
        c: an addend in the accumulator, which broadcasts to the result.
        stream: the step of a layer that shares the seed (``seeds.Stream``).
        select: indices of a palette's members.
        bias: one number for each column, added to the result. output: a deterministic cast of what is then there.
        row: index of the result's first row among those for which random bits are drawn.
        counter: a tensor that is added to the seed when the kernel runs.
        site: whose product this is, for observers.
        amax: the largest magnitudes of a and b that delayed scales are made of, float32 (2,).
    """

    seed: int | None = None
    out_dtype: torch.dtype | None = None
    c: Tensor | None = None
    stream: int = 0
    select: Tensor | None = None
    bias: Tensor | None = None
    output: str | None = None
    row: int = 0
    counter: Tensor | None = None
    site: str | None = None
    amax: Tensor | None = None
