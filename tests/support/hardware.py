"""Every choice of a matrix instruction, operands for it that reach every rule, and what ``gemmsim.hardware.mma`` says."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

import torch

import support
from gemmsim import acc, hardware
from gemmsim.arithmetic import Hardware

DTYPES = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32, 64: torch.uint64}
Codes = list[list[int]]


def choices() -> list[Hardware]:
    """One accumulator for every (arch, op, a, b, out) that ``gemmsim.hardware.largest`` finds an instruction for: of
    kinds with 25 pairs of operands some (``is_sampled``), and no op twice under another name."""
    found: dict[Hardware, None] = {}
    for row in filter(is_sampled, hardware.instructions()):
        for op, one in hardware.OPS.items():
            if op != "f8f6f4" and one.takes_in(row) and row.c == row.d:
                found[acc.hw(row.arch, op, row.a, row.b, out=row.d)] = None
    return list(found)


def is_sampled(row: hardware.Instruction) -> bool:
    """Whether tests of every row take this one: all but some mixed pairs of five formats."""
    formats = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
    if row.kind not in ("f8f6f4", "mxf8f6f4") or row.a == row.b:
        return True
    a, b = formats.index(row.a), formats.index(row.b)
    return (a < 2 and b < 2) or (a + 1) % 5 == b


class Operands(NamedTuple):
    """a (M, K) and b (K, N) as codes of the instruction's operands and as the numbers these stand for."""

    a: Codes
    b: Codes
    left: list[list[float]]
    right: list[list[float]]


def operands(row: hardware.Instruction, m: int, n: int, k: int, seed: int) -> Operands:
    """Rows and columns of a few kinds: numbers near 1 that cancel, subnormals and zeros, the far ends, any code."""
    rng = random.Random(f"{row.arch} {row.name} {k} {seed}")
    a_kind, b_kind = row.operands[:2]
    a = [_line(rng, a_kind, k, i % 5) for i in range(m)]
    columns = [_line(rng, b_kind, k, j % 5) for j in range(n)]
    left, right = _values(a, a_kind), _values(columns, b_kind)
    return Operands(a, _transposed(columns, k), left, _transposed(right, k))


def by_mma(row: hardware.Instruction, a: Codes, b: Codes, n: int, start: Codes | None = None) -> Codes:
    """Codes of D = A @ B + C by ``mma``, K filled up with zeros, scales 1; a (M, K), b (K, n), C +0 unless given."""
    a_kind, b_kind, c_kind, _ = row.operands
    fill = -len(b) % row.k
    if not b:
        return [[0] * n for _ in a]
    left = [[*line, *[0] * fill] for line in a]
    columns = [[*(line[j] for line in b), *[0] * fill] for j in range(n)]
    k = len(b) + fill
    scales = {}
    if row.scale is not None:
        code, blocks = hardware.OPERANDS[row.scale].storage.encode(1.0), k // row.block
        scales["scale_a"] = torch.full((len(a), blocks), code, dtype=torch.uint8)
        scales["scale_b"] = torch.full((blocks, n), code, dtype=torch.uint8)
    c = torch.zeros(len(a), n, dtype=DTYPES[c_kind.width]) if start is None else _bits(start, c_kind)
    right = _bits(columns, b_kind).view(_signed(b_kind)).T.contiguous().view(DTYPES[b_kind.container])
    got = hardware.mma(row.arch, row.name, _bits(left, a_kind), right, c, **scales)
    signed = {16: torch.int16, 32: torch.int32, 64: torch.int64}[row.operands[3].width]
    mask = (1 << row.operands[3].width) - 1
    return [[code & mask for code in line] for line in got.view(signed).tolist()]


def values_by_mma(
    row: hardware.Instruction, a: Codes, b: Codes, n: int, start: Codes | None = None
) -> list[list[float]]:
    """The numbers ``by_mma`` stands for."""
    return [[row.operands[3].storage.decode(code) for code in line] for line in by_mma(row, a, b, n, start)]


def registers(row: hardware.Instruction, m: int, n: int, seed: int) -> Codes:
    """C of the same kinds as the operands, one in each line."""
    rng = random.Random(f"{row.arch} {row.name} c {seed}")
    return [_line(rng, row.operands[2], n, (i + i // 5) % 5) for i in range(m)]


def same(x: float, y: float) -> bool:
    """Equal with the sign of zero; NaN as a class."""
    return (math.isnan(x) and math.isnan(y)) or (x == y and math.copysign(1.0, x) == math.copysign(1.0, y))


def assert_same(got: list[list[float]], want: list[list[float]], hint: object) -> None:
    if support.compared is not None:
        return support.compared(*(torch.tensor(x, dtype=torch.float64) for x in (got, want)), True)
    wrong = [
        (i, j, x, y)
        for i, (line, other) in enumerate(zip(got, want, strict=True))
        for j, (x, y) in enumerate(zip(line, other, strict=True))
        if not same(x, y)
    ]
    assert not wrong, (str(hint), len(wrong), [(i, j, x.hex(), y.hex()) for i, j, x, y in wrong[:3]])


def number(code: int, kind: hardware.Operand) -> float:
    """What an instruction sees in ``code``."""
    return kind.storage.decode(code >> kind.dropped << kind.dropped)


def _line(rng: random.Random, kind: hardware.Operand, count: int, sort: int) -> list[int]:
    one, sign, t = kind.storage.encode(1.0), 1 << (kind.width - 1), kind.fraction_bits
    largest, ulp = kind.storage.encode(kind.storage.max), 1 << kind.dropped
    near, span = one, 2 * (1 << t)
    if sort == 1:  # subnormals, zeros, the smallest normals
        near, span = 1 << t, 1 << t
    elif sort == 2:  # the largest numbers
        near, span = largest - (1 << t), 1 << t
    elif sort == 3:  # everything finite
        near, span = largest // 2, largest // 2
    codes = []
    for _ in range(count):
        code = min(max(near + rng.randrange(-span, span + 1), 0), largest)
        if sort == 0 and rng.random() < 0.2:
            code = codes[-1] & ~sign if codes else one
        code = 0 if rng.random() < 0.1 else code
        code |= sign if rng.random() < 0.5 else 0
        # A few infinities and NaN in lines of their own; codes near the top hold them in every format.
        if sort == 4:
            top = kind.storage.encode(math.inf) if kind.storage.has_inf else largest
            code = rng.choice([top, code]) if rng.random() < 0.1 else code
            if rng.random() < 1 / (2 * count) and kind.storage.has_nan:
                code = kind.storage.encode(math.nan)
        codes.append(code // ulp * ulp if rng.random() < 0.5 else code)
    # fnuz has no -0: that code is its NaN, which only lines of kind 4 shall have.
    return [0 if code == sign and sort != 4 and not kind.storage.has_negative_zero else code for code in codes]


def _values(lines: Codes, kind: hardware.Operand) -> list[list[float]]:
    return [[number(code, kind) for code in line] for line in lines]


def _transposed(lines: list, length: int) -> list:
    return [[line[k] for line in lines] for k in range(length)]


def _bits(lines: Codes, kind: hardware.Operand) -> torch.Tensor:
    """Rows of codes as the instruction reads them, packed along the row or padded to bytes."""
    if kind.packed == 2:
        lines = [[low | high << 4 for low, high in zip(line[::2], line[1::2], strict=True)] for line in lines]
    lines = [[code << (kind.padded or 0) for code in line] for line in lines]
    return torch.tensor(lines, dtype=DTYPES[kind.container])


def _signed(kind: hardware.Operand) -> torch.dtype:
    return {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[kind.container]
