"""Operands in block formats: element codes and scale codes, and what a product takes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..formats import BlockFormat
from .block import element_value, encode_block
from .block_scale import binary32

__all__ = ["Blocked", "blocked", "tensor_scale"]


@dataclass(frozen=True)
class Blocked:
    """Lines (rows of a, columns of b) in a block format, blocks along each line.

    ``codes``: element codes of each line; ``scales``: scale codes of each line's blocks, the last of which may be
    shorter; ``tensor_scale``: the second scale of formats that have one.

    Example:
        >>> one = gs.reference.Blocked([[2, 4, 14]], [[124]], gs.formats.parse_block("mxfp4"))
        >>> one.elements(), one.factors(), one.values()
        ([[1.0, 2.0, -4.0]], [[0.125, 0.125, 0.125]], [[0.125, 0.25, -0.5]])
    """

    codes: Sequence[Sequence[int]]
    scales: Sequence[Sequence[int]]
    format: BlockFormat
    tensor_scale: float = 1.0

    def elements(self) -> list[list[float]]:
        """Each element without its scale."""
        return [[element_value(code, self.format) for code in line] for line in self.codes]

    def factors(self) -> list[list[float]]:
        """The scale of each element."""
        size, decode = self.format.block_size, self.format.scale.decode
        return [
            [decode(scales[k // size]) for k in range(len(line))]
            for line, scales in zip(self.codes, self.scales, strict=True)
        ]

    def values(self) -> list[list[float]]:
        """Element times scale times the tensor's scale: at most 39 significant bits, so exact in a float."""
        second = self.tensor_scale if self.format.tensor_scale else 1.0
        return [
            [p * x * second for p, x in zip(line, factors, strict=True)]
            for line, factors in zip(self.elements(), self.factors(), strict=True)
        ]


def blocked(
    lines: Sequence[Sequence[float]], fmt: BlockFormat, second: float | None = None, source: str = "float32"
) -> Blocked:
    """``lines`` in ``fmt``; ``second``: the tensor's own scale, by default that of all of ``lines``.

    Example:
        >>> one = gs.reference.blocked([[0.1, 0.2, -0.4]], gs.formats.parse_block("mxfp4"))
        >>> one.codes, one.scales, one.values()
        ([[3, 5, 15]], [[123]], [[0.09375, 0.1875, -0.375]])
    """
    found = 1.0
    if fmt.tensor_scale:
        found = tensor_scale([x for line in lines for x in line], fmt) if second is None else second
    codes: list[list[int]] = []
    scales: list[list[int]] = []
    for line in lines:
        parts = [
            encode_block(line[k : k + fmt.block_size], fmt, found, source) for k in range(0, len(line), fmt.block_size)
        ]
        codes.append([code for part, _ in parts for code in part])
        scales.append([scale for _, scale in parts])
    return Blocked(codes, scales, fmt, found)


def tensor_scale(values: Sequence[float], fmt: BlockFormat) -> float:
    """amax / (largest scale * largest element) in binary32, at least 2^-96; 1 for no values, NaN or infinity as is."""
    if not values:
        return 1.0
    if any(map(math.isnan, values)):
        return math.nan
    amax = max(map(abs, values))
    if math.isinf(amax):
        return math.inf
    amax = binary32(Fraction(amax))
    most = fmt.scale.max * fmt.element.max
    return math.inf if math.isinf(amax) else max(binary32(Fraction(amax) / Fraction(most)), 2.0**-96)
