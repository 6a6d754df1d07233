"""The grids that scaled values are rounded to, as values: integers of some bits, small floats, small fixed point.

Operators carry them as strings: "int8", "int8/narrow", "uint4", "e4m3", "e2m1/toward_zero".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from gemmsim.lowering.scaled_cast_ids import TIES, GridNumbers

from .errors import BitsError, DescriptorTypeError, ElementFormatError, message

__all__ = ["ELEMENTS", "ElementGrid", "Grid", "IntegerGrid", "NumBits", "element_name", "grid_of", "integer_name"]

#: An integer number of bits, or (exponent bits, fraction bits) of a float.
NumBits: TypeAlias = int | tuple[int, int]

#: Integers beyond are not all float32 numbers, in which the arithmetic is done.
_MAX_BITS = 23


@dataclass(frozen=True)
class IntegerGrid:
    """Integers of ``num_bits`` bits: 0..2^n-1, -2^(n-1)..2^(n-1)-1, or without the lowest (``narrow_range``)."""

    num_bits: int
    unsigned: bool = False
    narrow_range: bool = True

    @property
    def high(self) -> float:
        return float(2 ** (self.num_bits - 1 + int(self.unsigned)) - 1)

    @property
    def low(self) -> float:
        if self.unsigned:
            return 0.0
        return -self.high if self.narrow_range else -self.high - 1

    @property
    def numbers(self) -> GridNumbers:
        return GridNumbers(True, self.low, self.high)

    def __str__(self) -> str:
        narrow = "/narrow" if self.narrow_range and not self.unsigned else ""
        return f"{'u' if self.unsigned else ''}int{self.num_bits}{narrow}"


@dataclass(frozen=True)
class ElementGrid:
    """Signed values n * 2^(max(e, emin) - trailing) up to ``maximum``, by magnitude; ``ties`` even, away, toward_zero.

    Fixed point is the same with ``emin`` above the largest exponent.
    """

    name: str
    trailing: int
    emin: int
    maximum: float
    ties: str = "even"

    @property
    def numbers(self) -> GridNumbers:
        return GridNumbers(False, -self.maximum, self.maximum, self.trailing, self.emin, self.ties)

    def __str__(self) -> str:
        return self.name if self.ties == "even" else f"{self.name}/{self.ties}"


Grid: TypeAlias = IntegerGrid | ElementGrid

#: Element formats by (exponent bits, fraction bits); 8 is the integer format of MX. Sources: OCP 8-bit floating point
#: rev. 1.0 (e4m3, e5m2), OCP Microscaling rev. 1.0 table 5 (e3m2, e2m3, e2m1); e3m0, e1m2, e0m3: ModelOpt, ties of
#: e3m0 away from zero.
ELEMENTS: dict[NumBits, ElementGrid] = {
    (4, 3): ElementGrid("e4m3", 3, -6, 448.0),
    (5, 2): ElementGrid("e5m2", 2, -14, 57344.0),
    (3, 2): ElementGrid("e3m2", 2, -2, 28.0),
    (2, 3): ElementGrid("e2m3", 3, 0, 7.5),
    (2, 1): ElementGrid("e2m1", 1, 0, 6.0),
    (3, 0): ElementGrid("e3m0", 0, -2, 16.0, "away"),
    (1, 2): ElementGrid("e1m2", 3, 2, 3.5),
    (0, 3): ElementGrid("e0m3", 3, 3, 7.0),
    8: ElementGrid("mxint8", 7, 7, 127.0),
}
_BY_NAME = {grid.name: grid for grid in ELEMENTS.values()}


def integer_name(owner: str, num_bits: int, unsigned: bool, narrow_range: bool) -> str:
    """Name of an integer grid; ``BitsError`` for bits that have none."""
    if isinstance(num_bits, bool) or not isinstance(num_bits, int):
        asked = f"{owner}: num_bits={num_bits!r}"
        raise DescriptorTypeError(message(asked, "an integer number of bits", "Use scaled_e4m3 for float elements."))
    least = 1 if unsigned else 2
    if not least <= num_bits <= _MAX_BITS:
        raise BitsError(
            message(
                f"{owner}: num_bits={num_bits}{' unsigned' if unsigned else ''}",
                f"{least} to {_MAX_BITS} (one signed bit leaves no value but zero)",
                "Give more bits, or unsigned=True for one.",
            )
        )
    return str(IntegerGrid(num_bits, bool(unsigned), bool(narrow_range)))


def element_name(owner: str, num_bits: NumBits, ties: str = "even", asked: str = "") -> str:
    """Name of an element grid; ``ElementFormatError`` for a pair that names none."""
    key = tuple(num_bits) if isinstance(num_bits, (tuple, list)) else num_bits
    if key not in ELEMENTS:
        known = ", ".join(map(str, ELEMENTS))
        raise ElementFormatError(
            message(f"{owner}: {asked or f'num_bits={num_bits}'}", known, "gemmsim.quantize takes any format.")
        )
    grid = ELEMENTS[key]
    if ties not in TIES:
        raise BitsError(message(f"{owner}: ties={ties!r}", ", ".join(TIES), "Leave it out for nearest even."))
    return str(grid) if ties == "even" else f"{grid.name}/{ties}"


@lru_cache(maxsize=1024)
def grid_of(name: str) -> Grid:
    """The grid that a name made by this module stands for."""
    base, _, option = name.partition("/")
    if base in _BY_NAME:
        grid = _BY_NAME[base]
        return grid if not option else ElementGrid(base, grid.trailing, grid.emin, grid.maximum, option)
    unsigned = base.startswith("u")
    return IntegerGrid(int(base.lstrip("uint")), unsigned, option == "narrow")
