"""Tables, picture and sentence of the study on recipes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from ..capture import ROLES
from ..cells import Row
from ..plots.lines import Line
from ..plots.panels import Panel, draw_panels
from ..recipe_claims import Judgement, above, judged
from ..recipe_parts import FULL
from .pivot import mean_of

__all__ = ["draw", "found", "tables"]


def tables(rows: Sequence[Row], title: str, metric: str) -> Any:
    """Losses; what products lose; published statements."""
    judgements = judged(rows, metric)
    told = [_claims(judgements, metric)] if judgements else []
    return Group(_losses(rows, title, metric), _products(rows), *told)


def found(rows: Sequence[Row], judgements: Sequence[Judgement], metric: str) -> str:
    """Verdicts counted; of each network the variant whose mean loss is highest above bf16's."""
    parts = []
    if judgements:
        counts = {word: sum(one.verdict == word for one in judgements) for word in ("pass", "fail")}
        rest = len(judgements) - sum(counts.values())
        parts.append(
            f"{len(judgements)} published statements: {counts['pass']} pass, {counts['fail']} fail, "
            f"{rest} not shown at this size"
        )
    means = [(_mean(_above_bf16(rows, group, metric)), group[0]) for group in _groups(rows)]
    known = [pair for pair in means if pair[1]["what"] != "truth" and not math.isnan(pair[0])]
    for network in dict.fromkeys(row["network"] for _, row in known):
        most, row = max((pair for pair in known if pair[1]["network"] == network), key=_share)
        loss = "diverged" if math.isinf(most) else f"{100 * most:+.1f} %"
        parts.append(f"highest loss in {network} against bf16: {row['label']}, {loss}")
    return "; ".join(parts)


def draw(rows: Sequence[Row], finding: str, path: Path) -> None:
    """A column of panels for each network: losses, then of each recipe what it is above bf16's."""
    columns = [_column(network, rows) for network in dict.fromkeys(row["network"] for row in rows)]
    seeds = len({row["seed"] for row in rows})
    subject = f"means of {seeds} seeds, bands from the lowest to the highest" if seeds > 1 else "one seed"
    draw_panels(columns, finding, subject, "step", path)


def _column(network: str, rows: Sequence[Row]) -> list[Panel]:
    here = [row for row in rows if row["network"] == network]
    whole = [group for group in _groups(here) if group[0]["without"] == FULL]
    lines = [_line(group[0]["recipe"], group, None, at) for at, group in enumerate(whole)]
    panels = [Panel(f"{network}: bf16 and whole recipes", "loss (nats)", lines)]
    bf16 = [row for row in here if row["what"] == "truth"]
    for recipe in dict.fromkeys(row["recipe"] for row in here if row["what"] != "truth"):
        groups = [group for group in _groups(here) if group[0]["recipe"] == recipe]
        names = ["whole" if group[0]["without"] == FULL else f"without {group[0]['without']}" for group in groups]
        lines = [_line(name, group, bf16, at) for at, (name, group) in enumerate(zip(names, groups, strict=True))]
        panels.append(Panel(f"{network}: {recipe}", "loss above bf16's (%)", lines, zero=True))
    return panels


def _line(label: str, group: Sequence[Row], bf16: Sequence[Row] | None, colour: int) -> Line:
    """Means over seeds; with ``bf16`` of the relative differences to it, in per cent."""
    others = {row["seed"]: _curve(row) for row in bf16 or ()}
    curves = []
    for row in group:
        curve = _curve(row)
        if bf16 is not None:
            if row["seed"] not in others:
                continue
            curve = [100 * (mine - other) / other for mine, other in zip(curve, others[row["seed"]], strict=True)]
        curves.append(curve)
    every = group[0]["every"]
    steps = [values for values in zip(*curves, strict=True) if all(math.isfinite(value) for value in values)]
    points = [((at + 0.5) * every, sum(values) / len(values)) for at, values in enumerate(steps)]
    return Line(label, points, [(min(values), max(values)) for values in steps], colour=colour)


def _curve(row: Row) -> list[float]:
    return [float(text) for text in row["curve"].split()]


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each network and variant, all seeds."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["network"], row["label"]), []).append(row)
    return list(groups.values())


def _above_bf16(rows: Sequence[Row], group: Sequence[Row], metric: str) -> list[float]:
    return above(group, [row for row in rows if row["what"] == "truth"], metric)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _share(pair: tuple[float, Row]) -> float:
    return pair[0]


def _table(title: str, caption: str, left: Sequence[str], right: Sequence[str] = ()) -> Table:
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for heading in left:
        table.add_column(heading, overflow="fold")
    for heading in right:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def _losses(rows: Sequence[Row], title: str, metric: str) -> Table:
    caption = "losses in nats; training: last quarter of the steps; against bf16 of the same seed, lowest to highest"
    named = "training" if metric == "train_loss" else "test"
    right = ("training loss", "test loss", f"{named} loss against bf16", "accuracy")
    table = _table(title, caption, ("network", "recipe", "without"), right)
    for group in _groups(rows):
        shares = [] if group[0]["what"] == "truth" else _above_bf16(rows, group, metric)
        losses = (_number(mean_of(group, column)) for column in ("train_loss", "test_loss"))
        accuracy = mean_of(group, "accuracy")
        table.add_row(*_names(group), *losses, _spread(shares), "" if accuracy is None else f"{accuracy:.3f}")
    return table


def _names(group: Sequence[Row]) -> tuple[str, str, str]:
    row = group[0]
    return row["network"], row["recipe"], "" if row["what"] == "truth" else row["without"]


def _spread(shares: Sequence[float]) -> str:
    if not shares:
        return ""
    if math.isinf(max(shares)):
        return "diverged"
    low, high = (f"{100 * value:+.2f}" for value in (min(shares), max(shares)))
    return f"{100 * _mean(shares):+.2f} %" + (f" ({low} to {high})" if low != high else "")


def _number(value: float | None) -> str:
    return "diverged" if value is None else f"{value:.4f}"


def _products(rows: Sequence[Row]) -> Table:
    title = "What products lose, per cent: operands that became zero, operands out of range, bias, error of the result"
    caption = "mean over seeds and the steps looked at; bias and error against float64"
    table = _table(title, caption, ("network", "recipe", "without"), ROLES)
    for group in _groups(rows):
        table.add_row(*_names(group), *(_lost(group, role) for role in ROLES))
    return table


def _lost(group: Sequence[Row], role: str) -> str:
    shown = []
    for name, form in (("zero", ".2f"), ("saturated", ".2f"), ("bias", "+.2f"), ("error", ".2f")):
        value = mean_of(group, f"{role}_{name}")
        shown.append("-" if value is None else format(100 * value, form))
    return " ".join(shown)


def _claims(judgements: Sequence[Judgement], metric: str) -> Table:
    named = "training" if metric == "train_loss" else "test"
    caption = (
        "difference: mean and standard error over seeds, of losses relative, of products in percentage points. Limits "
        "are this project's but where they are printed. pass and fail: one-sided, at 95 %"
    )
    title = f"What publications state, and the {named} losses and products here"
    table = _table(title, caption, ("network", "statement judged", "difference", "verdict", "published"))
    for one in judgements:
        claim = one.claim
        unit = "" if claim.column else " %"
        difference = "diverged" if math.isinf(one.mean) else f"{100 * one.mean:+.2f}{unit}"
        if not math.isnan(one.error):
            difference += f" ± {100 * one.error:.2f}"
        published = f"{claim.published} ({claim.place}{'; printed' if claim.printed else ''})"
        table.add_row(one.network, claim.words(), difference, one.verdict, published)
    return table
