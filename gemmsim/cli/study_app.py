"""The commands of ``gemmsim study``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import user_errors
from .faces import HELP, Group, Run
from .loading import loading

__all__ = ["study_app"]

study_app = typer.Typer(
    cls=Group,
    help="Accumulation studies: run a grid, resume it, plot it.",
    context_settings=HELP,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
StudyName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the study: see 'gemmsim study list'.")]
OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the results.")]


@study_app.command("list", context_settings=HELP)
def study_list(as_json: AsJson = False) -> None:
    """List the studies."""
    with user_errors():
        with loading("torch"):
            from .study import list_studies
        list_studies(as_json=as_json)


@study_app.command("show", context_settings=HELP)
def study_show(name: StudyName, as_json: AsJson = False) -> None:
    """What a study measures, and what its rows are expected to show."""
    with user_errors():
        with loading("torch"):
            from .study import show_study
        show_study(name, as_json=as_json)


# Which parameters there are depends on the study: the words go to a parser made for its kind.
@study_app.command(
    "run",
    cls=Run,
    context_settings={**HELP, "ignore_unknown_options": True, "allow_extra_args": True},
)
def study_run(
    out: OutFolder,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the cells and what they cost; compute nothing.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Compute at most this many cells now.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Use N processes of one thread each.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="ADDRESS", help="Dask scheduler, or 'local': needs gemmsim[cluster]."),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Only part I of N, for job arrays; join with 'study merge'."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Run even if it takes more than an hour or half of the memory.")
    ] = False,
    as_json: AsJson = False,
    words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Compute the cells that are not finished yet, then write table, pictures and verdicts.

    NAME is a study or a kind: see 'gemmsim study list'; 'all' runs every one that has checks. A kind has parameters:
    'gemmsim study run KIND --help' shows them. Exit code 0: all checks of the study pass; 1: one fails, or a cell was
    given up; 2: a wrong request; 130: interrupted. Finished cells are never computed again.
    """
    with user_errors():
        with loading("torch"):
            from .study import run_studies
            from .study_options import Request, named
            from .study_options import shard as part_of
        name, parameters = named(words or [])
        request = Request(name, out, dry_run, limit, part_of(shard), workers, cluster, yes, as_json)
        run_studies(request, parameters)


@study_app.command("plot", context_settings=HELP)
def study_plot(name: StudyName, out: OutFolder) -> None:
    """Draw the plot again from the results in the folder."""
    with user_errors():
        with loading("torch"):
            from .study import plot_study
        plot_study(name, out)


@study_app.command("report", context_settings=HELP)
def study_report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Folders of results, or a folder that contains them.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page, such as report.html.")],
) -> None:
    """One self-contained HTML page of finished studies: verdicts, findings, pictures and numbers."""
    with user_errors():
        with loading("torch"):
            from .study import report_studies
        report_studies(folders, out)


@study_app.command("merge", context_settings=HELP)
def study_merge(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Folders of one study: shards, or runs on several machines.")
    ],
    out: OutFolder,
) -> None:
    """Join folders of one study: the newest row of each cell, then table, pictures and verdicts of the whole."""
    with user_errors():
        with loading("torch"):
            from .study import merge_studies
        merge_studies(folders, out)


@study_app.command("export", context_settings=HELP)
def study_export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the results.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="FORM", help="csv; parquet (needs gemmsim[table]); hex: for a test bench ($readmemh)."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="File, or folder for hex; default: in the results folder."),
    ] = None,
    cells: Annotated[
        list[str] | None, typer.Option("--cell", metavar="KEY", help="Key of a cell. May be repeated.")
    ] = None,
) -> None:
    """Export results for other programs: a table, or operands, spec and expected bits of each product."""
    with user_errors():
        with loading("torch"):
            from .study import export_results
        export_results(folder, to, out, cells or [])
