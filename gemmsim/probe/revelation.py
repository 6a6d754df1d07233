"""``reveal``: the tree of additions of a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .black_box import BlackBox, Shape
from .identifying import Probing
from .sum_tree import SumTree
from .tree_svg import tree_svg
from .tree_text import tree_text

__all__ = ["Revelation", "reveal"]


@dataclass(frozen=True)
class Revelation:
    """The order in which a function adds, at one shape.

    Attributes:
        function: its name.
        shape: (M, N, K).
        dtype: of the operands.
        tree: the order of additions; None where none was shown.
        no_tree: why not; "" where there is one.
        classes: positions of outputs that are computed alike, in words; the tree is that of the class with ``at``.
        at: position of an output.
        calls: how often the function was called.

    Example:
        >>> found = gs.reveal(lambda a, b: gs.qmatmul(a, b, ":exact(fp32)"), 16)
        >>> found.tree is None, found.calls > 0  # an exact sum has no order
        (True, True)
    """

    function: str
    shape: tuple[int, int, int]
    dtype: str
    tree: SumTree | None
    no_tree: str
    classes: tuple[str, ...] = field(repr=False)
    at: tuple[int, int]
    calls: int

    @property
    def text(self) -> str:
        """The tree in ranges of terms, or without a tree the reason.

        "0:128 (128:256)" adds the sum of terms 128 to 255 to that of terms 0 to 127.

        Example:
            >>> gs.reveal(lambda a, b: gs.qmatmul(a, b, ":chunked(8, fp32)"), 16).text
            '0:8 (8:16)'
        """
        return self.no_tree if self.tree is None else tree_text(self.tree, 10**9)

    def __str__(self) -> str:
        M, N, K = self.shape
        shown = f"no order shown: {self.no_tree}" if self.tree is None else tree_text(self.tree)
        more = (
            ""
            if len(self.classes) == 1
            else f"\n  {len(self.classes)} classes of outputs: {'; '.join(self.classes[:4])}"
        )
        return f"{self.function}, {M}x{K} @ {K}x{N}, {self.dtype}: {shown}{more}"

    def svg(self) -> str:
        """The tree as a picture; an empty one without a tree."""
        M, N, K = self.shape
        return tree_svg(self.tree or SumTree(1, ()), f"{self.function}, {M}x{K} @ {K}x{N}, {self.dtype}")

    def to_dict(self) -> dict[str, object]:
        """Plain dictionary, for JSON: the tree as text and as nodes."""
        return {
            "function": self.function,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "order": None if self.tree is None else self.text,
            "tree": None if self.tree is None else self.tree.to_dict(),
            "no_tree": self.no_tree,
            "classes": list(self.classes),
            "at": list(self.at),
            "calls": self.calls,
        }


def reveal(
    f: Callable[..., Any],
    K: int,
    dtype: torch.dtype = torch.float32,
    *,
    M: int = 8,
    N: int = 8,
    at: tuple[int, int] = (0, 0),
    device: str = "cpu",
    seed: int = 0,
) -> Revelation:
    """The tree of additions of ``f``, a function that multiplies (M, K) and (K, N).

    Args:
        f, M, N, K, dtype, at, device, seed: as ``identify``.

    ``reveal`` only looks at results: small numbers are lost next to large ones of opposite signs until these cancel.
    Where nothing is ever lost (exact and compensated sums, integers), or operands span too few powers of two, there is
    no tree, and the result says so. Operands have no NaN and no infinities.

    Raises:
        ProbeError: as ``identify``.

    Source: FPRev (arXiv:2411.00442) for trees of two addends.

    Example:
        >>> gs.reveal(lambda a, b: gs.qmatmul(a, b, ":interleaved(2, fp32)"), 16).text
        '0:15:2 (1:16:2)'
    """
    box = BlackBox(f, Shape(M, N, K), dtype, device)
    probing = Probing(box, at, seed)
    probing.grow()
    probing.check_repeats()
    return Revelation(
        box.name,
        (M, N, K),
        str(dtype).removeprefix("torch."),
        probing.tree,
        probing.no_tree,
        tuple(f"{one.count} outputs, {one}" for one in probing.classes),
        probing.place.at,
        box.calls,
    )
