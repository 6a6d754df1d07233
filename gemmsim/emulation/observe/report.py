"""The results of an audit: a record for each product, and the report that lists and sums them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gemmsim._files import write_text
from gemmsim._html import html_table

__all__ = ["INTEGER", "NATIVE", "Record", "Report"]

#: The specs of a product that PyTorch computes itself, and of one of integers, which is exact wherever it is computed.
NATIVE, INTEGER = "native", "integer"


@dataclass(frozen=True)
class Record:
    """One product, as it was computed.

    ``op``: the operator ("aten.mm", "gemmsim.matmul").
    ``shape``: (batch, M, K, N). For a convolution, batch is the number of groups, M is images times positions, K is
    channels of a group times taps, and N is filters of a group. For a transposed convolution, M counts positions of its
    input, K is the channels of a group, and N is filters times taps. With another ``transposed_sum`` than "col2im" the
    sizes are as for other convolutions. For linear algebra it is the shape of the operand.
    ``dtype``: of the result.
    ``module``: path from the outermost module called, "" outside any.
    ``role``: "fprop", "dgrad" (gradient of the first operand), "wgrad" (of the second), or "backward" where PyTorch
    does not distinguish these two: in native products of compiled code and of custom backward methods.
    ``spec``: of an emulated product; "native" for a product that PyTorch computes itself, "integer" for products of
    integers, which are exact.
    ``nans``, ``overflows``, ``zeros``: how many results are NaN, infinite, zero; None if they were not counted.
    ``family``, ``evidence``, ``source``: of the plan by which a library chose the spec, as ``gemmsim.libraries.Plan``
    has them ("chain", "unverified", "assumed" where the plan is not known); "" where no library chose.

    Example:
        >>> report = gs.audit(torch.nn.Linear(4, 2), torch.ones(3, 4))
        >>> [(one.op, one.role, one.shape, one.macs) for one in report]
        [('aten.addmm', 'fprop', (1, 3, 4, 2), 24), ('aten.mm', 'wgrad', (1, 2, 3, 4), 24)]
    """

    op: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    module: str
    role: str
    spec: str
    macs: int
    nans: int | None = None
    overflows: int | None = None
    zeros: int | None = None
    family: str = ""
    evidence: str = ""
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as a plain dictionary.

        Example:
            >>> record = list(gs.audit(torch.nn.Linear(4, 2), torch.ones(3, 4)))[0].to_dict()
            >>> record["op"], record["shape"], record["dtype"], record["spec"]
            ('aten.addmm', [1, 3, 4, 2], 'float32', 'native')
        """
        found = {name: getattr(self, name) for name in ("op", "shape", "dtype", "module", "role", "spec", "macs")}
        found["shape"], found["dtype"] = list(self.shape), str(self.dtype).removeprefix("torch.")
        if self.nans is not None:
            found.update(nans=self.nans, overflows=self.overflows, zeros=self.zeros)
        if self.family:
            found.update(family=self.family, evidence=self.evidence, source=self.source)
        return found

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Record:
        """Return the record that ``to_dict`` wrote.

        Example:
            >>> record = list(gs.audit(torch.nn.Linear(4, 2), torch.ones(3, 4)))[0]
            >>> gs.emulation.Record.from_dict(record.to_dict()) == record
            True
        """
        return cls(**{**data, "shape": tuple(data["shape"]), "dtype": getattr(torch, data["dtype"])})


