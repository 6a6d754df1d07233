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
from .accuracy import prepare_pass
from .integer_given import Given, as_integers
from .integer_network import IntegerNetwork, integer_network, measure_network
from .integer_operands import certificate, integers, worst_sums
from .integer_report import SHOWN, integer_finding, integer_plot, integer_table
from .kind import Context, Kind, macs_per_s
from .layers import patterns, roles

__all__ = ["IntegerParameters", "IntegerStudy", "Widths"]

#: Of an operand: float64 then holds every sum of up to two million products.
MOST_BITS = 16
#: Error columns that say something of integers, where nothing rounds.
_ERRORS = ("rel_fro", "max_rel", "mean_abs", "bias", "bias_se", "abs_bias_ratio", "sqnr_db", "max_err_over_s")


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
    transpose: str = option("none", choice("none", "a", "b", "ab"), "files: which of a and b are transposed first.")
    captured: str = option("", text, "files: instead of a and b, a file of gemmsim.capture.", metavar="FILE")
    layers: tuple[str, ...] = option("*", patterns, "captured: patterns over modules.", many=True, metavar="PATTERN")
    role: tuple[str, ...] = option("fprop", roles, "captured: products of a layer: fprop, dgrad, wgrad.")
    most: int = option(0, at_least(0), "files: at most this many rows and columns of each result; 0: all.")
    scaled: str = option(
        "largest", choice("largest", "none"), "files: floats are scaled to the format's largest value, or are integers."
    )
    P: tuple[int, ...] = counts("12:24:+1", "Bits of the register.", most=53)
    overflow: tuple[str, ...] = option("wrap,saturate", some_of("wrap", "saturate"), "Past its ends it does this.")
    operands: tuple[Widths, ...] = option("int8*int8", widths, "Formats of both operands: int8*int8,int7*int4.")
    K: tuple[int, ...] = counts("256", "random: terms of each sum.")
    dist: tuple[str, ...] = option("randn", distributions, "random: distributions of the operands, A or A*B.")
    M: int = option(64, at_least(1), "random: rows of the result.")
    N: int = option(64, at_least(1), "random: columns of the result.")
    seeds: int = option(1, at_least(1, 10**6), "random: draws of operands.")
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
        return integer_table(rows, self.parts[0].metric, self.title)

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """The metric against the width, with the certified width."""
        integer_plot(rows, self.parts[0].metric, self.finding(rows) or self.title, path)

    def finding(self, rows: Sequence[Row]) -> str:
        """The least width without overflow on these data, and the certified one."""
        return integer_finding(rows)
