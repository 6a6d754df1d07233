"""What numbers survive a product: exponents of operands and of results."""

from __future__ import annotations

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
        past: what the lowest power of two above ``product`` gives: inf, nan or a number. None where operands reach none.
    """

    a: tuple[int, int]
    b: tuple[int, int]
    product: tuple[int, int]
    alone: tuple[int, int]
    integers: bool
    past: float | None = None


def powers(exponents: np.ndarray) -> np.ndarray:
    """2.0**exponents."""
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
        raise


def _ranges(questions: Questions, low: int, high: int) -> Ranges:
    sides = [_operand_range(questions, low, high, side) for side in (0, 1)]
    a, b = sides
    everything = np.arange(a[0] + b[0], a[1] + b[1] + 1)
    left = np.clip(-(-everything // 2), np.maximum(a[0], everything - b[1]), np.minimum(a[1], everything - b[0]))
    back = _products(questions, left, everything - left)
    product = _run(everything, back == powers_or_inf(everything), 0)
    alone_all = np.arange(max(a[0], b[0], product[0]), min(a[1], b[1], product[1]) + 1)
    alone = (int(alone_all[0]), int(alone_all[-1])) if len(alone_all) and alone_all[0] <= 0 <= alone_all[-1] else (0, 0)
    above = np.flatnonzero(everything == product[1] + 1)
    past = float(back[above[0]]) if len(above) else None
    return Ranges(a, b, product, alone, low >= 0 or product[0] >= 0, past)


def powers_or_inf(exponents: np.ndarray) -> np.ndarray:
    """2.0**exponents, infinite beyond float64."""
    with np.errstate(over="ignore"):
        return powers(exponents)


def _operand_range(questions: Questions, low: int, high: int, side: int) -> tuple[int, int]:
    mine = np.arange(low, high + 1)
    good = np.zeros(len(mine), bool)
    for other in (-mine, 0 * mine, np.clip(-mine, -6, 6), np.clip(-mine, -14, 14), np.minimum(-mine, 0) // 2):
        other = np.clip(other, low, high)
        pair = (mine, other) if side == 0 else (other, mine)
        good |= _products(questions, *pair) == powers_or_inf(mine + other)
    if not good.any():
        one = _products(questions, np.array([0]), np.array([0]))[0]
        raise probe_error(
            f"{questions.box.name}: 1 times 1 at term 0, zeros elsewhere, gives {one:g}, and no other power of two "
            "comes back either",
            "sums of products a[m, k] * b[k, n]",
            "Give a function that computes a matrix product, without a factor and without an addend.",
        )
    return _run(mine, good, 0)


def _products(questions: Questions, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    K = questions.box.shape.K
    a, b = np.zeros((len(left), K)), np.zeros((len(left), K))
    a[:, 0], b[:, 0] = powers(left), powers(right)
    return questions.ask(a, b)


def _run(exponents: np.ndarray, good: np.ndarray, start: int) -> tuple[int, int]:
    """Ends of the run of good exponents with the one nearest to ``start``."""
    if not good.any():
        return start, start
    places = np.flatnonzero(good)
    at = int(places[np.abs(exponents[places] - start).argmin()])
    low = high = at
    while low > 0 and good[low - 1]:
        low -= 1
    while high + 1 < len(good) and good[high + 1]:
        high += 1
    return int(exponents[low]), int(exponents[high])
