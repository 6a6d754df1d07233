"""``gemmsim study``: listing, costing, running and plotting studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from gemmsim import study

from .console import INTERRUPT_EXIT, USAGE_EXIT, USER_ERRORS, say, show
from .study_options import Request, read

#: What takes longer than this is asked for twice: without --yes it is refused.
LONG_SECONDS = 3600.0
CHECKS_FAILED_EXIT = 1


def list_studies() -> None:
    """Prints name and title of every study, then of every kind."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name in study.names():
        table.add_row(name, study.get(name).title)
    table.add_section()
    for name in study.kinds():
        table.add_row(name, f"kind: {study.kind(name).about}")
    show(table)


def show_study(name: str) -> None:
    """Prints what a study measures, with which parameters, and what its rows are expected to show."""
    chosen = study.get(name)
    say(f"{name}: {chosen.title}")
    cells = chosen.cells()
    say(f"kind: {chosen.kind}; {len(cells)} cells, {sum(cell.macs for cell in cells):,} multiply-adds")
    for part in getattr(chosen, "parts", ()):
        say(f"  gemmsim study run {chosen.kind} {part.command()} --out DIR")
    expected = chosen.expectations()
    if expected:
        table = Table(title="checks", title_justify="left")
        for heading in ("rows and value", "source", "place", "published"):
            table.add_column(heading, overflow="fold")
        for entry in expected:
            table.add_row(entry.words(), entry.source, entry.place, entry.published)
        show(table)


def run_studies(words: Sequence[str]) -> None:
    """Does what ``gemmsim study run`` was asked for; exits 1 where a check fails."""
    request = read(words)
    if request.name == "all":
        _run_all(request)
        return
    plain = request.name in study.names() and not request.parameters
    chosen = study.get(request.name) if plain else study.kind(request.name)(**request.parameters)
    if request.dry_run:
        _dry_run(chosen, request)
    elif not _run(chosen, request):
        raise typer.Exit(CHECKS_FAILED_EXIT)


def _run_all(request: Request) -> None:
    """Every study that says what its rows must show, each into a folder of its name; one that cannot run stops none.

    Exits 2 where one could not run, else 1 where a check of one fails. Studies of models that are not installed are
    skipped with the reason.
    """
    codes: dict[str, int] = {}
    skipped: list[str] = []
    for name in study.names():
        chosen = study.get(name)
        if not chosen.expectations():
            continue
        one = replace(request, name=name, out=request.out / name)
        try:
            if one.dry_run:
                _dry_run(chosen, one)
                continue
            say(f"== {name}: {chosen.title}")
            codes[name] = 0 if _run(chosen, one) else CHECKS_FAILED_EXIT
        except study.ModelMissingError as error:
            say(f"skipped: {error}")
            skipped.append(name)
        except USER_ERRORS as error:
            typer.echo(f"error: {name}: {error}", err=True)
            codes[name] = USAGE_EXIT
    words = {0: "pass", CHECKS_FAILED_EXIT: "fail", USAGE_EXIT: "could not run"}
    told = [f"{name}: {words[code]}" for name, code in codes.items()] + [f"{name}: skipped" for name in skipped]
    if told:
        say("== " + "; ".join(told))
    if any(codes.values()):
        raise typer.Exit(max(codes.values()))


