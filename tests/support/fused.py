"""Fused steps that are asked of every backend, and the rows of the tables that are instances of them."""

from __future__ import annotations

from gemmsim import acc
from gemmsim.arithmetic import Fused, Hardware
from gemmsim.hardware import FusedBlock
from support.hardware import choices

_OUTS = {"rz23": "e8m23/rtz", "e8m13": "e8m13/rtz", "rne10": "e5m10"}

#: Each carrier of a sum (int32, double, 128 bits, long), with conversions of every kind of rounding and overflow.
TEXTS = [
    "fused(1, 1)", "fused(4, 8, bf16/rtz)", "fused(8, 12, e8m10/rtz, a=bf16)", "fused(16, 24, e5m10/rtz, a=fp16)",
    "fused(16, 25, fp32)", "fused(32, 13, e8m13, a=e4m3, b=e5m2)", "fused(64, 28, e8m23/rtz)", "fused(64, 29, e8m23/rtz)",
    "fused(7, 36, bf16/ru)", "fused(12, 37, e5m2/rtz/sat)", "fused(5, 44, e4m3)", "fused(64, 44, fp32/rna)",
    "fused(64, 45, e8m23/rtz)", "fused(3, 60, e5m10/rd)", "fused(16, 52, e6m9/ro)", "fused(16, 20, e5m10/ftz)",
    "fused(4, 9, e5m10, least=-3)", "fused(16, 25, fp32/rtz, a=bf16, least=-133)", "fused(3, 50, fp32, least=10)",
    "fused(16, exact, fp32)", "fused(5, exact, e4m3/rtz, a=e4m3)", "fused(64, exact, bf16/rtz/sat)", "fused(2, exact, e5m10/ftz)",
]  # fmt: skip


def instance(row: Hardware) -> Fused | None:
    """The fused step that ``row`` is; None for rows that are none."""
    model = row.instruction.model
    if type(model) is not FusedBlock:
        return None
    return acc.fused(model.products, model.kept, _OUTS[model.out], a=row.a, b=row.b, least=model.least)


#: Each row of the fused kind and each choice of its operands, with its instance.
ROWS = [(row, one) for row in choices() if (one := instance(row)) is not None]
