"""``gemmsim study``: listing, costing, running and plotting studies."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from gemmsim import study

from .console import FAILED_EXIT, INTERRUPT_EXIT, USAGE_EXIT, is_user_error, say, say_json, show, warn
from .study_options import Request
from .study_tables import expectation_facts, plan_facts, show_checks, show_study_table, show_verdicts, summary_facts

#: What takes longer than this is asked for twice: without --yes it is refused.
LONG_SECONDS = 3600.0


def list_studies(*, as_json: bool = False) -> None:
    """Prints name, strongest source of a check and title of every study, then every kind."""
    studies = {name: study.get(name) for name in study.names()}
    titles = {name: one.title for name, one in studies.items()}
    sources = {name: study.strongest_source(one.expectations()) for name, one in studies.items()}
    kinds = {name: study.kind(name).about for name in study.kinds()}
    if as_json:
        found = [
            {"name": name, "title": title, "kind": studies[name].kind, "source": sources[name] or None}
            for name, title in titles.items()
        ]
        say_json({"studies": found, "kinds": [{"name": name, "about": about} for name, about in kinds.items()]})
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, title in titles.items():
        table.add_row(name, sources[name], title)
    table.add_section()
    for name, about in kinds.items():
        table.add_row(name, "kind", about)
    show(table, natural=True)


def show_study(name: str, *, as_json: bool = False) -> None:
    """Prints what a study measures, with which parameters, and what its rows are expected to show."""
    chosen = study.get(name)
    cells = chosen.cells()
    macs = sum(cell.macs for cell in cells)
    commands = [f"gemmsim study run {chosen.kind} {part.command()} --out DIR" for part in getattr(chosen, "parts", ())]
    if as_json:
        checks = [expectation_facts(entry) for entry in chosen.expectations()]
        found = {"name": name, "title": chosen.title, "kind": chosen.kind, "cells": len(cells), "macs": macs}
        say_json(found | {"commands": commands, "checks": checks})
        return
    say(f"{name}: {chosen.title}")
    say(f"kind: {chosen.kind}; {len(cells)} cells, {macs:,} multiply-adds")
    for command in commands:
        say(f"  {command}")
    show_checks(chosen.expectations())


def run_studies(request: Request, parameters: Mapping[str, Any]) -> None:
    """Does what ``gemmsim study run`` was asked for; exits 1 where a check fails."""
    if request.name == "all":
        _run_all(request)
        return
    plain = request.name in study.names() and not parameters
    chosen = study.get(request.name) if plain else study.kind(request.name)(**parameters)
    if request.dry_run:
        found = _dry_run(chosen, request)
        if request.as_json:
            say_json(found)
        return
    summary = _run(chosen, request)
    if request.as_json:
        say_json(summary_facts(chosen, summary))
    if not summary.ok:
        raise typer.Exit(FAILED_EXIT)


def _run_all(request: Request) -> None:
    """Every study that says what its rows must show, each into a folder of its name; one that cannot run stops none.

    Exits 2 where one could not run, else 1 where a check of one fails. Studies of models that are not installed are
    skipped with the reason.
    """
    codes: dict[str, int] = {}
    facts: dict[str, dict[str, Any]] = {}
    for name in study.names():
        chosen = study.get(name)
        if not chosen.expectations():
            continue
        one = replace(request, name=name, out=request.out / name)
        try:
            if one.dry_run:
                facts[name] = _dry_run(chosen, one)
                continue
            if not one.as_json:
                say(f"== {name}: {chosen.title}")
            summary = _run(chosen, one)
            codes[name] = 0 if summary.ok else FAILED_EXIT
            facts[name] = summary_facts(chosen, summary)
        except study.ModelMissingError as error:
            (warn if one.as_json else say)(f"skipped: {error}")
            facts[name] = {"skipped": str(error)}
        except Exception as error:
            if not is_user_error(error):
                raise
            warn(f"error: {name}: {error}")
            codes[name] = USAGE_EXIT
            facts[name] = {"error": str(error)}
    words = {0: "pass", FAILED_EXIT: "fail", USAGE_EXIT: "could not run"}
    told = [f"{name}: {words[code]}" for name, code in codes.items()]
    told += [f"{name}: skipped" for name, found in facts.items() if "skipped" in found]
    if request.as_json:
        say_json(facts)
    elif told:
        say("== " + "; ".join(told))
    if any(codes.values()):
        raise typer.Exit(max(codes.values()))


def plot_study(name: str, out: Path) -> None:
    """Draws plot.png and plot.svg from the results in ``out``; of a kind, with the parameters of the runs there."""
    chosen = study.get(name)
    kept = study.of_folder(out) if name in study.kinds() and os.path.isdir(out) else chosen
    if kept is not chosen and kept.name == name:
        # All rows are of its runs. Its cells would ask for what they were made from: a model, files that have moved.
        chosen, rows = kept, study.load_rows(out)
    else:
        keys = {cell.key for cell in chosen.cells()}
        rows = [row for row in study.load_rows(out) if row["cell"] in keys]
    if not rows:
        raise study.StudyError(
            f"'{out}' contains no finished cell of {name!r}. Run the study first: gemmsim study run {name} --out {out}"
        )
    for file in ("plot.png", "plot.svg"):
        chosen.plot(rows, out / file)
        say(f"{out}/{file}")


def report_studies(folders: Sequence[Path], out: Path) -> None:
    """Writes the page and says where it is."""
    say(str(study.report(folders, out)))


def merge_studies(folders: Sequence[Path], out: Path) -> None:
    """Joins folders of one study in ``out``; prints its table and verdicts, exits 1 where a check fails."""
    summary = study.merge(folders, out)
    _tell(study.of_folder(out), summary)
    if not summary.ok:
        raise typer.Exit(FAILED_EXIT)


def export_results(folder: Path, to: str, out: Path | None, cells: Sequence[str]) -> None:
    """Writes the results of ``folder`` in another form, and says where."""
    say(str(study.export(folder, to, out, cells=cells)))


def _dry_run(chosen: study.Study, request: Request) -> dict[str, Any]:
    """Prints every cell, whether it is finished, and what the unfinished ones cost; the same as facts, not printed
    where JSON is asked for. Creates nothing."""
    plan = study.plan(chosen, request.out)
    todo = plan.todo[: request.limit]
    ahead = {cell.key for cell in todo}
    facts = plan_facts(plan, todo)
    if request.as_json:
        return facts
    table = Table(title=f"{chosen.name}: {len(plan.cells)} cells", title_justify="left")
    for heading, justify in (("label", "left"), ("spec", "left"), ("seed", "right"), ("state", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_column("MACs", justify="right")
    table.add_column("s", justify="right")
    for cell in plan.cells[:200]:
        state = "finished" if cell.key in plan.finished else "to do" if cell.key in ahead else "later (--limit)"
        cost = f"{plan.seconds([cell]):.3f}" if cell.key in ahead else ""
        table.add_row(cell.label, cell.spec, str(cell.seed), state, f"{cell.macs:,}", cost)
    show_study_table(table)
    if len(plan.cells) > 200:
        say(f"... and {len(plan.cells) - 200:,} more.")
    macs = sum(cell.macs for cell in todo)
    source = "measured in this folder" if plan.rate_is_measured else "assumed"
    memory = chosen.bytes_needed()
    say(
        f"{len(todo)} of {len(plan.cells)} cells to do: {macs:,} multiply-adds, about {plan.seconds(todo):.2f} s at "
        f"{plan.rate[0] / 1e9:.2g} GMAC/s (stochastic {plan.rate[1] / 1e9:.2g}), rates {source}"
        + (f"; memory of the largest {memory / 2**20:,.0f} MiB" if memory else "")
        + ".\nNothing was computed."
    )
    return facts


def _refuse_absurd(chosen: study.Study, request: Request) -> None:
    """A grid of more than an hour or half the memory is refused without --yes."""
    if request.yes:
        return
    plan = study.plan(chosen, request.out)
    together = request.workers or 1
    seconds = plan.seconds(plan.todo[: request.limit]) / together
    if seconds > LONG_SECONDS:
        raise study.StudyError(
            f"{chosen.name}: {len(plan.todo):,} cells take about {seconds / 3600:,.1f} hours. Check with --dry-run, "
            "shorten the study, or add --yes."
        )
    memory, there = chosen.bytes_needed() * together, _memory()
    if there and memory > there / 2:
        raise study.StudyError(
            f"{chosen.name}: the largest cell in each of {together} processes takes {memory / 2**30:,.1f} GiB of the "
            f"{there / 2**30:,.1f} GiB available. Shorten the study, or add --yes."
        )


def _memory() -> int:
    import os

    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0


def _run(chosen: study.Study, request: Request) -> study.RunSummary:
    """Runs the study with progress, then prints its table and verdicts and says where everything is; of a run whose
    result is to be JSON only problems and failures."""
    out = request.out
    _refuse_absurd(chosen, request)
    try:
        summary = study.run(
            chosen,
            out,
            limit=request.limit,
            console=Console(stderr=True),
            shard=request.shard,
            executor=_executor(request),
        )
    except KeyboardInterrupt:
        warn(f"\ninterrupted. Finished cells are in {out}; the same command continues from there.")
        raise typer.Exit(INTERRUPT_EXIT) from None
    _tell(chosen, summary, quiet=request.as_json)
    return summary


def _tell(chosen: study.Study, summary: study.RunSummary, *, quiet: bool = False) -> None:
    """Prints what a run found and where it is, unless ``quiet``; problems and failures go to standard error."""
    for problem in summary.problems:
        warn(f"note: {problem}")
    for failure in summary.failures:
        warn(f"error: cell {failure.cell.key} ({failure.cell.label or failure.cell.spec}): {failure.error}")
    if quiet:
        return
    if summary.rows:
        show_study_table(chosen.table(summary.rows))
        show_verdicts(summary.verdicts)
        if finding := chosen.finding(summary.rows):
            say(finding)
    left = f", {summary.left} left: run the same command again to continue" if summary.left else ""
    say(f"{summary.computed} cells computed, {summary.reused} reused{left}.")
    if summary.rows:
        say(f"Results: {summary.folder}/results.jsonl, results.csv, table.txt, verdicts.json, plot.png, plot.svg")


def _executor(request: Request) -> study.Executor:
    """Where cells are computed: in this process unless asked otherwise."""
    if request.cluster is not None:
        return study.Cluster(request.cluster, request.workers)
    return study.Inline() if request.workers is None else study.Processes(request.workers)
