"""Thirteen small products, each of which settles one parameter of the model; for the model and for silicon.

One output element; operands not named are +0. What else may come out is what a
different rule would give, so a probe that fails on a chip says which rule is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from .catalogue import instruction as find
from .operands import Operand
from .tracing import number

__all__ = ["PROBES", "Probe"]

_BF16 = "wgmma.m64n8k16.f32.bf16.bf16"
_F16 = "wgmma.m64n8k16.f32.f16.f16"
_F16_F16 = "wgmma.m64n8k16.f16.f16.f16"
_E4M3 = "wgmma.m64n8k32.f32.e4m3.e4m3"
_MMA_F16 = "mma.m16n8k16.f32.f16.f16.f32"
_NAN = float("nan")


@dataclass(frozen=True)
class Probe:
    """One set-up. terms: (k, a_k, b_k); expect: the result's code; otherwise: what another outcome means."""

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
    return _code(value, find("hopper", _BF16).operands[3])


def _half(value: float) -> tuple[float, float]:
    """Two factors of a power of two times 1 or 1.5."""
    exponent = 0
    while abs(value) < 1:
        value, exponent = value * 2, exponent + 1
    low = exponent // 2
    return value * 2.0**-low, 2.0 ** -(exponent - low)


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
        9,
        _BF16,
        [(0, 0.0, 2.0**100)],
        2.0**-60,
        0.0,
        "a zero operand has exponent -126 (its product here -26)",
        "2**-60: zero products are skipped",
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
)
