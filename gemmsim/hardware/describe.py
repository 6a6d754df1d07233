"""The tables as text for people."""

from __future__ import annotations

from .catalogue import families
from .instruction import MODEL, Family

__all__ = ["table"]


def table() -> str:
    """All rows as a Markdown table; a mark says which have no vectors."""
    lines = [
        "| arch | unit | shapes (products per step) | operands | C -> D | blocks | one step |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_line(family) for family in families())]) + "\n"


def _line(family: Family) -> str:
    shapes = ", ".join(f"{shape.text} ({shape.products})" for shape in family.shapes)
    pairs = ", ".join(a if a == b else f"{a} * {b}" for a, b in family.operands)
    results = ", ".join(f"{c} -> {d} by {out}" for c, d, out in family.results)
    blocks = f"{family.block}, {family.scale}" if family.scale else ""
    one = next(family.instructions()).model
    words = one.words.removesuffix(f", {one.out}")
    mark = "" if family.source == MODEL else " (no vectors)"
    return f"| {family.arch} | {family.unit}{mark} | {shapes} | {pairs} | {results} | {blocks} | {words} |"
