"""What instructions read and write: a number format, how many bits hold it, and which of them are looked at."""

from __future__ import annotations

from dataclasses import dataclass

from ..formats import FloatFormat, FormatError, parse_scalar
from ..formats.errors import shown
from .errors import hardware_error

__all__ = ["OPERANDS", "Operand", "operand", "operand_for", "twin_of"]


@dataclass(frozen=True)
class Operand:
    """A number format as an instruction stores it.

    name: the vendors' word, as in instruction names. format: the values; for tf32 and xf32 those that are left after
    the truncation. storage: the format whose codes are stored; its exponent field is that of ``format``. width: bits of
    one element. packed: elements in a byte (2 for e2m1, low nibble first). padded: bits of a byte below an element of
    fewer bits; the bits above it are ignored, too. dropped: low bits of the stored code that the instruction clears
    first (truncation toward zero). signed: False where the sign bit is ignored (ue4m3) or absent (ue8m0).

    Example:
        >>> tf32 = gs.hardware.OPERANDS["tf32"]
        >>> tf32.width, tf32.dropped, str(tf32.format)  # a float32 without its low 13 bits
        (32, 13, 'e8m10')
    """

    name: str
    format: FloatFormat
    storage: FloatFormat
    width: int
    packed: int = 1
    dropped: int = 0
    signed: bool = True
    padded: int | None = None

    @property
    def container(self) -> int:
        """Bits of one entry of a tensor of raw bits."""
        return self.width * self.packed if self.padded is None else 8

    @property
    def fraction_bits(self) -> int:
        """Stored bits below the hidden bit."""
        return self.storage.p - 1


def _float(name: str) -> FloatFormat:
    format = parse_scalar(name)
    assert isinstance(format, FloatFormat)
    return format


def _plain(name: str, format: str, width: int) -> Operand:
    return Operand(name, _float(format), _float(format), width)


def _cut(name: str) -> Operand:
    """A binary32 word whose low 13 bits are cleared: 10 fraction bits remain."""
    return Operand(name, _float("tf32"), _float("fp32"), 32, dropped=13)


#: Every operand and scale format that the tables name.
OPERANDS: dict[str, Operand] = {
    one.name: one
    for one in (
        _plain("f64", "fp64", 64),
        _plain("f32", "fp32", 32),
        _cut("tf32"),
        _cut("xf32"),
        _plain("f16", "fp16", 16),
        _plain("bf16", "bf16", 16),
        _plain("e4m3", "e4m3", 8),
        _plain("e5m2", "e5m2", 8),
        _plain("e4m3fnuz", "e4m3fnuz", 8),
        _plain("e5m2fnuz", "e5m2fnuz", 8),
        Operand("e3m2", _float("e3m2"), _float("e3m2"), 6, padded=0),
        Operand("e2m3", _float("e2m3"), _float("e2m3"), 6, padded=0),
        Operand("e2m1", _float("e2m1"), _float("e2m1"), 4, packed=2),
        Operand("ue4m3", _float("e4m3"), _float("e4m3"), 8, signed=False),
        Operand("ue8m0", _float("e8m0"), _float("e8m0"), 8, signed=False),
    )
}


_E2M1_IN_BYTES = Operand("e2m1", _float("e2m1"), _float("e2m1"), 4, padded=2)


def operand(name: str, in_bytes: bool = False) -> Operand:
    """The operand of that name, one in a byte where ``in_bytes``.

    ``KeyError`` is a fault of the tables, since users name instructions.
    """
    return _E2M1_IN_BYTES if in_bytes and name == "e2m1" else OPERANDS[name]


#: What NVIDIA's and AMD's chips have in each other's place.
_TWINS = (("e4m3", "e4m3fnuz"), ("e5m2", "e5m2fnuz"), ("tf32", "xf32"))


def twin_of(format: object) -> str | None:
    """The operand that the other vendor's chips have instead of ``format`` (a name or a format); None if there is none.

    The pairs are e4m3 and e4m3fnuz, e5m2 and e5m2fnuz, tf32 and xf32.

    Example:
        >>> gs.hardware.twin_of("e4m3"), gs.hardware.twin_of("bf16")
        ('e4m3fnuz', None)
    """
    name = format.strip().lower() if isinstance(format, str) else ""
    try:
        values = parse_scalar(name) if name and name not in OPERANDS else format
    except FormatError:
        return None
    for one, other in (*_TWINS, *((b, a) for a, b in _TWINS)):
        if name == one or (name not in OPERANDS and values == OPERANDS[one].format):
            return other
    return None


def operand_for(format: object, known: tuple[str, ...], owner: str = "", hint: str = "") -> str:
    """Which of the operands ``known`` holds ``format`` (a name, ours or the vendors', or a ``FloatFormat``).

    Raises:
        HardwareError: if none does; it says whose operands these are (``owner``) and what to do (``hint``).
        FormatError: if it is no format at all, or no float.
    """
    if isinstance(format, str) and format.strip().lower() in known:
        return format.strip().lower()
    if isinstance(format, str):
        format = parse_scalar(format)
    if not isinstance(format, FloatFormat):
        asked = f"{shown(str(format))} is no floating-point format"
        raise FormatError(f"{asked}; allowed: the name of one, or a FloatFormat.\n  Try 'e4m3'.")
    for name in known:
        if OPERANDS[name].format == format:
            return name
    asked = f"{owner} does not take operand format {format}" if owner else f"operand format {format}"
    raise hardware_error(asked, ", ".join(known), hint or "Choose one of these.")
