"""What two chips make of the same product: share of equal bits, distances in units in the last place, side."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gemmsim as gs
from gemmsim import hardware

from ..cells import Cell, Row, Scalar, columns
from ..curves import Curve, curves
from ..distributions import distributions
from ..errors import StudyError
from ..integer_ranges import numbers
from ..operands import Operands, Placement, drawn, placement
from ..parameters import Parameters, at_least, option
from ..ulp_differences import differences, unit_of
from .hardware_formats import Asked, refused
from .kind import Kind

__all__ = ["Hardware", "HardwareParameters", "instructions"]

#: Units that a chip's libraries use for large products, where it has several.
_FIRST = ("wgmma", "tcgen05", "mfma", "mma")
_CALLED = re.compile(r"(?P<arch>[\w .-]+?)\s*/\s*(?P<op>\w+)\s*(?:/\s*(?P<format>\w+)\s*)?$")


@dataclass(frozen=True)
class _Arch(Curve):
    """An instruction of a chip: ``spec`` is the text as given; or an accumulator, with ``accumulator`` set."""

    accumulator: bool = False

    def words(self) -> str:
        """``label = arch/op``, or as an accumulator."""
        return super().words() if self.accumulator else f"{self.label} = {self.spec}"

    def on(self, dtype: str) -> Curve:
        """The accumulator for operands of ``dtype``, unless the instruction names its own format."""
        if self.accumulator:
            return Curve(self.label, self.spec)
        arch, op, format = self.parts()
        return Curve(self.label, str(gs.GemmSpec.of(f"hw({arch}, {op}, {format or dtype})")))

    def parts(self) -> tuple[str, str, str]:
        """Architecture, op and format of an instruction, the latter "" where it is that of the operands."""
        arch, op, *format = self.spec.split("/")
        return arch, op, "".join(format)

    def asked(self) -> Asked:
        """The entry as people give it, whose format may be changed."""
        if self.accumulator:
            return Asked(self.words())
        arch, op, format = self.parts()
        if _instruction(self.label) != self:
            return Asked(f"{self.label} = {arch}/{op}", arch, op, format)
        typed = [part.strip() for part in self.label.split("/")]
        return Asked("/".join([typed[0], op]), arch, op, format)


def instructions(given: str | Iterable[str | Curve], name: str) -> tuple[_Arch, ...]:
    """``arch/op``, ``arch/op/format`` or ``arch`` as ``gemmsim.hardware`` names them (chips, too: h100/wgmma), also as
    ``label = arch/op``; or any accumulator as ``curves`` reads it, to compare with.

    Raises:
        HardwareError: an architecture that is not in the tables, an op that it does not have; it tells near ones.
        StudyError: none at all, one label twice.
    """
    found: dict[str, _Arch] = {}
    for entry in [given] if isinstance(given, str) else given:
        one = entry if isinstance(entry, _Arch) else _instruction(entry) if isinstance(entry, str) else None
        for arch in [one] if one is not None else [_Arch(c.label, c.spec, True) for c in curves([entry])]:
            if found.setdefault(arch.label, arch) != arch:
                raise StudyError(f"two of {name} are labelled {arch.label!r}. Rename one.")
    if not found:
        raise StudyError(f"{name} lists nothing; allowed: two or more such as hopper/wgmma ampere/mma.")
    return tuple(found.values())


def _instruction(text: str) -> _Arch | None:
    """None where ``text`` is not of the form; then it is an accumulator."""
    label, equals, named = text.strip().rpartition(" = ")
    label = label.strip() if equals else named.strip()
    match = _CALLED.match(named.strip())
    if match is not None and (match["format"] or match["op"] in hardware.OPS):
        arch = hardware.families(match["arch"])[0].arch
        ops = _ops(arch)
        if match["op"] not in ops:
            raise StudyError(f"{arch} has no op {match['op']!r}; allowed: {', '.join(ops)}.")
        return _Arch(label, "/".join(filter(None, (arch, match["op"], match["format"]))))
    if match is None and re.fullmatch(r"[A-Za-z][\w -]*", named.strip()):
        try:
            arch = hardware.families(named.strip())[0].arch
        except hardware.HardwareError:
            return None
        return _Arch(label, f"{arch}/{_ops(arch)[0]}")
    return None


def _ops(arch: str) -> list[str]:
    there = [op for op, one in hardware.OPS.items() if any(map(one.takes_in, hardware.families(arch)))]
    return sorted(there, key=lambda op: _FIRST.index(op) if op in _FIRST else len(_FIRST))


def _dtypes(given: Any, name: str) -> tuple[Placement, ...]:
    listed = given.split(",") if isinstance(given, str) else given
    found = []
    for one in listed:
        text = str(one).strip()
        if not text:
            continue
        found.append(placement(text if "/" in text else f"{text}/none", name))
    if not found:
        raise StudyError(f"{name} lists no format; allowed: such as bf16 or e4m3/row.")
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class HardwareParameters(Parameters):
    """Pairs of instructions x formats x lengths x distributions x seeds."""

    kind: ClassVar[str] = "hardware"

    archs: tuple[_Arch, ...] = option(
        ("hopper/wgmma", "ampere/mma"),
        instructions,
        "Two or more instructions, arch/op or arch/op/format, or accumulators; each pair is compared.",
        many=True,
        metavar="ARCH/OP",
    )
    dtype: tuple[Placement, ...] = option(
        "bf16", _dtypes, "Formats of the operands: bf16, e4m3/row (rows scaled to the largest).", metavar="FORMAT"
    )
    K: tuple[int, ...] = option(
        "256,1024,4096", lambda g, n: numbers(g, n, least=1), "Terms of each sum.", metavar="RANGE"
    )
    dist: tuple[str, ...] = option("randn,rand01", distributions, "Distributions of the operands, A or A*B.")
    M: int = option(64, at_least(1), "Rows of the result.")
    N: int = option(64, at_least(1), "Columns of the result.")
    seeds: int = option(1, at_least(1, 10**6), "Draws of operands and random bits: seeds 0 to this less one.")


class Hardware(Kind[HardwareParameters]):
    """Instructions of chips against each other on the same operands, pair by pair."""

    parameters = HardwareParameters
    about = "chips against each other: share of equal bits, distances in ulp, and the side on which they differ"

    def cells_of(self, part: HardwareParameters) -> Iterator[Cell]:
        """Pairs innermost: they share operands.

        Raises:
            StudyError: a single instruction, or one that does not take the format; it says which there are.
        """
        if len(part.archs) < 2:
            raise StudyError(f"archs = {part.archs[0].label} is one; allowed: two or more, which are compared.")
        for dtype in part.dtype:
            error = refused([arch.asked() for arch in part.archs], dtype)
            if error is not None:
                raise error
            named = [arch.on(dtype.format) for arch in part.archs]
            for one, other in itertools.combinations(named, 2):
                unit_of(one.value, other.value)
            for dist in part.dist:
                for k in part.K:
                    for seed in range(part.seeds):
                        for one, other in itertools.combinations(named, 2):
                            yield self._cell(part, dtype, dist, k, seed, one, other)

    def _cell(
        self, part: HardwareParameters, dtype: Placement, dist: str, k: int, seed: int, one: Curve, other: Curve
    ) -> Cell:
        named: dict[str, Scalar] = {"in": str(dtype), "against": other.spec}
        return Cell(
            self.name,
            self.setting,
            one.spec,
            seed,
            columns(K=k, M=part.M, N=part.N, dist=dist, **named),
            stochastic=one.stochastic or other.stochastic,
            macs=2 * part.M * k * part.N,
            label=f"{one.label} against {other.label}",
            operands=f"{dist}|{part.M}|{k}|{part.N}|{seed}|{dtype}",
        )

    def inputs(self, cell: Cell, context: Any) -> Operands:
        """The operands that the cell's columns name."""
        at: dict[str, Any] = dict(cell.columns)
        return drawn(at["dist"], at["M"], at["K"], at["N"], cell.seed, placement(at["in"], "in"))

    def evaluate(self, cell: Cell, inputs: Operands) -> Mapping[str, Scalar]:
        """How far apart both results are, and each from the true product."""
        specs = [gs.GemmSpec.parse(text) for text in (cell.spec, str(dict(cell.columns)["against"]))]
        first, second = (gs.qmatmul(inputs.a, inputs.b, spec, seed=cell.seed) for spec in specs)
        return {
            **differences(first, second, inputs.truth, unit_of(*specs)),
            "rel_fro": _error(first, inputs),
            "rel_fro_against": _error(second, inputs),
        }

    def bytes_needed(self) -> int:
        """Operands in float32 and float64, their truth and two results."""
        return max(12 * (part.M * k + k * part.N) + 120 * part.M * part.N for part in self.parts for k in part.K)

    def table(self, rows: Sequence[Row]) -> Any:
        """A line for each pair, format, distribution and K."""
        from .hardware_report import hardware_table

        return hardware_table(rows, self.title)

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Histograms of the signed distances at the longest sums."""
        from .hardware_report import hardware_plot

        hardware_plot(rows, self.finding(rows) or self.title, path)

    def finding(self, rows: Sequence[Row]) -> str:
        """The pair that agrees least, and on which side its first one lies."""
        from .hardware_report import hardware_finding

        return hardware_finding(rows)


def _error(result: Any, operands: Operands) -> float | None:
    whole = float(operands.truth.norm())
    return float((result.double() - operands.truth).norm()) / whole if whole else None
