"""d-Matrix's formats of single numbers: what all formats share, Same, FixedPoint and FloatingPoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim.formats import Cast, FiniteFloatFormat, FixedFormat, Rounding, TensorFormat

from . import departures
from .shorthand import ROUNDING_MODE, fields_of

__all__ = ["FixedPoint", "FloatingPoint", "Format", "Same"]

_ROUNDINGS = {"nearest": Rounding.RNE, "up": Rounding.RU, "down": Rounding.RD, "stochastic": Rounding.SR}


def refuse(asked: str, allowed: str, do: str) -> ValueError:
    """The error of a format that does not exist."""
    return ValueError(f"{asked}; allowed: {allowed}.\n  {do}")


def check_number(owner: str, name: str, value: object, low: int, high: int | None) -> int:
    """``value`` as an integer from ``low`` to ``high``; ``ValueError`` for others."""
    inside = isinstance(value, int) and not isinstance(value, bool) and value >= low and (high is None or value <= high)
    if not inside:
        allowed = f"an integer from {low} to {high}" if high is not None else f"an integer of {low} or more"
        raise refuse(f"{owner}: {name}={value!r}", allowed, f"Change {name}.")
    assert isinstance(value, int)
    return value


def check_rounding(owner: str, rounding: str) -> str:
    """``rounding`` if it is one of the four words."""
    if rounding not in _ROUNDINGS:
        raise refuse(f"{owner}: rounding={rounding!r}", ", ".join(_ROUNDINGS), "Try 'nearest'.")
    return rounding


class Format(ABC):
    """A number format that tensors are cast to. Formats compare and hash by their shorthand, and can be pickled.

    Abstract: your own format defines ``cast``. ``str(format)`` is also the operand format of a ``gemmsim.GemmSpec``:
    ``f"{fmt} : fp32"``; so is ``operand``.

    Example:
        >>> from gemmsim.compat import dmx
        >>> fmt = dmx.Format.from_shorthand("BFP[8|8]{64}(SN)")
        >>> gs.GemmSpec.parse(f"{fmt} : fp32"), fmt.bit_precision
        (GemmSpec.parse('bfp(8,64,inf) : e8m23'), 8.125)
    """

    blocked: ClassVar[bool] = False
    bfp_id: int | None = None

    @abstractmethod
    def cast(
        self, x: Tensor, *args: Any, bug_compatible: bool = False, generator: torch.Generator | None = None
    ) -> Any:
        """``x`` in this format, a new float32 tensor."""
        raise NotImplementedError(f"{type(self).__name__}.cast: the base class has no values. Use one of its formats.")

    @property
    def bytes_per_elem(self) -> float | None:
        """Stored bytes for each element."""
        raise NotImplementedError(f"{type(self).__name__}.bytes_per_elem: use one of the formats.")

    @property
    def bit_precision(self) -> float | None:
        """Stored bits for each element."""
        raise NotImplementedError(f"{type(self).__name__}.bit_precision: use one of the formats.")

    @property
    def operand(self) -> Cast | TensorFormat | None:
        """As an operand of ``gemmsim.GemmSpec`` or a format of ``gemmsim.quantize``; None for no rounding."""
        return None

    @staticmethod
    def from_shorthand(sh: str) -> Format:
        """The format that a shorthand names; ``from_shorthand(repr(f)) == f``.

        Raises:
            ValueError: for text outside the grammar, and for numbers out of range.
        """
        from .blocks import MXFP, MXINT, BlockFloatingPoint, ScaledBlockFloatingPoint

        kind, fields = fields_of(sh)
        if kind == "SBFP":
            parts = {name: Format.from_shorthand(fields.pop(name)) for name in ("block_format", "scaler_format")}
            return ScaledBlockFloatingPoint(**parts, **fields)  # type: ignore[arg-type]
        if kind == "MXFP":
            flush = fields.pop("flush_subnormal")
            element = FloatingPoint(fields.pop("mantissa"), fields.pop("exponent"), flush_subnormal=flush)
            return MXFP(element, **fields)
        kinds = {"SAME": Same, "XP": FixedPoint, "FP": FloatingPoint, "BFP": BlockFloatingPoint, "MXINT": MXINT}
        return kinds[kind](**fields)

    def __str__(self) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Format.from_shorthand, (repr(self),)


def quantized(x: Tensor, target: Cast | TensorFormat, generator: torch.Generator | None) -> Tensor:
    """``x`` as float32, rounded, without a gradient. Random bits come from ``generator``."""
    seed = None
    if generator is not None and target.is_stochastic:
        seed = int(torch.randint(0, 2**63 - 1, (), generator=generator))
    return gs.quantize(x.detach().float(), target, seed=seed)


def check_cast(owner: str, x: Tensor, rounding: str, bug_compatible: bool) -> None:
    """``TypeError`` unless ``x`` is a float tensor; ``ValueError`` for stochastic rounding with ``bug_compatible``."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = str(x.dtype) if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"{owner}.cast of {kind}; allowed: float tensors.\n  Use x.float().")
    if bug_compatible and rounding == "stochastic":
        raise refuse(
            f"{owner}.cast: bug_compatible=True with stochastic rounding",
            "nearest, up and down: the peer's draws cannot be repeated",
            "Leave bug_compatible out.",
        )


