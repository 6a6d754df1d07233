"""Operands on which an instruction is compared with its model: the same everywhere, chosen to test every rule of it.

Rows of ``a`` and columns of ``b`` have the kinds below, so that every kind is multiplied by every other. They are drawn
by SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), because the numbers of PyTorch's generators differ between versions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gemmsim.formats import Specials
from gemmsim.hardware import PROBES, Instruction, Operand

__all__ = ["LINES", "block_problems", "long_problem", "plain_problems", "power_scales"]

#: Number of lines of each operand, which gives four thousand outputs per problem.
LINES = 64
#: Kinds of lines, and the number of lines of each. A window is the largest distance of exponents from that of 1.
_WINDOWS = ((1, 12), (6, 10), (13, 10), (10**6, 12))
_CANCELLING, _SPARSE, _SPECIAL = 8, 8, 4
_DTYPES = {16: torch.int16, 32: torch.int32, 8: torch.uint8}
_VALUES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}
_FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def _bits(count: int, stream: int) -> Tensor:
    """Return ``count`` numbers of 31 bits: SplitMix64 from a state that depends on ``stream``."""
    z = (torch.arange(1, count + 1, dtype=torch.int64) + (stream << 24)) * -7046029254386353131
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        z = (z ^ (z >> shift & (1 << (64 - shift)) - 1)) * factor
    return (z ^ (z >> 31 & (1 << 33) - 1)) & (1 << 31) - 1


class _Codes:
    """Codes of one operand format, drawn field by field."""

    def __init__(self, kind: Operand) -> None:
        self.kind, self.t = kind, kind.storage.p - 1
        self.width = kind.width
        self.fields = 1 << (self.width - 1 - self.t)
        self.one = 1 - kind.storage.emin
        self.ieee = kind.storage.specials is Specials.IEEE
        #: Largest exponent field of finite numbers with any fraction (in e4m3, any but the largest).
        self.top = self.fields - (2 if self.ieee else 1)

    def code(self, value: float) -> int:
        return self.kind.storage.encode(value)

    def drawn(self, k: int, window: int, stream: int) -> Tensor:
        """Return ``k`` finite codes with exponents at most ``window`` from that of 1, including subnormals in that
        range.
        """
        low, high = max(0, self.one - window), min(self.top, self.one + window)
        sign, field, fraction = (_bits(k, 3 * stream + i) for i in range(3))
        codes = (low + field % (high - low + 1)) << self.t | fraction & (1 << self.t) - 1
        if self.kind.dropped:
            codes &= ~((1 << self.kind.dropped) - 1)
        if self.kind.storage.has_nan and not self.ieee:
            codes = torch.where(codes == (1 << (self.width - 1)) - 1, codes - 1, codes)
        return codes | (sign & 1) << (self.width - 1)

    def specials(self, k: int, index: int, stream: int) -> Tensor:
        """Return a line with NaN, one infinity, both infinities, or only the largest numbers."""
        codes, fmt = self.drawn(k, 3, stream), self.kind.storage
        largest = self.code(fmt.max)
        if self.kind.dropped:
            largest &= ~((1 << self.kind.dropped) - 1)
        if index == 3 or not fmt.has_nan:
            return torch.full((k,), largest, dtype=torch.int64)
        marks = [float("nan"), math.inf if fmt.has_inf else fmt.max, -math.inf if fmt.has_inf else -fmt.max]
        codes[k // 2] = self.code(marks[index])
        if index == 2:
            codes[0] = self.code(-marks[2])
        return codes

    def lines(self, k: int, side: int) -> Tensor:
        """Return (LINES, k) codes of all kinds. Lines that cancel do so against lines of the other operand that
        repeat.
        """
        rows: list[Tensor] = []
        stream = 1000 * side + 7 * k
        sign = 1 << (self.width - 1)
        for window, count in _WINDOWS:
            rows += [self.drawn(k, window, stream + len(rows) + i) for i in range(count)]
        for i in range(_CANCELLING):
            half = self.drawn(k, 4 + 4 * i, stream + 200 + i)
            first = half[: k // 2]
            rows.append(torch.cat([first, first ^ (sign if side == 0 else 0), half[2 * (k // 2) :]]))
        for i in range(_SPARSE):
            kept = _bits(k, stream + 300 + i) % 4 == 0
            zero = (_bits(k, stream + 400 + i) & 1) * sign
            rows.append(torch.where(kept, self.drawn(k, 13, stream + 500 + i), zero))
        rows += [self.specials(k, i, stream + 600 + i) for i in range(_SPECIAL)]
        return torch.stack(rows)

    def values(self, codes: Tensor) -> Tensor:
        """Return the numbers that ``codes`` stand for, in a float dtype that represents them."""
        if self.kind.name in _FP8:
            return codes.to(torch.uint8).view(_FP8[self.kind.name]).to(torch.float32)
        return codes.to(_DTYPES[self.width]).view(_VALUES[self.kind.name])


def _lengths(k: int) -> tuple[int, ...]:
    """Return lengths: less than one instruction, one, a little more than one, several, several chunks of shared
    memory.
    """
    return (1, k - 1, k, k + 1, 3 * k + 5, 9 * k)


def plain_problems(row: Instruction) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pairs (M, K) and (K, N) for an instruction without scales."""
    left, right = _Codes(row.operands[0]), _Codes(row.operands[1])
    for k in _lengths(row.k):
        yield left.values(left.lines(k, 0)), right.values(right.lines(k, 1)).mT
    lines = _probes(row, left, right)
    yield left.values(lines[0]), right.values(lines[1]).mT


