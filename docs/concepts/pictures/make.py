"""Draws the pictures of the pages in docs/concepts, from values that gemmsim computes.

    python docs/concepts/pictures/make.py [--out FOLDER] [rounding order block_scales matrix_units libraries]

The files have no date and no random identifiers, so that the same values give the same bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import gemmsim as gs
from gemmsim import hardware
from gemmsim.formats import E4M3, E8M0
from gemmsim.hardware.step_parameters import FusedBlock
from gemmsim.study.plots import style

BLUE, ORANGE, GREEN, PINK, YELLOW, SKY, BLACK = style.COLOURS
GREY = "0.35"


def frameless(axes: Any, *sides: str) -> None:
    for side in sides:
        axes.spines[side].set_visible(False)


# Rounding of a product.

#: A register that holds 8, and two e5m2 numbers to multiply: the sum is just above the midpoint of 8 and 10.
HELD, LEFT, RIGHT = 8.0, 1.75, 0.625


@dataclass(frozen=True)
class Step:
    """One addition of HELD and LEFT * RIGHT: what is added to the register, and what the register becomes."""

    name: str
    spec: str
    product: float
    result: float
    colour: str


def steps() -> list[Step]:
    """The same addition with the product exact, rounded first, and truncated."""
    a, b = torch.tensor([HELD, LEFT]), torch.tensor([1.0, RIGHT])
    found = []
    for name, spec, colour in (
        ("fused: one rounding of the exact sum", ":e5m2", BLUE),
        ("separate: the product is rounded first", ":mul=e5m2, add=e5m2", ORANGE),
        ("fused, but truncated (toward zero)", ":e5m2/rtz", GREEN),
    ):
        product = LEFT * RIGHT if "mul" not in spec else gs.quantize(torch.tensor(LEFT * RIGHT), "e5m2").item()
        found.append(Step(name, spec, product, gs.qmatmul(a, b, spec).item(), colour))
    return found


def rounding(path: Path) -> None:
    drawn = style.figure(8.6, 4.6)
    axes = drawn.subplots()
    low, high = HELD, HELD + 2
    for row, step in enumerate(reversed(steps())):
        axes.plot([low - 0.1, high + 0.1], [row, row], color="0.75", linewidth=1.2, zorder=1)
        axes.plot([low, high], [row, row], "|", color="0.2", markersize=16, zorder=2)
        axes.plot([(low + high) / 2] * 2, [row - 0.16, row + 0.16], color="0.6", linestyle=":", zorder=1)
        exact = HELD + step.product
        axes.plot(exact, row, "o", color=step.colour, markersize=8, zorder=4)
        axes.annotate(
            "", (step.result, row + 0.05), (exact, row + 0.07), zorder=3,
            arrowprops={"arrowstyle": "-|>", "color": step.colour, "linewidth": 1.8, "shrinkA": 3, "shrinkB": 2,
                        "connectionstyle": f"arc3,rad={-0.16 if step.result > exact else 0.16}"},
        )  # fmt: skip
        axes.text(low - 0.1, row + 0.47, step.name, fontsize=10.5, color=style.ink(step.colour), fontweight="bold")
        words = f"8 + {step.product:g} = {exact:g}"
        axes.text(exact + 0.03, row - 0.27, words, fontsize=9.5, ha="left", color="0.25")
        axes.text(high + 0.16, row, f"result {step.result:g}", fontsize=11, va="center", color=style.ink(step.colour))
    axes.set_xticks([low, (low + high) / 2, high], ["8", "9\n(midpoint)", "10"])
    axes.set_xlabel("neighbours in e5m2, the format of the accumulator", x=0.385)
    axes.set_ylim(-0.6, 2.75)
    axes.set_xlim(low - 0.15, high + 0.62)
    axes.set_yticks([])
    frameless(axes, "top", "right", "left", "bottom")
    style.titled(
        drawn, axes, "The same product and sum, three roundings, two results",
        "The accumulator holds 8; 1.75 * 0.625 = 1.09375 is added. Dots show what is rounded.",
    )  # fmt: skip
    style.save(drawn, path, description="A number line from 8 to 10 for each of three ways to round one addition.")


# Order of additions.

ORDERS = (
    ("sequential", ":fp16", BLUE, "solid", "o"),
    ("chunks of 64", ":chunked(64, fp16)", ORANGE, (0, (6, 2)), "s"),
    ("32 lanes, then halves", ":interleaved(32, fp16, halves)", PINK, (0, (2, 1.5)), "D"),
    ("pairwise (a tree)", ":pairwise(fp16)", GREEN, (0, (6, 2, 1.5, 2)), "^"),
)
LENGTHS = tuple(2**i for i in range(4, 15))


def operands(terms: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Positive operands of 16 x ``terms`` x 16, numbers of fp16; a longer product begins with the shorter one's."""
    g = torch.Generator().manual_seed(0)
    a, b = torch.rand(LENGTHS[-1], 16, generator=g), torch.rand(LENGTHS[-1], 16, generator=g)
    return a[:terms].half().float().T, b[:terms].half().float()


