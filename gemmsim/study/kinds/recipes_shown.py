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
from ..recipe_parts import FULL, PARTS
from .pivot import mean_of

__all__ = ["draw", "found", "tables"]


def tables(rows: Sequence[Row], title: str, metric: str) -> Any:
    """Losses; what products lose; published statements."""
    return Group(_losses(rows, title, metric), _products(rows), _claims(judged(rows, metric), metric))


def found(rows: Sequence[Row], judgements: Sequence[Judgement], metric: str) -> str:
    """Verdicts counted; the variant whose mean loss is highest above bf16's."""
    worst = max(
        ((_mean(_above_bf16(rows, group, metric)), group[0]) for group in _groups(rows)), key=_first, default=None
    )
    parts = []
    if judgements:
        counts = {word: sum(one.verdict == word for one in judgements) for word in ("pass", "fail")}
        rest = len(judgements) - sum(counts.values())
        parts.append(
            f"{len(judgements)} published statements: {counts['pass']} pass, {counts['fail']} fail, "
            f"{rest} not shown at this size"
        )
    if worst is not None and worst[1]["what"] != "truth" and not math.isnan(worst[0]):
        loss = "diverged" if math.isinf(worst[0]) else f"{100 * worst[0]:+.2f} %"
        parts.append(f"highest loss against bf16: {worst[1]['label']} in {worst[1]['network']}, {loss}")
    return "; ".join(parts)


def draw(rows: Sequence[Row], finding: str, path: Path) -> None:
    """A column of panels for each network: losses, then of each recipe what it is above bf16's."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    recipes = list(dict.fromkeys(row["recipe"] for row in rows if row["what"] != "truth"))
    panels = []
    for network in networks:
        here = [row for row in rows if row["network"] == network]
        whole = [group for group in _groups(here) if group[0]["without"] == FULL]
        lines = [_line(group[0]["recipe"], group, None, at) for at, group in enumerate(whole)]
        panels.append([Panel(f"{network}: bf16 and whole recipes", "loss (nats)", lines)])
        bf16 = [row for row in here if row["what"] == "truth"]
        for recipe in recipes:
            groups = [group for group in _groups(here) if group[0]["recipe"] == recipe]
            lines = [
                _line("whole" if group[0]["without"] == FULL else f"without {group[0]['without']}", group, bf16, at)
                for at, group in enumerate(groups)
            ]
            panels.append([]) if not panels else None
            panels[-1].append(Panel(f"{network}: {recipe}", "loss above bf16's (%)", lines, zero=True))
    seeds = len({row["seed"] for row in rows})
    subject = f"means of {seeds} seed{'s' if seeds > 1 else ''}, bands from the lowest to the highest"
    draw_panels(panels, finding, subject, "step", path)


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


def _first(pair: tuple[float, Row]) -> float:
    return -math.inf if math.isnan(pair[0]) else pair[0]


def _losses(rows: Sequence[Row], title: str, metric: str) -> Table:
    caption = "losses in nats; training: last quarter of the steps; against bf16 of the same seed, lowest to highest"
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    named = "training" if metric == "train_loss" else "test"
    headings = ("network", "recipe", "without", "training loss", "test loss", f"{named} loss against bf16", "accuracy")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in headings[:3] else "right")
    for group in _groups(rows):
        row = group[0]
        shares = [] if row["what"] == "truth" else _above_bf16(rows, group, metric)
        losses = (_number(mean_of(group, column)) for column in ("train_loss", "test_loss"))
        without = "" if row["what"] == "truth" else row["without"]
        accuracy = mean_of(group, "accuracy")
        table.add_row(
            row["network"],
            row["recipe"],
            without,
            *losses,
            _spread(shares),
            "" if accuracy is None else f"{accuracy:.3f}",
        )
    return table


def _spread(shares: Sequence[float]) -> str:
    if not shares:
        return ""
    low, high = (f"{100 * value:+.2f}" for value in (min(shares), max(shares)))
    if math.isinf(max(shares)):
        return "diverged"
    return f"{100 * _mean(shares):+.2f} %" + (f" ({low} to {high})" if low != high else "")


def _number(value: float | None) -> str:
    return "diverged" if value is None else f"{value:.4f}"


def _products(rows: Sequence[Row]) -> Table:
    table = Table(
        title="What products lose: elements that became zero / beyond the largest number / bias / error",
        caption="per cent; mean over seeds and steps looked at; bias and error against float64",
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("network", "recipe", "without", *ROLES):
        table.add_column(heading, justify="right" if heading in ROLES else "left")
    for group in _groups(rows):
        row = group[0]
        without = "" if row["what"] == "truth" else row["without"]
        table.add_row(row["network"], row["recipe"], without, *(_lost(group, role) for role in ROLES))
    return table


def _lost(group: Sequence[Row], role: str) -> str:
    shown = []
    for name, form in (("zero", ".2f"), ("saturated", ".2f"), ("bias", "+.2f"), ("error", ".2f")):
        value = mean_of(group, f"{role}_{name}")
        shown.append("-" if value is None else format(100 * value, form))
    return " / ".join(shown)


def _claims(judgements: Sequence[Judgement], metric: str) -> Table:
    named = "training" if metric == "train_loss" else "test"
    table = Table(
        title=f"What publications state, and the {named} losses here",
        caption="difference: mean and standard error over seeds. Limits are this project's but where 'printed' is said. "
        "pass and fail: one-sided, at 95 %",
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("network", "statement judged", "difference", "verdict", "published", "place"):
        table.add_column(heading, justify="right" if heading == "difference" else "left")
    for one in judgements:
        claim = one.claim
        difference = "diverged" if math.isinf(one.mean) else f"{100 * one.mean:+.2f} %"
        if not math.isnan(one.error):
            difference += f" +- {100 * one.error:.2f}"
        published = f"{claim.published} (printed)" if claim.printed else claim.published
        table.add_row(one.network, claim.words(), difference, one.verdict, published, claim.place)
    return table


def parts_in_words() -> dict[str, str]:
    """Name of each part of each recipe, "recipe: part" -> what stands in its place."""
    return {f"{recipe}: {part.name}": part.words for recipe, parts in PARTS.items() for part in parts}
