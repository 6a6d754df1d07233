"""Block formats: elements that share a scale (OCP Microscaling, NVFP4), as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, TypeVar, cast

from .any_format import Format, format_from_json
from .checks import check_bool, check_int
from .errors import format_error, suggestion
from .fixed_format import FixedFormat
from .float_format import FloatFormat
from .json_fields import json_fields, read_name
from .named import E2M1, E2M3, E3M2, E4M3, E5M2, E8M0
from .rounding import Rounding, parse_rounding
from .specials import Specials

__all__ = ["BLOCK_NAMES", "BlockFormat", "BlockMode", "ScaleRule", "block_of"]

_E = TypeVar("_E", bound=Enum)
_MAX_BLOCK = (1 << 31) - 1


class ScaleRule(Enum):
    """How the scale of a block follows from its largest magnitude, amax. emax is the element format's largest exponent.

    ``FLOOR``: 2^(floor(log2 amax) - emax), the rule of OCP MX rev. 1.0. ``CEIL``: 2^(ceil(log2 amax) - emax). ``EVEN``:
    ``FLOOR`` of amax rounded half up to the element's trailing bits. ``RCEIL``: the smallest power of two that is at
    least amax * (1/max), computed in binary32, as cuBLAS does. ``NEAREST``: amax / max in binary32, rounded to the
    scale format, as for NVFP4; it is for scales that are not powers of two.

    Example:
        >>> gs.formats.parse("mxfp8_e4m3").rule, gs.formats.parse("nvfp4").rule
        (ScaleRule.FLOOR, ScaleRule.NEAREST)
    """

    FLOOR = "floor"  # 2^(floor(log2 amax) - emax): OCP MX rev. 1.0, 6.3
    CEIL = "ceil"  # 2^(ceil(log2 amax) - emax)
    EVEN = "even"  # floor, after amax was rounded half up to the element's trailing bits
    RCEIL = "rceil"  # the least power of two >= amax * (1/max) computed in binary32: cuBLAS's rule
    NEAREST = (
        "nearest"  # amax / max in binary32, rounded to the scale format: NVFP4, for scales that are no powers of two
    )

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"ScaleRule.{self.name}"


class BlockMode(Enum):
    """The software or standard that conversions to a block format follow in special cases.

    Special cases are NaN and zero blocks, for example; docs/reference/mx.md lists the differences. ``OCP`` is also
    torchao since August 2025: the two agree bit for bit.

    Example:
        >>> gs.formats.parse("mxfp8_e4m3/torchao-0.18").mode
        BlockMode.TORCHAO_0_18
    """

    OCP = "ocp"  # also torchao since 2025-08: the two agree bit for bit
    TORCHAO_0_18 = "torchao-0.18"
    TORCHAO_0_6_1 = "torchao-0.6.1"
    TORCHMX = "torchmx"
    MICROXCALING = "microxcaling"

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"BlockMode.{self.name}"


_WORDS: dict[Enum, str] = {
    ScaleRule.FLOOR: "2^(floor(log2 amax) - emax)",
    ScaleRule.CEIL: "2^(ceil(log2 amax) - emax)",
    ScaleRule.EVEN: "2^(floor(log2 r) - emax), r = amax rounded half up to the element's trailing bits",
    ScaleRule.RCEIL: "the least power of two that is at least amax * (1/max), computed in binary32",
    ScaleRule.NEAREST: "amax / max in binary32, at least the scale format's smallest normal, rounded to nearest even",
    BlockMode.OCP: "OCP MX rev. 1.0 (torchao's main branch gives the same bits)",
    BlockMode.TORCHAO_0_18: "torchao 0.18.0",
    BlockMode.TORCHAO_0_6_1: "torchao 0.6.1",
    BlockMode.TORCHMX: "torchmx 0.1.0",
    BlockMode.MICROXCALING: "microxcaling, computed in binary32",
}


@dataclass(frozen=True)
class BlockFormat:
    """Blocks of ``block_size`` values in the format ``element`` that share one scale in the format ``scale``.

    Args:
        element: a signed IEEE-like, OCP or finite float of up to 8 bits, or symmetric fixed point of up to 8 bits.
        block_size: values per scale, 1 or more. The last block of a row may be shorter.
        scale: e8m0, or a float of up to 8 bits that the scale is rounded to (``ScaleRule.NEAREST``).
        rule: how the scale follows from the largest magnitude of the block.
        rounding: of the elements: rne, rna or rtz. Elements always saturate at their largest finite value.
        tensor_scale: whether one float32 scale of the whole tensor multiplies every block scale (NVFP4).
        mode: the software or standard that special cases follow.
        flush: only for the mode of microxcaling: blocks whose amax is below 2^-126 become zeros.

    Conversions compute in binary32. A float64 input is first rounded to binary32 with round to odd, so that each
    element is rounded only once. A NaN or an infinity makes its whole block NaN. A block of zeros has scale code 0 and
    keeps the signs of its zeros. Other modes have exceptions to both rules.
    Source: OCP Microscaling Formats rev. 1.0; PTX ISA (NVFP4).

    Raises:
        FormatError: for fields of the wrong type, and for fields that do not go together.

    Example:
        >>> fmt = gs.formats.BlockFormat(gs.formats.E2M1, block_size=32)
        >>> fmt.name, fmt.bits_per_value  # 4 bits, and 8 bits of scale for 32 values
        ('mxfp4', 4.25)
    """

    element: FloatFormat | FixedFormat
    block_size: int = 32
    scale: FloatFormat = E8M0
    rule: ScaleRule = ScaleRule.FLOOR
    rounding: Rounding = Rounding.RNE
    tensor_scale: bool = False
    mode: BlockMode = BlockMode.OCP
    flush: bool = False

    def __post_init__(self) -> None:
        _check_element(self.element)
        object.__setattr__(self, "block_size", check_int("BlockFormat", "block_size", self.block_size, 1, _MAX_BLOCK))
        _check_scale(self.scale)
        object.__setattr__(self, "rule", _member(ScaleRule, "rule", self.rule))
        object.__setattr__(self, "mode", _member(BlockMode, "mode", self.mode))
        if self.rounding not in (Rounding.RNE, Rounding.RNA, Rounding.RTZ):
            raise format_error(f"BlockFormat: rounding={self.rounding!s}", "rne, rna or rtz", "Choose one of these.")
        check_bool("BlockFormat", "tensor_scale", self.tensor_scale)
        check_bool("BlockFormat", "flush", self.flush)
        self._check_together()

    def _check_together(self) -> None:
        powers = self.scale == E8M0
        if powers == (self.rule is ScaleRule.NEAREST):
            raise format_error(
                f"BlockFormat: rule {self.rule} with scale {self.scale}",
                "nearest for scales with significand bits; floor, ceil, even or rceil for e8m0",
                "Change one of the two.",
            )
        if self.tensor_scale and powers:
            raise format_error(
                "BlockFormat: tensor_scale=True with scale e8m0", "a second scale for other scale formats", "Drop it."
            )
        if self.mode is not BlockMode.OCP and not powers:
            raise format_error(
                f"BlockFormat: mode {self.mode} with scale {self.scale}", "e8m0 in this mode", "Use mode ocp."
            )
        one_rule = (BlockMode.TORCHAO_0_6_1, BlockMode.TORCHMX, BlockMode.MICROXCALING)
        if self.mode in one_rule and self.rule is not ScaleRule.FLOOR:
            raise format_error(f"BlockFormat: mode {self.mode} with rule {self.rule}", "floor in this mode", "Drop it.")
        if self.mode is BlockMode.TORCHMX and self.element == FloatFormat(3, -14, 15):
            raise format_error("BlockFormat: e5m2 in mode torchmx", "the element formats torchmx has", "Use mode ocp.")
        if self.flush and self.mode is not BlockMode.MICROXCALING:
            raise format_error(
                f"BlockFormat: flush in mode {self.mode}", "flush in mode microxcaling", "Drop it, or change the mode."
            )

    # Derived numbers

    @property
    def emax(self) -> int:
        """Exponent of the largest element value."""
        return self.element.emax if isinstance(self.element, FloatFormat) else self.element.bits - 2 - self.element.frac

    @property
    def trailing_bits(self) -> int:
        """Significand bits of the largest element value after its first."""
        return self.element.trailing_bits if isinstance(self.element, FloatFormat) else self.element.bits - 2

    @property
    def bits_per_value(self) -> float:
        """Stored bits per value: those of the element plus its part of the scale."""
        return self.element.bits + self.scale.bits / self.block_size

    # Text

    @cached_property
    def name(self) -> str:
        """Canonical name; ``parse(name)`` gives this format."""
        return _name(self)

    def __str__(self) -> str:
        return self.name

    def describe(self) -> str:
        """Elements, scale, rule, rounding and mode in words, one fact a line."""
        second = "; one float32 scale for the tensor" if self.tensor_scale else ""
        lines = [
            f"{self}: blocks of {self.block_size} {self.element} values with a shared {self.scale} scale{second}",
            f"  {self.bits_per_value:g} bits a value, elements up to {self.element.max!r}",
            f"  scale: {_WORDS[self.rule]}",
            f"  elements rounded {self.rounding.describe()}, saturating",
            f"  special cases: {_WORDS[self.mode]}" + ("; blocks below 2^-126 flushed" if self.flush else ""),
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Plain dictionary; ``from_json`` reads it back."""
        return {
            "kind": "block",
            "name": self.name,
            "element": self.element.to_json(),
            "block_size": self.block_size,
            "scale": self.scale.to_json(),
            "rule": str(self.rule),
            "rounding": self.rounding.to_json(),
            "tensor_scale": self.tensor_scale,
            "mode": str(self.mode),
            "flush": self.flush,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object] | str) -> BlockFormat:
        """Format written by ``to_json``, or named by a string.

        Raises:
            FormatError: for missing, unknown or impossible fields.
        """
        if isinstance(data, str):
            found: BlockFormat = read_name("block", data)
            return found
        optional = ("block_size", "scale", "rule", "rounding", "tensor_scale", "mode", "flush")
        fields: dict[str, Any] = json_fields("BlockFormat", "block", data, required=("element",), optional=optional)
        for key in ("element", "scale"):
            if key in fields:
                fields[key] = format_from_json(fields[key])
        if "rounding" in fields:
            fields["rounding"] = parse_rounding(fields["rounding"])
        return cls(**fields)