def errors(spec: str) -> list[float]:
    """Mean relative error of the sums under ``spec``, for each length."""
    found = []
    for terms in LENGTHS:
        a, b = operands(terms)
        exact = a.double() @ b.double()
        found.append(((gs.qmatmul(a, b, spec).double() - exact) / exact).abs().mean().item())
    return found


def order(path: Path) -> None:
    drawn = style.figure(8.6, 5.0)
    axes = drawn.subplots()
    ends = []
    for name, spec, colour, dashes, marker in ORDERS:
        curve = errors(spec)
        axes.plot(LENGTHS, curve, color=colour, linestyle=dashes, marker=marker, markersize=5, linewidth=1.8)
        ends.append((LENGTHS[-1], curve[-1], name, colour))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(LENGTHS[::2], [f"{terms:,}" for terms in LENGTHS[::2]])
    axes.set_xlabel("K, number of terms in each sum")
    axes.set_ylabel("mean relative error")
    style.bare(axes)
    style.titled(
        drawn, axes, "The same terms in the same format: only the order of the additions differs",
        "fp16 accumulators, 256 sums of products of uniform numbers in [0, 1). Logarithmic axes.",
    )  # fmt: skip
    drawn.get_layout_engine().set(rect=(0, 0, 0.99, 1))
    drawn.get_layout_engine().execute(drawn)
    style.label_ends(axes, ends)
    style.save(drawn, path)


# Block scales.

OUTLIER, AT = 7.5, 5


def block() -> torch.Tensor:
    """32 numbers of standard deviation 0.4 and one outlier in the first half."""
    x = torch.randn(32, generator=torch.Generator().manual_seed(5)) * 0.4
    x[AT] = OUTLIER
    return x


def levels(scale: float) -> list[float]:
    """The numbers that an e2m1 element has under ``scale``."""
    sizes = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
    return sorted({sign * size * scale for sign in (-1, 1) for size in sizes})


def scales(fmt: str) -> list[float]:
    """The scale of each block of ``block()``."""
    encoded = gs.mx.encode(block(), fmt)
    scale = E8M0 if fmt.startswith("mx") else E4M3
    return [scale.decode(int(code)) for code in encoded.scales.flatten()]


