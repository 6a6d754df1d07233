"""Roundings of single additions, products and operands, by what small numbers beside 1 become."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .placing import Questions
from .ranges import powers
from .sum_tree import STEP, SumTree
from .widths import Terms

__all__ = ["MODES", "Rounded", "measure_kept", "measure_node", "measure_operand", "measure_product", "measure_sum"]

#: What 1 + t units becomes, in units above 1, for t = 1/4, 1/2, 3/4, 3/2; then the same below zero, in magnitude.
MODES: dict[str, tuple[int, ...]] = {
    "rne": (0, 0, 1, 2, 0, 0, 1, 2),
    "rtz": (0, 0, 0, 1, 0, 0, 0, 1),
    "rna": (0, 1, 1, 2, 0, 1, 1, 2),
    "ru": (1, 1, 1, 2, 0, 0, 0, 1),
    "rd": (0, 0, 0, 1, 1, 1, 1, 2),
    "ro": (1, 1, 1, 1, 1, 1, 1, 1),
    "rnd": (0, 0, 1, 1, 0, 1, 1, 2),
    "rnu": (0, 1, 1, 2, 0, 0, 1, 1),
}
_PARTS = np.array([0.25, 0.5, 0.75, 1.5])
_MOST = 60


@dataclass(frozen=True)
class Rounded:
    """How something is rounded.

    Attributes:
        p: bits of precision, the leading one included; None where nothing was lost as far as one could look.
        modes: words for the modes that fit, the usual ones first; empty where none does, as for random bits.
        kept: of a step of several addends the fraction bits that each keeps below the largest; None elsewhere.
    """

    p: int | None
    modes: tuple[str, ...] = ()
    kept: int | None = None

    def __str__(self) -> str:
        return "exact" if self.p is None else f"{self.p} bits, {self.modes[0] if self.modes else 'no fixed rounding'}"


def _leaf(tree: SumTree, node: int) -> int:
    return tree.firsts[node]


def _outside(tree: SumTree, node: int) -> int | None:
    """A term that is added right after ``node``; None of the result."""
    above = tree.parents[node]
    if above < 0:
        return None
    return _leaf(tree, next(one for one in tree.addends(above) if one != node))


def measure_node(terms: Terms, tree: SumTree, node: int) -> Rounded:
    """The rounding of one addition; of the result itself together with what is rounded after it.

    Raises:
        ProbeError: as ``BlackBox``.
    """
    i, j = (_leaf(tree, one) for one in tree.addends(node)[:2])
    return _sweep(terms, i, j, _outside(tree, node))


def measure_kept(terms: Terms, tree: SumTree, node: int) -> int | None:
    """Fraction bits that a step keeps of its addends below the largest; None for all.

    Raises:
        ProbeError: as ``BlackBox``.
    """
    if tree.kind(node) != STEP or len(tree.addends(node)) < 3:
        return None
    i, j, other = (_leaf(tree, one) for one in tree.addends(node)[:3])
    found = _sweep(terms, i, j, other).p
    return None if found is None else found - 1


def measure_sum(terms: Terms, i: int, j: int, other: int | None) -> Rounded:
    """The rounding of the sum of terms i and j, taken apart by a third term, or of the result with nothing else.

    Raises:
        ProbeError: as ``BlackBox``.
    """
    return _sweep(terms, i, j, other)


def _sweep(terms: Terms, i: int, j: int, other: int | None) -> Rounded:
    low, high = terms.window(_MOST)
    steps = np.arange(1, high - low + 1)
    back = _above_one(terms, (i, j, other), powers(-steps), high)
    nonzero = np.flatnonzero(back != 0)
    if len(nonzero) == 0:
        return Rounded(1, ())
    with np.errstate(invalid="ignore"):
        unit = np.abs(back[nonzero]).min()
    if not np.isfinite(unit):
        return Rounded(None)
    bits = int(round(-np.log2(unit)))
    if bits >= len(steps):
        return Rounded(None)
    return Rounded(bits + 1, _modes(terms, (i, j, other), bits, low, high))


def _modes(terms: Terms, places: tuple[int, int, int | None], bits: int, low: int, high: int) -> tuple[str, ...]:
    usable = high - bits - 2 >= low, high - bits - 1 >= low, high - bits - 2 >= low, high - bits - 1 >= low
    parts = _PARTS[list(usable)] * 2.0**-bits
    up = _above_one(terms, places, parts, high) / 2.0**-bits
    down = -_above_one(terms, places, -parts, high, -1.0) / 2.0**-bits
    seen = np.concatenate([up, down])
    which = np.concatenate([np.flatnonzero(usable), 4 + np.flatnonzero(usable)])
    return tuple(name for name, pattern in MODES.items() if np.array_equal(seen, np.array(pattern)[which]))


def _above_one(
    terms: Terms, places: tuple[int, int, int | None], small: np.ndarray, high: int, one: float = 1.0
) -> np.ndarray:
    """What is left of ``one`` + each of ``small``, after ``one`` is taken away again."""
    i, j, other = places
    a = np.zeros((len(small), terms.K))
    a[:, i], a[:, j] = one * 2.0**high, small * 2.0**high
    if other is not None:
        a[:, other] = -one * 2.0**high
    back = terms.ask(a) / 2.0**high
    return back if other is not None else back - one


def measure_operand(questions: Questions, places: tuple[int, int], side: int, top: int) -> Rounded:
    """How an operand is rounded, by 1 + x at the second place while -1 stands at the first one, both times 2^top.

    Raises:
        ProbeError: as ``BlackBox``.
    """

    def left(small: np.ndarray, one: float = 1.0) -> np.ndarray:
        a = np.zeros((len(small), questions.box.shape.K))
        b = np.zeros_like(a)
        x, y = (a, b) if side == 0 else (b, a)
        x[:, places[0]], x[:, places[1]] = -one, one + small
        y[:, places[0]] = y[:, places[1]] = 2.0**top
        return questions.ask(a, b) / 2.0**top

    back = left(powers(-np.arange(1, 53)))
    nonzero = np.flatnonzero(back != 0)
    if len(nonzero) == 0:
        return Rounded(1, ())
    bits = int(round(-np.log2(np.abs(back[nonzero]).min())))
    parts = _PARTS * 2.0**-bits
    seen = np.concatenate([left(parts), -left(-parts, -1.0)]) / 2.0**-bits
    modes = tuple(name for name, pattern in MODES.items() if np.array_equal(seen, np.array(pattern)))
    return Rounded(bits + 1, modes)


def measure_product(
    questions: Questions, places: tuple[int, int, int], bits: tuple[int, int], register: int, top: int
) -> int | None:
    """Bits of precision that a product enters its addition with; None where it is exact for operands of ``bits`` bits.

    (1 + 2^-x)(1 + 2^-y) stands at the second place, -1 at the first, -2^-x - 2^-y at the third, all times 2^top.
    ``register``: bits of the sum, which holds what is left without -1.

    Raises:
        ProbeError: as ``BlackBox``.
    """
    most = min(bits[0] + bits[1] - 2, 2 * (register - 2))
    sums = np.arange(2, most + 1)
    if len(sums) == 0:
        return None
    x = np.clip((sums + 1) // 2, sums - (bits[1] - 1), bits[0] - 1)
    y = sums - x
    a = np.zeros((len(sums), questions.box.shape.K))
    b = np.zeros_like(a)
    first, second, third = places
    a[:, first], b[:, first] = -1.0, 1.0
    a[:, second], b[:, second] = 1.0 + powers(-x), 1.0 + powers(-y)
    a[:, third], b[:, third] = -powers(-x) - powers(-y), 1.0
    exact = questions.ask(a, b * 2.0**top) == powers(top - sums)
    return None if exact.all() else int(sums[exact.argmin()])