class Same(Format):
    """No rounding.

    Example:
        >>> from gemmsim.compat import dmx
        >>> dmx.Same().cast(torch.tensor([0.3]))
        tensor([0.3000])
    """

    def cast(
        self, x: Tensor, *args: Any, bug_compatible: bool = False, generator: torch.Generator | None = None
    ) -> Any:
        """A clone of ``x``."""
        return x.clone()

    @property
    def bytes_per_elem(self) -> None:
        """None: that of the input."""
        return None

    @property
    def bit_precision(self) -> None:
        """None: that of the input."""
        return None

    def __repr__(self) -> str:
        return "SAME"


class FixedPoint(Format):
    """Integers of ``precision`` bits times 2**-fraction.

    Args:
        precision: 1 to 24.
        fraction: binary places; negative for multiples of powers of two.
        clamp: values beyond the largest, including infinities, become the largest. Without it the grid has no bounds.
        symmetric: without the lowest integer -2**(precision-1).
        rounding: nearest (ties to even), up, down or stochastic.

    Raises:
        ValueError: for numbers out of range.

    Example:
        >>> from gemmsim.compat import dmx
        >>> dmx.FixedPoint(8, 4), dmx.FixedPoint(8, 4).cast(torch.tensor([0.3, 100.0]))
        (XP[8,+4](CSN), tensor([0.3125, 7.9375]))
    """

    def __init__(
        self, precision: int, fraction: int, clamp: bool = True, symmetric: bool = True, rounding: str = "nearest"
    ) -> None:
        self.precision = check_number("FixedPoint", "precision", precision, 1, 24)
        self.fraction = check_number("FixedPoint", "fraction", fraction, -126, 149)
        self.clamp, self.symmetric = bool(clamp), bool(symmetric)
        self.rounding = check_rounding("FixedPoint", rounding)

    def cast(
        self, x: Tensor, *args: Any, bug_compatible: bool = False, generator: torch.Generator | None = None
    ) -> Any:
        """``x`` on this grid, float32. NaN stays; zero is +0. ``bug_compatible``: ties as in dmx-compressor.

        Raises:
            TypeError: for tensors that are not float.
            ValueError: for ``bug_compatible`` with a stochastic rounding.
        """
        check_cast("FixedPoint", x, self.rounding, bug_compatible)
        if bug_compatible:
            fields = self.precision, self.fraction, self.clamp, self.symmetric, self.rounding
            return departures.fixed_point(x.float(), *fields)
        return quantized(x, self.operand, generator)

    @property
    def operand(self) -> Cast:
        """The cast to ``gemmsim.formats.FixedFormat``."""
        fmt = FixedFormat(self.precision, self.fraction, symmetric=self.clamp and self.symmetric, clamp=self.clamp)
        return Cast(fmt, _ROUNDINGS[self.rounding])

    @property
    def bytes_per_elem(self) -> float:
        """precision / 8."""
        return self.precision / 8

    @property
    def bit_precision(self) -> float:
        """``precision``."""
        return float(self.precision)

    def __repr__(self) -> str:
        fraction = f"{self.fraction:+d}" if self.fraction else "0"
        flags = ("C" if self.clamp else "_") + ("S" if self.symmetric else "_")
        return f"XP[{self.precision},{fraction}]({flags}{ROUNDING_MODE.inverse[self.rounding]})"