def _member(kind: type[_E], field: str, value: object) -> _E:
    """Member of an enumeration, given itself or its value; torchao's main branch is mode ocp."""
    text = "ocp" if value == "torchao" and kind is BlockMode else value
    try:
        return kind(text)
    except ValueError:
        known = [str(member.value) for member in kind]
        hint = suggestion(str(value), known)
        raise format_error(f"BlockFormat: {field}={value!r}", ", ".join(known), f"{hint}Choose one.") from None


def _check_element(element: object) -> None:
    if isinstance(element, FloatFormat):
        plain = element.specials in (Specials.IEEE, Specials.NAN_ONLY, Specials.NONE)
        good = element.signed and plain and element.bits <= 8 and element.has_subnormals and element.has_normals
        # The block's scale and the element's exponent together stay in binary32's range of exact products.
        good = good and -16 <= element.quantum_exponent and element.emax <= 15
    else:
        good = isinstance(element, FixedFormat) and element.symmetric and 2 <= element.bits <= 8
        good = good and isinstance(element, FixedFormat) and element.frac == element.bits - 2
    if not good:
        raise format_error(
            f"BlockFormat: element={element!s}",
            "signed floats of up to 8 bits with subnormals and exponents from -16 to 15 (e4m3, e3m2, e2m1, ...), or "
            "fixed(n,n-2,symmetric) with n from 2 to 8",
            "For integers use mxint8, mxint4 or mxint2.",
        )