def block_scales(path: Path) -> None:
    drawn = style.figure(8.6, 6.2)
    upper, lower = drawn.subplots(2, 1, sharex=True, sharey=True)
    x = block()
    for axes, fmt, name in ((upper, "mxfp4", "MXFP4"), (lower, "nvfp4", "NVFP4")):
        y = gs.mx.quantize(x, fmt)
        found = scales(fmt)
        size = 32 // len(found)
        for i, scale in enumerate(found):
            first, last = i * size - 0.5, (i + 1) * size - 0.5
            axes.hlines(levels(scale), first + 0.15, last - 0.15, color="0.82", linewidth=0.9, zorder=1)
            axes.text(first + 0.3, 9.0, f"block of {size}, scale {scale:g}", fontsize=9.5, va="top", color=GREY)
            if i:
                axes.axvline(first, color="0.4", linewidth=0.9, linestyle=":")
        axes.vlines(range(32), x, y, color="0.45", linewidth=0.9, zorder=2)
        axes.plot(range(32), x, "o", color=BLUE, markerfacecolor="white", markersize=6, zorder=3, label="number")
        axes.plot(range(32), y, "x", color=ORANGE, markersize=6, markeredgewidth=2, zorder=4, label="after encoding")
        zeros = int((y == 0).sum())
        axes.set_title(
            f"{name}: {zeros} of 32 numbers become 0, {OUTLIER} becomes {y[AT]:g}", loc="left", fontsize=10.5
        )
        axes.set_ylabel("value")
        axes.set_ylim(-3.2, 9.4)
        frameless(axes, "top", "right")
    upper.legend(loc="upper right", fontsize=9.5, frameon=False, ncols=2)
    lower.set_xlabel("position in the row; grey lines are the numbers that the block can hold")
    drawn.suptitle("One outlier sets the scale of its whole block", x=0.012, ha="left", fontsize=12, fontweight="bold")
    style.save(drawn, path, description="32 numbers and what MXFP4 and NVFP4 make of them, with each block's grid.")


# Matrix units.

UNITS = ("volta", "turing", "ampere", "ada", "hopper", "blackwell")
NAMES = {
    "volta": "Volta (V100)", "turing": "Turing (T4)", "ampere": "Ampere (A100)", "ada": "Ada (L40S)",
    "hopper": "Hopper (H100)", "blackwell": "Blackwell (B200)",
}  # fmt: skip
KINDS = (
    ("fp16 operands", "fp16", ("tcgen05", "wgmma", "mma"), BLUE, "o"),
    ("FP8 operands (e4m3)", "e4m3", ("tcgen05", "wgmma", "mma"), ORANGE, "s"),
    ("FP4 operands with block scales (NVFP4)", "e2m1", ("mxf4nvf4",), GREEN, "^"),
)


def kept(arch: str, fmt: str, ops: Sequence[str]) -> tuple[int, int] | None:
    """(fraction bits kept below the largest exponent, terms of a step) of the chip's own unit for ``fmt``."""
    for op in ops:
        try:
            row = hardware.largest(arch, op, fmt)
        except (ValueError, LookupError):
            continue
        assert isinstance(row.model, FusedBlock)
        return row.model.kept, row.model.products
    return None


def matrix_units(path: Path) -> None:
    drawn = style.figure(8.6, 5.4)
    axes = drawn.subplots()
    for (name, fmt, ops, colour, marker), shift in zip(KINDS, (0.27, 0.0, -0.27), strict=True):
        places = [(i, found) for i, arch in enumerate(UNITS) if (found := kept(arch, fmt, ops))]
        heights = [len(UNITS) - 1 - i + shift for i, _ in places]
        axes.hlines(heights, 0, [found[0] for _, found in places], color=colour, linewidth=1.6, alpha=0.6)
        axes.plot([found[0] for _, found in places], heights, marker, color=colour, markersize=8, label=name)
        for height, (_, found) in zip(heights, places, strict=True):
            axes.text(found[0] + 0.7, height, f"{found[0]} bits, {found[1]} terms", va="center", fontsize=9)
    axes.axvline(23, color="0.55", linewidth=1, linestyle=":", zorder=0)
    axes.text(22.8, len(UNITS) - 0.42, "fraction bits of fp32: 23", ha="right", fontsize=9, color=GREY)
    axes.set_yticks(range(len(UNITS)), [NAMES[arch] for arch in reversed(UNITS)])
    axes.set_xlim(0, 46)
    axes.set_ylim(-0.6, len(UNITS) - 0.1)
    axes.set_xlabel("fraction bits kept below the largest term of a step; the rest is truncated")
    frameless(axes, "top", "right")
    axes.legend(loc="lower center", bbox_to_anchor=(0.43, -0.27), ncols=3, fontsize=9, frameon=False)
    style.titled(
        drawn, axes, "Sums of FP8 products keep 13 bits on Ada and Hopper, 25 on Blackwell",
        "Bits that a step keeps, and terms of a step, in published models; fp32 results.",
    )  # fmt: skip
    style.save(drawn, path)


