"""``gemmsim env --check``: the kernels of this machine's instruction sets against the exact reference, in seconds.

For processors that nobody has tried: each kind of kernel computes a small case on every instruction set there is; all
must agree in every bit with each other and, in a corner, with ``gemmsim.reference``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from rich.table import Table
from torch import Tensor

import gemmsim as gs
from gemmsim.backends import cpu

from .console import say, show

__all__ = ["Case", "cases", "check_kernels", "compared", "failures", "instruction_sets"]

#: Registers and orders: every kind of kernel that products have, by rounding, range and carrier.
ACCUMULATORS = (
    "fp32", "fp64", "e5m10", "bf16", "ieee_e3m2", "e5m2/sat", "e5m10/ftz", "e8m13", "e8m22", "e11m40", "e5m10/rtz",
    "e5m10/rna", "e5m10/ru", "e5m10/rd", "e5m10/ro", "e5m10/sr8", "e5m10/sr16", "e5m10/sr24", "e8m18/sr12", "e4m3/sr8",
    "mul=e5m10, add=e5m10", "mul=e4m3, add=bf16", "mul=e5m10/sr8, add=e5m10/sr8", "mul=e5m10/sr8, add=bf16",
    "e5m10, arithmetic=fp32", "e8m7fnuz", "kahan(e5m10)", "neumaier(bf16)", "two_sum(e5m10)", "fast_two_sum(e5m10)",
    "kahan(e5m10/rtz)", "kahan(e5m10/sr8)", "kahan(e5m10/ro)", "e5m10/srb8", "chunked(16, e5m10/ru)",
    "chunked(16, e5m10)", "chunked(40, e5m10)", "chunked(1, bf16)", "pairwise(e5m10, 2)", "pairwise(e5m10/rtz, 8)",
    "interleaved(4, e5m10)", "splitk(3, bf16, bf16)", "exact(bf16)", "exact(fp64)", "binned(e5m10)",
    "int(20, overflow=saturate)", "int(12)", "fixed(24, 12)", "e4m3", "int8", "mul=e4m3, add=e4m3", "kahan(e4m3)",
    "neumaier(fp32/ftz)", "e5m10/rtz, arithmetic=fp32", "e5m10/sr8, arithmetic=fp32",
    "e5m10/ru, arithmetic=fp32", "kahan(e5m10/rna)", "kahan(e4m3/ru)", "two_sum(e4m3/sr8)", "kahan(e4m3, mul=e4m3)",
    "kahan(e8m12)", "pairwise(e4m3, 1)", "pairwise(e5m10/ftz, 5)", "chunked(30, fp32/ftz)",
    "kahan(e5m10), arithmetic=fp32", "e4m3/ro, arithmetic=fp32",
)  # fmt: skip
#: Operand formats, matrix instructions and scaled blocks: whole specs.
SPECS = (
    "e4m3 : e5m10", "e4m3 : mul=e5m10, add=e5m10", "e4m3 : hw(hopper, wgmma, e4m3)", "e5m10 : hw(volta, mma, f16)",
    "bf16 : hw(mi300, mfma, bf16)", "mxfp8_e4m3 : scaled(fp32)", "mxfp4_e2m1 : scaled(exact())", "nvfp4 : scaled(fp32)",
    "bf16 : hw(hopper, wgmma, bf16)", "e5m10 : hw(volta, mma, f16, out=e5m10)", "e4m3fnuz : hw(mi300, mfma, e4m3fnuz)",
    "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)",
)  # fmt: skip
CASTS = (
    "e5m10", "bf16", "e4m3", "e2m1", "e5m10/rtz", "e5m10/ru", "e4m3/sat", "e5m2/ftz", "e5m10/sr16", "fixed(8, 4)",
    "posit(8, 1)", "e8m10/ro",
)  # fmt: skip
BLOCKS = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp4_e2m1", "mxint8", "nvfp4")
#: Rows and columns of a product that the reference computes, too.
CORNER = (2, 3)
SEED = 5


@dataclass(frozen=True)
class Case:
    """A computation: ``run`` on the instruction set of the moment, and ``expect``, what its first elements must be."""

    name: str
    run: Callable[[], Tensor]
    expect: Callable[[], Tensor]

    def corner(self, result: Tensor) -> Tensor:
        """The part of ``result`` that ``expect`` gives."""
        return result[: CORNER[0], : CORNER[1]] if self.name.startswith("product") else result


def cases() -> Iterator[Case]:
    """All of them. Specs that this version does not know are an error, not left out."""
    g = torch.Generator().manual_seed(0)
    for text in (*(f": {name}" for name in ACCUMULATORS), *SPECS):
        whole = "int(" in text or "fixed(" in text
        scale = 1.0 if ": e4m3" not in text else 0.25
        a, b = torch.randn(27, 96, generator=g) * scale, torch.randn(96, 37, generator=g)
        a[:, ::12] = gs.quantize(a[:, ::12], "e5m2")  # terms of few bits, which put some sums on midpoints
        b[::12] = gs.quantize(b[::12], "e4m3")
        yield _product(text, (a * 4).round() if whole else a, (b * 4).round() if whole else b)
    x = torch.cat([_specials(), torch.randn(300, generator=g) * 2.0 ** torch.randint(-20, 20, (300,), generator=g)])
    for cast in CASTS:
        yield _cast(cast, x)
    blocks = torch.randn(6, 64, generator=g) * 2.0 ** torch.randint(-6, 6, (6, 1), generator=g)
    for name in BLOCKS:
        yield _blocks(name, blocks)
    rows = torch.randn(5, 70, generator=g)
    for cast in ("e5m10", "bf16", "e5m10/sr8"):
        yield _softmax(cast, rows)
    yield _integers(rows)


def _product(text: str, a: Tensor, b: Tensor) -> Case:
    def expect() -> Tensor:
        rows, columns = CORNER
        return torch.tensor(
            gs.reference.gemm(a[:rows].tolist(), b[:, :columns].tolist(), text, seed=SEED), dtype=torch.float64
        )

    wide = any(name in text for name in ("fp64", "e11"))
    x, y = (a.double(), b.double()) if wide else (a, b)
    return Case(f"product {text}", lambda: gs.qmatmul(x, y, text, seed=SEED), expect)


def _cast(cast: str, x: Tensor) -> Case:
    return Case(
        f"cast to {cast}",
        lambda: gs.quantize(x, cast, seed=SEED),
        lambda: torch.tensor(gs.reference.quantize(x.tolist(), cast, seed=SEED), dtype=torch.float32),
    )


def _blocks(name: str, x: Tensor) -> Case:
    fmt = gs.formats.parse(name)
    assert isinstance(fmt, gs.formats.BlockFormat)

    def expect() -> Tensor:
        size = fmt.block_size
        values = [gs.reference.quantize_block(block.tolist(), fmt) for row in x for block in row.split(size)]
        return torch.tensor(values, dtype=torch.float32).reshape(x.shape)

    return Case(f"blocks of {name}", lambda: gs.mx.quantize(x, fmt), expect)


def _softmax(cast: str, x: Tensor) -> Case:
    formats = gs.QSoftmaxFormats(fwd_off=cast, fwd_exp=cast, fwd_acc=cast, output_quant=cast, seed=SEED)
    casts = [gs.formats.parse_cast(cast)] * 4

    def expect() -> Tensor:
        rows = [
            gs.reference.row_softmax(gs.reference.Row(casts, len(r), 1, i, SEED), r.tolist()) for i, r in enumerate(x)
        ]
        return torch.tensor(rows, dtype=torch.float32)

    return Case(f"softmax in {cast}", lambda: gs.qsoftmax(x, -1, formats), expect)


def _integers(x: Tensor) -> Case:
    return Case(
        "integers of 8 bits, scaled",
        lambda: gs.tensor_quant.fake_tensor_quant(x, 2.5),
        lambda: torch.tensor([[gs.reference.scaled_integer(v, 2.5)[0] for v in r] for r in x.tolist()]),
    )


def _specials() -> Tensor:
    inf, nan = float("inf"), float("nan")
    return torch.tensor(
        [
            0.0,
            -0.0,
            inf,
            -inf,
            nan,
            1e-40,
            -1e-45,
            3e38,
            65504.0,
            65520.0,
            448.0,
            464.0,
            2.0**-24,
            2.0**-25,
            1.5 * 2.0**-24,
        ]
    )


def _same(x: Tensor, y: Tensor) -> bool:
    """Bit for bit, any NaN as any other, in the wider of both types."""
    kind = torch.promote_types(x.dtype, y.dtype)
    bits = torch.int64 if kind == torch.float64 else torch.int32
    x, y = x.to(kind), y.to(kind)
    return x.shape == y.shape and bool(((x.view(bits) == y.view(bits)) | (x.isnan() & y.isnan())).all())


def failures(case: Case, sets: list[str]) -> list[str]:
    """What is wrong with ``case`` on the instruction sets ``sets``: an empty list if nothing is."""
    wrong, results = [], {}
    before = cpu.isa()
    try:
        for name in sets:
            cpu.set_isa(name)
            results[name] = case.run()
    finally:
        cpu.set_isa(before)
    expected = case.expect()
    for name, result in results.items():
        if not _same(case.corner(result), expected):
            wrong.append(f"{case.name} on {name}: differs from the reference")
        elif not _same(result, results[sets[-1]]):
            wrong.append(f"{case.name}: {name} and {sets[-1]} differ")
    return wrong


def compared() -> tuple[list[str], int, list[str]]:
    """The instruction sets that were compared, the number of kinds of kernels, and every difference in words."""
    sets, wrong, count = instruction_sets(), [], 0
    for case in cases():
        wrong += failures(case, sets)
        count += 1
    return sets, count, wrong


def check_kernels() -> bool:
    """Prints what was compared and every difference; whether there was none."""
    start = time.perf_counter()
    sets, count, wrong = compared()
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("instruction sets", ", ".join(sets))
    table.add_row(
        "compared",
        f"{count} kinds of kernels with the reference and each other, {time.perf_counter() - start:.1f} s",
    )
    table.add_row("result", "all bits equal" if not wrong else f"{len(wrong)} differences")
    show(table, natural=True)
    for line in wrong:
        say(f"  {line}")
    if wrong:
        say("Please report this with the output of 'gemmsim env'.")
    return not wrong


def instruction_sets() -> list[str]:
    """Those of this machine, the widest first."""
    before, found = cpu.isa(), []
    for name in cpu.ISAS:
        try:
            cpu.set_isa(name)
        except cpu.LibraryError:
            continue
        found.append(name)
    cpu.set_isa(before)
    return found
