"""What two chips make of the same product: share of equal bits, distances in units in the last place, side."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.table import Table

import gemmsim as gs
from gemmsim import hardware

from ..cells import Cell, Row, Scalar, columns
from ..curves import Curve, curves
from ..distributions import distributions
from ..errors import StudyError
from ..operands import Operands, Placement, drawn, placement
from ..parameters import Parameters, at_least, counts, option
from ..plots.histogram import Strip, draw_histograms
from ..ulp_differences import CLASSES, EDGES, differences, unit_of
from .hardware_formats import Asked, refused
from .kind import Kind
from .pivot import mean_of

__all__ = ["Hardware", "HardwareParameters", "instructions"]

#: Units that a chip's libraries use for large products, where it has several.
_FIRST = ("wgmma", "tcgen05", "mfma", "mma")
_CALLED = re.compile(r"(?P<arch>[\w .-]+?)\s*/\s*(?P<op>\w+)\s*(?:/\s*(?P<format>\w+)\s*)?$")
_AXES = ("label", "in", "dist", "K")


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
    K: tuple[int, ...] = counts("256,1024,4096")
    dist: tuple[str, ...] = option("randn,rand01", distributions, "Distributions of the operands, A or A*B.")
    M: int = option(64, at_least(1), "Rows of the result.")
    N: int = option(64, at_least(1), "Columns of the result.")
    seeds: int = option(1, at_least(1, 10**6), "Number of samples of operands and random bits: seeds 0 to N - 1.")


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
        caption = (
            "equal: bits; ulp: distances in units in the last place of the coarser register, of outputs finite in "
            "both; bias: mean signed distance, sign bias: share of outputs whose first result is larger less share "
            "smaller; error: relative, both"
        )
        table = Table(title=self.title, caption=caption, title_justify="left", caption_justify="left")
        for heading in ("pair", "operands", "dist"):
            table.add_column(heading)
        for heading in ("K", "equal", "mean ulp", "max ulp", "bias, ulp", "sign bias", "error", "error of the other"):
            table.add_column(heading, justify="right")
        for (label, dtype, dist, k), same in _groups(rows).items():
            numbers = [mean_of(same, name) for name in ("equal", "ulp_mean", "ulp_max", "bias_ulp", "sign_bias")]
            errors = [mean_of(same, name) for name in ("rel_fro", "rel_fro_against")]
            words = ["" if number is None else f"{number:.3g}" for number in (*numbers[1:], *errors)]
            share = "" if numbers[0] is None else f"{numbers[0]:.2%}"
            table.add_row(label, dtype.removesuffix("/none"), dist, f"{k:,}", share, *words)
        return table

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Histograms of the signed distances at the longest sums."""
        finding = self.finding(rows) or self.title
        longest = max((row["K"] for row in rows), default=0)
        strips = []
        for (label, dtype, dist, k), same in _groups(rows).items():
            if k != longest:
                continue
            shares = [mean_of(same, name) or 0.0 for name in CLASSES]
            equal, bias = mean_of(same, "equal"), mean_of(same, "bias_ulp")
            words = f"{dtype.removesuffix('/none')}, {dist}\n"
            words += f"{equal or 0:.1%} equal bits" + ("" if bias is None else f"\nbias {bias:+.3g} ulp")
            strips.append(Strip(label.replace(" against ", "\nagainst "), shares, words))
        first = rows[0]
        draw_histograms(
            strips, _class_names(), len(EDGES), finding,
            f"products {first['M']} x {longest:,} x {first['N']}: share of outputs by signed distance",
            "first less second, up to so many ulp of the coarser register; left: the first is the smaller one", path,
        )  # fmt: skip

    def finding(self, rows: Sequence[Row]) -> str:
        """The pair that agrees least, and on which side its first one lies."""
        known = [row for row in rows if row.get("equal") is not None]
        if not known:
            return ""
        if all(row["equal"] == 1 for row in known):
            return f"The same bits in all {len(known)} comparisons"
        least = min(known, key=lambda row: (row["equal"], -(row.get("ulp_mean") or 0.0)))
        where = f"{least['label']}, {least['in'].removesuffix('/none')}, {least['dist']}, K = {least['K']:,}"
        text = f"Least alike: {where}: {least['equal']:.1%} equal bits"
        if (bias := least.get("sign_bias")) is not None and abs(bias) > 0.1:
            below = sum(least[name] for name in CLASSES if "below" in name)
            above = sum(least[name] for name in CLASSES if "above" in name)
            text += f"; the first is {'smaller' if bias < 0 else 'larger'} in {max(below, above):.0%} of the outputs"
        for name, which in (("nan", "first"), ("nan_against", "second")):
            if share := least.get(name):
                text += f"; {share:.1%} of the outputs are NaN in the {which}"
        return text


def _error(result: Any, operands: Operands) -> float | None:
    whole = float(operands.truth.norm())
    return float((result.double() - operands.truth).norm()) / whole if whole else None


def _groups(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows that differ in the seed alone."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[axis] for axis in _AXES), []).append(row)
    return found


def _class_names() -> list[str]:
    above = [_edge(edge) for edge in EDGES[:-1]]
    last = f"> {_edge(EDGES[-2])}"
    return [last, *reversed(above), "equal", *above, last]


def _edge(edge: float) -> str:
    return f"{edge:.0f}" if edge < 2**12 else f"2^{math.log2(edge):.0f}"
