"""Grids of accumulators: every format with every rounding, several seeds where bits are random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gemmsim as gs


@dataclass(frozen=True)
class AccumulatorPoint:
    """One accumulator of a grid: its canonical spec (operands as given) and the parts tables and plots sort by.

    ``format`` is the name the grid was asked with (bf16), which people know better than the canonical one (e8m7).
    """

    spec: str
    format: str
    rounding: str
    significand_bits: int
    stochastic: bool
    seed: int


def accumulator_grid(
    formats: Sequence[str], roundings: Sequence[str], *, seeds: Sequence[int] = (0,)
) -> list[AccumulatorPoint]:
    """``formats`` x ``roundings`` as sequential accumulators; only stochastic ones are repeated for every seed.

    Specs are canonical strings, so the same accumulator has the same name in every study. FormatError for an unknown
    format or rounding.
    """
    points = []
    for name in formats:
        for rounding in roundings:
            spec = gs.GemmSpec.parse(f": {name}/{rounding}")
            fmt = gs.formats.parse_scalar(name)
            # Significand bits of a fixed-point register: all its bits but the sign.
            bits = fmt.p if isinstance(fmt, gs.formats.FloatFormat) else fmt.bits - fmt.signed
            mode = str(gs.formats.parse_rounding(rounding))
            for seed in seeds if spec.is_stochastic else seeds[:1]:
                points.append(AccumulatorPoint(str(spec), name, mode, bits, spec.is_stochastic, seed))
    return points
