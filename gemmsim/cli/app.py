"""The command tree. Each command's work is in a module of its own, loaded when it is called: PyTorch, too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import FAILED_EXIT, say, user_errors, version_text
from .faces import HELP, Group, Program, Spec
from .library_app import library_app
from .loading import loading
from .study_app import study_app

app = typer.Typer(
    name="gemmsim",
    cls=Group,
    context_settings=HELP,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(study_app, name="study")
app.add_typer(library_app, name="library")
kernels_app = typer.Typer(
    cls=Group,
    help="GPU kernels: compile ahead of time, list, clear. No GPU needed.",
    context_settings=HELP,
    rich_markup_mode=None,
)
app.add_typer(kernels_app, name="kernels")

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
SpecArgument = Annotated[
    str | None, typer.Argument(metavar="SPEC", show_default=False, help='Such as "e4m3 * e4m3 : e5m10".')
]
SpecByName = Annotated[str | None, typer.Option("--spec", metavar="SPEC", help="The same, by its name.")]


def _one_spec(by_place: str | None, by_name: str | None) -> str:
    """The spec that a command was given in either way.

    Raises:
        BadParameter: none, or two.
    """
    if (by_place is None) == (by_name is None):
        given = "SPEC and --spec" if by_name is not None else "neither SPEC nor --spec"
        raise typer.BadParameter(f"{given}; allowed: one of them.\n  Give one, such as 'e4m3 * e4m3 : e5m10'.")
    return by_place or by_name or ""


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
    """Matrix products in any number format and with any accumulator, bit for bit.

    Exit codes: 0; 1 if a check fails or the machine refuses something (a file, memory); 2 for a mistake in what was
    asked; 130 after Ctrl-C. Those of emulate and audit are the program's.
    """


@app.command("formats", context_settings=HELP)
def formats_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One format, such as e4m3 or fixed(8,4).")] = None,
    codes: Annotated[
        bool, typer.Option("--codes", help="List every code and its value (formats of 8 bits or fewer).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The named formats as a table, or everything about one format."""
    from .formats import list_formats, show_format

    with user_errors():
        if name is None:
            list_formats(as_json=as_json)
        else:
            show_format(name, codes=codes, as_json=as_json)


@app.command("explain", cls=Spec, context_settings=HELP)
def explain_command(place: SpecArgument = None, spec: SpecByName = None, as_json: AsJson = False) -> None:
    """What a spec means, in words, and which backends compute it."""
    chosen = _one_spec(place, spec)
    with user_errors():
        with loading("torch"):
            from .explain import explain
        explain(chosen, as_json=as_json)


@app.command("bits", context_settings=HELP)
def bits_command(
    arch: Annotated[str, typer.Option("--arch", metavar="ARCH", help="volta .. rtx_blackwell, cdna1 .. cdna3.")],
    a: Annotated[
        str, typer.Option("--a", metavar="NUMBERS", help="Numbers separated by commas: 1.5, 0x1p-3, 2^-13, 1.5*2^-25.")
    ],
    b: Annotated[str, typer.Option("--b", metavar="NUMBERS", help="As many numbers.")],
    c: Annotated[str, typer.Option("--c", metavar="NUMBER", help="The addend.")] = "0",
    op: Annotated[
        str | None,
        typer.Option("--op", metavar="NAME", help="mma, wgmma, tcgen05, mfma, mxf4nvf4, ...: its largest k."),
    ] = None,
    format_a: Annotated[str | None, typer.Option("--in", metavar="FORMAT", help="Format of a, and of b.")] = None,
    format_b: Annotated[
        str | None, typer.Option("--in-b", metavar="FORMAT", help="Format of b, if it differs.")
    ] = None,
    out: Annotated[str, typer.Option("--out", metavar="FORMAT", help="Format of c and the result.")] = "f32",
    instruction: Annotated[
        str | None, typer.Option("--instruction", metavar="NAME", help="A full name, instead of --op.")
    ] = None,
    scale_a: Annotated[
        str, typer.Option("--scale-a", metavar="NUMBERS", help="Block scales of a, where the instruction has some.")
    ] = "",
    scale_b: Annotated[str, typer.Option("--scale-b", metavar="NUMBERS", help="Block scales of b.")] = "",
    codes: Annotated[bool, typer.Option("--codes", help="All numbers are raw codes in hexadecimal.")] = False,
) -> None:
    """One dot product of a matrix instruction, step by step: exponents, shifts, what is cut off, the register."""
    with user_errors():
        with loading():
            from .bits import bits
        bits(arch, op, (format_a, format_b), out, instruction, a, b, c, (scale_a, scale_b), codes)


