"""Floating-point formats as values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from . import float_codec
from .bit_layout import Layout, layout_of, top_exponent
from .canonical_names import default_bias, float_name
from .checks import as_fraction, check_bool, check_enumerable, check_int, exact_float, number_text
from .describe import describe_float
from .errors import format_error
from .json_fields import json_fields
from .specials import Specials, parse_specials
from .tensor_codec import check_scalar_arguments, decode_tensor, encode_tensor, is_tensor

if TYPE_CHECKING:
    from .tensor_codec import Tensor
    from .tensor_codec import dtype as torch_dtype

__all__ = ["FloatFormat"]

#: float64 is the widest carrier: largest exponent, exponent of its smallest subnormal, precision.
_CARRIER_EMAX, _CARRIER_QUANTUM, _CARRIER_P = 1023, -1074, 53
#: P3109 formats of up to 16 bits reach exponents near +-2^15; a custom bias may shift them as far again.
_P3109_EXPONENT = 1 << 17


@dataclass(frozen=True, init=False, repr=False)
class FloatFormat:
    """Floating-point numbers of precision ``p`` with exponents ``emin`` to ``emax``.

    Args:
        p: precision in bits, the implicit bit included, 1 to 53.
        emin: exponent of the smallest normal number.
        emax: exponent of the largest finite number; independent of ``emin``. ``emax = emin - 1`` is a format of
            subnormals only (e1mY), for IEEE-like specials.
        specials: the codes of infinities and NaN. They decide what the top binade holds, with ``p``, ``emin``,
            ``emax``.
        signed: whether negative numbers exist.
        subnormals: whether numbers between 0 and 2**emin exist.
        max, min: the largest and lowest finite value, optional; they are checked against the derived ones.

    Values are ``s * 2**(e-p+1)`` with integers ``|s| < 2**p`` and ``emin <= e <= emax``, without the codes that
    ``specials`` reserves. float64 holds all of them exactly, except in P3109 formats with ``fits_float64`` false.

    Raises:
        FormatError: for fields that describe no format.

    Example:
        >>> gs.formats.FloatFormat(p=11, emin=-14, emax=15).name, gs.formats.FP16.max
        ('e5m10', 65504.0)
    """

    p: int
    emin: int
    emax: int
    specials: Specials = Specials.IEEE
    signed: bool = True
    subnormals: bool = True

    def __init__(
        self,
        p: int,
        emin: int,
        emax: int,
        specials: Specials = Specials.IEEE,
        signed: bool = True,
        subnormals: bool = True,
        *,
        max: float | None = None,
        min: float | None = None,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "p", check_int("FloatFormat", "p", p, 1, _CARRIER_P))
        set_field(self, "emin", check_int("FloatFormat", "emin", emin, -_P3109_EXPONENT, _P3109_EXPONENT))
        set_field(self, "emax", check_int("FloatFormat", "emax", emax, -_P3109_EXPONENT, _P3109_EXPONENT))
        if not isinstance(specials, Specials):
            names = ", ".join(f"Specials.{member.name}" for member in Specials)
            raise format_error(f"FloatFormat: specials={specials!r}", names, "Import Specials from gemmsim.formats.")
        set_field(self, "specials", specials)
        set_field(self, "signed", check_bool("FloatFormat", "signed", signed))
        set_field(self, "subnormals", check_bool("FloatFormat", "subnormals", subnormals))
        self._check_combination()
        set_field(self, "_layout", layout_of(self.p, self.emin, self.emax, specials, signed))
        set_field(self, "_hash", hash((self.p, self.emin, self.emax, specials.value, signed, subnormals)))
        self._check_stated_range(max, min)

    def _check_combination(self) -> None:
        """``FormatError`` for fields that are possible one by one but not together."""
        fields = f"FloatFormat: p={self.p}, emin={self.emin}, emax={self.emax}, specials={self.specials}"
        subnormals_only = self.emax == self.emin - 1
        if self.emax < self.emin and not (subnormals_only and self.specials is Specials.IEEE):
            raise format_error(
                fields,
                "emax >= emin (or emax = emin-1 for IEEE-like e1mY)",
                "emax is the exponent of the largest value.",
            )
        if subnormals_only and (self.p == 1 or not self.subnormals):
            raise format_error(
                f"{fields}, subnormals={self.subnormals} has no value but zero",
                "emax = emin-1 with p >= 2 and subnormals",
                "Give the exponent field two bits or more (e2m1), or keep subnormals.",
            )
        if self.specials is Specials.FNUZ and not self.signed:
            raise format_error(
                f"{fields}, signed=False", "signed fnuz only: its NaN is the code of -0", "Use NAN_ONLY."
            )
        if self.specials is Specials.SCALE and (self.p != 1 or self.signed or not self.subnormals):
            raise format_error(
                f"{fields}, signed={self.signed}, subnormals={self.subnormals}",
                "p=1, signed=False, subnormals=True for scale formats (bare powers of two, no zero)",
                "Use Specials.NAN_ONLY or Specials.NONE for a format with significand bits, a sign or zero.",
            )
        if not (self.specials.is_p3109 or self.fits_float64):
            raise format_error(
                fields,
                f"emax <= {_CARRIER_EMAX} and emin-p+1 >= {_CARRIER_QUANTUM}, so that float64 holds every value",
                "Narrow the exponent range.",
            )

    def _check_stated_range(self, max_value: float | None, min_value: float | None) -> None:
        """``FormatError`` if a stated ``max`` or ``min`` is not the derived one: catches a misread convention."""
        for name, stated, derived in (("max", max_value, self.max_fraction), ("min", min_value, self.min_fraction)):
            if stated is not None and as_fraction("FloatFormat", stated) != derived:
                raise format_error(
                    f"FloatFormat: {name}={stated!r} for {self}",
                    f"{name}={number_text(derived)}, which p, emin, emax and specials give",
                    f"Leave {name} out, or change the other fields.",
                )

    @classmethod
    def from_widths(
        cls,
        exponent_bits: int,
        trailing_bits: int,
        specials: Specials = Specials.IEEE,
        *,
        bias: int | None = None,
        signed: bool = True,
        subnormals: bool = True,
    ) -> FloatFormat:
        """The format with an exponent field of ``exponent_bits`` bits, fully used, and ``trailing_bits`` bits below it.

        ``bias`` defaults to the family's own. With w = exponent_bits it is 2^(w-1) for fnuz and P3109 (where w = K-P
        signed, K-P+1 unsigned), and one less for the others.

        Raises:
            FormatError: for widths or a bias that give no format.

        Example:
            >>> gs.formats.FloatFormat.from_widths(5, 2).max, gs.formats.FloatFormat.from_widths(5, 2, bias=20).max
            (57344.0, 1792.0)
        """
        width = check_int("FloatFormat", "exponent_bits", exponent_bits, 1, 16)
        p = check_int("FloatFormat", "trailing_bits", trailing_bits, 0, _CARRIER_P - 1) + 1
        if bias is None:
            bias = default_bias(width, specials)
        bias = check_int("FloatFormat", "bias", bias, -_P3109_EXPONENT // 2, _P3109_EXPONENT // 2)
        emin = -bias if specials is Specials.SCALE else 1 - bias
        return cls(p, emin, top_exponent(width, p, emin, specials, signed), specials, signed, subnormals)

    # Layout

    @property
    def trailing_bits(self) -> int:
        """t = p - 1, the stored significand bits."""
        return self.p - 1

    @property
    def exponent_bits(self) -> int:
        """Width of the exponent field: the fewest bits that hold emax and the special codes."""
        return self._get_layout().exponent_bits

    @property
    def bits(self) -> int:
        """Width of a code: sign, exponent field and trailing bits."""
        return int(self.signed) + self.exponent_bits + self.trailing_bits

    @property
    def bias(self) -> int:
        """Exponent field of a normal number minus its exponent."""
        return -self.emin if self.specials is Specials.SCALE else 1 - self.emin

    @property
    def fills_exponent_field(self) -> bool:
        """Whether emax is the largest that ``exponent_bits`` allows, so that the widths describe the format."""
        return self._get_layout().full

    @property
    def max_code(self) -> int:
        """Code of the largest finite value."""
        return self._get_layout().max_code

    @property
    def ties_by_code(self) -> bool:
        """Whether "even" in ties-to-even and to-odd is the parity of the code, not of the integer significand.

        Both agree for p > 1. For p = 1 every significand is 1, and P3109 (v4.0) and scale formats look at the code.
        """
        return self.specials.is_p3109 or self.specials is Specials.SCALE

    def _get_layout(self) -> Layout:
        layout: Layout = self.__dict__["_layout"]
        return layout

    # What exists

    @property
    def has_inf(self) -> bool:
        """Whether the format holds an infinity."""
        return self.specials in (Specials.IEEE, Specials.P3109_EXTENDED)

    @property
    def has_nan(self) -> bool:
        """Whether the format holds a NaN; an IEEE-like format needs a trailing bit for it."""
        return self.specials is not Specials.NONE and (self.specials is not Specials.IEEE or self.p > 1)

    @property
    def has_negative_zero(self) -> bool:
        """Whether -0 and +0 have different codes."""
        return self.signed and self.specials in (Specials.IEEE, Specials.NAN_ONLY, Specials.NONE)

    @property
    def has_zero(self) -> bool:
        """Whether zero is a value; only scale formats (e8m0) lack it."""
        return self.specials is not Specials.SCALE

    @property
    def has_subnormals(self) -> bool:
        """Whether there are values between 0 and 2**emin."""
        return self.subnormals and self.p > 1

    @property
    def has_normals(self) -> bool:
        """Whether there are values from 2**emin up; false for e1mY."""
        return self.emax >= self.emin

    @property
    def fits_float64(self) -> bool:
        """Whether float64 holds every finite value; false for some wide P3109 formats, see ``decode_exact``."""
        return self.emax <= _CARRIER_EMAX and self.quantum_exponent >= _CARRIER_QUANTUM

    # Range and spacing; the names are those of torch.finfo

    @property
    def quantum_exponent(self) -> int:
        """Exponent of the spacing of subnormals, emin - p + 1."""
        return self.emin - self.p + 1

    @cached_property
    def max_fraction(self) -> Fraction:
        """Largest finite value, exact."""
        return float_codec.finite_fraction(self, self.max_code)

    @cached_property
    def min_fraction(self) -> Fraction:
        """Lowest finite value, exact: ``-max`` if signed, else 0, or 2**emin where there is no zero."""
        return -self.max_fraction if self.signed else float_codec.finite_fraction(self, 0)

    @cached_property
    def max(self) -> float:
        """Largest finite value. ``FormatError`` if float64 does not hold it."""
        return float_codec.finite_float(self, self.max_code)

    @cached_property
    def min(self) -> float:
        """Lowest finite value: ``-max`` if signed, else 0.0, or 2**emin where there is no zero."""
        return -self.max if self.signed else float_codec.finite_float(self, 0)

    @property
    def smallest_normal(self) -> float:
        """2**emin. In e1mY, which has no normal numbers, this is the bound that its values stay below."""
        return exact_float(str(self), 1, self.emin)

    @property
    def tiny(self) -> float:
        """``smallest_normal``, under the name torch.finfo also gives it."""
        return self.smallest_normal

    @property
    def smallest_subnormal(self) -> float:
        """Smallest positive value: 2**(emin-p+1), or 2**emin for a format without subnormals."""
        return exact_float(str(self), 1, self.quantum_exponent if self.has_subnormals else self.emin)

    @property
    def eps(self) -> float:
        """Spacing just above 1: 2**(1-p), or the spacing of the subnormals where 1 is one of them (e1mY)."""
        return math.ldexp(1.0, max(self.emin, 0) - self.p + 1)

    @property
    def resolution(self) -> float:
        """10**-d for the d decimal digits that p bits always keep."""
        return float(f"1e-{int((self.p - 1) * math.log10(2))}")

    # Codes

    @overload
    def decode(self, code: int) -> float: ...

    @overload
    def decode(self, code: Tensor, *, dtype: torch_dtype | None = None) -> Tensor: ...

    def decode(self, code: Any, *, dtype: Any = None) -> Any:
        """The value of ``code``: a finite number, -0.0, an infinity or NaN.

        A tensor of integers gives the tensor of values, in ``dtype``. The default is float32 where that holds every
        value of the format, and float64 otherwise. Integers of the format's own width are read as bits; their dtype may
        be signed or unsigned.

        Raises:
            FormatError: for a code that is out of range or unused, and for a value that float64 does not hold.
            DTypeError: for a tensor that is not of integers, and for a ``dtype`` that does not hold every value.

        Example:
            >>> gs.formats.E4M3.decode(0x7E)
            448.0
            >>> gs.formats.E4M3.decode(torch.tensor([0x38, 0xB8, 0x7F], dtype=torch.uint8))
            tensor([ 1., -1., nan])
        """
        if is_tensor(code):
            return decode_tensor(self, code, dtype)
        check_scalar_arguments(self, dtype=dtype)
        return float_codec.decode(self, code)

    def decode_exact(self, code: int) -> Fraction | None:
        """The finite value of ``code`` as a Fraction (-0 is 0); None for the codes of infinities and NaN.

        Raises:
            FormatError: for a code that is out of range or unused.

        Example:
            >>> gs.formats.E4M3.decode_exact(0x01)
            Fraction(1, 512)
        """
        return float_codec.decode_exact(self, code)

    @overload
    def encode(self, value: float | Fraction) -> int: ...

    @overload
    def encode(
        self, value: Tensor, *, rounding: object = None, overflow: object = None, seed: int | None = None
    ) -> Tensor: ...

    def encode(self, value: Any, *, rounding: Any = None, overflow: Any = None, seed: int | None = None) -> Any:
        """The code of ``value``, which must be a value of the format: this rounds nothing. ``gemmsim.quantize`` rounds.

        NaN gives the canonical NaN (IEEE-like: positive, quiet). -0.0 gives the code of 0 where the format has no -0.

        A tensor (float32, float64, float16, bfloat16; any strides and device) gives the tensor of codes. Their dtype is
        uint8 for up to 8 bits; otherwise it is the narrowest of int16, int32 and int64 that holds the codes as numbers
        (64 bits: two's complement), since PyTorch computes little with wider unsigned integers. With ``rounding`` or
        ``overflow``, and ``seed`` for random bits, values are rounded to the same bits as by ``gemmsim.quantize``.
        Without them, tensors are not rounded either.

        Raises:
            FormatError: for a value that the format does not hold; the message names its neighbours or the range. For a
                tensor also for NaN where the format has none, with any rounding.
            DTypeError, SeedError: for tensors and seeds that ``gemmsim.quantize`` refuses.

        Example:
            >>> hex(gs.formats.E4M3.encode(448.0))
            '0x7e'
            >>> gs.formats.E4M3.encode(torch.tensor([0.3, 1000.0]), rounding="rne", overflow="sat")
            tensor([ 42, 126], dtype=torch.uint8)
        """
        if is_tensor(value):
            return encode_tensor(self, value, rounding, overflow, seed)
        check_scalar_arguments(self, rounding=rounding, overflow=overflow, seed=seed)
        code = float_codec.encode_or_none(self, value)
        if code is None:
            allowed = float_codec.neighbour_text(self, value)
            raise format_error(f"{self}: {value!r} is not one of its values", allowed, "Round with quantize first.")
        return code

    def is_representable(self, value: float | Fraction) -> bool:
        """Whether ``encode`` accepts ``value``.

        Example:
            >>> gs.formats.E4M3.is_representable(17.0), gs.formats.E4M3.is_representable(18.0)
            (False, True)
        """
        return float_codec.encode_or_none(self, value) is not None

    def codes(self) -> list[int]:
        """All codes in use, ascending: those of finite values, infinities and every NaN.

        Raises:
            FormatError: for formats of more than 24 bits.

        Example:
            >>> len(gs.formats.E4M3.codes()), len(gs.formats.E4M3.values())  # two NaN, and zero twice
            (256, 253)
        """
        check_enumerable(str(self), self.bits)
        return float_codec.codes(self)

    def values(self) -> list[float]:
        """All finite values, ascending, with zero once.

        Raises:
            FormatError: for formats of more than 24 bits, or with values that float64 does not hold.

        Example:
            >>> gs.formats.E2M1.values()[7:]
            [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
        """
        check_enumerable(str(self), self.bits)
        return float_codec.values(self)

    # Text

    @cached_property
    def name(self) -> str:
        """Canonical name; ``parse(name)`` gives this format."""
        return float_name(self)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        fields = [f"p={self.p}", f"emin={self.emin}", f"emax={self.emax}", f"specials=Specials.{self.specials.name}"]
        fields += [] if self.signed else ["signed=False"]
        fields += [] if self.subnormals else ["subnormals=False"]
        if self.fits_float64:
            fields += [f"max={self.max!r}", f"min={self.min!r}"]
        return f"FloatFormat({', '.join(fields)})"

    def __hash__(self) -> int:
        cached: int = self.__dict__["_hash"]
        return cached

    def __reduce__(self) -> tuple[type[FloatFormat], tuple[int, int, int, Specials, bool, bool]]:
        # Not the instance dictionary: cached hashes of strings differ between processes.
        return FloatFormat, (self.p, self.emin, self.emax, self.specials, self.signed, self.subnormals)

    def describe(self) -> str:
        """Range, spacing, special values and layout in words, on several lines.

        Example:
            >>> print(gs.formats.E2M1.describe())
            e2m1: 4-bit finite float
              1 sign + 2 exponent + 1 trailing significand bits (p = 2), bias 1, emin 0, emax 2
              max 6, min -6, eps 2^-1 = 0.5
              smallest normal 1, smallest subnormal 2^-1 = 0.5
              no infinity, no NaN, +0 and -0
              beyond max without saturation: the largest value
        """
        return describe_float(self)

    def to_json(self) -> dict[str, object]:
        """The name and the fields as a plain dictionary; ``from_json`` reads it back.

        Example:
            >>> list(gs.formats.E2M1.to_json())
            ['kind', 'name', 'p', 'emin', 'emax', 'specials', 'signed', 'subnormals']
        """
        return {
            "kind": "float",
            "name": self.name,
            "p": self.p,
            "emin": self.emin,
            "emax": self.emax,
            "specials": self.specials.value,
            "signed": self.signed,
            "subnormals": self.subnormals,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> FloatFormat:
        """The format written by ``to_json``. Only the fields count; ``name`` is for the reader.

        Raises:
            FormatError: for missing, unknown or impossible fields.

        Example:
            >>> gs.formats.FloatFormat.from_json(gs.formats.E2M1.to_json()) == gs.formats.E2M1
            True
        """
        fields = json_fields(
            "FloatFormat", "float", data, required=("p", "emin", "emax"), optional=("specials", "signed", "subnormals")
        )
        if "specials" in fields:
            fields["specials"] = parse_specials(fields["specials"])
        return cls(**fields)
