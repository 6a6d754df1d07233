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
    "ExactSum",
    "FusedBlock",
    "LEAST_EXPONENT",
    "Model",
    "PairwiseTree",
    "ScaledGroups",
    "TwoBlocks",
]

#: The least exponent of a product of two binary32 numbers other than zero: what no smaller one is raised to.
LEAST_EXPONENT = -252


@dataclass(frozen=True)
class Conversion:
    """The one conversion at the end of a step.

    operand: the accumulator's format. fraction_bits: how many of its fraction bits are kept. nearest: to nearest even,
    otherwise toward zero. Subnormals are kept. A result beyond the largest finite value becomes infinity, with
    truncation too. A sum of zero gives +0. A sum that is rounded to zero gives +0 as well, or with ``signed`` a zero of
    its sign.

    Example:
        >>> one = gs.hardware.CONVERSIONS["e8m13"]
        >>> one.operand, one.fraction_bits, one.nearest
        ('f32', 13, False)
    """

    name: str
    operand: str
    fraction_bits: int
    nearest: bool
    signed: bool = False


#: rz23: binary32, toward zero. e8m13: binary32 with 13 fraction bits, toward zero. rne10: binary16, to nearest even.
#: rne23 and rne52: binary32 and binary64, to nearest even, as IEEE 754 has them.
CONVERSIONS: dict[str, Conversion] = {
    one.name: one
    for one in (
        Conversion("rz23", "f32", 23, False),
        Conversion("e8m13", "f32", 13, False),
        Conversion("rne10", "f16", 10, True),
        Conversion("rne23", "f32", 23, True, signed=True),
        Conversion("rne52", "f64", 52, True, signed=True),
    )
}


@dataclass(frozen=True)
class Model:
    """The base class of the models of one step. products: products per step. out: name of the conversion.

    Example:
        >>> model = gs.hardware.largest("hopper", "wgmma", "e4m3").model
        >>> model.products, model.out, isinstance(model, gs.hardware.Model)
        (32, 'e8m13', True)
    """

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
    """All addends, c too, are truncated ``kept`` (F) fraction bits below the largest exponent, then added exactly.

    Addends that are zero have no exponent. The largest exponent counts as ``least`` if it is smaller or there is none.

    Example:
        >>> gs.hardware.largest("hopper", "wgmma", "e4m3").model
        FusedBlock(products=32, out='e8m13', kept=13, least=-133)
    """

    kept: int
    least: int = LEAST_EXPONENT

    @property
    def words(self) -> str:
        return f"{self._cut}, exact sum, {self.out}"

    @property
    def _cut(self) -> str:
        least = "" if self.least == LEAST_EXPONENT else f" (at least {self.least})"
        return f"truncated F = {self.kept} bits below the largest exponent{least}"


@dataclass(frozen=True)
class TwoBlocks(FusedBlock):
    """Products of binary16 numbers whose k mod 4 is 0 or 1, then the others: two fused blocks, the first from +0.

    c is added last, by one addition to nearest even in the accumulator's format.

    Example:
        >>> gs.hardware.largest("hopper", "mma", "e4m3").model
        TwoBlocks(products=32, out='rz23', kept=25, least=-133)
    """

    @property
    def words(self) -> str:
        return (
            "operands converted to binary16; k mod 4 in {0, 1}, then {2, 3}, starting from +0, "
            f"each {self._cut}, exact sum, {self.out}; then c is added, rounded to nearest"
        )


@dataclass(frozen=True)
class ScaledGroups(FusedBlock):
    """Groups of products are summed exactly, multiplied by both scale significands, and enter a fused block.

    Only the exponents of the scales decide the alignment, of groups with a product and scales other than zero.
    ``group``: products in a group.

    Example:
        >>> gs.hardware.largest("blackwell", "mxf4nvf4", "e2m1").model.group
        16
    """

    group: int = 16

    @property
    def words(self) -> str:
        return f"exact sums of {self.group}, scaled, {self._cut}, {self.out}"


@dataclass(frozen=True)
class ExactSum(Model):
    """The products and c are summed exactly and rounded once.

    Example:
        >>> gs.hardware.largest("cdna1", "mfma", "bf16").model
        ExactSum(products=2, out='rne23')
    """

    @property
    def words(self) -> str:
        return f"exact sum with the accumulator, one rounding, {self.out}"


@dataclass(frozen=True)
class PairwiseTree(Model):
    """Products are rounded to binary32, summed pairwise in binary32, and the total is added to c; all to nearest even.

    Subnormal operands and c become +0, subnormal intermediate results a zero of their sign.

    Example:
        >>> gs.hardware.largest("cdna2", "mfma", "bf16").model
        PairwiseTree(products=4, out='rne23')
    """

    @property
    def words(self) -> str:
        return f"binary32 tree of {self.products} products, rounded to nearest, subnormals flushed"


@dataclass(frozen=True)
class FlooredSum(Model):
    """Products are truncated ``kept`` bits below their own largest exponent and summed; total and c are floored.

    Products that are zero have no exponent; c has at least -126, that of zero and of subnormals.

    total_bits, addend_bits: fraction bits of the total and of c below the larger of both exponents. The sum of these
    two is floored to ``sum_bits`` fraction bits below its own exponent (at least -126) before it is converted. halves:
    even and odd products are summed separately, and each sum is floored ``kept`` bits below the larger exponent of
    both. window: c is dropped if its exponent is more than that below the larger exponent; None never drops it.

    Example:
        >>> gs.hardware.largest("cdna3", "mfma", "e4m3fnuz").model.halves
        True
    """

    kept: int = 24
    total_bits: int = 32
    addend_bits: int = 24
    halves: bool = False
    window: int | None = None

    @property
    def sum_bits(self) -> int:
        """Fraction bits of the sum."""
        return self.total_bits - 1

    @property
    def words(self) -> str:
        apart = ", even and odd products separately" if self.halves else ""
        floors = f"sum floored to {self.total_bits} bits, c to {self.addend_bits}, their total to {self.sum_bits}"
        return f"truncated at F = {self.kept} bits{apart}; {floors}; rne"


@dataclass(frozen=True)
class FmaChain(Model):
    """A sequential chain of fused multiply-adds, k ascending, to nearest even.

    Example:
        >>> [one.name for one in gs.hardware.instructions("cdna1") if isinstance(one.model, gs.hardware.FmaChain)][:2]
        ['mfma.f32_32x32x2f32', 'mfma.f32_32x32x1f32']
    """

    @property
    def words(self) -> str:
        return "fused multiply-adds, k ascending, to nearest"
