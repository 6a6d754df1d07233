"""A search's result in sentences and an aligned table."""

from __future__ import annotations

from collections.abc import Sequence

from .findings import Findings

__all__ = ["in_words", "table_of"]

#: Columns of words in the table; those behind them are numbers.
_WORDS = 3
_METHODS = {
    "whole": "each is the error of the whole model when only that layer is narrowed",
    "captured": "each is the layer's error on its own inputs times a sensitivity, measured in two runs of the whole "
    "model",
}


def in_words(found: Findings) -> str:
    """What was chosen, what it was measured on, how it was found, and a row for each layer."""
    lines = [_choice(found), _checked(found), _how(found)]
    if found.native_macs:
        total = found.native_macs + sum(row.macs for row in found.table)
        places = ", ".join(found.native_places[:4]) + (", ..." if len(found.native_places) > 4 else "")
        lines.append(
            f"{100 * found.native_macs / total:.3g} % of the multiply-adds were not searched and stay native: {places}."
        )
    return "\n".join([*lines, "", *_aligned(table_of(found))])


def _choice(found: Findings) -> str:
    low, high = min(row.bits for row in found.table), max(row.bits for row in found.table)
    widths = f"{low} bits" if low == high else f"{low} to {high} bits"
    layers = f"{len(found.table)} layer{'s' * (len(found.table) != 1)}"
    return (
        f"{layers} with accumulators of {widths}, {found.chosen.bits:.3g} on average over multiply-adds, in the order "
        f"{found.order!r}."
    )


def _checked(found: Findings) -> str:
    error, limit = found.measured
    samples = f"{found.samples} calibration sample{'s' * (found.samples != 1)}"
    margin = f"95 % limit {limit:.3g}, " if limit > error else ""
    text = f"{found.metric} of the whole model: {error:.3g} on {samples} ({margin}target: at most {found.at_most:g})"
    if found.held_back is None:
        return f"{text}; no samples were held back, so no other inputs confirm it."
    return f"{text}; {found.held_back.error:.3g} on {found.samples_held_back} held-back samples."


def _how(found: Findings) -> str:
    against = "the unmodified model" if found.reference == "native" else "the widest setting"
    return (
        f"Errors are relative to {against}. Layer errors ({found.method}): {_METHODS[found.method]}. They combine "
        f"as the root of the sum of squares, times {found.inflation:.3g}, a factor measured on {found.random_settings} "
        "random settings. "
        f"{found.passes} runs of the model, {found.seconds:.3g} s."
    )


def table_of(found: Findings) -> list[list[str]]:
    """A row of headings, then one for each layer."""
    heads = ["layer", "kind", "spec", "bits", "K", "MACs per sample", "error alone"]
    has_sensitivity = any(row.sensitivity is not None for row in found.table)
    rows = [[*heads, *(["sensitivity"] if has_sensitivity else [])]]
    for row in found.table:
        cells = [row.path or "-", row.kind, row.spec, str(row.bits), str(row.K), f"{row.macs:,.0f}", f"{row.alone:.2g}"]
        rows.append([*cells, *([f"{row.sensitivity:.2g}"] if row.sensitivity is not None else [])])
    return rows


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at < _WORDS else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
