"""Blocks of floats under a power of two, or of integers under a float scale, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .block_float import Sharing
from .canonical_names import rounding_letter
from .cast import Cast
from .checks import check_int
from .errors import format_error
from .finite_float import FiniteFloatFormat
from .fixed_format import FixedFormat
from .json_fields import named_tensor_format
from .rounding import Rounding

__all__ = ["ScaledBlockFormat"]


@dataclass(frozen=True)
class ScaledBlockFormat:
    """``block_size`` consecutive elements along ``dim`` that share a scale; the last block may be shorter.

    Args:
        element: a ``FiniteFloatFormat`` without flush and absolute, with the default bias; or a cast to
            ``fixed(bits,0,symmetric)`` or ``fixed(bits,0,unbounded)`` of 2 to 24 bits.
        scaler: None for float elements; for integers the format that the scale is rounded to, not stochastic.
        block_size: elements per scale.
        dim: the dimension along which blocks lie.

    Floats: the scale is 2**(E - 2**(exponent_bits-1)) with E = floor(log2 of the largest finite magnitude), or 127 if
    that is zero. An element is grid(x / scale) * scale: only the rounding to the grid is inexact. The range of scales
    is unlimited. NaN stays, and infinities become the largest number of their block. Integers: with hi = 2**(bits-1) -
    1 and c = max|block| / hi, an element is integer(x / c) * scaler(c). Each of the three operations and the scale is
    rounded to binary32. A block with c = 0 or with a NaN stays as it is. An infinity makes the finite elements of its
    block zero and becomes NaN itself. Tensors of float64 are first rounded to binary32 (nearest even).
    Source: d-Matrix's numerical formats, docs/reference/formats.md#d-matrixs-formats.

    Raises:
        FormatError: for fields of the wrong type or out of range.

    Example:
        >>> fmt = gs.formats.ScaledBlockFormat(gs.formats.FiniteFloatFormat(2, 1), block_size=4)
        >>> gs.quantize(torch.tensor([0.1, 0.2, 0.3, 0.8]), fmt)
        tensor([0.1250, 0.1875, 0.2500, 0.7500])
    """

    element: FiniteFloatFormat | Cast
    scaler: FiniteFloatFormat | None = None
    block_size: int = 32
    dim: int = -1

    def __post_init__(self) -> None:
        high = (1 << 31) - 1
        object.__setattr__(self, "block_size", check_int("ScaledBlockFormat", "block_size", self.block_size, 1, high))
        object.__setattr__(self, "dim", check_int("ScaledBlockFormat", "dim", self.dim, -64, 63))
        if isinstance(self.element, FiniteFloatFormat):
            self._check_floats(self.element)
        else:
            self._check_integers()

    def _check_floats(self, element: FiniteFloatFormat) -> None:
        default = (1 << (element.exponent_bits - 1)) - 1
        if element.flush or element.absolute or element.bias != default or self.scaler is not None:
            raise format_error(
                f"ScaledBlockFormat: element={element}, scaler={self.scaler}",
                f"float elements with bias {default}, signed, not flushed, without a scaler",
                "Change the element, or use integers for a float scale.",
            )

    def _check_integers(self) -> None:
        fmt = self.element.format if isinstance(self.element, Cast) else None
        if not isinstance(fmt, FixedFormat) or fmt.frac or not 2 <= fmt.bits <= 24 or fmt.clamp != fmt.symmetric:
            raise format_error(
                f"ScaledBlockFormat: element={self.element!s}",
                "a FiniteFloatFormat, or a cast to fixed(bits,0,symmetric) or fixed(bits,0,unbounded) of 2 to 24 bits",
                "Try parse('SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}').",
            )
        if not isinstance(self.scaler, FiniteFloatFormat) or self.scaler.is_stochastic:
            raise format_error(
                f"ScaledBlockFormat: scaler={self.scaler!s}",
                "a FiniteFloatFormat that is not stochastic, for integers",
                "Round scales to nearest, as FP[0|4|4,7](FN) does.",
            )

    sharing = Sharing.BLOCK

    @property
    def rounding(self) -> Rounding:
        """The rounding of the elements."""
        return self.element.rounding

    @property
    def bits(self) -> int:
        """Width of an element."""
        if isinstance(self.element, FiniteFloatFormat):
            return int(self.element.bits_per_value)
        return self.element.format.bits

    @property
    def bits_per_value(self) -> float:
        """Stored bits per value, with its part of the scale."""
        return self.bits + (8 if self.scaler is None else self.scaler.bits_per_value) / self.block_size

    @property
    def is_stochastic(self) -> bool:
        """Whether the result depends on random bits."""
        return self.rounding.is_stochastic

    @property
    def name(self) -> str:
        """Canonical name; ``parse(name)`` gives this format."""
        dim = "" if self.dim == -1 else f",{self.dim}"
        block = f"{{{self.block_size}{dim}}}"
        if isinstance(self.element, FiniteFloatFormat):
            option = "" if self.rounding == Rounding.RNE else f"/{self.rounding}"
            e, m = self.element.exponent_bits, self.element.trailing_bits
            return f"MXFP{1 + e + m}[E{e}M{m}]{block}{option}"
        letter, option = rounding_letter(self.rounding)
        flags = "CS" if isinstance(self.element.format, FixedFormat) and self.element.format.clamp else "_S"
        return f"SBFP<XP[{self.bits},0]({flags}{letter})><{self.scaler}>{block}{option}"

    def __str__(self) -> str:
        return self.name

    def describe(self) -> str:
        """Elements, scale and rounding in words, one fact a line."""
        if self.scaler is None:
            scale = "a power of two that puts the block's largest magnitude into the elements' top binade"
        else:
            scale = f"the largest magnitude / {2 ** (self.bits - 1) - 1}, rounded to {self.scaler}"
        lines = [
            f"{self}: blocks of {self.block_size} consecutive elements along dimension {self.dim} with a shared scale",
            f"  {self.bits_per_value:g} bits a value; elements: {self.element}",
            f"  scale: {scale}",
            f"  elements rounded {self.rounding.describe()}",
        ]
        return "\n".join(lines)

    def words(self) -> str:
        """As an operand, in half a line."""
        return f"in {self}: one scale for {self.block_size} terms along k, elements {self.element}"

    def to_json(self) -> dict[str, object]:
        """Plain dictionary; ``from_json`` reads it back."""
        return {"kind": "scaled_block", "name": self.name}

    @classmethod
    def from_json(cls, data: Mapping[str, object] | str) -> ScaledBlockFormat:
        """Format written by ``to_json``, or named by a string; ``FormatError`` for one of another kind."""
        return named_tensor_format(cls, "scaled_block", data)
