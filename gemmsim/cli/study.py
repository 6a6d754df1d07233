"""``gemmsim study``: listing, costing, running and plotting studies."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from gemmsim import study

from .console import INTERRUPT_EXIT, say, show


def list_studies() -> None:
    """Prints name and title of every study."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name in study.names():
        table.add_row(name, study.get(name).title)
    show(table)


def dry_run_study(name: str, out: Path, limit: int | None) -> None:
    """Prints every cell, whether it is finished, and what the unfinished ones cost. Creates nothing."""
    plan = study.plan(name, out)
    todo = plan.todo[:limit]
    chosen = {cell.key for cell in todo}
    table = Table(title=f"{name}: {len(plan.cells)} cells", title_justify="left")
    for heading, justify in (("spec", "left"), ("seed", "right"), ("state", "left"), ("MACs", "right"), ("s", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for cell in plan.cells:
        state = "finished" if cell.key in plan.finished else "to do" if cell.key in chosen else "later (--limit)"
        cost = f"{plan.seconds([cell]):.3f}" if cell.key in chosen else ""
        table.add_row(cell.spec, str(cell.seed), state, f"{cell.macs:,}", cost)
    show(table)
    macs = sum(cell.macs for cell in todo)
    source = "measured in this folder" if plan.rate_is_measured else "assumed"
    say(
        f"{len(todo)} of {len(plan.cells)} cells to do: {macs:,} multiply-adds, about {plan.seconds(todo):.2f} s at "
        f"{plan.rate[0] / 1e9:.2g} GMAC/s (stochastic {plan.rate[1] / 1e9:.2g}), rates {source}.\nNothing was computed."
    )


def run_study(name: str, out: Path, limit: int | None) -> None:
    """Runs the study with a progress bar, then prints its table and says where everything is."""
    chosen = study.get(name)
    try:
        summary = study.run(chosen, out, limit=limit, console=Console(stderr=True))
    except KeyboardInterrupt:
        typer.echo(f"\ninterrupted. Finished cells are in {out}; the same command goes on from there.", err=True)
        raise typer.Exit(INTERRUPT_EXIT) from None
    for problem in summary.problems:
        typer.echo(f"note: {problem}", err=True)
    if summary.rows:
        show(chosen.table(summary.rows))
    left = f", {summary.left} left: the same command goes on" if summary.left else ""
    say(f"{summary.computed} cells computed, {summary.reused} reused{left}.")
    if summary.rows:
        say(f"Results: {out}/results.jsonl, results.csv, table.txt, plot.png")


def plot_study(name: str, out: Path) -> None:
    """Draws plot.png from the results in ``out``."""
    chosen = study.get(name)
    keys = {cell.key for cell in chosen.cells()}
    rows = [row for row in study.load_rows(out) if row["cell"] in keys]
    if not rows:
        raise study.StudyError(
            f"'{out}' holds no finished cell of {name!r}. Run it first: gemmsim study run {name} --out {out}"
        )
    chosen.plot(rows, out / "plot.png")
    say(f"{out}/plot.png")
