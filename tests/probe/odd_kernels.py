"""Matrix products by hand, in numpy's float32, that add in orders of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Kernel = Callable[[np.ndarray, np.ndarray], np.ndarray]
Sums = Callable[[list[np.ndarray]], np.ndarray]

F = np.float32


def products(a, b) -> list[np.ndarray]:
    """The rounded products of each term: a list of (M, N)."""
    a, b = np.asarray(a, F), np.asarray(b, F)
    return [a[:, k, None] * b[None, k] for k in range(a.shape[1])]


def chain(terms: Sequence[np.ndarray]) -> np.ndarray:
    total = terms[0]
    for one in terms[1:]:
        total = total + one
    return total


def pairs(terms: Sequence[np.ndarray]) -> np.ndarray:
    terms = list(terms)
    while len(terms) > 1:
        terms = [chain(terms[i : i + 2]) for i in range(0, len(terms), 2)]
    return terms[0]


def runs(terms: Sequence[np.ndarray], lengths: Sequence[int], inner: Sums = chain, over: Sums = chain) -> np.ndarray:
    totals, start = [], 0
    for length in lengths:
        totals.append(inner(list(terms[start : start + length])))
        start += length
    return over(totals + ([inner(list(terms[start:]))] if start < len(terms) else []))


def lanes(terms: Sequence[np.ndarray], count: int, over: Sums = chain) -> np.ndarray:
    return over([chain(terms[i::count]) for i in range(count) if terms[i::count]])


def outside_in(terms):
    terms = list(terms)
    order = []
    while terms:
        order.append(terms.pop(0))
        if terms:
            order.append(terms.pop())
    return chain(order)


def fibonacci(terms):
    lengths, x, y = [], 1, 2
    while sum(lengths) + x < len(terms):
        lengths.append(x)
        x, y = y, x + y
    return runs(terms, lengths)


def bisected(terms):
    """Two thirds against one third, all the way down."""
    if len(terms) < 3:
        return chain(terms)
    cut = 2 * len(terms) // 3
    return bisected(terms[:cut]) + bisected(terms[cut:])


def bit_reversed(terms):
    width = max(1, (len(terms) - 1).bit_length())
    order = sorted(range(len(terms)), key=lambda k: int(f"{k:0{width}b}"[::-1], 2))
    return chain([terms[k] for k in order])


def shuffled(terms):
    order = np.random.default_rng(5).permutation(len(terms))
    return chain([terms[k] for k in order])


def random_tree(terms):
    g = np.random.default_rng(11)
    terms = list(terms)
    while len(terms) > 1:
        i, j = sorted(g.choice(len(terms), 2, replace=False))
        other = terms.pop(j)
        terms[i] = terms[i] + other
    return terms[0]


def tail_first(terms):
    """What is left over by eights, then runs of eight."""
    left = len(terms) % 8
    return runs(terms, [left] * bool(left) + [8] * (len(terms) // 8))


def kernel(order: Sums) -> Kernel:
    return lambda a, b: order(products(a, b))


def in_float64(a, b):
    """Products in float32, sums in float64, rounded at the end."""
    return chain([one.astype(np.float64) for one in products(a, b)]).astype(F)


def in_float16(a, b):
    """Products in float32, sums in float16."""
    total = np.zeros((len(a), np.asarray(b).shape[1]), np.float16)
    for one in products(a, b):
        total = (total.astype(F) + one).astype(np.float16)
    return total.astype(F)


def from_zero_backwards(a, b):
    total = F(0)
    for one in reversed(products(a, b)):
        total = total + one
    return total


KERNELS: dict[str, Kernel] = {
    "backwards": kernel(lambda terms: chain(terms[::-1])),
    "backwards from zero": from_zero_backwards,
    "even terms, then odd": kernel(lambda terms: chain(terms[::2] + terms[1::2])),
    "even terms plus odd": kernel(lambda terms: chain(terms[::2]) + chain(terms[1::2])),
    "neighbours exchanged": kernel(
        lambda terms: chain([terms[k ^ 1] if k ^ 1 < len(terms) else terms[k] for k in range(len(terms))])
    ),
    "outside in": kernel(outside_in),
    "runs of fibonacci": kernel(fibonacci),
    "two thirds": kernel(bisected),
    "bit reversed": kernel(bit_reversed),
    "shuffled": kernel(shuffled),
    "a tree at random": kernel(random_tree),
    "runs of seven": kernel(lambda terms: runs(terms, [7] * (len(terms) // 7))),
    "runs of seven, last run first": kernel(
        lambda terms: runs(terms, [7] * (len(terms) // 7), over=lambda totals: chain(totals[::-1]))
    ),
    "runs of 3, 5 and 11": kernel(lambda terms: runs(terms, [3, 5, 11])),
    "five lanes": kernel(lambda terms: lanes(terms, 5)),
    "four lanes as (0 + 2) + (1 + 3)": kernel(
        lambda terms: lanes(terms, 4, lambda t: (t[0] + t[2]) + (t[1] + t[3]) if len(t) == 4 else chain(t))
    ),
    "eight lanes by halves": kernel(
        lambda terms: lanes(terms, 8, lambda t: pairs([t[i] for i in (0, 4, 2, 6, 1, 5, 3, 7)]))
    ),
    "pairs of runs of four": kernel(lambda terms: runs(terms, [4] * (len(terms) // 4), over=pairs)),
    "pairs in runs of ten": kernel(lambda terms: runs(terms, [10] * (len(terms) // 10), inner=pairs)),
    "lanes in runs": kernel(lambda terms: runs(terms, [12] * (len(terms) // 12), inner=lambda t: lanes(t, 3))),
    "the tail first": kernel(tail_first),
    "in float16": in_float16,
    "in float64": in_float64,
}