@dataclass(repr=False)
class Report:
    """The products of a run in their order.

    Iteration gives ``Record``s. ``str`` gives a table, which notebooks show as HTML.

    ``algebra``: linear algebra, whose libraries multiply inside; no sum includes it. ``opaque``: operators of other
    packages and higher-order operators, name -> number of calls; no audit sees what they compute. ``assumed``: the
    assumptions of a run without values, with the number of calls.

    Example:
        >>> with gs.emulate("e4m3 : fp32"), gs.audit() as report:
        ...     _ = torch.ones(2, 8) @ torch.ones(8, 4)
        >>> print(report)
        module  role   operator        batch x M x K x N  dtype    spec          calls  MACs
        -       fprop  gemmsim.matmul  1 x 2 x 8 x 4      float32  e4m3 : e8m23      1    64
        1 products, 64 multiply-adds: 1 emulated, 0 native, 0 of integers; 100 % of the multiply-adds are emulated.
    """

    records: list[Record] = field(default_factory=list)
    algebra: list[Record] = field(default_factory=list)
    opaque: dict[str, int] = field(default_factory=dict)
    assumed: dict[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def native(self) -> list[Record]:
        """Products that PyTorch computed itself.

        Example:
            >>> [one.op for one in gs.audit(torch.nn.Linear(4, 2), torch.ones(3, 4)).native]
            ['aten.addmm', 'aten.mm']
        """
        return [record for record in self.records if record.spec == NATIVE]

    @property
    def emulated(self) -> list[Record]:
        """Products computed as a spec says.

        Example:
            >>> with gs.emulate("e4m3 : fp32"), gs.audit() as report:
            ...     _ = torch.ones(2, 8) @ torch.ones(8, 4)
            >>> [one.spec for one in report.emulated]
            ['e4m3 : e8m23']
        """
        return [record for record in self.records if record.spec not in (NATIVE, INTEGER)]

    @property
    def planned(self) -> list[Record]:
        """Products whose spec a library chose.

        Example:
            >>> with gs.emulate("e4m3 : fp32"), gs.audit() as report:
            ...     _ = torch.ones(2, 8) @ torch.ones(8, 4)
            >>> report.planned  # this spec is the user's, not a library's
            []
        """
        return [record for record in self.records if record.family]

    @property
    def evidence(self) -> dict[str, int]:
        """How well it is known what libraries compute: level -> number of products; empty if no library chose a spec.

        The levels are "silicon", "inferred", "unverified", and "assumed" for one chain in place of an unknown plan.

        Example:
            >>> gs.audit(torch.nn.Linear(4, 2), torch.ones(3, 4)).evidence
            {}
        """
        levels = ["assumed" if record.source == "assumed" else record.evidence for record in self.planned]
        return {level: levels.count(level) for level in (*_LEVELS, "assumed") if level in levels}

    @property
    def total_macs(self) -> int:
        """Multiply-adds of all products; PyTorch's FLOP counter counts two for each.

        Example:
            >>> gs.audit(torch.nn.Linear(4, 2), torch.ones(3, 4)).total_macs  # forward, and the gradient of the weight
            48
        """
        return sum(record.macs for record in self.records)

    @property
    def emulated_share(self) -> float:
        """The fraction of multiply-adds that are emulated, among visible products except those of integers.

        Without such multiply-adds it is 1.0. It is 0.0 if there are no records, but there are operators that no audit
        can look into.

        Example:
            >>> with gs.audit() as report:
            ...     _ = torch.ones(8) @ torch.ones(8)
            ...     with gs.emulate("e4m3 : fp32"):
            ...         _ = torch.ones(8) @ torch.ones(8)
            >>> report.emulated_share
            0.5
        """
        emulated, native = (sum(r.macs for r in records) for records in (self.emulated, self.native))
        if not emulated + native:
            return 0.0 if self.opaque and not self.records else 1.0
        return emulated / (emulated + native)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a plain dictionary, which ``from_dict`` reads back.

        Example:
            >>> sorted(gs.audit(torch.nn.Linear(4, 2), torch.ones(3, 4)).to_dict())
            ['assumed', 'emulated_share', 'linear_algebra', 'opaque', 'records', 'total_macs']
        """
        return {
            "total_macs": self.total_macs,
            "emulated_share": self.emulated_share,
            "records": [record.to_dict() for record in self.records],
            "linear_algebra": [record.to_dict() for record in self.algebra],
            "opaque": dict(self.opaque),
            "assumed": dict(self.assumed),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Report:
        """Return the report that ``to_dict`` wrote.

        Example:
            >>> report = gs.audit(torch.nn.Linear(4, 2), torch.ones(3, 4))
            >>> gs.emulation.Report.from_dict(report.to_dict()) == report
            True
        """
        records, algebra = ([Record.from_dict(one) for one in data[key]] for key in ("records", "linear_algebra"))
        return cls(records, algebra, dict(data["opaque"]), dict(data.get("assumed", {})))

    def to_json(self) -> str:
        """Return ``to_dict`` as JSON text.

        Example:
            >>> import json
            >>> json.loads(gs.audit(torch.nn.Linear(4, 2), torch.ones(3, 4)).to_json())["records"][0]["shape"]
            [1, 3, 4, 2]
        """
        return json.dumps(self.to_dict(), indent=1)

    def save(self, path: str | Path) -> None:
        """Write ``to_json`` to a file, which is afterwards complete or absent; OSError if it cannot be written.

        Example:
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     gs.audit(torch.nn.Linear(4, 2), torch.ones(3, 4)).save(pathlib.Path(folder, "audit.json"))
            ...     print([path.name for path in pathlib.Path(folder).iterdir()])
            ['audit.json']
        """
        write_text(Path(path), self.to_json() + "\n")

    def __repr__(self) -> str:
        return f"<Report: {self._sums()}>"

    def __str__(self) -> str:
        return "\n".join([*_aligned(_table(self.records)), *self._notes()])

    def _repr_html_(self) -> str:
        heads, *rows = _table(self.records) or [[""]]
        return html_table(heads, rows, notes=self._notes(), right=len(heads) - _words(heads))

    def _sums(self) -> str:
        emulated, native = len(self.emulated), len(self.native)
        integers, share = len(self.records) - emulated - native, 100 * self.emulated_share
        if not self.records:
            return "no products"
        if not self.total_macs:
            n = len(self.records)
            empty = f"{n} product{'s' * (n > 1)} without multiply-adds because a size is 0"
            return f"{empty} ({emulated} emulated, {native} native)"
        return (
            f"{len(self.records)} products, {self.total_macs:,} multiply-adds: {emulated} emulated, {native} "
            f"native, {integers} of integers; {share:.4g} % of the multiply-adds are emulated"
        )

    def _notes(self) -> list[str]:
        """The lines below the table."""
        sums = self._sums()
        lines = [f"{sums[0].upper()}{sums[1:]}."]
        if self.planned:
            counts = ", ".join(f"{n} {level}" for level, n in self.evidence.items())
            lines.append(f"Chosen by a library: {len(self.planned)} products: {counts}.")
        if self.algebra:
            names = sorted({f"{record.op} in {record.module!r}" for record in self.algebra})
            lines.append(f"Linear algebra by PyTorch: {len(self.algebra)} calls: {', '.join(names)}.")
        if self.opaque:
            lines.append(f"Not inspected: {_counted(self.opaque)}.")
        if self.assumed:
            lines.append(f"Assumed because values were not available: {_counted(self.assumed)}.")
        return lines


def _counted(calls: dict[str, int]) -> str:
    return ", ".join(f"{name} x{n}" for name, n in calls.items())


#: Levels of evidence, the strongest first.
_LEVELS = ("silicon", "inferred", "unverified")
_WORDS = ["module", "role", "operator", "batch x M x K x N", "dtype", "spec"]
_PLANS = ["family", "evidence", "source"]
_COUNTS = ["NaN", "overflow", "zero"]


def _words(heads: list[str]) -> int:
    """Number of columns of words in the table with these headings. The columns after them are numbers."""
    return heads.index("calls") if "calls" in heads else len(heads)


def _table(records: list[Record]) -> list[list[str]]:
    """A row of headings, then one row for each set of equal products; empty without products."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        key = (record.module, record.role, record.op, record.shape, record.spec, record.dtype)
        groups.setdefault((*key, record.family, record.evidence, record.source), []).append(record)
    if not groups:
        return []
    counted = any(record.nans is not None for record in records)
    planned = any(record.family for record in records)
    rows = [[*_WORDS, *(_PLANS if planned else []), "calls", "MACs", *(_COUNTS if counted else [])]]
    for (module, role, op, shape, spec, dtype, *plan), group in groups.items():
        sizes = " x ".join(map(str, shape))
        row = [module or "-", role, op, sizes, str(dtype).removeprefix("torch."), spec]
        row += [word or "-" for word in plan] if planned else []
        row += [str(len(group)), f"{sum(record.macs for record in group):,}"]
        if counted:
            row += [f"{sum(getattr(r, name) or 0 for r in group):,}" for name in ("nans", "overflows", "zeros")]
        rows.append(row)
    return rows


def _aligned(rows: list[list[str]]) -> list[str]:
    """The rows as lines of aligned columns: words at the left of their columns, numbers at the right."""
    widths, words = [max(map(len, column)) for column in zip(*rows, strict=True)], _words(rows[0]) if rows else 0
    return [
        "  ".join(
            cell.ljust(width) if n < words else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