class FloatingPoint(Format):
    """Floats without codes for infinity and NaN.

    Args:
        mantissa: significand bits after the leading one, 0 to 23.
        exponent: 1 to 8.
        bias: -128 + 2**exponent to 127, exactly 127 for eight exponent bits; None is 2**(exponent-1) - 1.
        flush_subnormal: magnitudes below 2**(1-bias) become zero before they are rounded.
        unsigned: the absolute value is returned.
        rounding: nearest (ties to even), up, down or stochastic.

    Raises:
        ValueError: for numbers out of range.

    Example:
        >>> from gemmsim.compat import dmx
        >>> dmx.FloatingPoint(3, 4), dmx.FloatingPoint(3, 4).cast(torch.tensor([0.7, 1000.0]))
        (FP[1|4|3,7](FN), tensor([  0.6875, 480.0000]))
    """

    def __init__(
        self,
        mantissa: int = 23,
        exponent: int = 8,
        bias: int | None = None,
        flush_subnormal: bool = True,
        unsigned: bool = False,
        rounding: str = "nearest",
    ) -> None:
        self.mantissa = check_number("FloatingPoint", "mantissa", mantissa, 0, 23)
        self.exponent = check_number("FloatingPoint", "exponent", exponent, 1, 8)
        bias = (1 << (exponent - 1)) - 1 if bias is None else bias
        low = 127 if exponent == 8 else -128 + (1 << exponent)
        self.bias = check_number("FloatingPoint", "bias", bias, low, 127)
        self.flush_subnormal, self.unsigned = bool(flush_subnormal), bool(unsigned)
        self.rounding = check_rounding("FloatingPoint", rounding)

    def cast(
        self, x: Tensor, *args: Any, bug_compatible: bool = False, generator: torch.Generator | None = None
    ) -> Any:
        """``x`` in this format, float32; float32 as FLOAT32 and float16 as FP[1|5|10,15](_N) is returned as it is.

        Values beyond the largest number become it, including infinities (infinity with eight exponent bits). NaN stays;
        zero is +0. ``bug_compatible``: the bits of dmx-compressor 0.1.11, docs/reference/compat/dmx.md.

        Raises:
            TypeError: for tensors that are not float.
            ValueError: for ``bug_compatible`` with another rounding than nearest, or 23 bits of mantissa.
        """
        check_cast("FloatingPoint", x, self.rounding, bug_compatible)
        if repr(self) == {torch.float32: "FP[1|8|23,127](_N)", torch.float16: "FP[1|5|10,15](_N)"}.get(x.dtype):
            return x
        if not bug_compatible:
            return quantized(x, self.operand, generator)
        if self.rounding != "nearest" or self.mantissa == 23:
            raise refuse(
                f"{self}.cast: bug_compatible=True",
                "rounding to nearest, and a mantissa of 22 bits or fewer: the peer refuses others or returns no values",
                "Leave bug_compatible out.",
            )
        y = departures.floating_point(
            x.float(), self.mantissa, self.exponent, self.bias, self.flush_subnormal, departures.EVEN
        )
        return y.abs() if self.unsigned else y

    @property
    def operand(self) -> FiniteFloatFormat:
        """The ``gemmsim.formats.FiniteFloatFormat``."""
        fields = self.exponent, self.mantissa, self.bias, self.flush_subnormal, self.unsigned
        return FiniteFloatFormat(*fields, rounding=_ROUNDINGS[self.rounding])

    @property
    def largest_representable_power_of_two(self) -> float:
        """2**(2**(exponent-1)), whatever the bias."""
        return 2.0 ** (1 << (self.exponent - 1)) if self.exponent < 8 else float(1 << 128)

    @property
    def bytes_per_elem(self) -> float:
        """(mantissa + exponent + 1) / 8, also without a sign."""
        return (self.mantissa + self.exponent + 1) / 8

    @property
    def bit_precision(self) -> float:
        """mantissa + exponent, and 1 for a sign."""
        return float(self.mantissa + self.exponent + (0 if self.unsigned else 1))

    def __repr__(self) -> str:
        flush = "F" if self.flush_subnormal else "_"
        rounding = ROUNDING_MODE.inverse[self.rounding]
        return f"FP[{int(not self.unsigned)}|{self.exponent}|{self.mantissa},{self.bias}]({flush}{rounding})"
