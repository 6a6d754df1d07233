"""The command tree. Each command's work is in a module of its own, loaded when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import say, user_errors, version_text

app = typer.Typer(
    name="gemmsim",
    help="Matrix products in any number format and with any accumulator, bit for bit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
study_app = typer.Typer(
    help="Accumulation studies: run a grid, resume it, plot it.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(study_app, name="study")
kernels_app = typer.Typer(
    help="GPU kernels: compile ahead of time, list, clear. No GPU needed.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(kernels_app, name="kernels")

StudyName = Annotated[str, typer.Argument(help="Name of the study: see 'gemmsim study list'.")]
OutFolder = Annotated[Path, typer.Option("--out", help="Folder of the results.")]


def _version(wanted: bool) -> None:
    if wanted:
        say(version_text())
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Matrix products in any number format and with any accumulator, bit for bit."""


@app.command("formats")
def formats_command(
    name: Annotated[str | None, typer.Argument(help="One format, such as e4m3 or fixed(8,4).")] = None,
    codes: Annotated[
        bool, typer.Option("--codes", help="List every code and its value (formats of 8 bits or fewer).")
    ] = False,
) -> None:
    """The named formats as a table, or everything about one format."""
    from .formats import list_formats, show_format

    with user_errors():
        if name is None:
            list_formats()
        else:
            show_format(name, codes=codes)


@app.command("explain")
def explain_command(
    spec: Annotated[str, typer.Argument(help='What a product means, such as "e4m3 * e4m3 : e5m10".')],
) -> None:
    """A spec in words, and which backends compute it."""
    from .explain import explain

    with user_errors():
        explain(spec)


@app.command("bits")
def bits_command(
    arch: Annotated[str, typer.Option("--arch", help="volta .. rtx_blackwell, cdna1 .. cdna3.")],
    a: Annotated[str, typer.Option("--a", help="Numbers separated by commas: 1.5, 0x1p-3, 2^-13, 1.5*2^-25.")],
    b: Annotated[str, typer.Option("--b", help="As many numbers.")],
    c: Annotated[str, typer.Option("--c", help="The addend.")] = "0",
    op: Annotated[
        str | None, typer.Option("--op", help="mma, wgmma, tcgen05, mfma, mxf4nvf4, ...: its largest k.")
    ] = None,
    format_a: Annotated[str | None, typer.Option("--in", help="Format of a, and of b.")] = None,
    format_b: Annotated[str | None, typer.Option("--in-b", help="Format of b, if it differs.")] = None,
    out: Annotated[str, typer.Option("--out", help="Format of c and the result.")] = "f32",
    instruction: Annotated[str | None, typer.Option("--instruction", help="A full name, instead of --op.")] = None,
    scale_a: Annotated[str, typer.Option("--scale-a", help="Block scales of a, where the instruction has some.")] = "",
    scale_b: Annotated[str, typer.Option("--scale-b", help="Block scales of b.")] = "",
    codes: Annotated[bool, typer.Option("--codes", help="All numbers are raw codes in hexadecimal.")] = False,
) -> None:
    """One dot product of a matrix instruction, step by step: exponents, shifts, what is cut off, the register."""
    from .bits import bits

    with user_errors():
        bits(arch, op, (format_a, format_b), out, instruction, a, b, c, (scale_a, scale_b), codes)


