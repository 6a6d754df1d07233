"""What ``gemmsim study`` prints, as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmsim import study

__all__ = ["expectation_facts", "plan_facts", "summary_facts"]


def expectation_facts(entry: study.Expectation) -> dict[str, Any]:
    """A check: its words, its interval, and where the expected number comes from."""
    found = {"check": entry.words(), "metric": entry.metric, "low": entry.low, "high": entry.high}
    origin = {"published": entry.published or None, "source": entry.source, "derived": entry.derived}
    return found | origin | {"place": entry.place}


def summary_facts(chosen: study.Study, summary: study.RunSummary) -> dict[str, Any]:
    """What a run did and found: its rows as results.jsonl has them."""
    verdicts = [
        expectation_facts(verdict.expectation) | {"verdict": verdict.word, "values": list(verdict.values)}
        for verdict in summary.verdicts
    ]
    failures = [{**failure.cell.row(), "error": failure.error} for failure in summary.failures]
    return {
        "study": chosen.name,
        "kind": chosen.kind,
        "title": chosen.title,
        "folder": str(summary.folder),
        "ok": summary.ok,
        "computed": summary.computed,
        "reused": summary.reused,
        "left": summary.left,
        "finding": chosen.finding(summary.rows) if summary.rows else "",
        "verdicts": verdicts,
        "failures": failures,
        "problems": list(summary.problems),
        "rows": list(summary.rows),
    }


def plan_facts(plan: study.Plan, todo: Sequence[Any]) -> dict[str, Any]:
    """What a run would do: every cell and its state, and what the cells ``todo`` cost."""
    ahead = {cell.key for cell in todo}

    def state(key: str) -> str:
        return "finished" if key in plan.finished else "to do" if key in ahead else "later"

    return {
        "study": plan.study.name,
        "cells": [{**cell.row(), "state": state(cell.key)} for cell in plan.cells],
        "macs": sum(cell.macs for cell in todo),
        "seconds": plan.seconds(todo),
        "rates": "measured" if plan.rate_is_measured else "assumed",
    }