def plot_study(name: str, out: Path) -> None:
    """Draws plot.png and plot.svg from the results in ``out``; of a kind, with the parameters of the runs there."""
    chosen = study.get(name)
    kept = study.of_folder(out) if name in study.kinds() and out.is_dir() else chosen
    if kept is not chosen and kept.name == name:
        # All rows are of its runs. Its cells would ask for what they were made from: a model, files that have moved.
        chosen, rows = kept, study.load_rows(out)
    else:
        keys = {cell.key for cell in chosen.cells()}
        rows = [row for row in study.load_rows(out) if row["cell"] in keys]
    if not rows:
        raise study.StudyError(
            f"'{out}' holds no finished cell of {name!r}. Run it first: gemmsim study run {name} --out {out}"
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
        raise typer.Exit(CHECKS_FAILED_EXIT)


def export_results(folder: Path, to: str, out: Path | None, cells: Sequence[str]) -> None:
    """Writes the results of ``folder`` in another form, and says where."""
    say(str(study.export(folder, to, out, cells=cells)))


def _dry_run(chosen: study.Study, request: Request) -> None:
    """Prints every cell, whether it is finished, and what the unfinished ones cost. Creates nothing."""
    plan = study.plan(chosen, request.out)
    todo = plan.todo[: request.limit]
    ahead = {cell.key for cell in todo}
    table = Table(title=f"{chosen.name}: {len(plan.cells)} cells", title_justify="left")
    for heading, justify in (("label", "left"), ("spec", "left"), ("seed", "right"), ("state", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_column("MACs", justify="right")
    table.add_column("s", justify="right")
    for cell in plan.cells[:200]:
        state = "finished" if cell.key in plan.finished else "to do" if cell.key in ahead else "later (--limit)"
        cost = f"{plan.seconds([cell]):.3f}" if cell.key in ahead else ""
        table.add_row(cell.label, cell.spec, str(cell.seed), state, f"{cell.macs:,}", cost)
    show(table)
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


def _refuse_absurd(chosen: study.Study, request: Request) -> None:
    """A grid of more than an hour or half the memory is refused without --yes."""
    if request.yes:
        return
    plan = study.plan(chosen, request.out)
    together = request.workers or 1
    seconds = plan.seconds(plan.todo[: request.limit]) / together
    if seconds > LONG_SECONDS:
        raise study.StudyError(
            f"{chosen.name}: {len(plan.todo):,} cells take about {seconds / 3600:,.1f} hours. Look with --dry-run, "
            "shorten it, or say --yes."
        )
    memory, there = chosen.bytes_needed() * together, _memory()
    if there and memory > there / 2:
        raise study.StudyError(
            f"{chosen.name}: the largest cell in each of {together} processes takes {memory / 2**30:,.1f} GiB of the "
            f"{there / 2**30:,.1f} there are. Shorten it, or say --yes."
        )


def _memory() -> int:
    import os

    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0


def _run(chosen: study.Study, request: Request) -> bool:
    """Runs the study with progress, then prints its table and verdicts and says where everything is."""
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
        typer.echo(f"\ninterrupted. Finished cells are in {out}; the same command goes on from there.", err=True)
        raise typer.Exit(INTERRUPT_EXIT) from None
    _tell(chosen, summary)
    return summary.ok


def _tell(chosen: study.Study, summary: study.RunSummary) -> None:
    """Prints what a run found and where it is; problems and failures go to standard error."""
    for problem in summary.problems:
        typer.echo(f"note: {problem}", err=True)
    for failure in summary.failures:
        typer.echo(
            f"error: cell {failure.cell.key} ({failure.cell.label or failure.cell.spec}): {failure.error}", err=True
        )
    if summary.rows:
        show(chosen.table(summary.rows))
        _show_verdicts(summary)
        if finding := chosen.finding(summary.rows):
            say(finding)
    left = f", {summary.left} left: the same command goes on" if summary.left else ""
    say(f"{summary.computed} cells computed, {summary.reused} reused{left}.")
    if summary.rows:
        say(f"Results: {summary.folder}/results.jsonl, results.csv, table.txt, verdicts.json, plot.png, plot.svg")


def _executor(request: Request) -> study.Executor:
    """Where cells are computed: in this process unless asked otherwise."""
    if request.cluster is not None:
        return study.Cluster(request.cluster, request.workers)
    return study.Inline() if request.workers is None else study.Processes(request.workers)


def _show_verdicts(summary: study.RunSummary) -> None:
    if not summary.verdicts:
        return
    table = Table(title="checks", title_justify="left")
    for heading in ("verdict", "rows and value", "found", "published", "source", "place"):
        table.add_column(heading, overflow="fold")
    for verdict in summary.verdicts:
        wanted = verdict.expectation
        table.add_row(verdict.word, wanted.words(), verdict.found(), wanted.published, wanted.source, wanted.place)
    show(table)
    count = sum(verdict.ok is True for verdict in summary.verdicts)
    say(f"{count} of {len(summary.verdicts)} checks pass.")
