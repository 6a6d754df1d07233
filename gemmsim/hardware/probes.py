"""Small products, each of which settles one parameter of the model; for the model and for silicon.

One output element; operands not named are +0. What else may come out is what a different rule would give, so a probe
that differs on a chip says which rule is wrong. ``UNDECIDED``: those that no recorded output of a chip has settled.
"""

from __future__ import annotations

from dataclasses import dataclass

from .catalogue import instruction as find
from .operands import OPERANDS, Operand
from .tracing import number

__all__ = ["PROBES", "UNDECIDED", "Probe"]

_BF16 = "wgmma.m64n8k16.f32.bf16.bf16"
_F16 = "wgmma.m64n8k16.f32.f16.f16"
_F16_F16 = "wgmma.m64n8k16.f16.f16.f16"
_E4M3 = "wgmma.m64n8k32.f32.e4m3.e4m3"
_MMA_F16 = "mma.m16n8k16.f32.f16.f16.f32"
_NAN = float("nan")


@dataclass(frozen=True)
class Probe:
    """One test product for a chip. terms: (k, a_k, b_k); expect: the result's code; otherwise: what other results mean.

    Example:
        >>> probe = gs.hardware.PROBES[0]
        >>> probe.instruction, probe.terms, probe.expected_value
        ('wgmma.m64n8k32.f32.e4m3.e4m3', ((0, -1.0, 1.0), (1, 0.015625, 0.0078125)), 0.0001220703125)
    """

    number: int
    arch: str
    instruction: str
    terms: tuple[tuple[int, float, float], ...]
    c: float
    expect: int
    question: str
    otherwise: str
    length: int | None = None

    @property
    def k(self) -> int:
        """Length of the dot: one instruction, unless ``length`` says more."""
        return self.length or find(self.arch, self.instruction).k

    def codes(self) -> tuple[list[int], list[int], int]:
        """a, b (k codes each) and the code of c."""
        a_kind, b_kind, c_kind, _ = find(self.arch, self.instruction).operands
        a, b = [0] * self.k, [0] * self.k
        for k, x, y in self.terms:
            a[k], b[k] = _code(x, a_kind), _code(y, b_kind)
        return a, b, _code(self.c, c_kind)

    @property
    def expected_value(self) -> float:
        """The result that the model gives, as a number."""
        return number(self.expect, find(self.arch, self.instruction).operands[3])


def _code(value: float, kind: Operand) -> int:
    return kind.storage.encode(value)


def _f32(value: float) -> int:
    return OPERANDS["f32"].storage.encode(value)


def _f16(value: float) -> int:
    return OPERANDS["f16"].storage.encode(value)


def _half(value: float) -> tuple[float, float]:
    """Two factors of a power of two times 1 or 1.5."""
    exponent = 0
    while abs(value) < 1:
        value, exponent = value * 2, exponent + 1
    low = exponent // 2
    return value * 2.0**-low, 2.0 ** -(exponent - low)


def _undecided(
    n: int,
    name: str,
    terms: list[tuple[int, float, float]],
    c: float,
    expect: int,
    ask: str,
    other: str,
    arch: str = "hopper",
) -> Probe:
    return Probe(n, arch, name, tuple(terms), c, expect, ask, other)


def _p(k: int, value: float) -> tuple[int, float, float]:
    return (k, *_half(value))


def _probe(
    n: int, name: str, terms: list[tuple[int, float, float]], c: float, expect: float, ask: str, other: str
) -> Probe:
    arch = "hopper"
    return Probe(n, arch, name, tuple(terms), c, _f32(expect), ask, other)


_MINUS_ONE = (0, -1.0, 1.0)
_PLUS_ONE = (0, 1.0, 1.0)
_F_25 = "fraction bits kept below the largest exponent: 25"
_F_13 = "fraction bits kept below the largest exponent: 13"

_MMA_F16_F16 = "mma.m16n8k16.f16.f16.f16.f16"
_MMA_BF16 = "mma.m16n8k16.f32.bf16.bf16.f32"
_MMA_E4M3, _MMA_E4M3_F16 = "mma.m16n8k32.f32.e4m3.e4m3.f32", "mma.m16n8k32.f16.e4m3.e4m3.f16"
_M8N8K4 = "mma.m8n8k4.f32.f16.f16.f32"
_ZERO, _LEAST = "zero addends have no exponent", "the largest exponent counts as at least"
_TINY = [(0, 2.0**-12, 2.0**-13), (1, 2.0**-20, 2.0**-21)]

