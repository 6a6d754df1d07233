"""microxcaling's ``mx.formats``: element formats by name, and their parameters."""

from __future__ import annotations

from enum import Enum, IntEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

__all__ = ["ElemFormat", "RoundingMode", "_get_format_params", "_get_max_norm", "_get_min_norm"]

FP32_EXPONENT_BIAS = 127
FP32_MIN_NORMAL = 2.0**-126


class RoundingMode(IntEnum):
    """Roundings with microxcaling's numbers. ``nearest`` has ties away from zero; ``floor`` rounds toward zero.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.RoundingMode.string_enums()
        ['nearest', 'floor', 'even']
    """

    nearest = 0
    floor = 1
    even = 2

    @staticmethod
    def string_enums() -> list[str]:
        """The names."""
        return [mode.name for mode in RoundingMode]


class ElemFormat(Enum):
    """Element formats with microxcaling's numbers; ``fp4``, ``fp16`` and ``bf16`` are second names.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.ElemFormat.from_str("fp4")
        <ElemFormat.fp4: 8>
    """

    int8 = 1
    int4 = 2
    int2 = 3
    fp8_e5m2 = 4
    fp8_e4m3 = 5
    fp6_e3m2 = 6
    fp6_e2m3 = 7
    fp4 = 8
    fp4_e2m1 = 8
    float16 = 9
    fp16 = 9
    bfloat16 = 10
    bf16 = 10

    @staticmethod
    def from_str(s: str) -> ElemFormat:
        """The format named ``s``; upper and lower case are the same.

        Raises:
            AssertionError: for None.
            Exception: for an unknown name.
        """
        if s is None:
            raise AssertionError("String elem_format == None")
        try:
            return ElemFormat[s.lower()]
        except KeyError:
            raise Exception(
                "Undefined elem format", s.lower(), f"allowed: {', '.join(ElemFormat.__members__)}"
            ) from None


ElemFormatLike: TypeAlias = "ElemFormat | str"


class Parameters(NamedTuple):
    """``mbits`` counts sign and leading bit; integers have no exponent bits."""

    ebits: int
    mbits: int
    emax: int
    max_norm: float
    min_norm: float


_BITS = {
    ElemFormat.int8: (0, 8, 0),
    ElemFormat.int4: (0, 4, 0),
    ElemFormat.int2: (0, 2, 0),
    ElemFormat.fp8_e5m2: (5, 4, 15),
    ElemFormat.fp8_e4m3: (4, 5, 8),
    ElemFormat.fp6_e3m2: (3, 4, 4),
    ElemFormat.fp6_e2m3: (2, 5, 2),
    ElemFormat.fp4: (2, 3, 2),
    ElemFormat.float16: (5, 12, 15),
    ElemFormat.bfloat16: (8, 9, 127),
}


def _get_min_norm(ebits: int) -> float:
    return 0.0 if ebits == 0 else 2.0 ** (2 - 2 ** (ebits - 1))


def _largest(emax: int, mbits: int) -> float:
    return 2.0**emax * (2 ** (mbits - 1) - 1) / 2 ** (mbits - 2)


def _get_max_norm(ebits: int, mbits: int) -> float:
    """Largest finite value of an IEEE-like format; ``AssertionError`` for those of fewer than five exponent bits."""
    if ebits < 5:
        raise AssertionError("invalid for floats that don't define NaN")
    return _largest(2 ** (ebits - 1) - 1, mbits)


@lru_cache(maxsize=64)
def _get_format_params(fmt: ElemFormatLike) -> Parameters:
    kind = ElemFormat.from_str(fmt) if isinstance(fmt, str) else fmt
    ebits, mbits, emax = _BITS[kind]
    # the code with all significand bits is OCP e4m3's NaN
    largest = 448.0 if kind is ElemFormat.fp8_e4m3 else _largest(emax, mbits)
    return Parameters(ebits, mbits, emax, largest, _get_min_norm(ebits))
