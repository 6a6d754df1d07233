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
SpecByName = Annotated[str | None, typer.Option("--spec", metavar="SPEC", help="SPEC as an option.")]


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
    b: Annotated[str, typer.Option("--b", metavar="NUMBERS", help="The same number of values as --a.")],
    c: Annotated[str, typer.Option("--c", metavar="NUMBER", help="The addend.")] = "0",
    op: Annotated[
        str | None,
        typer.Option("--op", metavar="NAME", help="mma, wgmma, tcgen05, mfma, mxf4nvf4, ... with its largest k."),
    ] = None,
    format_a: Annotated[str | None, typer.Option("--in", metavar="FORMAT", help="Format of a and b.")] = None,
    format_b: Annotated[str | None, typer.Option("--in-b", metavar="FORMAT", help="Format of b if it differs.")] = None,
    out: Annotated[str, typer.Option("--out", metavar="FORMAT", help="Format of c and the result.")] = "f32",
    instruction: Annotated[
        str | None, typer.Option("--instruction", metavar="NAME", help="Full instruction name, instead of --op.")
    ] = None,
    scale_a: Annotated[
        str, typer.Option("--scale-a", metavar="NUMBERS", help="Block scales of a, if the instruction takes them.")
    ] = "",
    scale_b: Annotated[str, typer.Option("--scale-b", metavar="NUMBERS", help="Block scales of b.")] = "",
    codes: Annotated[bool, typer.Option("--codes", help="Read all numbers as hexadecimal codes.")] = False,
) -> None:
    """One dot product of a matrix instruction, step by step: exponents, shifts, truncated bits, accumulator."""
    with user_errors():
        with loading():
            from .bits import bits
        bits(arch, op, (format_a, format_b), out, instruction, a, b, c, (scale_a, scale_b), codes)


