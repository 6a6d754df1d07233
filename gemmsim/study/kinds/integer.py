"""How wide must an integer register be, and what is lost when it is too narrow?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

import gemmsim as gs

from .. import metrics
from ..cells import Cell, Row, Scalar, columns
from ..distributions import distributions, draw
from ..errors import StudyError
from ..networks.digits import Data, Network
from ..operands import Operands, of_tensors
from ..parameters import Parameters, at_least, choice, counts, option, some_of, text
from ..plots.lines import Line, Picture, draw_lines
from .accuracy import prepare_pass
from .integer_given import Given, as_integers
from .integer_network import IntegerNetwork, integer_network, measure_network
from .integer_operands import certificate, integers, worst_sums
from .kind import Context, Kind, macs_per_s
from .layers import patterns, roles
from .pivot import mean_of, pivot_table, series

__all__ = ["SHOWN", "IntegerParameters", "IntegerStudy", "Widths"]

#: Of an operand: float64 then holds every sum of up to two million products.
MOST_BITS = 16
#: Error columns that say something of integers, where nothing rounds.
_ERRORS = ("rel_fro", "max_rel", "mean_abs", "bias", "bias_se", "abs_bias_ratio", "sqnr_db", "max_err_over_s")

#: Metrics a picture or table may show, and their words.
SHOWN = {
    "overflow_rate": "share of the sums that leave the register",
    "sqnr_db": "signal over overflow noise, dB",
    "accuracy": "test accuracy",
}
_GROUPS = ("operands", "K", "dist", "layer", "role")


@dataclass(frozen=True)
class Widths:
    """Integer formats of both operands."""

    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.a}*{self.b}"

    def spec(self, P: int, overflow: str) -> gs.GemmSpec:
        """The operands in these formats, their products summed in a register of ``P`` bits."""
        return gs.GemmSpec.parse(f"{self.a} * {self.b} : int({P}, {overflow})")


def widths(given: Any, name: str) -> tuple[Widths, ...]:
    """``int8*int8,int7*int4``: formats of a and b; one alone is that of both.

    Raises:
        StudyError: none, or a format that is no integer.
        FormatError: an unknown format.
    """
    listed = given.split(",") if isinstance(given, str) else given
    found = [entry if isinstance(entry, Widths) else _widths(str(entry), name) for entry in listed]
    if not found:
        raise StudyError(f"{name} lists no formats. Give some, such as int8*int8.")
    return tuple(dict.fromkeys(found))


def _widths(given: str, name: str) -> Widths:
    a, star, b = (part.strip() for part in given.partition("*"))
    for part in (a, b if star else a):
        fmt = gs.formats.parse_scalar(part)
        if not isinstance(fmt, gs.formats.FixedFormat) or fmt.frac or fmt.bits > MOST_BITS:
            raise StudyError(
                f"{name} has {part!r}; allowed: integers of up to {MOST_BITS} bits, such as int8, uint8, int4."
            )
    return Widths(a, b if star else a)


@dataclass(frozen=True)
class IntegerParameters(Parameters):
    """Widths of the register x what it does past its ends x formats of the operands."""

    kind: ClassVar[str] = "integer"

    task: str = option(
        "random", choice("random", "digits", "files"), "Random operands; the shipped digits network; files, as given."
    )
    a: str = option("", text, "files: left operand (M, K): FILE.npy, FILE.safetensors:KEY, FILE.pt or FILE.pt:KEY.")
    b: str = option("", text, "files: right operand (K, N), likewise.")
    transpose: str = option("none", choice("none", "a", "b", "ab"), "files: which of a and b to transpose first.")
    captured: str = option("", text, "files: instead of a and b, a file of gemmsim.capture.", metavar="FILE")
    layers: tuple[str, ...] = option("*", patterns, "captured: patterns over modules.", many=True, metavar="PATTERN")
    role: tuple[str, ...] = option("fprop", roles, "captured: products of a layer: fprop, dgrad, wgrad.")
    most: int = option(0, at_least(0), "files: at most this many rows and columns of each result; 0: all.")
    scaled: str = option(
        "largest", choice("largest", "none"), "files: floats are scaled to the format's largest value, or are integers."
    )
    P: tuple[int, ...] = counts("12:24:+1", "Bits of the accumulator.", most=53)
    overflow: tuple[str, ...] = option("wrap,saturate", some_of("wrap", "saturate"), "Past its ends it does this.")
    operands: tuple[Widths, ...] = option("int8*int8", widths, "Formats of both operands: int8*int8,int7*int4.")
    K: tuple[int, ...] = counts("256", "random: terms of each sum.")
    dist: tuple[str, ...] = option("randn", distributions, "random: distributions of the operands, A or A*B.")
    M: int = option(64, at_least(1), "random: rows of the result.")
    N: int = option(64, at_least(1), "random: columns of the result.")
    seeds: int = option(1, at_least(1, 10**6), "random: number of samples of operands.")
    label: str = option("", text, "Name of the curve; default: overflow and formats.")
    metric: str = option("overflow_rate", choice(*SHOWN), "What table and picture show.")

    def __post_init__(self) -> None:
        super().__post_init__()
        given = bool(self.a or self.b or self.captured)
        if given and self.task == "random":
            object.__setattr__(self, "task", "files")
        if given and self.task != "files":
            raise StudyError(f"task = {self.task!r} takes no files; leave --a, --b and --captured out, or --task.")
        if self.task == "files" and (bool(self.a) != bool(self.b) or bool(self.a) == bool(self.captured)):
            raise StudyError(
                "files: give two tensors, --a x.npy --b model.safetensors:key, or --captured with a file of "
                "gemmsim.capture."
            )
        if self.task != "digits" and self.metric == "accuracy":
            raise StudyError("metric = 'accuracy' is of a network; give --task digits, or another metric.")

    def files(self) -> Given:
        """The operands of the task files."""
        transpose = "" if self.transpose == "none" else self.transpose
        return Given(self.a, self.b, transpose, self.captured, self.layers, self.role, self.most)


@dataclass(frozen=True)
class Integers:
    """Operands as integers in float32 with their exact product, and the sums that the worst inputs would give."""

    product: Operands
    worst: Tensor


class IntegerStudy(Kind[IntegerParameters]):
    """Overflows, error and accuracy of integer products, by width of the register."""

    parameters = IntegerParameters
    about = "overflows of integer registers by width, wrapping or saturating, and widths that cannot overflow"
    version = 2
    declared_rate = (1e9, 1e9)

    def cells_of(self, part: IntegerParameters) -> Iterator[Cell]:
        """Widths of the register innermost: they share operands."""
        for formats in part.operands:
            for shown, seed, macs in self._inputs_of(part, formats):
                for overflow in part.overflow:
                    for bits in part.P:
                        yield Cell(
                            self.name,
                            self.setting,
                            str(formats.spec(bits, overflow)),
                            seed,
                            (*columns(task=part.task, operands=str(formats), P=bits, overflow=overflow), *shown),
                            # Twice: the product, and the count of its overflows.
                            macs=2 * macs,
                            label=part.label or (overflow if len(part.operands) == 1 else f"{overflow} {formats}"),
                            operands=f"{part.task}|{formats}|{shown}|{seed}",
                        )

    def cells(self) -> list[Cell]:
        """As every kind's; of one set of parameters, where operands come from files.

        Raises:
            StudyError: files beside other parameters.
        """
        if len(self.parts) > 1 and any(part.task == "files" for part in self.parts):
            raise StudyError("integer takes files of one run; run it once for each pair or captured file.")
        return super().cells()

    def _inputs_of(self, part: IntegerParameters, formats: Widths) -> Iterator[tuple[Any, int, int]]:
        if part.task == "files":
            for one in part.files().products():
                m, k, n = one.shape
                named = {"a": one.a, "b": one.b} if one.b else {"captured": one.a, "layer": one.layer, "role": one.role}
                given = {"transpose": part.transpose, "scaled": part.scaled}
                yield columns(K=k, M=m, N=n, **named, **given), 0, m * k * n
            return
        if part.task == "digits":
            yield columns(M=Data.TEST_IMAGES), 0, Data.TEST_IMAGES * Network.MACS_PER_IMAGE
            return
        for dist in part.dist:
            for k in part.K:
                for seed in range(part.seeds):
                    yield columns(K=k, M=part.M, N=part.N, dist=dist), seed, part.M * k * part.N

    def prepare(self, folder: Path) -> Any:
        """The digits network where it is asked for; of files their digest; else nothing."""
        if self.parts[0].task == "files":
            return Context(self.parts[0].files().digest())
        if all(part.task == "random" for part in self.parts):
            return Context(self.setting)
        return prepare_pass(self.setting)

    def inputs(self, cell: Cell, context: Any) -> Integers | IntegerNetwork:
        """Integers of the cell's formats: random ones, those of files, or the network's weights and images."""
        at: dict[str, Any] = dict(cell.columns)
        formats = _widths(at["operands"], "operands")
        if at["task"] == "digits":
            return integer_network(context, formats.a, formats.b)
        if at["task"] == "files":
            left, right = self._given(at, formats)
        else:
            a, b = draw(at["dist"], at["M"], at["K"], at["N"], cell.seed)
            left, right = integers(a, formats.a), integers(b, formats.b)
        return Integers(of_tensors(left, right), worst_sums(right, formats.a))

    def _given(self, at: Mapping[str, Any], formats: Widths) -> tuple[Tensor, Tensor]:
        files = self.parts[0].files()
        one = next(p for p in files.products() if (p.layer, p.role) == (at.get("layer", ""), at.get("role", "")))
        a, b = files.load(one)
        names = (f"{one.layer} {one.role} a", f"{one.layer} {one.role} b") if one.layer else (one.a, one.b)
        return as_integers(a, formats.a, names[0], at["scaled"]), as_integers(b, formats.b, names[1], at["scaled"])

    def product_of(self, inputs: Integers | IntegerNetwork) -> Operands | None:
        """The integers; None of the network, whose pass is several products."""
        return inputs.product if isinstance(inputs, Integers) else None

    def evaluate(self, cell: Cell, inputs: Integers | IntegerNetwork) -> Mapping[str, Scalar]:
        """Overflows, errors, and what no input can make overflow.

        ====================  ==========================================================================
        overflow_rate         share of sums whose register left its range at least once
        overflows_mean        mean number of times that it did, by sum
        equal_share           share of results that equal the exact sum
        certified_bits        least P that ``gemmsim.acc.min_accumulator_bits`` certifies for any input
        certified             whether this P is at least that
        worst_case_bits       least P in which the worst input of each column stays: no bound can be lower
        worst_case_rate       share of columns that some input makes overflow
        ====================  ==========================================================================

        Of random and given operands also the error columns of ``metrics.errors``, of the network those of
        ``measure_pass``.
        """
        if isinstance(inputs, IntegerNetwork):
            return measure_network(cell, inputs)
        at: dict[str, Any] = dict(cell.columns)
        product = inputs.product
        started = time.perf_counter()
        result = gs.qmatmul(product.a, product.b, cell.spec)
        counts = gs.count_overflows(product.a, product.b, cell.spec)
        speed = macs_per_s(cell.macs, started)
        found = metrics.errors(result, product, 1.0)
        return {
            "overflow_rate": float((counts > 0).double().mean()),
            "overflows_mean": float(counts.double().mean()),
            "equal_share": float((result.double() == product.truth).double().mean()),
            **{name: found[name] for name in _ERRORS},
            **certificate([product.b], [inputs.worst], at["operands"], at["P"]),
            "macs_per_s": speed,
        }

    def bytes_needed(self) -> int:
        """Operands in float32 and float64, and results."""
        sizes = [(p.M, k, p.N) for p in self.parts if p.task != "files" for k in p.K]
        sizes += [one.shape for p in self.parts if p.task == "files" for one in p.files().products()]
        return max(12 * (m * k + k * n) + 40 * m * n for m, k, n in sizes)

    def table(self, rows: Sequence[Row]) -> Any:
        """A line for each curve, a column for each width."""
        metric = self.parts[0].metric
        certified = ", ".join(f"{operands} {bits}" for operands, bits in _certified(rows).items())
        note = f"{SHOWN[metric]}; no input overflows from this width on (A2Q certificate): {certified}"
        return pivot_table(rows, "P", metric, title=self.title, by=_by(rows), caption=note)

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """The metric against the width, with the certified width."""
        metric = self.parts[0].metric
        finding = self.finding(rows) or self.title
        factor = 1 if metric == "sqnr_db" else 100
        lines = [
            Line(
                ", ".join(str(part) for part in key),
                [(x, factor * mean) for x, mean, _, _ in points],
                [(factor * low, factor * high) for _, _, low, high in points],
            )
            for key, points in series(_curves(rows), "P", metric, by=_drawn_by(rows, metric)).items()
        ]
        shown = [y for line in lines for _, y in line.points]
        low, top = min([0.0, *shown]), max(shown, default=1.0)
        for operands, bits in _certified(rows).items():
            # Two halves that meet in the middle, where no curve ends: the name stands there.
            lines.append(Line(f"certified, {operands}", [(bits, low), (bits, (low + top) / 2)], guide=True))
            lines.append(Line("", [(bits, top), (bits, (low + top) / 2)], guide=True))
        widths = sorted({row["P"] for row in rows} | set(_certified(rows).values()))
        picture = Picture(
            finding=finding,
            subject=_subject(rows),
            x="P, bits of the register",
            y=SHOWN[metric] + (" (%)" if factor == 100 else ""),
            log_x=False,
            log_y=False,
            ticks=widths,
        )
        draw_lines(lines, picture, path)

    def finding(self, rows: Sequence[Row]) -> str:
        """The least width without overflow on these data, and the certified one."""
        parts = []
        for key in dict.fromkeys(tuple(row.get(name) for name in _GROUPS) for row in rows):
            group = [row for row in rows if tuple(row.get(name) for name in _GROUPS) == key]
            least = None
            for bits in sorted({row["P"] for row in group}, reverse=True):
                if mean_of([row for row in group if row["P"] == bits], "overflow_rate"):
                    break
                least = bits
            named = str(key[0]) + (f", {key[3]} {key[4]}" if key[3] is not None else "")
            named += f", K = {key[1]:,}" if key[1] is not None else ""
            seen = f"{least} bits" if least is not None else f"more than {max(row['P'] for row in group)} bits"
            parts.append(f"{named}: {seen} here, {max(row['certified_bits'] for row in group)} for any input")
        return "Registers that do not overflow: " + "; ".join(parts) if parts else ""


def _by(rows: Sequence[Row]) -> list[str]:
    """What tells curves apart: the label, and lengths, distributions, layers and roles where there are several."""
    several = [name for name in ("K", "dist", "layer", "role") if len({row.get(name) for row in rows}) > 1]
    return ["label", *(name for name in several if name != "K" or "layer" not in several)]


def _certified(rows: Sequence[Row]) -> dict[str, int]:
    """Formats of the operands, the length of the sums where there are several -> widest certified width."""
    found: dict[str, int] = {}
    several = len({row.get("K") for row in rows}) > 1
    for row in rows:
        name = f"{row['operands']}, K = {row['K']}" if several else str(row["operands"])
        if row.get("layer") is not None:
            name = f"{row['operands']}, {row['layer']} {row['role']}"
        found[name] = max(found.get(name, 0), row["certified_bits"])
    return found


def _curves(rows: Sequence[Row]) -> list[Row]:
    """The rows of curves with several widths; all rows where each has one: a point alone is no curve."""
    several = {row["label"] for row in rows if any(o["P"] != row["P"] and o["label"] == row["label"] for o in rows)}
    return [row for row in rows if not several or row["label"] in several]


def _drawn_by(rows: Sequence[Row], metric: str) -> list[str]:
    """As ``_by``; but a register leaves its range the first time wherever it then goes, wrapping or saturating."""
    return ["operands", *_by(rows)[1:]] if metric == "overflow_rate" else _by(rows)


def _subject(rows: Sequence[Row]) -> str:
    first = rows[0]
    integers = ", ".join(dict.fromkeys(str(row["operands"]) for row in rows))
    if first["task"] == "digits":
        return f"digits network, {first['M']} images, integers {integers}"
    if first["task"] == "files":
        operands = f"{first['a']} x {first['b']}" if first.get("a") else f"operands captured in {first['captured']}"
        return f"{operands}, integers {integers}"
    dists = ", ".join(dict.fromkeys(str(row["dist"]) for row in rows))
    return f"products {first['M']} x K x {first['N']}, operands {dists}, integers {integers}"
