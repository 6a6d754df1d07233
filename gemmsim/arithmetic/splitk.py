"""Contiguous slices of K, reduced through a workspace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..formats import Cast
from ..formats.errors import shown
from .accumulator import Accumulator, register
from .argument_kinds import ACCUMULATOR, ChoiceKind, Kind, argument, optional
from .chunked import BLOCK
from .errors import spec_error
from .totals import TOTALS, TOTALS_CAST, How, check_tree, explain_how
from .wrappers import Blocks, even_sizes

__all__ = ["SplitK"]

_MOST_LENGTHS = 4096


class _SlicesKind(Kind):
    """A number of slices, or the list of their lengths, ``[640, 384]``."""

    def read(self, value: object, owner: str, name: str) -> int | tuple[int, ...]:
        text = value.strip() if isinstance(value, str) else ""
        if text.startswith("[") and text.endswith("]"):
            value = [part for part in text[1:-1].split(",") if part.strip()]
        if not isinstance(value, (list, tuple)):
            return BLOCK.read(value, owner, name)
        if not 1 <= len(value) <= _MOST_LENGTHS:
            raise spec_error(
                f"{owner}: {name}={shown(value)}",
                f"a list of 1 to {_MOST_LENGTHS} lengths",
                "Give one length per slice.",
            )
        return tuple(BLOCK.read(one, owner, name) for one in value)

    def text(self, value: int | tuple[int, ...]) -> str:
        return str(list(value)) if isinstance(value, tuple) else str(value)

    def json(self, value: int | tuple[int, ...]) -> object:
        return list(value) if isinstance(value, tuple) else value


@register("splitk")
@dataclass(frozen=True, repr=False)
class SplitK(Blocks):
    """Slices of ceil(K / slices) terms, each in ``inner`` from +0; then ``S = R_reduce(S + w)``, S from +0.

    Each partial sum t is first rounded to the format of the workspace, ``w = R_reduce(t)``, and enters in order. There
    are fewer slices where K is too small.

    Args:
        slices: number of slices, or the list of their lengths, of which the last one takes the rest.
        inner: accumulator of a slice; a format means the sequential one.
        reduce: rounding of the workspace and of the sums in it, or an accumulator whose terms are the partial sums.
        grain: lengths of slices are multiples of ``grain``: ``grain * ceil(ceil(K / grain) / slices)``, except the
            last.
        partial: rounding of each partial sum ``w``, where it is not ``reduce``; then S starts as ``R_reduce(w_0)``.
        share: "ceil", as above; "floor": slices of ``grain * max(1, ceil(floor(K / slices) / grain))`` terms. The terms
            past the last slice are left out, as one library does; ``lost(K)`` counts them.

    NaN, infinities, -0 and overflow follow ``inner``, ``partial`` and ``reduce``.

    Raises:
        SpecError: for a list of lengths with a grain or share.

    Source: split-K GEMM of CUTLASS and cuBLAS; docs/reference/accumulators.md#orders.

    Example:
        >>> a, b = torch.ones(1, 1024), torch.ones(1024, 1)
        >>> gs.qmatmul(a, b, "bf16").item(), gs.qmatmul(a, b, gs.arithmetic.SplitK(4, "bf16", "fp32")).item()
        (256.0, 1024.0)
    """

    slices: int | tuple[int, ...] = field(metadata=argument(_SlicesKind()))
    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    reduce: Cast | Accumulator = field(metadata=argument(TOTALS))
    grain: int = field(default=1, kw_only=True, metadata=argument(BLOCK))
    partial: Cast | None = field(default=None, kw_only=True, metadata=argument(optional(TOTALS_CAST)))
    share: str = field(default="ceil", kw_only=True, metadata=argument(ChoiceKind("ceil", "floor")))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_tree(self.reduce, self.count, self.name)
        if isinstance(self.slices, tuple) and (self.grain, self.share) != (1, "ceil"):
            raise spec_error(
                f"splitk of slices {list(self.slices)} with grain={self.grain}, share={self.share}",
                "a number of slices with a grain and a share, or a list of lengths alone",
                "Leave grain and share out.",
            )

    @property
    def count(self) -> int:
        """The requested number of slices."""
        return len(self.slices) if isinstance(self.slices, tuple) else self.slices

    @property
    def how(self) -> How:
        """``reduce``."""
        return self.reduce

    def own_casts(self) -> Iterator[Cast]:
        """``partial``, if there is one, and those of ``reduce``."""
        if self.partial is not None:
            yield self.partial
        yield from super().own_casts()

    def length(self, K: int) -> int:
        """The number of terms of a slice for K terms, if lengths are not given as a list."""
        if self.share == "floor":
            return self.grain * max(1, -(-(K // self.count) // self.grain))
        return self.grain * -((-K // self.grain) // self.count)

    def sizes(self, K: int) -> list[tuple[int, int]]:
        """The slices that have terms."""
        if not isinstance(self.slices, tuple):
            length = self.length(K)
            return even_sizes(min(K, length * self.count), length) if K else []
        found, left = [], K
        for i, length in enumerate(self.slices):
            size = left if i == len(self.slices) - 1 else min(length, left)
            left -= size
            found.append((1, size))
        return [(count, size) for count, size in found if size]

    def lost(self, K: int) -> int:
        """The number of terms of K past the last slice, plus those that slices lose."""
        return K - sum(count * size for count, size in self.sizes(K)) + super().lost(K)

    def explain_lines(self) -> list[tuple[str, str]]:
        """The inner accumulator's words, then slices and workspace."""
        lines = [*self.inner.explain_lines(), *self._slice_lines()]
        if self.partial is not None:
            lines.append(("partial", f"each slice's sum is rounded to {self.partial.words()}"))
        if isinstance(self.reduce, Accumulator):
            return [*lines, *explain_how(self.reduce, self.inner.add_cast, "slice")]
        first = "each slice's sum w is rounded, then S = R(S + w) in order, both to"
        if self.partial is not None:
            first = "S = R(w) for the first slice, then S = R(S + w) in order, to"
        return [*lines, ("reduce", f"{first} {self.reduce.words()}")]

    def _slice_lines(self) -> list[tuple[str, str]]:
        if isinstance(self.slices, tuple):
            words = f"{', '.join(map(str, self.slices))} adjacent terms, added as above; the last slice takes the rest"
            return [("slices", words)]
        n = self.slices
        if self.share == "floor":
            length = f"{self.grain} * max(1, ceil(floor(K/{n})/{self.grain}))"
            lost = ("", f"terms past the last of {n} slices never enter the sum")
            return [("slices", f"{n}, each of {length} adjacent terms, added as above"), lost]
        length = f"ceil(K/{n})" if self.grain == 1 else f"{self.grain} * ceil(ceil(K/{self.grain})/{n})"
        return [("slices", f"{n}, each of {length} adjacent terms, added as above")]
