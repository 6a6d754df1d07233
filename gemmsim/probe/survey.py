"""``identify_over``: where the answer changes with the shape."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .._html import html_table
from ..formats.errors import shortened
from .errors import ProbeError, probe_error
from .identification import Identification, identify

__all__ = ["Survey", "identify_over"]


@dataclass(frozen=True)
class Survey:
    """The answers of ``identify`` for several shapes.

    Attributes:
        answers: one for each shape, M first, then K.
        refused: (shape, message) of shapes that a function refused.
        rules: in words, what holds for which range of M and K.

    Example:
        >>> over = gs.identify_over(lambda a, b: gs.qmatmul(a, b, ":fp16"), M=[1, 4], N=4, K=[16])
        >>> [one.text for one in over.answers], over.refused
        ([':fp16', ':fp16'], ())
    """

    answers: tuple[Identification, ...]
    refused: tuple[tuple[tuple[int, int, int], str], ...]
    rules: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{one.shape[0]}x{one.shape[2]} @ {one.shape[2]}x{one.shape[1]}: {_short(one)}" for one in self.answers
        ]
        lines += [f"{M}x{K} @ {K}x{N}: refused: {said}" for (M, N, K), said in self.refused]
        return "\n".join([*lines, *(f"rule: {one}" for one in self.rules)])

    def _repr_html_(self) -> str:
        rows = [(f"{one.shape[0]}x{one.shape[2]} @ {one.shape[2]}x{one.shape[1]}", one.text) for one in self.answers]
        return html_table(("shape", "found"), rows, notes=self.rules)

    def to_dict(self) -> dict[str, object]:
        """Plain dictionary, for JSON."""
        return {
            "answers": [one.to_dict() for one in self.answers],
            "refused": [[list(shape), said] for shape, said in self.refused],
            "rules": list(self.rules),
        }


def _short(one: Identification) -> str:
    checked = f"equal in {one.equal} of {one.of}" if one.of else one.found
    order = "" if one.found != "tree" else f" along {shortened(one.order, 200)}"
    return f"{one.text}{order}  ({checked})"


def identify_over(
    f: Callable[..., Any],
    M: Iterable[int] = (64,),
    N: int = 64,
    K: Iterable[int] = (256,),
    dtype: torch.dtype = torch.float32,
    *,
    device: str = "cpu",
    seed: int = 0,
) -> Survey:
    """``identify`` for every M and K, and what changes where.

    Args:
        f, N, dtype, device, seed: as ``identify``.
        M, K: the sizes, ascending.

    A rule names a range of sizes with one spec or, where chunks get longer with K, the length of the chunks for each.
    NaN and infinities: as ``identify``.

    Raises:
        ProbeError: where there is no size, or the function refuses every shape.

    Example:
        >>> over = gs.identify_over(lambda a, b: gs.qmatmul(a, b, ":fp16"), M=[1, 4], N=4, K=[16, 32])
        >>> over.rules
        ('M 1 to 4, K 16 to 32: :fp16',)
    """
    rows, lengths = list(M), list(K)
    if not rows or not lengths:
        raise probe_error(f"M={rows}, K={lengths}", "at least one M and one K", "Give a list or a range.")
    answers, refused = [], []
    last: ProbeError | None = None
    for m in rows:
        for k in lengths:
            try:
                answers.append(identify(f, m, N, k, dtype, device=device, seed=seed))
            except ProbeError as error:
                last = error
                refused.append(((m, N, k), str(error)))
    if not answers and last is not None:
        raise last
    return Survey(tuple(answers), tuple(refused), tuple(_rules(answers)))


def _rules(answers: list[Identification]) -> list[str]:
    """Ranges of M with the same answers for every K, and in these ranges of K."""
    by_rows: dict[int, list[Identification]] = {}
    for one in answers:
        by_rows.setdefault(one.shape[0], []).append(one)
    found: list[str] = []
    groups: list[tuple[list[int], list[Identification]]] = []
    for m, mine in by_rows.items():
        if groups and [_said(one) for one in groups[-1][1]] == [_said(one) for one in mine]:
            groups[-1][0].append(m)
        else:
            groups.append(([m], mine))
    for rows, mine in groups:
        start = 0
        for i in range(1, len(mine) + 1):
            if i == len(mine) or _said(mine[i]) != _said(mine[start]):
                ks = mine[start].shape[2], mine[i - 1].shape[2]
                found.append(f"M {_range(rows[0], rows[-1])}, K {_range(*ks)}: {_said(mine[start])}")
                start = i
        found += [f"M {_range(rows[0], rows[-1])}: {words}" for words in _lengths(mine)]
    return found


def _said(one: Identification) -> str:
    return one.text if one.found != "tree" else f"{one.text}, along a different tree for each K"


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _lengths(answers: list[Identification]) -> list[str]:
    """Lengths of runs that grow with K."""
    found = [(one.shape[2], match[1]) for one in answers if (match := re.match(r":chunked\((\d+), ", one.text))]
    if len({length for _, length in found}) < 2:
        return []
    return ["chunks of " + ", ".join(f"{length} (K = {k})" for k, length in found)]