@app.command("trace")
def trace_command(
    spec: Annotated[str, typer.Argument(help='What the sum means, such as "e4m3 : chunked(4, e5m10)".')],
    a: Annotated[str, typer.Option("--a", help="Numbers separated by commas: 1.5, 0x1p-3, 2^-13, 1.5*2^-25.")],
    b: Annotated[str, typer.Option("--b", help="As many numbers.")],
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random bits.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """One sum of products under any accumulator, step by step: what is multiplied, rounded and added, to what value."""
    from .trace import trace

    with user_errors():
        trace(spec, a, b, seed, as_json)


@app.command("compare")
def compare_command(
    spec_a: Annotated[str, typer.Argument(help='A spec, such as "e4m3 : fp32".')],
    spec_b: Annotated[str, typer.Argument(help="Another one.")],
    shape: Annotated[tuple[int, int, int], typer.Option("--shape", help="M K N of the product.")] = (32, 256, 32),
    seed: Annotated[int, typer.Option("--seed", help="Seed of the operands and of the random bits.")] = 0,
    spread: Annotated[float, typer.Option("--spread", help="Standard deviation of the operands.")] = 1.0,
    unit: Annotated[str | None, typer.Option("--unit", help="Format whose units in the last place count.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Two specs on the same random numbers: share of equal bits, distances, and the step at which they first part."""
    from .trace import compare

    with user_errors():
        compare(spec_a, spec_b, shape, seed, spread, unit, as_json)


# The words behind a program's name are the program's: they go to a parser that leaves them alone.
_PROGRAM = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


@app.command("emulate", add_help_option=False, context_settings=_PROGRAM)
def emulate_command(words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
    """Run a Python program as it is, its matrix products computed as a spec or config says (--help: options)."""
    from .scripts import emulate

    raise typer.Exit(emulate(words or []))


@app.command("audit", add_help_option=False, context_settings=_PROGRAM)
def audit_command(words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
    """Run a Python program as it is and list its matrix products: place, role, shape, arithmetic (--help: options)."""
    from .scripts import audit

    raise typer.Exit(audit(words or []))


@app.command("env")
def env_command(
    check: Annotated[
        bool, typer.Option("--check", help="Compare the kernels of this processor with the reference, too: seconds.")
    ] = False,
) -> None:
    """Versions, instruction set, compiler and threads: what to put in a bug report. --check exits 1 on a difference."""
    from .env import show_environment

    with user_errors():
        show_environment()
        if check:
            from .self_test import check_kernels

            if not check_kernels():
                raise typer.Exit(1)


@study_app.command("list")
def study_list() -> None:
    """The studies there are."""
    from .study import list_studies

    with user_errors():
        list_studies()


@study_app.command("show")
def study_show(name: StudyName) -> None:
    """What a study measures, and what its rows are expected to show."""
    from .study import show_study

    with user_errors():
        show_study(name)


# Which options there are depends on the study: the words go to a parser made for it.
@study_app.command(
    "run",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
def study_run(words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
    """Compute the cells that are not finished yet, then write table, pictures and verdicts (NAME --help: options)."""
    from .study import run_studies

    with user_errors():
        run_studies(words or [])


@study_app.command("plot")
def study_plot(name: StudyName, out: OutFolder) -> None:
    """Draw the plot again from the results in the folder."""
    from .study import plot_study

    with user_errors():
        plot_study(name, out)


@study_app.command("report")
def study_report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of results, or a folder of them.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page, such as report.html.")],
) -> None:
    """One HTML page of finished studies: verdicts first, then findings, pictures and numbers. It loads nothing."""
    from .study import report_studies

    with user_errors():
        report_studies(folders, out)


@study_app.command("merge")
def study_merge(
    folders: Annotated[list[Path], typer.Argument(help="Folders of one study: shards, or runs on several machines.")],
    out: OutFolder,
) -> None:
    """Join folders of one study: the newest row of each cell, then table, pictures and verdicts of the whole."""
    from .study import merge_studies

    with user_errors():
        merge_studies(folders, out)


@study_app.command("export")
def study_export(
    folder: Annotated[Path, typer.Argument(help="Folder of the results.")],
    to: Annotated[
        str, typer.Option("--to", help="csv; parquet (needs gemmsim[table]); hex: for a test bench ($readmemh).")
    ],
    out: Annotated[Path | None, typer.Option("--out", help="File, of hex a folder; by default in the folder.")] = None,
    cells: Annotated[list[str] | None, typer.Option("--cell", help="Key of a cell. May be repeated.")] = None,
) -> None:
    """Results for other programs: a table, or operands, spec and expected bits of each product."""
    from .study import export_results

    with user_errors():
        export_results(folder, to, out, cells or [])


@kernels_app.command("compile")
def kernels_compile(
    arch: Annotated[
        list[str], typer.Option("--arch", help="GPU architecture, such as sm_80 or sm_90a. May be repeated.")
    ],
    families: Annotated[list[str] | None, typer.Argument(help="Kernel families, such as cast.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every family.")] = False,
) -> None:
    """Compile the listed kernels into the cache, so that first calls on a GPU find them there."""
    from .kernels import compile_kernels

    with user_errors():
        compile_kernels(families or [], everything, arch)


@kernels_app.command("list")
def kernels_list() -> None:
    """The compiled kernels on disk."""
    from .kernels import list_kernels

    with user_errors():
        list_kernels()


@kernels_app.command("clear")
def kernels_clear() -> None:
    """Remove the compiled kernels and the kept sources of failed ones."""
    from .kernels import clear_kernels

    with user_errors():
        clear_kernels()


@kernels_app.command("path")
def kernels_path() -> None:
    """The folder of compiled kernels."""
    from .kernels import print_path

    with user_errors():
        print_path()