# Libraries.

#: Terms of the product, terms of the smallest part, and where the numbers are written.
TERMS, TILE, TOTAL, OUTPUT = 4096, 64, 4216, 5420


@dataclass(frozen=True)
class Way:
    """One plan for the same output: who adds which terms, and the sum."""

    name: str
    parts: list[int]
    total: float
    colour: str


def ways() -> list[Way]:
    """One output of 4096 bf16 terms under three plans of cuBLASLt on an H100."""
    lib = gs.libraries.cublaslt("h100", version="13.1")
    torch.manual_seed(0)
    x, w = torch.randn(1, TERMS).bfloat16().float(), torch.randn(TERMS, 1).bfloat16().float()
    found = []
    for name, rows, config, owner, colour in (
        ("512 rows: one chain on tensor cores", 512, "66,,1,,,,35", lambda k: 0, BLUE),
        ("16 rows: 4 slices, then added (split-K)", 16, "66,,4,,,,35", lambda k: 4 * k // TERMS, ORANGE),
        ("1 row: 32 lanes on ordinary cores (gemv)", 1, "13,,1,,,36", lambda k: k // TILE % 32, GREEN),
    ):
        plan = lib.plan(rows, 256, TERMS, "bf16", config=config)
        total = gs.qmatmul(x, w, replace(plan.spec, out=None)).item()
        found.append(Way(name, [owner(k) for k in range(0, TERMS, TILE)], total, colour))
    return found


def libraries(path: Path) -> None:
    drawn = style.figure(8.6, 4.4)
    axes = drawn.subplots()
    for row, way in enumerate(reversed(ways())):
        most = max(way.parts)
        edges = [i for i, part in enumerate(way.parts) if i == 0 or part != way.parts[i - 1]] + [len(way.parts)]
        for first, last in zip(edges, edges[1:], strict=False):
            alpha = 0.35 + 0.6 * way.parts[first] / max(most, 1)
            axes.barh(row, TILE * (last - first), left=TILE * first, height=0.34, color=way.colour, alpha=alpha)
        axes.vlines([TILE * edge for edge in edges[1:-1]], row - 0.17, row + 0.17, color="white", linewidth=1)
        axes.text(0, row + 0.27, way.name, fontsize=10.5, color=style.ink(way.colour), fontweight="bold")
        output = torch.tensor(way.total).bfloat16().item()
        for place, words in ((TOTAL, f"{way.total:.7f}"), (OUTPUT, f"{output:g}")):
            axes.text(place, row, words, fontsize=10.5, va="center", family="monospace")
    for place, words in ((TOTAL, "sum in fp32"), (OUTPUT, "bf16 output")):
        axes.text(place, 2.5, words, fontsize=9.5, color=GREY)
    axes.set_xlim(0, 6300)
    axes.set_ylim(-0.4, 2.7)
    axes.set_xticks([0, 1024, 2048, 3072, 4096])
    axes.set_yticks([])
    axes.set_xlabel("position k of the term; terms of one shade are one partial sum", loc="left")
    frameless(axes, "top", "right", "left")
    axes.spines["bottom"].set_bounds(0, TERMS)

    style.titled(
        drawn, axes, "One output, the same operands, three plans of one library",
        "4096 terms in bf16, as cuBLASLt 13.1 adds them on an H100 in calls of 512, 16 and 1 rows.",
    )  # fmt: skip
    style.save(drawn, path, description="Bars of 4096 terms divided into partial sums, with the fp32 sum of each plan.")


PICTURES: dict[str, Callable[[Path], Any]] = {
    "rounding": rounding, "order": order, "block_scales": block_scales, "matrix_units": matrix_units,
    "libraries": libraries,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *PICTURES], help="pictures to draw; all by default")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder for the files")
    chosen = parser.parse_args()
    for name in chosen.names or PICTURES:
        PICTURES[name](chosen.out / f"{name}.svg")


if __name__ == "__main__":
    main()
