"""mptorch's functions that round tensors: their names, orders and defaults over ``gemmsim.quantize``.

They take float32, float64, float16 and bfloat16 of any strides, and refuse a tensor that requires grad in grad mode
(``GradError``): gradients pass straight through ``quantizer`` and ``Quantizer`` alone. Roundings are mptorch's
"nearest", "stochastic" and "truncate", and every other one of gemmsim. NaN stays NaN, infinities stay where the format
has them (fixed point that clamps and block floating point saturate), -0 and negative underflow are -0 where there is
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch import Tensor, nn

import gemmsim as gs
from gemmsim.formats import (
    Binary8Format,
    Overflow,
    PowerTie,
    Rounding,
    RoundingMode,
    SupernormalFormat,
    TensorFormat,
)
from gemmsim.ops.lazy_dynamo import assume_constant_result

from ..number import (
    Binary8,
    BinaryK,
    BlockFloatingPoint,
    FixedPoint,
    FloatingPoint,
    FormatError,
    Number,
    SuperNormalFloat,
    checked,
    read_rounding,
    supernormal_format,
)

__all__ = [
    "QuantFunction",
    "Quantizer",
    "binary8_quantize",
    "binaryK_quantize",
    "block_quantize",
    "fixed_point_quantize",
    "float_quantize",
    "make_quant_function",
    "quantizer",
    "superfp_quantize",
]


def _make_text(kind: Any, rounding: Any, rbits: int, *fields: Any) -> str:
    return str(kind(*fields).target(rounding, rbits))


_kept_text: Callable[..., str] = lru_cache(maxsize=512, typed=True)(_make_text)


def _text(kind: type[Number], rounding: Any, rbits: int, *fields: Any) -> str:
    """What ``kind(*fields)`` rounds to, by name. Kept: a sum with a function after each step calls it for each term."""
    try:
        return _kept_text(kind, rounding, rbits, *fields)
    except TypeError:  # what is no key is no format either, and the error says so
        return _make_text(kind, rounding, rbits, *fields)


def float_quantize(
    x: Tensor, exp: int, man: int, rounding: str = "stochastic", subnormals: bool = True, saturate: bool = True,
    prng: int = 0,
) -> Tensor:  # fmt: skip
    """``x`` rounded to ``FloatingPoint(exp, man, subnormals, saturate)``, with ``prng`` random bits (0: all of them).

    Example:
        >>> from gemmsim.compat.mptorch.quant import float_quantize
        >>> float_quantize(torch.tensor([0.3, 1000.0]), exp=4, man=3, rounding="nearest")
        tensor([  0.3125, 240.0000])
    """
    return gs.quantize(x, _float_target(exp, man, rounding, subnormals, saturate, prng))


# By name, and constants of compiled code, which cannot make formats.
@assume_constant_result
def _float_target(exp: int, man: int, rounding: str, subnormals: bool, saturate: bool, prng: int) -> str:
    return _text(FloatingPoint, rounding, prng, exp, man, subnormals, saturate)


def fixed_point_quantize(
    x: Tensor, wl: int, fl: int, clamp: bool = True, symmetric: bool = False, rounding: str = "stochastic",
    *, tie: str = "even",
) -> Tensor:  # fmt: skip
    """``x`` rounded to ``FixedPoint(wl, fl, clamp, symmetric)``.

    ``tie`` says where "nearest" sends ties: to the even multiple of 2**-fl ("even", as mptorch's code), or to the lower
    one ("down", as its documentation: toward minus infinity, -1.5 gives -2).

    Raises:
        FormatError: for arguments that describe no format, and for ``tie="down"`` with another rounding than "nearest".

    Example:
        >>> from gemmsim.compat.mptorch.quant import fixed_point_quantize
        >>> ties = torch.tensor([-1.5, 1.5])
        >>> [fixed_point_quantize(ties, 8, 0, rounding="nearest", tie=tie).tolist() for tie in ("even", "down")]
        [[-2.0, 2.0], [-2.0, 1.0]]
    """
    return gs.quantize(x, _fixed_target(wl, fl, clamp, symmetric, rounding, tie))


@assume_constant_result
def _fixed_target(wl: int, fl: int, clamp: bool, symmetric: bool, rounding: str, tie: str) -> str:
    if tie == "even":
        return _text(FixedPoint, rounding, 0, wl, fl, clamp, symmetric)
    cast = FixedPoint(wl, fl, clamp, symmetric, tie=tie).target(rounding)
    if cast.rounding != Rounding.RND:
        asked = f"fixed_point_quantize: tie={tie!r} with rounding={rounding!r}"
        raise FormatError(f"{asked}; allowed: rounding='nearest', others have no ties.\n  Leave tie out.")
    return str(cast)


def block_quantize(x: Tensor, wl: int, dim: int = -1, rounding: str = "stochastic") -> Tensor:
    """``x`` rounded to ``BlockFloatingPoint(wl, dim)``. Ties of "nearest" go to even.

    Example:
        >>> from gemmsim.compat.mptorch.quant import block_quantize
        >>> block_quantize(torch.tensor([[1.0, 0.3], [8.0, 0.3]]), wl=4, dim=0, rounding="nearest")
        tensor([[1.0000, 0.2500],
                [8.0000, 0.0000]])
    """
    return gs.quantize(x, _block_target(wl, dim, rounding))


@assume_constant_result
def _block_target(wl: int, dim: int, rounding: str) -> str:
    return _text(BlockFloatingPoint, rounding, 0, wl, dim)


def superfp_quantize(
    x: Tensor, exp: int, man: int, binades: Any, rounding: str = "nearest", saturate: bool = False,
    *, tie: str = "away",
) -> Tensor:  # fmt: skip
    """``x`` rounded to ``SuperNormalFloat(exp, man, binades, saturate)``.

    ``tie``: between two powers of two, "away" takes the larger one and "even_exponent" the one with the even exponent.

    Example:
        >>> from gemmsim.compat.mptorch.quant import superfp_quantize
        >>> superfp_quantize(torch.tensor([0.3, 300.0]), exp=4, man=3, binades=(1, 2))
        tensor([  0.3125, 256.0000])
    """
    return gs.quantize(x, _super_target(exp, man, binades, rounding, saturate, tie))


@assume_constant_result
def _super_target(exp: int, man: int, binades: Any, rounding: str, saturate: bool, tie: str) -> str:
    f: SupernormalFormat = SuperNormalFloat(exp, man, binades, saturate).format
    if tie not in {str(known) for known in PowerTie}:
        raise FormatError(f"superfp_quantize: tie={tie!r}; allowed: 'away', 'even_exponent'.\n  Choose one.")
    chosen = supernormal_format(exp, man, f.lower, f.upper, f.saturate, PowerTie(tie))
    return str(gs.Cast(chosen, read_rounding(rounding)))


def binary8_quantize(
    x: Tensor, P: int, rounding: str = "nearest", overflow_policy: str = "saturate_maxfloat", is_signed: bool = True,
    subnormals: bool = True, prng_bits: int = 0, *, saturate_infty: str = "coded",
) -> Tensor:  # fmt: skip
    """``x`` rounded to ``Binary8(P, is_signed, subnormals, overflow_policy)``, with ``prng_bits`` random bits.

    Stochastic with ``prng_bits=0`` truncates. ``saturate_infty``: with the policy of that name finite overflow becomes
    infinity ("coded", as in mptorch's code) or the largest value ("documented", as in its documentation).

    Raises:
        FormatError: for arguments that describe no format, for ``prng_bits`` beyond 23 - (P - 1), as in mptorch, and
            for "documented" with another policy.

    Example:
        >>> from gemmsim.compat.mptorch.quant import binary8_quantize
        >>> binary8_quantize(torch.tensor([0.3, 1e9]), P=3)
        tensor([3.1250e-01, 4.9152e+04])
    """
    number = (P, is_signed, subnormals, overflow_policy)
    return gs.quantize(x, _binary8_target(number, rounding, prng_bits, saturate_infty))


@assume_constant_result
def _binary8_target(fields: tuple[int, bool, bool, str], rounding: str, prng_bits: int, saturate_infty: str) -> str:
    number = Binary8(*fields, saturate_infty=saturate_infty)
    P = number.P
    if not 0 <= prng_bits <= 23 - (P - 1):
        asked = f"binary8_quantize: prng_bits={prng_bits!r} with P={P}"
        raise FormatError(f"{asked}; allowed: 0 to {23 - (P - 1)}.\n  Give fewer, or use gemmsim.quantize.")
    return str(number.target(rounding, prng_bits))


_SATURATION = {
    "overflow_infinity": ("extended", Overflow.INFINITY),
    "saturate_propagate": ("extended", Overflow.PROPAGATE),
    "saturate_finite": ("finite", Overflow.SATURATE),
}


def binaryK_quantize(
    x: Tensor, K: int, P: int, rounding: str = "nearest_even", saturation_mode: str = "overflow_infinity",
    is_signed: bool = True, prng_bits: int = 0, bias: int | None = None,
) -> Tensor:  # fmt: skip
    """``x`` rounded to the P3109 v4.0 format of ``K`` bits and precision ``P``.

    ``saturation_mode``: "overflow_infinity" (SatNone), "saturate_propagate" (SatPropagate), or "saturate_finite"
    (SatFinite, in the finite domain). Stochastic with ``prng_bits=0`` truncates.

    Example:
        >>> from gemmsim.compat.mptorch.quant import binaryK_quantize
        >>> binaryK_quantize(torch.tensor([0.3, 1e9]), K=8, P=4, saturation_mode="saturate_propagate")
        tensor([  0.3125, 224.0000])
    """
    return gs.quantize(x, _binary_k_target(K, P, rounding, saturation_mode, is_signed, prng_bits, bias))


@assume_constant_result
def _binary_k_target(
    K: int, P: int, rounding: str, saturation_mode: str, is_signed: bool, prng_bits: int, bias: int | None
) -> str:
    if saturation_mode not in _SATURATION:
        asked = f"binaryK_quantize: saturation_mode={saturation_mode!r}"
        raise FormatError(f"{asked}; allowed: {', '.join(_SATURATION)}.\n  Choose one of them.")
    domain, overflow = _SATURATION[saturation_mode]
    number = BinaryK(K, P, is_signed, domain, bias)
    chosen = read_rounding(rounding, prng_bits, Rounding(RoundingMode.RTZ))
    return str(gs.Cast(number.format, chosen, overflow))


@dataclass(frozen=True)
class QuantFunction:
    """A function that rounds a tensor to ``target``; a value, so that what holds it compares, copies and pickles."""

    target: gs.Cast | TensorFormat

    def __call__(self, x: Tensor) -> Tensor:
        return gs.quantize(x, self.target)


def make_quant_function(num: Number, rounding: str, prng_bits: int = 0) -> QuantFunction:
    """A function that rounds tensors to ``num``.

    Raises:
        NotImplementedError: for a value that is not a format.

    Example:
        >>> from gemmsim.compat.mptorch import FixedPoint, quant
        >>> quant.make_quant_function(FixedPoint(8, 4), "nearest")(torch.tensor([0.3, 100.0]))
        tensor([0.3125, 7.9375])
    """
    if not isinstance(num, Number) or type(num) is Number:
        raise NotImplementedError(
            f"make_quant_function of {type(num).__name__}; allowed: the formats of mptorch.number"
        )
    return QuantFunction(checked(lambda: num.target(rounding, prng_bits)))


def quantizer(
    forward_number: Number | None = None,
    backward_number: Number | None = None,
    forward_rounding: str = "stochastic",
    backward_rounding: str = "stochastic",
    clamping_grad_zero: bool = False,
    backward_hooks: Sequence[Callable[[Tensor], Tensor]] = (),
) -> Callable[[Tensor], Tensor]:
    """A function that rounds a tensor, and its gradient in the backward pass; ``None`` leaves either as it is.

    ``clamping_grad_zero``: the gradient is zero where the forward pass clamped; for ``FixedPoint`` with ``clamp``.
    ``backward_hooks``: functions of the gradient, applied in order before it is masked and rounded.

    Example:
        >>> from gemmsim.compat.mptorch import FixedPoint, quant
        >>> quant.quantizer(FixedPoint(8, 4), forward_rounding="nearest")(torch.tensor([0.3, 100.0]))
        tensor([0.3125, 7.9375])
    """
    forward = _target(forward_number, forward_rounding)
    backward = _target(backward_number, backward_rounding)
    return checked(
        lambda: gs.quantizer(
            forward, backward, clamping_grad_zero=clamping_grad_zero, backward_hooks=tuple(backward_hooks)
        )
    )


@assume_constant_result
def _target(number: Number | None, rounding: str) -> str | None:
    if number is None:
        return None
    # Binary8 with no random bits truncates in binary8_quantize; here nothing could ask for others.
    return str(number.target(rounding, 32 if isinstance(number.format, Binary8Format) else 0))


class Quantizer(gs.nn.Emulated, nn.Module):
    """``quantizer`` as a module; its roundings are "nearest" by default.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> quant.Quantizer(FloatingPoint(4, 3))(torch.tensor([0.3, 1000.0]))
        tensor([  0.3125, 240.0000])
    """

    def __init__(
        self,
        forward_number: Number | None = None,
        backward_number: Number | None = None,
        forward_rounding: str = "nearest",
        backward_rounding: str = "nearest",
    ) -> None:
        super().__init__()
        self.quantize = quantizer(forward_number, backward_number, forward_rounding, backward_rounding)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` rounded."""
        return self.quantize(x)
