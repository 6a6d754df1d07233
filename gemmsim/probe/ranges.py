"""What numbers survive a product: exponents of operands and of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from .errors import ProbeError, probe_error
from .placing import Questions

__all__ = ["Ranges", "measure_ranges", "powers"]


@dataclass(frozen=True)
class Ranges:
    """Exponents of powers of two, lowest and highest, that come back.

    Attributes:
        a, b: of an operand, times a power of two in the other one.
        product: of the product of both.
        alone: of one operand, times 1.
        integers: whether operands below 1 were refused or came back as zero.
        shift: low bits that an integer register drops of each product.
        past: what the lowest power of two above ``product`` gives: inf, nan or a number. None where operands reach
            none.
    """

    a: tuple[int, int]
    b: tuple[int, int]
    product: tuple[int, int]
    alone: tuple[int, int]
    integers: bool
    past: float | None = None
    shift: int = 0


def powers(exponents: np.ndarray) -> np.ndarray:
    """2.0**exponents, infinite beyond float64."""
    with np.errstate(over="ignore"):
        return np.ldexp(1.0, np.asarray(exponents, dtype=np.int64))


def _exponents(dtype: torch.dtype) -> tuple[int, int]:
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return 0, min(int(info.max).bit_length() - 1, 52)
    limits = torch.finfo(dtype)
    low = max(int(np.floor(np.log2(limits.smallest_normal))) + int(np.log2(limits.eps)), -1074)
    return low, int(np.floor(np.log2(limits.max)))


def measure_ranges(questions: Questions) -> Ranges:
    """The ranges of one product at term 0.

    Raises:
        ProbeError: where no power of two comes back: the function is no sum of products.
    """
    low, high = _exponents(questions.box.dtype)
    try:
        return _ranges(questions, low, high)
    except ProbeError:
        if low >= 0:
            raise
        try:
            return _ranges(questions, 0, min(high, 52))  # it may take integers alone
        except ProbeError:
            pass
        shifted = _shifted(questions, min(high, 26))
        if shifted is not None:
            return shifted
        raise


def _shifted(questions: Questions, high: int) -> Ranges | None:
    """Ranges of integers whose products lose low bits; None where products are none."""
    try:
        exponents = np.arange(0, 2 * high + 1)
        left = -(-exponents // 2)
        found = _products(questions, left, exponents - left)
    except ProbeError:
        return None
    for shift in range(1, 17):
        good = np.flatnonzero(found == powers(exponents - shift))
        if len(good) > 2 and (found[:shift] == 0).all() and good[0] == shift:
            top = int(good[-1])
            return Ranges((0, high), (0, high), (shift, top), (0, 0), True, None, shift)
    return None


def _ranges(questions: Questions, low: int, high: int) -> Ranges:
    sides = [_operand_range(questions, low, high, side) for side in (0, 1)]
    a, b = sides

    def halves(both: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        left = np.clip(-(-both // 2), np.maximum(a[0], both - b[1]), np.minimum(a[1], both - b[0]))
        return left, both - left

    def good(both: np.ndarray) -> np.ndarray:
        return _came_back(_products(questions, *halves(both)), powers(both))

    ends = a[0] + b[0], a[1] + b[1]
    near = np.unique(np.clip(np.arange(-4, 5), *ends))
    begin = near[good(near)]
    if len(begin) == 0:
        everything = np.arange(ends[0], ends[1] + 1)
        begin = everything[good(everything)]
    start = int(begin[np.abs(begin).argmin()]) if len(begin) else 0
    product = _end(good, start, ends[0]), _end(good, start, ends[1])
    if (
        product[0] < 0 < product[1]
        and min(a[0], b[0]) < 0
        and _products(questions, np.array([0]), np.array([0]), 1.5)[0] == 1.5
    ):
        # Past its largest number a format may saturate, and a wider one round that up to the power of two again.
        half_more = _products(questions, *halves(np.array([product[1]])), 1.5)
        if half_more[0] != 1.5 * 2.0 ** product[1]:
            product = product[0], product[1] - 1
    alone_all = np.arange(max(a[0], b[0], product[0]), min(a[1], b[1], product[1]) + 1)
    alone = (int(alone_all[0]), int(alone_all[-1])) if len(alone_all) and alone_all[0] <= 0 <= alone_all[-1] else (0, 0)
    past = float(_products(questions, *halves(np.array([product[1] + 1])))[0]) if product[1] < ends[1] else None
    return Ranges(a, b, product, alone, low >= 0 or min(a[0], b[0]) >= 0, past)


def _operand_range(questions: Questions, low: int, high: int, side: int) -> tuple[int, int]:
    """Lowest and highest power of two of one operand that comes back with some power of two in the other one."""

    def good(mine: np.ndarray) -> np.ndarray:
        found = np.zeros(len(mine), bool)
        for other in (-mine, 0 * mine, np.clip(-mine, -14, 14), np.clip(-mine, -6, 6), -4 - mine, -8 - mine):
            other = np.clip(other, low, high)
            pair = (mine, other) if side == 0 else (other, mine)
            if not found.all():
                found |= _came_back(_products(questions, *pair), powers(mine + other))
        return found

    near = np.unique(np.clip(np.arange(-3, 9), low, high))
    begin = near[good(near)]
    if len(begin) == 0:
        everything = np.arange(low, high + 1)
        begin = everything[good(everything)]
    if len(begin) == 0:
        one = _products(questions, np.array([0]), np.array([0]))[0]
        raise probe_error(
            f"{questions.box.name}: 1 times 1 at term 0, zeros elsewhere, gives {one:g}, and no other power of two "
            "is preserved either",
            "sums of products a[m, k] * b[k, n]",
            "Give a function that computes a matrix product, without a factor and without an addend.",
        )
    start = int(begin[np.abs(begin).argmin()])
    return _end(good, start, low), _end(good, start, high)


def _came_back(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Where powers of two that float64 holds were returned."""
    return np.asarray((found == expected) & (expected != 0) & np.isfinite(expected))


def _end(good: Callable[[np.ndarray], np.ndarray], start: int, end: int) -> int:
    """The last good number of the run from ``start``, which is good, toward ``end``; a run has no gaps of one seventh
    of what is left."""
    side = 1 if end >= start else -1
    while start != end:
        steps = np.unique(np.ceil(np.linspace(0, abs(end - start), 8)).astype(int))[1:]
        fine = good(start + side * steps)
        count = len(fine) if fine.all() else int(fine.argmin())
        begin, end = start, end if count == len(steps) else int(start + side * (steps[count] - 1))
        start = begin if count == 0 else int(begin + side * steps[count - 1])
    return start


def _products(questions: Questions, left: np.ndarray, right: np.ndarray, times: float = 1.0) -> np.ndarray:
    K = questions.box.shape.K
    a, b = np.zeros((len(left), K)), np.zeros((len(left), K))
    a[:, 0], b[:, 0] = times * powers(left), powers(right)
    return questions.ask(a, b)
