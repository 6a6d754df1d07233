"""The commands of ``gemmsim library``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import FAILED_EXIT, user_errors
from .faces import HELP, Group
from .loading import loading

__all__ = ["library_app"]

library_app = typer.Typer(
    cls=Group,
    help="What GPU matrix libraries compute: plans, recorded configurations, comparisons.",
    context_settings=HELP,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
Format = Annotated[str, typer.Option("--in", metavar="FORMAT", help="Format of a and b.")]
FormatB = Annotated[str | None, typer.Option("--in-b", metavar="FORMAT", help="Format of b if it differs.")]
Result = Annotated[
    str | None,
    typer.Option("--result", metavar="FORMAT", help="Output format; default: the format of a, or fp16 for FP8."),
]
Fast = Annotated[bool, typer.Option("--fast", help="Fast accumulation of FP8 products.")]
Workspace = Annotated[int, typer.Option("--workspace", metavar="BYTES", help="Workspace that the caller allows.")]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FIELDS", help="Configuration: nine comma-separated fields, such as 66,,4,,,,35."),
]
TableOption = Annotated[
    str | None, typer.Option("--table", metavar="FILE", help="Recorded configurations, or the word mmaemu.")
]
Assume = Annotated[
    str | None, typer.Option("--assume", metavar="chain", help="Plan unknown cases as one chain, marked 'unverified'.")
]
Gpu = Annotated[str | None, typer.Option("--gpu", metavar="GPU", help="Treat this machine's GPU as this one.")]
Version = Annotated[
    str | None, typer.Option("--version", metavar="VERSION", help="Treat this machine's library as this version.")
]
_MIB32 = 32 << 20


@library_app.command("known", context_settings=HELP)
def known_command(as_json: AsJson = False) -> None:
    """GPUs and versions with plans, and what was compared by whom."""
    with user_errors():
        with loading():
            from .library import print_known
        print_known(as_json)


@library_app.command("plan", context_settings=HELP)
def plan_command(
    gpu: Annotated[str, typer.Argument(metavar="GPU", help="h100, h100-pcie, h200, gb200, gb300, rtx4060.")],
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Version of cuBLASLt, such as 13.1.")],
    m: Annotated[int, typer.Argument(metavar="M")],
    n: Annotated[int, typer.Argument(metavar="N")],
    k: Annotated[int, typer.Argument(metavar="K")],
    a: Annotated[str, typer.Argument(metavar="FORMAT", help="Format of a and b.")],
    b: FormatB = None,
    result: Result = None,
    config: ConfigOption = None,
    table: TableOption = None,
    workspace: Workspace = _MIB32,
    fast: Fast = False,
    assume: Assume = None,
    assume_version: Annotated[
        str | None, typer.Option("--assume-version", metavar="VERSION", help="Version to treat as equal to this one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What the library computes for one product: spec, order in words, evidence."""
    with user_errors():
        with loading():
            from .library import Asked, print_plan
        asked = Asked((m, n, k), a, b, result, config, fast, assume)
        print_plan((gpu, version, assume_version), asked, workspace, table, as_json)


@library_app.command("record", context_settings=HELP)
def record_command(
    shapes: Annotated[Path, typer.Option("--shapes", metavar="FILE", help="One M,N,K per line.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Table in JSON lines; continues an existing one.")],
    a: Format = "fp16",
    b: FormatB = None,
    result: Result = None,
    fast: Fast = False,
    workspace: Workspace = _MIB32,
    gpu: Gpu = None,
    version: Version = None,
) -> None:
    """Ask the library of this machine which algorithms it chooses, and write them to a table. Needs an NVIDIA GPU."""
    with user_errors():
        with loading("torch"):
            from .library import Asked, record
        record(shapes, out, Asked((1, 1, 1), a, b, result, None, fast, None), workspace, (gpu, version))


@library_app.command("verify", context_settings=HELP)
def verify_command(
    table: Annotated[Path, typer.Option("--table", metavar="FILE", help="Recorded configurations.")],
    per_family: Annotated[int, typer.Option("--per-family", metavar="N", help="Number of products per family.")] = 20,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the operands.")] = 0,
    gpu: Gpu = None,
    version: Version = None,
    as_json: AsJson = False,
) -> None:
    """Run recorded algorithms and compare their bits with plans. Needs an NVIDIA GPU; exit code 1 if any differ."""
    with user_errors():
        with loading("torch"):
            from .library import verify
        if not verify(table, per_family, seed, (gpu, version), as_json):
            raise typer.Exit(FAILED_EXIT)


@library_app.command("diff", context_settings=HELP)
def diff_command(
    one: Annotated[str, typer.Argument(metavar="LIBRARY", help="GPU and version, such as h100:13.1.")],
    other: Annotated[str, typer.Argument(metavar="LIBRARY", help="A second one, such as gb200:13.1.")],
    shape: Annotated[str, typer.Option("--shape", metavar="MxNxK", help="Shape of the product, such as 1x4096x4096.")],
    a: Format = "fp16",
    result: Result = None,
    config: ConfigOption = None,
    other_config: Annotated[
        str | None, typer.Option("--other-config", metavar="FIELDS", help="Configuration of the second, if it differs.")
    ] = None,
    table: TableOption = None,
    other_table: Annotated[
        str | None, typer.Option("--other-table", metavar="FILE", help="Table of the second library.")
    ] = None,
    fast: Fast = False,
    assume: Assume = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the operands.")] = 0,
    as_json: AsJson = False,
) -> None:
    """The specs of one product in two libraries, and how their results differ on random numbers."""
    with user_errors():
        with loading("torch"):
            from .library import Asked, diff, read_shape
        asked = Asked(read_shape(shape), a, None, result, config, fast, assume)
        second = asked._replace(config=other_config or config)
        diff((one, other), (asked, second), (table, other_table), seed, as_json)
