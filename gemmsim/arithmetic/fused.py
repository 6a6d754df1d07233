"""The fused step of a matrix unit with every parameter free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gemmsim.hardware.step_parameters import LEAST_EXPONENT

from ..formats import FP32, Cast, FloatFormat, FormatError, Overflow, Rounding, parse_scalar
from ..formats.errors import shown
from ..hardware.operands import OPERANDS
from .accumulator import register
from .argument_kinds import CAST, FORMAT, IntKind, argument, optional
from .errors import SpecFormatError, spec_error
from .exact_sum import ExactProducts
from .residue import FIRST, check_first, fill_words

__all__ = ["Fused"]

#: The instructions clear these low bits of their operands, which rounds toward zero.
_CUT_OPERANDS = {one.format for one in OPERANDS.values() if one.dropped}


class _KeptKind(IntKind):
    """Bits kept below the largest exponent, or ``exact`` (None) for all."""

    def read(self, value: object, owner: str, name: str) -> int | None:  # type: ignore[override]
        if value is None or (isinstance(value, str) and value.strip().lower() in ("exact", "none")):
            return None
        try:
            return super().read(value, owner, name)
        except ValueError:
            allowed = f"an integer from {self.low} to {self.high}, or exact"
            raise spec_error(f"{owner}: {name}={shown(value)}", allowed, f"Give {name} as {allowed}.") from None

    def text(self, value: object) -> str:
        return "exact" if value is None else str(value)

    def json(self, value: object) -> object:
        return "exact" if value is None else value


@register("fused")
@dataclass(frozen=True, repr=False)
class Fused(ExactProducts):
    """The steps of a matrix unit, n terms each: ``D = R_out(T(C) + sum of n T(a_k * b_k))``, C from +0.

    A step takes n products and the accumulator C, k ascending. E is their largest exponent, and ``T`` truncates each of
    them, toward zero, to a multiple of ``2^(E - kept)``. The sum of the truncated numbers is exact and is rounded once.
    The exponent of a product is the sum of its operands' exponents, not that of the normalised product. The exponent of
    a subnormal number is the ``emin`` of its format (``a``, ``b``, ``out``). Addends that are zero have no exponent. E
    is at least ``least``. K is padded with zeros to a multiple of n; K = 0 gives +0.

    Args:
        n: products of a step, 1 to 64.
        kept: fraction bits kept below E, 1 to 60. None ("exact" in text) truncates nothing: one rounding of the exact
            sum.
        out: the accumulator's format and the rounding of each step; a float format whose values binary32 holds.
        a, b: operand formats, likewise; b defaults to a. Operands are cast to them first, to nearest even; to tf32
            toward zero, as instructions do, which clear the low bits.
        least: the least value of E, -252 to 127; None for no such limit. Not with ``kept`` None, which truncates
            nothing.
        first: a multiple of n. The K mod ``first`` terms that come first are padded with zeros to this number, and the
            accumulator continues over the rest: the residue tile of CUTLASS. None pads the last step instead.

    The rows "truncated F bits below the largest exponent" of ``gemmsim.hardware.table()`` are instances: ``hw(hopper,
    wgmma, e4m3)`` is ``fused(32, 13, e8m13/rtz, a=e4m3, least=-133)``.

    Any NaN operand, 0 * infinity and infinities of both signs give NaN; other infinities stay, as ``out`` casts them.
    A result past the largest finite value becomes what infinity is in ``out``, also where the rounding is toward zero,
    unless ``out`` saturates. Zero results are +0.

    Raises:
        SpecError: for numbers outside these ranges, a stochastic rounding, and formats that binary32 does not hold.

    Source: arXiv:2511.10909 (the model), docs/reference/hardware.md#one-step.

    Example:
        >>> a = torch.tensor([[256.0, 0.01, 0.01]])
        >>> gs.qmatmul(a, torch.ones(3, 1), gs.arithmetic.Fused(4, 13, a="fp16"))  # keeps multiples of 2**-5
        tensor([[256.]])
    """

    n: int = field(metadata=argument(IntKind(1, 64)))
    kept: int | None = field(metadata=argument(_KeptKind(1, 60)))
    out: Cast = field(default=Cast(FP32, Rounding.RTZ), metadata=argument(CAST))
    a: str = field(default="fp32", kw_only=True, metadata=argument(FORMAT))
    b: str | None = field(default=None, kw_only=True, metadata=argument(optional(FORMAT)))
    least: int | None = field(default=None, kw_only=True, metadata=argument(optional(IntKind(LEAST_EXPONENT, 127))))
    first: int | None = field(default=None, kw_only=True, metadata=argument(optional(FIRST)))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out.is_stochastic:
            raise spec_error(
                f"fused: out={self.out}, which uses random bits",
                "a deterministic rounding (rne, rna, rtz, ru, rd, ro)",
                "Choose one, or round partial sums stochastically: chunked(n, fused(...), fp32/sr8).",
            )
        if self.kept is None and self.least is not None:
            raise spec_error(
                f"fused: kept=exact with least={self.least}",
                "least with a number of kept bits",
                "Leave least out: kept=exact truncates nothing.",
            )
        check_first(self, self.n)
        _check_format("out", self.out.format)
        for name in ("a", "b"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(_operand_format(name, getattr(self, name))))
        if self.b == self.a:
            object.__setattr__(self, "b", None)

    @property
    def operand_formats(self) -> tuple[FloatFormat, FloatFormat]:
        """Of a and b."""
        a = _operand_format("a", self.a)
        return a, a if self.b is None else _operand_format("b", self.b)

    @property
    def operand_casts(self) -> tuple[Cast, Cast]:
        """To the operand formats, to nearest even, or toward zero where instructions clear low bits."""
        a, b = self.operand_formats
        return _operand_cast(a), _operand_cast(b)

    def transposed(self) -> Fused:
        """With the operand formats exchanged."""
        return self if self.b is None else replace(self, a=self.b, b=self.a)

    def casts(self) -> Iterator[Cast]:
        """``out``."""
        yield self.out

    @property
    def add_cast(self) -> Cast:
        """``out``."""
        return self.out

    @property
    def is_unbounded_past_the_end(self) -> bool:
        """Whether a result past the largest finite value becomes what infinity is in ``out``, in every rounding."""
        return self.out.overflow is Overflow.INFINITY

    def explain_lines(self) -> list[tuple[str, str]]:
        """Step, conversion and order in words."""
        products = "1 product" if self.n == 1 else f"{self.n} products"
        least = "" if self.least is None else f" (at least {self.least})"
        cut = (
            "nothing truncated"
            if self.kept is None
            else f"truncated F = {self.kept} bits below the largest exponent{least}"
        )
        past = "; larger results become infinity" if self.out.format.has_inf else ""
        end = past if self.is_unbounded_past_the_end else ""
        return [
            ("product", "exact"),
            ("each step", f"{products} and the accumulator: {cut}, exact sum, one rounding"),
            ("rounding", f"{self.out.words()}{end}"),
            ("order", f"steps for k ascending from +0; {fill_words(self.first, self.n)}"),
        ]


def _operand_format(name: str, text: str) -> FloatFormat:
    try:
        return _check_format(name, parse_scalar(text))
    except FormatError as error:
        raise SpecFormatError(f"fused, {name}: {error}") from error


def _check_format(name: str, fmt: object) -> FloatFormat:
    """``fmt``, a signed float format with a zero whose normals and subnormals are numbers of binary32."""
    if isinstance(fmt, FloatFormat) and fmt.signed and fmt.has_zero:
        inside = fmt.emin >= FP32.emin and fmt.quantum_exponent >= FP32.quantum_exponent
        if inside and fmt.p <= FP32.p and fmt.max_fraction <= FP32.max_fraction:
            return fmt
    raise spec_error(
        f"fused: {name}={fmt}",
        "a signed float format whose values binary32 holds, such as fp32, bf16, fp16, e4m3, e8m13",
        f"Choose one for {name}.",
    )


def _operand_cast(fmt: FloatFormat) -> Cast:
    return Cast(fmt, Rounding.RTZ if fmt in _CUT_OPERANDS else Rounding.RNE)
