"""Operands as integers, and what any input of a format could make of their sums."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import gemmsim as gs

from ..cells import Scalar

__all__ = ["certificate", "integers", "worst_sums"]


def integers(x: Tensor, fmt: str) -> Tensor:
    """``x`` scaled so that its largest magnitude is the format's largest value, rounded to nearest even: integers in
    float32. An unsigned format gets magnitudes."""
    parsed = gs.formats.parse_scalar(fmt)
    if not getattr(parsed, "signed", True):
        x = x.abs()
    largest = x.abs().max() if x.numel() else torch.zeros(())
    scaled = x * (float(parsed.max) / largest) if largest > 0 else x
    return gs.quantize(scaled, fmt)


def worst_sums(b: Tensor, a_format: str) -> Tensor:
    """Lowest and highest sum that any a of the format gives with each column of ``b`` (K, N): int64 (2, N).

    All terms of such a sum have one sign, so no partial sum lies outside: the sums alone decide what overflows.
    """
    fmt = gs.formats.parse_scalar(a_format)
    low, high = int(fmt.min), int(fmt.max)
    whole = b.to(torch.int64)
    positive, negative = whole.clamp(min=0).sum(0), whole.clamp(max=0).sum(0)
    return torch.stack([low * positive + high * negative, high * positive + low * negative])


def certificate(weights: Sequence[Tensor], worst: Sequence[Tensor], operands: str, P: int) -> dict[str, Scalar]:
    """Columns about what any input could do, over all columns of ``weights`` (K, N) each."""
    a_format = operands.partition("*")[0]
    certified = max(gs.acc.min_accumulator_bits(weight, a_format, k_dim=0) for weight in weights)
    sums = torch.cat(list(worst), dim=1)
    outside = (sums[0] < -(2 ** (P - 1))) | (sums[1] > 2 ** (P - 1) - 1)
    lowest, highest = int(sums[0].min()), int(sums[1].max())
    return {
        "certified_bits": certified,
        "certified": certified <= P,
        "worst_case_bits": 1 + max((-lowest - 1).bit_length() if lowest else 0, highest.bit_length()),
        "worst_case_rate": float(outside.double().mean()),
    }
