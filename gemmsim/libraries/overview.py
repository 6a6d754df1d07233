"""What is known, of which GPU and version, and from whom: one table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .._html import html_table
from .profile import Profile, SourceRow, load

__all__ = ["Known", "KnownRow", "known"]


class KnownRow(NamedTuple):
    """One GPU and version: operands, families with their algorithms, evidence, who compared how much."""

    gpu: str
    name: str
    sms: int
    version: str
    operands: tuple[str, ...]
    families: tuple[str, ...]
    evidence: tuple[str, ...]
    sources: tuple[str, ...]


class Known:
    """The result of ``known``: rows that print as a table, in notebooks too.

    Example:
        >>> [row.version for row in gs.libraries.known() if row.gpu == "h100"]
        ['13.1.1']
    """

    def __init__(self, rows: tuple[KnownRow, ...]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[KnownRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_list(self) -> list[dict[str, object]]:
        """The rows as plain dictionaries, for JSON."""
        return [row._asdict() for row in self.rows]

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                row.gpu,
                str(row.sms),
                row.version,
                ", ".join(row.operands),
                ", ".join(row.families),
                ", ".join(row.evidence),
            )
            for row in self.rows
        ]

    def __str__(self) -> str:
        cells = [_HEADINGS, *self._cells()]
        widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
        ]
        for row in self.rows:
            lines += [f"{row.gpu} {row.version}: {source}" for source in row.sources]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = [f"{row.gpu} {row.version}: {source}" for row in self.rows for source in row.sources]
        return html_table(_HEADINGS, self._cells(), caption="Libraries", notes=notes, right=1)


_HEADINGS = ("GPU", "SMs", "cuBLASLt", "operands", "families (algorithms)", "evidence")


def known() -> Known:
    """The GPUs and versions of cuBLASLt for which plans exist, with families, evidence and who compared how much.

    Example:
        >>> [row.gpu for row in gs.libraries.known()]
        ['gb200', 'gb200', 'gb300', 'h100', 'h100-pcie', 'h200', 'rtx4060']
    """
    return Known(tuple(_row(profile) for profile in load().values()))


def _row(profile: Profile) -> KnownRow:
    families: dict[str, list[str]] = {}
    for row in profile.families.values():
        if row.family != "refused":
            families.setdefault(row.family, []).append(str(row.algo))
    levels = {row.evidence for row in profile.chains.values()}
    return KnownRow(
        profile.gpu,
        profile.name,
        profile.sms,
        profile.version,
        tuple(dict.fromkeys(operand for row in profile.operands.values() for operand in (row.a, row.b))),
        tuple(f"{family} ({' '.join(algos)})" for family, algos in families.items()),
        tuple(sorted(levels | {row.evidence for row in profile.gemv.values()})),
        tuple(source_words(row) for row in profile.sources),
    )


def source_words(row: SourceRow) -> str:
    """Who measured, what, and how much of it was equal."""
    counts = f": {row.equal:,} of {row.of:,} equal" if row.of else ""
    return f"{row.by}: {row.what}{counts} ({row.where})"
