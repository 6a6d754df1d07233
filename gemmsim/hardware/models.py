"""The arithmetic of one step, as parameters: what the functions in ``steps`` compute, and nothing about any chip.

A step consumes some products and the running addend c, and gives the next c.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CONVERSIONS",
    "Conversion",
    "FlooredSum",
    "FmaChain",
    "FusedBlock",
    "Model",
    "PairwiseTree",
    "ScaledGroups",
]


@dataclass(frozen=True)
class Conversion:
    """The one conversion at the end of a step.

    operand: the register's format. fraction_bits: how many of its fraction bits are kept. nearest: to nearest even,
    otherwise toward zero. Subnormals are kept; beyond the largest finite value lies infinity, toward zero as well;
    zero and underflow give +0.
    """

    name: str
    operand: str
    fraction_bits: int
    nearest: bool


#: rz23: binary32, toward zero. e8m13: binary32 with 13 fraction bits, toward zero. rne10: binary16, to nearest even.
CONVERSIONS: dict[str, Conversion] = {
    one.name: one
    for one in (
        Conversion("rz23", "f32", 23, False),
        Conversion("e8m13", "f32", 13, False),
        Conversion("rne10", "f16", 10, True),
        Conversion("rne23", "f32", 23, True),
        Conversion("rne52", "f64", 52, True),
    )
}


@dataclass(frozen=True)
class Model:
    """products: how many a step consumes. out: name of the conversion."""

    products: int
    out: str

    @property
    def conversion(self) -> Conversion:
        return CONVERSIONS[self.out]

    @property
    def words(self) -> str:
        """What a step does, in a phrase."""
        raise NotImplementedError


@dataclass(frozen=True)
class FusedBlock(Model):
    """All addends, c too, are cut toward zero ``kept`` (F) fraction bits below the largest exponent, then added."""

    kept: int

    @property
    def words(self) -> str:
        return f"cut at F = {self.kept} below the largest exponent, exact sum, {self.out}"


@dataclass(frozen=True)
class ScaledGroups(FusedBlock):
    """Groups of products are summed exactly, multiplied by both scale significands, and enter a fused block.

    Only the scales' exponents align; ``group``: products in a group.
    """

    group: int = 16

    @property
    def words(self) -> str:
        return f"exact sums of {self.group}, scaled, cut at F = {self.kept} below the largest exponent, {self.out}"


@dataclass(frozen=True)
class PairwiseTree(Model):
    """Products rounded to binary32, summed pairwise in binary32, the total added to c; all to nearest even.

    flush: subnormal operands and c become +0, subnormal intermediates a zero of their sign.
    """

    flush: bool = False

    @property
    def words(self) -> str:
        return f"binary32 tree of {self.products}, to nearest" + (", subnormals flushed" if self.flush else "")


@dataclass(frozen=True)
class FlooredSum(Model):
    """Products are cut toward zero ``kept`` bits below their own largest exponent and summed; total and c are floored.

    total_bits, addend_bits: fraction bits of the total and of c below the larger of both exponents.
    halves: even and odd products are summed apart and each is floored ``kept`` bits below the larger exponent of both.
    window: c is dropped if its exponent is more than that below the larger exponent; None never drops it.
    """

    kept: int = 24
    total_bits: int = 31
    addend_bits: int = 24
    halves: bool = False
    window: int | None = None

    @property
    def words(self) -> str:
        apart = ", even and odd apart" if self.halves else ""
        return f"cut at F = {self.kept}{apart}; total floored to {self.total_bits}, c to {self.addend_bits} bits; rne"


@dataclass(frozen=True)
class FmaChain(Model):
    """One fused multiply-add after the other, k ascending, to nearest even."""

    @property
    def words(self) -> str:
        return "fused multiply-adds, k ascending, to nearest"