@app.command("trace", cls=Spec, context_settings=HELP)
def trace_command(
    a: Annotated[
        str, typer.Option("--a", metavar="NUMBERS", help="Numbers separated by commas: 1.5, 0x1p-3, 2^-13, 1.5*2^-25.")
    ],
    b: Annotated[str, typer.Option("--b", metavar="NUMBERS", help="As many numbers.")],
    place: SpecArgument = None,
    spec: SpecByName = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random bits.")] = 0,
    codes: Annotated[
        bool,
        typer.Option(
            "--codes", help="Numbers are raw codes of their formats, hexadecimal; values are shown as codes, too."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """One sum of products under any accumulator, step by step: what is multiplied, rounded and added, to what value."""
    chosen = _one_spec(place, spec)
    with user_errors():
        with loading("torch"):
            from .trace import trace
        trace(chosen, a, b, seed, codes, as_json)


@app.command("compare", cls=Spec, context_settings=HELP)
def compare_command(
    spec_a: Annotated[str, typer.Argument(metavar="SPEC_A", help='Such as "e4m3 : fp32".')],
    spec_b: Annotated[str, typer.Argument(metavar="SPEC_B", help="Another one.")],
    shape: Annotated[tuple[int, int, int], typer.Option("--shape", metavar="M K N", help="Of the product.")] = (
        32,
        256,
        32,
    ),
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the operands and of the random bits.")] = 0,
    spread: Annotated[float, typer.Option("--spread", metavar="X", help="Standard deviation of the operands.")] = 1.0,
    unit: Annotated[
        str | None, typer.Option("--unit", metavar="FORMAT", help="Format whose units in the last place count.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit code 1 if any bits differ, as cmp has.")] = False,
    as_json: AsJson = False,
) -> None:
    """Two specs on the same random numbers: share of equal bits, distances, and the step at which they first part."""
    with user_errors():
        with loading("torch"):
            from .trace import compare
        if not compare(spec_a, spec_b, shape, seed, spread, unit, as_json) and check:
            raise typer.Exit(FAILED_EXIT)


@app.command("identify", context_settings=HELP)
def identify_command(
    function: Annotated[
        str, typer.Argument(metavar="FUNCTION", help="torch.mm, numpy.matmul, or MODULE:FUNCTION of two matrices.")
    ],
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="NAME", help="Of the operands: fp32, bf16, fp16, ...")
    ] = "fp32",
    shape: Annotated[str, typer.Option("--shape", metavar="MxKxN", help="Such as 64x512x64.")] = "64x256x64",
    over_k: Annotated[
        str | None, typer.Option("--over-K", metavar="RANGE", help="For each K: 1:16, 64:4096:x2, 100,200.")
    ] = None,
    over_m: Annotated[str | None, typer.Option("--over-M", metavar="RANGE", help="For each M.")] = None,
    compare: Annotated[
        str | None, typer.Option("--compare", metavar="SPEC", help="A spec that it should be; the first difference.")
    ] = None,
    at: Annotated[
        str, typer.Option("--at", metavar="M,N", help="The output that is meant, where not all are computed alike.")
    ] = "0,0",
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="cpu, cuda.")] = "cpu",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the operands.")] = 0,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the tree as a picture.")] = None,
    as_json: AsJson = False,
) -> None:
    """What a function computes that multiplies matrices: its order of additions, and the spec that has the same bits.

    Exit code 0 where the answer is verified bit for bit and, with --compare, is that spec; else 1.
    """
    with user_errors():
        with loading("torch"):
            from .identify import Asked, identify
        if not identify(Asked(function, dtype, shape, over_k, over_m, compare, at, device, seed), as_json, svg):
            raise typer.Exit(FAILED_EXIT)


