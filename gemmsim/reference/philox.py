"""Random bits as a pure function of seed and place. The normative text is docs/reference/random_bits.md.

Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Site", "draws_per_block", "element_draw", "element_draws", "philox", "step_draw", "step_draws"]

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

Words = tuple[int, int, int, int]


class Site(IntEnum):
    """The rounding of a computation that a random number belongs to.

    Example:
        >>> list(gs.reference.Site)[:2]
        [<Site.OPERAND_A: 0>, <Site.OPERAND_B: 1>]
    """

    OPERAND_A = 0
    OPERAND_B = 1
    PRODUCT = 2
    ADD = 3
    OUT = 4
    #: Sum of totals, and rounding of a total to a workspace; ``LEVEL`` more for each constructor around it.
    COMBINE = 5
    WORKSPACE = 6
    #: Compensated methods: R(S + C), and the j-th operation of a step at ``OPERATION + j``.
    CORRECTED = 7
    OPERATION = 8
    QUANTIZE = 16
    PERMUTATION = 17
    LEVEL = 32


def philox(key: tuple[int, int], counter: Words) -> Words:
    """Four 32-bit words of Philox4x32-10 for a key of two and a counter of four 32-bit words.

    Example:
        >>> [hex(word) for word in gs.reference.philox((0, 0), (0, 0, 0, 0))]  # the known answer of Random123
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (product1 >> 32) ^ c1 ^ k0, product1 & _MASK, (product0 >> 32) ^ c3 ^ k1, product0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def draws_per_block(r: int) -> int:
    """Draws of ``r`` bits taken from one Philox block: 8 half words up to 16 bits, 4 words beyond."""
    return 8 if r <= 16 else 4


def step_draws(seed: int, row: int, col: int, start: int, stop: int, site: int, r: int) -> list[int]:
    """Random numbers in [0, 2**r) for the steps ``start <= k < stop`` of output element (row, col).

    Example:
        >>> gs.reference.step_draws(7, row=0, col=0, start=0, stop=3, site=gs.reference.Site.ADD, r=8)
        [64, 169, 220]
    """
    n = draws_per_block(r)
    blocks: list[int] = []
    first = start // n
    for block in range(first, -(-stop // n)):
        counter = (col & _MASK, row & _MASK, block & _MASK, site | (row >> 32) << 8)
        blocks += _draws(philox(_key(seed), counter), r)
    return blocks[start - first * n : stop - first * n]


def element_draws(seed: int, start: int, stop: int, site: int, r: int) -> list[int]:
    """Random numbers in [0, 2**r) for the elements ``start <= i < stop``, i the row-major index in the tensor.

    Example:
        >>> gs.reference.element_draws(7, 0, 3, gs.reference.Site.QUANTIZE, 8)
        [68, 25, 133]
    """
    n = draws_per_block(r)
    blocks: list[int] = []
    first = start // n
    for block in range(first, -(-stop // n)):
        blocks += _draws(philox(_key(seed), (block & _MASK, block >> 32 & _MASK, 0, site)), r)
    return blocks[start - first * n : stop - first * n]


def step_draw(seed: int, row: int, col: int, k: int, site: int, r: int) -> int:
    """The random number for step ``k`` of output element (row, col).

    Example:
        >>> gs.reference.step_draw(7, 0, 0, 2, gs.reference.Site.ADD, 8)
        220
    """
    return step_draws(seed, row, col, k, k + 1, site, r)[0]


def element_draw(seed: int, i: int, site: int, r: int) -> int:
    """The random number for element ``i`` of an element-wise rounding.

    Example:
        >>> gs.reference.element_draw(7, 2, gs.reference.Site.QUANTIZE, 8)
        133
    """
    return element_draws(seed, i, i + 1, site, r)[0]


def _key(seed: int) -> tuple[int, int]:
    return seed & _MASK, (seed >> 32) & _MASK


def _draws(words: Words, r: int) -> list[int]:
    """The draws of one block in order: low half, high half of word 0, then of word 1, ...; whole words for r > 16."""
    if r > 16:
        return [word >> (32 - r) for word in words]
    return [half >> (16 - r) for word in words for half in (word & 0xFFFF, word >> 16)]