@app.command("trace", cls=Spec, context_settings=HELP)
def trace_command(
    a: Annotated[
        str, typer.Option("--a", metavar="NUMBERS", help="Numbers separated by commas: 1.5, 0x1p-3, 2^-13, 1.5*2^-25.")
    ],
    b: Annotated[str, typer.Option("--b", metavar="NUMBERS", help="The same number of values as --a.")],
    place: SpecArgument = None,
    spec: SpecByName = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random bits.")] = 0,
    codes: Annotated[
        bool,
        typer.Option("--codes", help="Read numbers as hexadecimal codes of their formats; show codes with values."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """One sum of products under any accumulator, step by step: each product, rounding and addition with its value."""
    chosen = _one_spec(place, spec)
    with user_errors():
        with loading("torch"):
            from .trace import trace
        trace(chosen, a, b, seed, codes, as_json)


@app.command("compare", cls=Spec, context_settings=HELP)
def compare_command(
    spec_a: Annotated[str, typer.Argument(metavar="SPEC_A", help='Such as "e4m3 : fp32".')],
    spec_b: Annotated[str, typer.Argument(metavar="SPEC_B", help="The spec to compare with.")],
    shape: Annotated[tuple[int, int, int], typer.Option("--shape", metavar="M K N", help="Shape of the product.")] = (
        32,
        256,
        32,
    ),
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the operands and of the random bits.")] = 0,
    spread: Annotated[float, typer.Option("--spread", metavar="X", help="Standard deviation of the operands.")] = 1.0,
    unit: Annotated[
        str | None, typer.Option("--unit", metavar="FORMAT", help="Format of the ulp (unit in the last place).")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit code 1 if any bits differ, as cmp does.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two specs on the same random numbers: fraction of equal results, distances, first different step."""
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
        str, typer.Option("--dtype", metavar="NAME", help="Operand dtype: fp32, bf16, fp16, ...")
    ] = "fp32",
    shape: Annotated[str, typer.Option("--shape", metavar="MxKxN", help="Such as 64x512x64.")] = "64x256x64",
    over_k: Annotated[
        str | None, typer.Option("--over-K", metavar="RANGE", help="Repeat for each K: 1:16, 64:4096:x2, 100,200.")
    ] = None,
    over_m: Annotated[str | None, typer.Option("--over-M", metavar="RANGE", help="Repeat for each M.")] = None,
    compare: Annotated[
        str | None, typer.Option("--compare", metavar="SPEC", help="Expected spec; shows the first difference.")
    ] = None,
    at: Annotated[
        str, typer.Option("--at", metavar="M,N", help="The output to identify if outputs are computed differently.")
    ] = "0,0",
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="cpu, cuda.")] = "cpu",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the operands.")] = 0,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the tree as a picture.")] = None,
    as_json: AsJson = False,
) -> None:
    """Identify a matrix product function: its order of additions, and the spec that gives the same bits.

    Exit code 0 if the answer is verified bit for bit and, with --compare, is that spec; otherwise 1.
    """
    with user_errors():
        with loading("torch"):
            from .identify import Asked, identify
        if not identify(Asked(function, dtype, shape, over_k, over_m, compare, at, device, seed), as_json, svg):
            raise typer.Exit(FAILED_EXIT)


@app.command("vectors", cls=Spec, context_settings=HELP)
def vectors_command(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder for the files; created if missing.")],
    place: SpecArgument = None,
    spec: SpecByName = None,
    a: Annotated[
        str | None, typer.Option("--a", metavar="FILE", help="(M, K): .npy, .safetensors:KEY or .pt:KEY.")
    ] = None,
    b: Annotated[str | None, typer.Option("--b", metavar="FILE", help="(K, N), as for --a.")] = None,
    captured: Annotated[
        str | None,
        typer.Option("--captured", metavar="FILE:PRODUCT", help="A product from gs.capture, by name or path."),
    ] = None,
    terms: Annotated[
        int | None, typer.Option("--terms", metavar="K", help="Only directed cases, with K terms each.")
    ] = None,
    transpose: Annotated[str, typer.Option("--transpose", metavar="a|b|ab", help="Operands to transpose first.")] = "",
    scaled: Annotated[
        str,
        typer.Option(
            "--scaled", metavar="none|tensor", help="tensor: scale the largest magnitude to the format's maximum."
        ),
    ] = "none",
    most: Annotated[int, typer.Option("--most", metavar="N", help="At most N rows of a and columns of b; 0: all.")] = 0,
    batch: Annotated[int, typer.Option("--batch", metavar="N", help="Index in a captured batch.")] = 0,
    steps: Annotated[bool, typer.Option("--steps", help="Also write the accumulator after every step.")] = False,
    directed: Annotated[
        bool, typer.Option("--directed", help="Add extremes, alternating signs, overflows, recovery, ties.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random bits.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Write operands, result and accumulator values of a product as $readmemh hex and JSON, for test benches."""
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
    typer.Option(
        "--config", metavar="FILE", help="File of rules (gemmsim.emulation.Config): JSON, or YAML with PyYAML."
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random bits.")]
ModuleOption = Annotated[str | None, typer.Option("-m", metavar="MODULE", help="Run a module, as python -m does.")]
ChildrenOption = Annotated[
    bool,
    typer.Option("--children/--no-children", help="Include Python processes that the program starts."),
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
    """Run an unchanged Python program with its matrix products computed as a spec or config says.

    Arguments after the program's name go to the program. The exit code is the program's, or 2 for a wrong request, for
    rules that do not fit the program, and for processes that the emulation cannot reach.
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
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the report to FILE as JSON.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Stop at the first native PyTorch product; exit code 1 for it or for no product."
        ),
    ] = False,
    values: Annotated[bool, typer.Option("--values", help="Count NaN, infinite and zero results.")] = False,
    children: ChildrenOption = True,
    module: ModuleOption = None,
    words: Annotated[list[str] | None, _WORDS] = None,
) -> None:
    """Run an unchanged Python program and list its matrix products: place, role, shape, arithmetic.

    Arguments after the program's name go to the program. The exit code is the program's, or 2 for a wrong request, for
    rules that do not fit the program, and for processes that the audit cannot reach.
    """
    with user_errors(), loading("torch"):
        from .scripts import Asked, audit
    _need_program(module, words)
    asked = Asked(spec, config, seed, module, words or [], children)
    raise typer.Exit(audit(asked, as_json, strict=strict, values=values))


def _need_program(module: str | None, words: list[str] | None) -> None:
    if module is None and not words:
        raise typer.BadParameter("no program; give a script, or -m and a module")


@app.command("search", context_settings=HELP)
def search_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FACTORY", help="Function in a module or file.py that returns the model [and inputs]."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for config.json, search.json, front.svg.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--inputs", metavar="FILE", help="Batch: .npy, .pt, .safetensors[:KEY]. May be repeated."),
    ] = None,
    held_back: Annotated[
        list[str] | None,
        typer.Option(
            "--held-back", metavar="FILE", help="Batch for the final check; default: a quarter of the inputs."
        ),
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", metavar="NAME", help="logit_err, max_err, or module:function.")
    ] = "logit_err",
    at_most: Annotated[float, typer.Option("--at-most", metavar="X", help="Largest error allowed.")] = 0.05,
    ladder: Annotated[
        str,
        typer.Option(
            "--ladder", metavar="RANGE", help="Accumulator formats: e5m1:e5m10, int(12):int(24), 'e4m3, bf16'."
        ),
    ] = "e5m1:e5m10",
    order: Annotated[
        str, typer.Option("--order", metavar="TEMPLATE", help="Order of the sum, such as 'chunked(64, {})'.")
    ] = "{}",
    cost: Annotated[str, typer.Option("--cost", metavar="NAME", help="bits*macs or bits.")] = "bits*macs",
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--modules", metavar="PATTERN", help="Module paths to search; others stay native. May be repeated."
        ),
    ] = None,
    reference: Annotated[
        str, typer.Option("--reference", metavar="NAME", help="Reference for errors: native, or the widest setting.")
    ] = "native",
    method: Annotated[
        str, typer.Option("--method", metavar="NAME", help="How layer errors are measured: whole, captured, auto.")
    ] = "auto",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of all random numbers.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Find the narrowest accumulator for each layer that keeps the error of a model within a target.

    Writes a config for 'gemmsim emulate --config', all measured numbers, and a plot of error against width.
    """
    with user_errors():
        with loading("torch"):
            from gemmsim.accumulator_search import SearchRequest

            from .search import search_command_line
        request = SearchRequest(
            model, tuple(inputs or ()), tuple(held_back or ()), metric, at_most, ladder, order, cost,
            tuple(modules or ("*",)), ("*",), reference, method, seed,
        )  # fmt: skip
        search_command_line(request, out, as_json=as_json)


@app.command("env", context_settings=HELP)
def env_command(
    check: Annotated[
        bool, typer.Option("--check", help="Also compare this processor's kernels with the reference (seconds).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Versions, instruction set, compiler and threads, for bug reports. --check exits 1 on a difference."""
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
    """Compile the listed kernels into the cache, so that first calls on a GPU need not compile."""
    with user_errors():
        with loading("torch"):
            from .kernels import compile_kernels
        compile_kernels(families or [], everything, arch)


@kernels_app.command("list", context_settings=HELP)
def kernels_list() -> None:
    """List the compiled kernels on disk."""
    with user_errors():
        with loading("torch"):
            from .kernels import list_kernels
        list_kernels()


@kernels_app.command("clear", context_settings=HELP)
def kernels_clear() -> None:
    """Remove the compiled kernels and the saved sources of failed ones."""
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