#: What no recorded output has settled, by mma.sync, whose C can be given; those of one number belong together.
UNDECIDED: tuple[Probe, ...] = (
    _undecided(
        9, _MMA_BF16, [(0, 0.0, 2.0**100)], 2.0**-60, _f32(2.0**-60), _ZERO, "0: a zero operand has exponent -126"
    ),
    _undecided(
        9,
        _MMA_F16_F16,
        [(0, 2.0**-12, 2.0**-13), (1, 2.0**-23, 2.0**-24)],
        0.0,
        0,
        f"{_LEAST} -21 in binary16",
        "2**-24: no such limit",
    ),
    _undecided(
        9,
        _MMA_BF16,
        [(k, 2.0**-76, 2.0**-76) for k in range(8)],
        0.0,
        _f32(2.0**-149),
        f"{_LEAST} -133 in binary32",
        "0: a zero c has exponent -126",
    ),
    _undecided(
        14,
        _MMA_F16_F16,
        _TINY,
        2.0**-23,
        _f16(2.0**-23),
        "a subnormal binary16 c aligns with exponent -14",
        "3 * 2**-24: by its own exponent",
    ),
    _undecided(
        15,
        _M8N8K4,
        [(0, -1.0, 1.0), _p(1, 2.0**-24)],
        1.0,
        0,
        "fraction bits kept below the largest exponent by Turing's m8n8k4: 23, as on Volta",
        "2**-24: 24, as by its m16n8k8",
        "turing",
    ),
    _undecided(
        16,
        _MMA_E4M3,
        [(0, 1.0, 1.0)],
        2.0**-24 + 2.0**-40,
        _f32(1.0 + 2.0**-23),
        "FP8 by mma.sync: c is added last, to nearest",
        "1: c is cut like a product, or the sum toward zero",
    ),
    _undecided(
        16,
        _MMA_E4M3,
        [(0, 256.0, 256.0), (1, -256.0, 256.0), _p(2, 2.0**-12)],
        0.0,
        _f32(2.0**-12),
        "FP8 by mma.sync: products with k mod 4 in {0, 1} are a step of their own",
        "0: others are in the same step",
    ),
    _undecided(
        16,
        _MMA_E4M3_F16,
        [(0, 256.0, 256.0), (1, -256.0, 256.0), (2, 256.0, 256.0), (3, -256.0, 256.0)],
        1.0,
        _f16(1.0),
        "FP8 by mma.sync: a block of two and two in four overflows by its sum alone",
        "NaN or infinity: products are added one by one",
    ),
)

#: The probes; those of one number belong together.
PROBES: tuple[Probe, ...] = (
    _probe(1, _E4M3, [_MINUS_ONE, _p(1, 2.0**-13)], 1.0, 2.0**-13, _F_13, "0: F < 13"),
    _probe(2, _E4M3, [_MINUS_ONE, _p(1, 2.0**-14)], 1.0, 0.0, _F_13, "2**-14: F >= 14"),
    _probe(3, _BF16, [_MINUS_ONE, _p(1, 2.0**-25)], 1.0, 2.0**-25, _F_25, "0: F < 25"),
    _probe(3, _BF16, [_MINUS_ONE, _p(1, 2.0**-26)], 1.0, 0.0, _F_25, "2**-26: F >= 26"),
    _probe(3, _F16, [_MINUS_ONE, _p(1, 2.0**-25)], 1.0, 2.0**-25, _F_25, "0: F < 25"),
    _probe(3, _F16, [_MINUS_ONE, _p(1, 2.0**-26)], 1.0, 0.0, _F_25, "2**-26: F >= 26"),
    _probe(4, _BF16, [_p(0, 2.0**-24), _p(1, 2.0**-25)], 1.0, 1.0, "conversion truncates", "1 + 2**-23: it rounds"),
    _probe(
        5,
        _BF16,
        [_p(0, 1.5 * 2.0**-25), (1, 1.0, 1.0)],
        -1.0,
        2.0**-25,
        "alignment truncates",
        "2**-24: to nearest at alignment",
    ),
    _probe(
        6,
        _BF16,
        [_MINUS_ONE, _p(1, -1.5 * 2.0**-25)],
        1.0,
        -(2.0**-25),
        "alignment cuts toward zero",
        "-2**-24: it floors",
    ),
    _probe(7, _E4M3, [], 1.0 + 2.0**-14, 1.0, "e8m13 register: low 10 bits cut", "c unchanged: not e8m13"),
    _probe(
        8,
        _BF16,
        [(0, 1.5, 1.5), (1, -1.5, 1.5), _p(2, 2.0**-25)],
        0.0,
        2.0**-25,
        "products are not normalised before alignment",
        "0: they are",
    ),
    _probe(
        10,
        _MMA_F16,
        [_PLUS_ONE, (15, -1.0, 1.0), _p(1, 2.0**-25)],
        0.0,
        2.0**-25,
        "one step of 16",
        "0: two steps of 8 with F = 24, as on Ampere",
    ),
    _probe(11, _BF16, [(k, -0.0, 1.0) for k in range(16)], -0.0, 0.0, "zero results are +0", "-0: signs are kept"),
    Probe(12, "hopper", _BF16, ((0, _NAN, 1.0),), 0.0, 0x7FFFFFFF, "one NaN code", "payload kept"),
    Probe(12, "hopper", _F16_F16, ((0, _NAN, 1.0),), 0.0, 0x7FFF, "one NaN code", "payload kept"),
    Probe(
        13,
        "hopper",
        _E4M3,
        (_PLUS_ONE, (63, -1.0, 1.0), _p(40, 2.0**-13)),
        0.0,
        _f32(2.0**-13),
        "instructions follow each other along K, D of one is C of the next",
        "0: another order, or the sum is kept apart",
        length=64,
    ),
    *UNDECIDED,
)
