"""The tables as text for people."""

from __future__ import annotations

from .catalogue import families
from .instruction import Family

__all__ = ["table"]


def table() -> str:
    """All rows as a Markdown table; the last column says what confirms the rule (``Source.short``).

    Example:
        >>> len(gs.hardware.table().splitlines()) - 2 == len(gs.hardware.families())  # two lines of heading
        True
    """
    lines = [
        "| arch | unit | shapes (products per step) | operands | C -> D | blocks | one step | evidence |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_line(family) for family in families())]) + "\n"


def _line(family: Family) -> str:
    shapes = ", ".join(f"{shape.text} ({shape.products})" for shape in family.shapes)
    results = ", ".join(f"{one.c} -> {one.d} by {one.out}" for one in family.results)
    least = ", ".join(str(one.least) for one in family.results if one.least is not None)
    blocks = f"{family.block}, {family.scale}" if family.scale else ""
    one = next(family.instructions()).model
    words = one.words.replace(f", {one.out}", "").replace(f" (at least {family.results[0].least})", "")
    step = words + (f"; least exponent {least}" if least else "")
    unit = f"{family.unit} {family.kind}" if family.kind else family.unit
    cells = (family.arch, unit, shapes, _pairs(family), results, blocks, step, _evidence(family))
    return f"| {' | '.join(cells)} |"


def _pairs(family: Family) -> str:
    """``e4m3, e5m2 and mixed`` where all pairs of some formats are there."""
    names = tuple(dict.fromkeys(a for a, _ in family.operands))
    if len(names) > 1 and set(family.operands) == {(a, b) for a in names for b in names}:
        return f"{', '.join(names)} and mixed"
    return ", ".join(a if a == b else f"{a} * {b}" for a, b in family.operands)


def _evidence(family: Family) -> str:
    """What is known, once for all instructions of the row that share it."""
    shared: dict[str, dict[str, list[str]]] = {}
    for one in family.instructions():
        operands = shared.setdefault(one.source.short, {}).setdefault(one.d, [])
        which = one.a if one.a == one.b else "mixed"
        if which not in operands:
            operands.append(which)
    if len(shared) == 1:
        return next(iter(shared))
    return "; ".join(f"{words} ({_results(found)})" for words, found in shared.items())


def _results(found: dict[str, list[str]]) -> str:
    """``e4m3, e5m2 -> f32, f16``, of the operands of each result."""
    grouped: dict[str, list[str]] = {}
    for d, operands in found.items():
        grouped.setdefault(", ".join(operands), []).append(d)
    return ", ".join(f"{operands} -> {', '.join(results)}" for operands, results in grouped.items())
