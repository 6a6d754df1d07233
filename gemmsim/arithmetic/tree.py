"""A tree of additions, written out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from ..formats import Cast
from ..formats.errors import shown
from .accumulator import Accumulator, register
from .argument_kinds import CAST, Kind, argument, optional
from .errors import SpecError, spec_error

__all__ = ["Node", "Tree"]

#: A leaf's number, or the two addends of a sum.
Node: TypeAlias = "int | tuple[Node, Node]"

_TOKEN = re.compile(r"\s*(\d+|[()+])")
_EXAMPLE = "(3+(0+2))+1"
#: Leaves of a tree; more are an order with a rule, which another constructor says.
_MOST_LEAVES = 256


class _TreeKind(Kind):
    """A tree as text: numbers, "+" and brackets; sums of three and more are from left to right."""

    def read(self, value: object, owner: str, name: str) -> Node:
        text = _text(value) if isinstance(value, (int, tuple)) and not isinstance(value, bool) else value
        if not isinstance(text, str):
            raise spec_error(f"{owner}: {name}={shown(value)}", f"a string such as '{_EXAMPLE}'", "Give a string.")
        tokens = _TOKEN.findall(text)
        if "".join(tokens) != "".join(text.split()):
            raise _no_tree(text)
        found, rest = _sum(tokens, text)
        if rest:
            raise _no_tree(text)
        leaves = sorted(_leaves(found))
        if leaves != list(range(len(leaves))) or len(leaves) > _MOST_LEAVES:
            raise spec_error(
                f"{owner}({shown(text)}) with the leaves {shortened_list(leaves)}",
                f"each of 0 to n-1 once, n at most {_MOST_LEAVES}",
                "Number the partial sums from 0.",
            )
        return found

    def text(self, value: Node) -> str:
        return _text(value)

    def json(self, value: Node) -> object:
        return _text(value)


def shortened_list(leaves: list[int]) -> str:
    """The numbers, at most eight of them."""
    return ", ".join(map(str, leaves[:8])) + (", ..." if len(leaves) > 8 else "")


def _no_tree(text: str) -> SpecError:
    return spec_error(
        f"tree({shown(text)})",
        f"numbers of partial sums, '+' and brackets, as in tree({_EXAMPLE})",
        "Check brackets and signs.",
    )


def _sum(tokens: list[str], text: str) -> tuple[Node, list[str]]:
    """The sum at the front of ``tokens``, and the rest of them."""
    total, rest = _addend(tokens, text)
    while rest[:1] == ["+"]:
        addend, rest = _addend(rest[1:], text)
        total = (total, addend)
    return total, rest


def _addend(tokens: list[str], text: str) -> tuple[Node, list[str]]:
    if tokens and tokens[0].isdigit():
        return int(tokens[0]), tokens[1:]
    if tokens[:1] != ["("]:
        raise _no_tree(text)
    found, rest = _sum(tokens[1:], text)
    if rest[:1] != [")"]:
        raise _no_tree(text)
    return found, rest[1:]


def _text(node: Node) -> str:
    return str(node) if isinstance(node, int) else f"({_text(node[0])}+{_text(node[1])})"


def _leaves(node: Node) -> Iterator[int]:
    if isinstance(node, int):
        yield node
    else:
        yield from _leaves(node[0])
        yield from _leaves(node[1])


@register("tree")
@dataclass(frozen=True, repr=False)
class Tree(Accumulator):
    """The partial sums 0 to n-1 of lanes or slices, added as the brackets say: each ``+`` is ``R(x + y)``.

    Only where another accumulator combines n partial sums: in ``combine`` of ``interleaved`` with n lanes and in
    ``reduce`` of ``splitk`` with n slices. A missing partial sum counts as +0. Partial sums enter unrounded.

    Args:
        sums: the tree, such as "(3+(0+2))+1", with each of 0 to n-1 once.
        fmt: rounding of each sum; None is the format of the partial sums.

    NaN, infinities, -0 and overflow follow the rounding of the sums.

    Raises:
        SpecError: for text that is not a tree, and for leaves that are not 0 to n-1.

    Source: docs/reference/accumulators.md#orders.

    Example:
        >>> gs.acc.splitk(4, "fp32", gs.arithmetic.Tree("(0+1)+(2+3)", "fp32"))
        Accumulator.parse('splitk(4, e8m23, tree(((0+1)+(2+3)), e8m23))')
    """

    sums: Node = field(metadata=argument(_TreeKind()))
    fmt: Cast | None = field(default=None, metadata=argument(optional(CAST)))

    @property
    def leaves(self) -> int:
        """The number of partial sums that the tree adds."""
        return sum(1 for _ in _leaves(self.sums))

    def casts(self) -> Iterator[Cast]:
        """``fmt``, if there is one."""
        if self.fmt is not None:
            yield self.fmt

    @property
    def add_cast(self) -> Cast:
        """``fmt``; without one, the accumulator around this one knows the format.

        Raises:
            SpecError: without ``fmt``.
        """
        if self.fmt is None:
            raise spec_error(
                f"{self} by itself",
                "tree(...) where partial sums are combined: interleaved(n, inner, combine=tree(...)), "
                "splitk(n, inner, reduce=tree(...))",
                "Put it there, or give tree(..., fmt) a format.",
            )
        return self.fmt

    @property
    def product_cast(self) -> Cast | None:
        """None: partial sums are not products."""
        return None

    @property
    def takes_totals(self) -> bool:
        """True."""
        return True

    @property
    def takes_terms(self) -> bool:
        """False: the number of terms is not fixed."""
        return False

    def with_product(self, product: Cast) -> Accumulator:
        """Always an error: a tree has no products.

        Raises:
            SpecError: always.
        """
        raise spec_error(f"product={product} with {self}", "no product: a tree adds partial sums", "Leave product out.")

    def explain_lines(self) -> list[tuple[str, str]]:
        """The tree."""
        to = "in the format of the partial sums" if self.fmt is None else f"to {self.fmt.words()}"
        return [
            ("tree", f"partial sums added as {_text(self.sums)}, each sum R(x + y) {to}; a missing partial sum is +0")
        ]