@app.command("vectors", cls=Spec, context_settings=HELP)
def vectors_command(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the files go; it is made.")],
    place: SpecArgument = None,
    spec: SpecByName = None,
    a: Annotated[
        str | None, typer.Option("--a", metavar="FILE", help="(M, K): .npy, .safetensors:KEY or .pt:KEY.")
    ] = None,
    b: Annotated[str | None, typer.Option("--b", metavar="FILE", help="(K, N), likewise.")] = None,
    captured: Annotated[
        str | None,
        typer.Option("--captured", metavar="FILE:PRODUCT", help="A product of gs.capture, by its name or path."),
    ] = None,
    terms: Annotated[
        int | None, typer.Option("--terms", metavar="K", help="Directed cases alone, of so many terms.")
    ] = None,
    transpose: Annotated[str, typer.Option("--transpose", metavar="a|b|ab", help="What is transposed first.")] = "",
    scaled: Annotated[
        str, typer.Option("--scaled", metavar="none|tensor", help="tensor: so that the largest magnitude fits exactly.")
    ] = "none",
    most: Annotated[
        int, typer.Option("--most", metavar="N", help="At most so many rows of a, columns of b; 0: all.")
    ] = 0,
    batch: Annotated[int, typer.Option("--batch", metavar="N", help="Which one of a captured batch.")] = 0,
    steps: Annotated[bool, typer.Option("--steps", help="The register after every step, too.")] = False,
    directed: Annotated[
        bool, typer.Option("--directed", help="Extremes, alternating signs, overflow at chosen steps, ties, too.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random bits.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Operands, result and register of a product as $readmemh hex and JSON, for the test bench of an array."""
    chosen = _one_spec(place, spec)
    with user_errors():
        with loading("torch"):
            from .vectors import Asked, vectors
        asked = Asked(chosen, out, a, b, captured, terms, transpose, scaled, most, batch, steps, directed, seed)
        vectors(asked, as_json)


_WORDS = typer.Argument(hidden=True)
SpecOption = Annotated[
    str | None, typer.Option("--spec", metavar="SPEC", help='One spec for all products, such as "e4m3 : e5m10".')
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Rules, JSON or (with PyYAML) YAML, as gemmsim.emulation.Config."),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random bits.")]
ModuleOption = Annotated[str | None, typer.Option("-m", metavar="MODULE", help="Run a module, as python -m does.")]
ChildrenOption = Annotated[
    bool,
    typer.Option(
        "--children/--no-children", help="Whether Python processes that the program starts compute in the same way."
    ),
]


@app.command("emulate", cls=Program, context_settings=HELP)
def emulate_command(
    spec: SpecOption = None,
    config: ConfigOption = None,
    seed: SeedOption = 0,
    children: ChildrenOption = True,
    module: ModuleOption = None,
    words: Annotated[list[str] | None, _WORDS] = None,
) -> None:
    """Run a Python program as it is, its matrix products computed as a spec or config says.

    What follows its name are the program's own arguments. The exit code is the program's; 2 for a mistake in what was
    asked, also for rules that do not fit the program and for processes that the emulation cannot reach.
    """
    with user_errors(), loading("torch"):
        from .scripts import Asked, emulate
    _need_program(module, words)
    raise typer.Exit(emulate(Asked(spec, config, seed, module, words or [], children)))


@app.command("audit", cls=Program, context_settings=HELP)
def audit_command(
    spec: SpecOption = None,
    config: ConfigOption = None,
    seed: SeedOption = 0,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report there, too, as JSON.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Stop at the first product that is PyTorch's own; exit code 1, also for none."),
    ] = False,
    values: Annotated[bool, typer.Option("--values", help="Count NaN, infinite and zero results.")] = False,
    children: ChildrenOption = True,
    module: ModuleOption = None,
    words: Annotated[list[str] | None, _WORDS] = None,
) -> None:
    """Run a Python program as it is and list its matrix products: place, role, shape, arithmetic.

    What follows its name are the program's own arguments. The exit code is the program's; 2 for a mistake in what was
    asked, also for rules that do not fit the program and for processes that the audit cannot reach.
    """
    with user_errors(), loading("torch"):
        from .scripts import Asked, audit
    _need_program(module, words)
    asked = Asked(spec, config, seed, module, words or [], children)
    raise typer.Exit(audit(asked, as_json, strict=strict, values=values))


def _need_program(module: str | None, words: list[str] | None) -> None:
    if module is None and not words:
        raise typer.BadParameter("no program; give a script, or -m and a module")


@app.command("env", context_settings=HELP)
def env_command(
    check: Annotated[
        bool, typer.Option("--check", help="Compare the kernels of this processor with the reference, too: seconds.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Versions, instruction set, compiler and threads: what to put in a bug report. --check exits 1 on a difference."""
    with user_errors():
        with loading("torch"):
            from .env import environment
        if not environment(check=check, as_json=as_json):
            raise typer.Exit(FAILED_EXIT)


@kernels_app.command("compile", context_settings=HELP)
def kernels_compile(
    arch: Annotated[
        list[str],
        typer.Option("--arch", metavar="ARCH", help="GPU architecture, such as sm_80 or sm_90a. May be repeated."),
    ],
    families: Annotated[
        list[str] | None, typer.Argument(metavar="FAMILY", help="Kernel families, such as cast.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every family.")] = False,
) -> None:
    """Compile the listed kernels into the cache, so that first calls on a GPU find them there."""
    with user_errors():
        with loading("torch"):
            from .kernels import compile_kernels
        compile_kernels(families or [], everything, arch)


@kernels_app.command("list", context_settings=HELP)
def kernels_list() -> None:
    """The compiled kernels on disk."""
    with user_errors():
        with loading("torch"):
            from .kernels import list_kernels
        list_kernels()


@kernels_app.command("clear", context_settings=HELP)
def kernels_clear() -> None:
    """Remove the compiled kernels and the kept sources of failed ones."""
    with user_errors():
        with loading("torch"):
            from .kernels import clear_kernels
        clear_kernels()


@kernels_app.command("path", context_settings=HELP)
def kernels_path() -> None:
    """The folder of compiled kernels."""
    with user_errors():
        with loading("torch"):
            from .kernels import print_path
        print_path()