def _check_scale(scale: object) -> None:
    if scale == E8M0:
        return
    good = False
    if isinstance(scale, FloatFormat):
        good = scale.signed and scale.specials in (Specials.IEEE, Specials.NAN_ONLY) and scale.bits <= 8
        good = good and scale.has_subnormals and scale.has_nan and scale.has_normals
    if not good:
        raise format_error(
            f"BlockFormat: scale={scale!s}", "e8m0, or a signed float of up to 8 bits with NaN, as e4m3", "Try 'e8m0'."
        )


def block_of(element: Format, scale: FloatFormat) -> BlockFormat:
    """Blocks of 32 under the scale's own rule, as the name mx(element,scale) without options says."""
    rule = ScaleRule.FLOOR if scale == E8M0 else ScaleRule.NEAREST
    # other kinds of elements are refused where the block format is built
    return BlockFormat(cast("FloatFormat | FixedFormat", element), scale=scale, rule=rule)


def _integer(bits: int) -> FixedFormat:
    return FixedFormat(bits, bits - 2, symmetric=True)


#: Block formats with a short name; the first name of a format is the canonical one.
BLOCK_NAMES: dict[str, BlockFormat] = {
    "mxfp8_e4m3": BlockFormat(E4M3),
    "mxfp8_e5m2": BlockFormat(E5M2),
    "mxfp6_e3m2": BlockFormat(E3M2),
    "mxfp6_e2m3": BlockFormat(E2M3),
    "mxfp4": BlockFormat(E2M1),
    "mxint8": BlockFormat(_integer(8)),
    "mxint4": BlockFormat(_integer(4)),
    "mxint2": BlockFormat(_integer(2)),
    "nvfp4": BlockFormat(E2M1, 16, E4M3, ScaleRule.NEAREST),
    "mxfp8": BlockFormat(E4M3),
    "mxfp4_e2m1": BlockFormat(E2M1),
}
_BASES: list[tuple[str, BlockFormat]] = []
for _key, _format in BLOCK_NAMES.items():
    if all(_format != known for _, known in _BASES):
        _BASES.append((_key, _format))


def _name(fmt: BlockFormat) -> str:
    """Shortest name that ``parse_block`` turns back into ``fmt``."""
    scale = "" if fmt.scale == E8M0 else f",{fmt.scale}"
    general = (f"mx({fmt.element}{scale})", block_of(fmt.element, fmt.scale))
    same = (entry for entry in _BASES if (fmt.element, fmt.scale) == (entry[1].element, entry[1].scale))
    name, base = next(same, general)
    options = [
        f"b{fmt.block_size}" if fmt.block_size != base.block_size else "",
        str(fmt.rule) if fmt.rule is not base.rule else "",
        str(fmt.rounding) if fmt.rounding != base.rounding else "",
        "tensor" if fmt.tensor_scale else "",
        str(fmt.mode) if fmt.mode is not base.mode else "",
        "flush" if fmt.flush else "",
    ]
    return "/".join([name, *(option for option in options if option)])