def long_problem(row: Instruction) -> tuple[Tensor, Tensor]:
    """Return a pair (M, K) and (K, N) with more than twice as many terms as a pipeline has at once."""
    left, right = _Codes(row.operands[0]), _Codes(row.operands[1])
    k = 57 * row.k + 5
    return left.values(left.lines(k, 0)), right.values(right.lines(k, 1)).mT


def _probes(row: Instruction, left: _Codes, right: _Codes) -> tuple[Tensor, Tensor]:
    """Return the probes in this instruction's formats, as far as the formats represent their terms.

    c is the product of an instruction before; the terms follow.
    """
    found: tuple[list[Tensor], list[Tensor]] = ([], [])
    for probe in PROBES:
        terms = [(0, *_factors(probe.c)), *((row.k + k % (2 * row.k), x, y) for k, x, y in probe.terms)]
        lines = torch.zeros(2, 3 * row.k, dtype=torch.int64)
        try:
            for k, x, y in terms:
                lines[0, k], lines[1, k] = left.code(x), right.code(y)
        except ValueError:
            continue
        found[0].append(lines[0])
        found[1].append(lines[1])
    return torch.stack(found[0]), torch.stack(found[1])


def _factors(c: float) -> tuple[float, float]:
    """Return two factors of ``c``, the second a power of two."""
    significand, exponent = math.frexp(c)
    half = exponent // 2
    return math.ldexp(significand, exponent - half), math.ldexp(1.0, half)


def block_problems(row: Instruction) -> Iterator[tuple[Sequence[Tensor], Sequence[Tensor]]]:
    """Yield pairs of (codes, scales) for a block-scaled instruction.

    Codes are uint8, one per byte. The shapes are (M, K) and (M, blocks), and (K, N) and (blocks, N).
    """
    assert row.block is not None and row.scale is not None
    for k in _lengths(row.k):
        sides = []
        for side, kind in enumerate(row.operands[:2]):
            codes = _narrow_lines(kind, k, side) if kind.width < 8 else _Codes(kind).lines(k, side)
            sides.append((codes.to(torch.uint8), _scales(row.scale, -(-k // row.block), side)))
        (a, scale_a), (b, scale_b) = sides
        yield (a, scale_a), (b.mT, scale_b.mT)


def _narrow_lines(kind: Operand, k: int, side: int) -> Tensor:
    """Return codes of a format of a few bits without special values, in which any code is a number.

    A quarter of the lines is mostly zeros, so that whole groups of products are zero.
    """
    codes = (_bits(LINES * k, 77 + side) % (1 << kind.width)).view(LINES, k)
    sparse = (torch.arange(LINES) % 4 == 3)[:, None] & (_bits(LINES * k, 87 + side).view(LINES, k) % 16 != 0)
    return torch.where(sparse, 0, codes)


def _scales(name: str, blocks: int, side: int) -> Tensor:
    """Return scale codes of all lines: around 1, further away, and in the last lines any code, NaN included."""
    one = 127 if name == "ue8m0" else 56
    drawn = _bits(LINES * blocks, 991 + side).view(LINES, blocks)
    near, far = one - 3 + drawn % 7, one - 40 + drawn % 80
    line = torch.arange(LINES)[:, None]
    codes = torch.where(line < LINES // 2, near, torch.where(line < LINES - 12, far, drawn >> 7 & 255))
    return codes.to(torch.uint8)


def power_scales(blocks: int, side: int, near: bool) -> Tensor:
    """Return codes of e8m0, (LINES, blocks), uint8: from 2^-40 to 2^40, or without ``near`` in some lines any code
    and NaN.
    """
    codes = _scales("ue8m0", blocks, side)
    return codes[torch.arange(LINES) % (LINES - 12)] if near else codes
