"""mptorch's classes that say how an operation is computed, as values of gemmsim's own classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

import gemmsim as gs
from gemmsim import acc
from gemmsim.arithmetic import Accumulator, GemmSpec, SpecError

from ..number import Number
from .quantizers import QuantFunction, make_quant_function

__all__ = ["QAffineFormats", "QGELUFormats", "QLayerNormFormats", "QSoftmaxFormats", "identity"]

Quant = Callable[[Tensor], Tensor] | tuple[Number, str] | str | gs.Cast | None

_NOT_BY_LOGARITHMS = ("fwd_exp", "fwd_acc")
_SCALED = ("weight_scaled_format", "input_scaled_format", "grad_scaled_format")


def identity(x: Tensor) -> Tensor:
    """``x``: the default of every quantiser."""
    return x


def native_quant(quant: Any, rbits: int = 0) -> Any:
    """A quantiser as gemmsim's functions take it: a cast where it is known to be one, else the function."""
    if quant is None or quant is identity:
        return None
    if isinstance(quant, tuple) and len(quant) == 2 and isinstance(quant[0], Number):
        return make_quant_function(quant[0], quant[1], rbits).target
    if isinstance(quant, QuantFunction):
        return quant.target
    return quant


def native_cast(step: Any, rounding: Any, rbits: int = 0) -> Any:
    """A step's format with the rounding of its direction; what is none of mptorch's formats as it is."""
    return step.step(rounding or "nearest", rbits) if isinstance(step, Number) else step


def native_format(number: Any) -> Any:
    """The value set of a format."""
    return number.format if isinstance(number, Number) else number


def accumulator_of(add: Any, mul: Any, accumulate: str | Accumulator, compensated: object = False) -> Accumulator:
    """The accumulator of rounded sums and products; ``mul`` None for fused ones.

    ``accumulate``: "sequential", "chunk(n)" (n terms from zero, totals added in order: mptorch's CUDA kernels are
    "chunk(8)", also called "mptorch_cuda"), "kahan", "tree" (adjacent pairs), or an accumulator, which is taken as is.
    """
    if isinstance(accumulate, Accumulator):
        return accumulate
    name = accumulate.replace(" ", "")
    name = "chunk(8)" if name == "mptorch_cuda" else name
    if compensated or name == "kahan":
        return acc.kahan(add, mul)
    inner = acc.sequential(add, mul)
    if name == "sequential":
        return inner
    if name == "tree":
        return acc.pairwise(inner)
    length = name.removeprefix("chunk(").removesuffix(")")
    if name != f"chunk({length})" or not length.isdecimal():
        allowed = "'sequential', 'chunk(n)', 'mptorch_cuda', 'kahan', 'tree' or an accumulator"
        raise SpecError(f"accumulate={accumulate!r}; allowed: {allowed}.\n  Try 'chunk(8)'.")
    return acc.chunked(int(length), inner, add)


def _pair(name: str, value: Any, kind: type) -> tuple[Any, Any]:
    given = (value,) if isinstance(value, kind) or value is None else tuple(value)
    if len(given) not in (1, 2):
        raise SpecError(f"QAffineFormats: {name}={value!r}; allowed: one, or a pair (add, mul).\n  Give one of these.")
    return given[0], given[-1]


class QAffineFormats(gs.QAffineFormats):
    """``gemmsim.QAffineFormats`` with mptorch's arguments.

    ``fwd_mac``, ``bwd_mac``: None or () for PyTorch's own product; one format for fused multiply-add; a pair
    (add, mul) for two roundings, of any two formats. ``fwd_rnd``, ``bwd_rnd``: one rounding or a pair (add, mul),
    default "nearest". ``rbits``: random bits of stochastic roundings, one number, also as ``(n,)``, or a pair (add,
    mul), 0 for 32.
    ``*_quant``: functions, or pairs (format, rounding). ``compensated``: Kahan's sum in both directions, of float
    formats. The other arguments are those of ``gemmsim.QAffineFormats``.

    ``weight_scaled_format`` and the like are mptorch's numbers where they were given as such, with ``exp`` and ``man``.

    gemmsim adds ``accumulate``, the order of sums (``accumulator_of``), ``arithmetic`` ("exact" or "fp32", in which
    mptorch's CPU kernels round twice), ``bias_in_accumulator``, ``bias_sum``, ``transposed_sum``, ``seed``,
    ``fprop``, ``dgrad`` and ``wgrad``.

    Raises:
        FormatError, SpecError: for arguments that mean nothing; ``SpecError`` for ``compensated`` with formats that
            have nothing to compensate.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> formats = quant.QAffineFormats(fwd_mac=FloatingPoint(5, 10, subnormals=True), accumulate="mptorch_cuda")
        >>> formats.fprop
        GemmSpec.parse(':chunked(8, e5m10/sat, e5m10/sat)')
    """

    _arguments: dict[str, Any]

    def __init__(
        self, fwd_mac: Any = None, bwd_mac: Any = None, fwd_rnd: Any = None, bwd_rnd: Any = None,
        weight_quant: Quant = identity, bias_quant: Quant = identity, input_quant: Quant = identity,
        output_quant: Quant = identity, grad_quant: Quant = identity, compensated: bool | None = None,
        use_scaling: bool = False, weight_scaled_format: Any = None, input_scaled_format: Any = None,
        grad_scaled_format: Any = None, scale_margin: int = 0,
        rbits: int | tuple[int] | tuple[int, int] = 0, *,
        accumulate: str | Accumulator = "sequential", arithmetic: str = "exact", bias_in_accumulator: bool = False,
        bias_sum: str = "wgrad", transposed_sum: str = "col2im", seed: int | None = None, fprop: Any = None,
        dgrad: Any = None, wgrad: Any = None,
    ) -> None:  # fmt: skip
        put = object.__setattr__
        put(self, "_arguments", {k: v for k, v in locals().items() if k not in ("self", "put", "__class__")})
        bits = _pair("rbits", rbits, int)
        how = (accumulate, compensated, arithmetic)
        forward = self._direction("fwd", fwd_mac, fwd_rnd, bits, how)
        backward = self._direction("bwd", bwd_mac, bwd_rnd, bits, how)
        quants = [native_quant(q, bits[0]) for q in (weight_quant, bias_quant, input_quant, output_quant, grad_quant)]
        scaled = [native_format(f) for f in (weight_scaled_format, input_scaled_format, grad_scaled_format)]
        positional: list[Any] = [None, None, None, None, *quants, None, use_scaling, *scaled, scale_margin]
        super().__init__(
            *positional, fprop=forward if fprop is None else fprop, dgrad=backward if dgrad is None else dgrad,
            wgrad=backward if wgrad is None else wgrad, bias_in_accumulator=bias_in_accumulator, bias_sum=bias_sum,
            transposed_sum=transposed_sum, seed=seed,
        )  # fmt: skip
        for name, quant in zip(_SCALED, (weight_quant, input_quant, grad_quant), strict=True):
            number = self._arguments[name] or (quant[0] if isinstance(quant, tuple) else None)
            if isinstance(number, Number) and getattr(self, name) is not None:
                put(self, name, number)
        put(self, "compensated", bool(compensated))
        put(self, "rbits_add", bits[0])
        put(self, "rbits_mul", bits[1])

    def _direction(self, side: str, mac: Any, rnd: Any, bits: tuple[int, int], how: Any) -> GemmSpec | None:
        """The product's spec; sets this direction's attributes by mptorch's names."""
        put = object.__setattr__
        steps = () if mac is None else tuple(mac) if isinstance(mac, (tuple, list)) else (mac,)
        if not steps:
            put(self, f"{side}_rnd", None)
            return None
        if len(steps) > 2:
            asked = f"QAffineFormats: {side}_mac={mac!r}"
            raise SpecError(f"{asked}; allowed: one format, or a pair (add, mul).\n  Give fewer.")
        rounding = rnd or "nearest"
        roundings = _pair(f"{side}_rnd", rounding, str)
        put(self, f"{side}_rnd", rounding)
        put(self, f"{side}_add", steps[0])
        put(self, f"{side}_mul", steps[-1])
        put(self, f"{side}_fma", len(steps) == 1)
        casts = [native_cast(s, r, b) for s, r, b in zip(steps, roundings, bits, strict=False)]
        accumulate, compensated, arithmetic = how
        accumulator = accumulator_of(casts[0], casts[1] if len(casts) == 2 else None, accumulate, compensated)
        return GemmSpec(accumulator=accumulator, arithmetic=arithmetic)

    def to_dict(self) -> dict[str, object]:
        """As ``gemmsim.QAffineFormats.to_dict``, with gemmsim's names of formats, for its ``from_dict``."""
        return {k: str(v.format) if isinstance(v, Number) else v for k, v in super().to_dict().items()}

    def __getstate__(self) -> dict[str, object]:
        return dict(self.__dict__["_arguments"])

    def __repr__(self) -> str:
        parts = [*self._shown("fwd"), *self._shown("bwd")]
        for name in _SCALED:
            found = getattr(self, name)
            parts += [] if found is None else [f"{name}={found}"]
        parts += [f"scale bias margin={self.scale_margin}"] if self.use_scaling else []
        parts += [f"{name}={getattr(self, name)}" for name in ("rbits_add", "rbits_mul")]
        return f"QAffineFormats ({', '.join(parts)})"

    def _shown(self, side: str) -> list[str]:
        found = self.__dict__
        if f"{side}_add" not in found:
            return [f"default_{side}"]
        rounding = f"{side}_rnd={found[f'{side}_rnd']}"
        if found[f"{side}_fma"]:
            return [f"{side}_fma={found[f'{side}_add']}", rounding]
        return [f"{side}_mul={found[f'{side}_mul']}", f"{side}_add={found[f'{side}_add']}", rounding]


def _given(*steps: Any) -> tuple[Any, ...]:
    return tuple(step for step in steps if step is not None)


class QSoftmaxFormats(gs.QSoftmaxFormats):
    """``gemmsim.QSoftmaxFormats`` with mptorch's arguments, which are formats and functions.

    A backward pass without both formats is PyTorch's. A softmax by logarithms (``fwd_lse``) has no attributes
    ``fwd_exp`` and ``fwd_acc``, as in mptorch.

    Raises:
        ValueError: for an incomplete forward pass.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> formats = quant.QSoftmaxFormats(fwd_off=FloatingPoint(5, 10), fwd_lse=FloatingPoint(5, 10))
        >>> formats.use_lse, hasattr(formats, "fwd_exp")
        (True, False)
    """

    #: The steps' formats that were given.
    given_steps: tuple[Any, ...]

    def __init__(
        self, fwd_off: Any = None, fwd_exp: Any = None, fwd_acc: Any = None, fwd_lse: Any = None, bwd_add: Any = None,
        bwd_mul: Any = None, fwd_rnd: Any = "nearest", bwd_rnd: Any = "nearest", input_quant: Quant = identity,
        output_quant: Quant = identity, grad_quant: Quant = identity, *, order: str = "sequential",
        masked_rows: str | None = None, seed: int | None = None,
    ) -> None:  # fmt: skip
        forward = [native_cast(step, fwd_rnd) for step in (fwd_off, fwd_exp, fwd_acc, fwd_lse)]
        backward = [native_cast(step, bwd_rnd) for step in (bwd_add, bwd_mul)]
        quants = [native_quant(quant) for quant in (input_quant, output_quant, grad_quant)]
        steps: list[Any] = [*forward, *backward, None, None]
        more: dict[str, Any] = {"order": order, "masked_rows": masked_rows, "seed": seed}
        super().__init__(*[*steps, *quants], **more)
        self.__dict__["given_steps"] = _given(fwd_off, fwd_exp, fwd_acc, fwd_lse, bwd_add, bwd_mul)
        if self.use_lse:
            for name in _NOT_BY_LOGARITHMS:
                object.__delattr__(self, name)

    def _names(self) -> list[str]:
        return [name for name in super()._names() if name in self.__dict__]

    @property
    def use_lse(self) -> bool:
        """Whether the forward pass keeps a running logarithm of the sum of exponentials."""
        return "fwd_exp" not in self.__dict__ or super().use_lse

    @property
    def is_native(self) -> bool:
        """Whether every step is PyTorch's own: nothing is rounded."""
        return not self.use_lse and super().is_native

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash(tuple(self.__getstate__().items()))


class QLayerNormFormats(gs.QLayerNormFormats):
    """``gemmsim.QLayerNormFormats`` with mptorch's arguments. A direction that lacks a format is PyTorch's.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> quant.QLayerNormFormats(*[FloatingPoint(5, 10)] * 4).fwd_acc
        parse_cast('e5m10/ftz/sat')
    """

    #: The steps' formats that were given.
    given_steps: tuple[Any, ...]

    def __init__(
        self, fwd_acc: Any = None, fwd_mul: Any = None, fwd_div: Any = None, fwd_sqrt: Any = None, bwd_acc: Any = None,
        bwd_mul: Any = None, bwd_div: Any = None, fwd_rnd: Any = "nearest", bwd_rnd: Any = "nearest",
        input_quant: Quant = identity, output_quant: Quant = identity, grad_quant: Quant = identity,
        weight_quant: Quant = identity, bias_quant: Quant = identity, *, order: str = "sequential",
        seed: int | None = None,
    ) -> None:  # fmt: skip
        forward = [native_cast(step, fwd_rnd) for step in (fwd_acc, fwd_mul, fwd_div, fwd_sqrt)]
        backward = [native_cast(step, bwd_rnd) for step in (bwd_acc, bwd_mul, bwd_div)]
        forward = [None] * 4 if None in forward else forward
        backward = [None] * 3 if None in backward else backward
        quants = [native_quant(q) for q in (input_quant, output_quant, grad_quant, weight_quant, bias_quant)]
        steps: list[Any] = [*forward, *backward, None, None]
        more: dict[str, Any] = {"order": order, "seed": seed}
        super().__init__(*[*steps, *quants], **more)
        self.__dict__["given_steps"] = _given(fwd_acc, fwd_mul, fwd_div, fwd_sqrt, bwd_acc, bwd_mul, bwd_div)


class QGELUFormats(gs.QGELUFormats):
    """``gemmsim.QGELUFormats`` with mptorch's arguments.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> quant.QGELUFormats(output_quant=(FloatingPoint(4, 3), "nearest")).output_quant
        parse_cast('ieee_e4m3/ftz/sat')
    """

    def __init__(
        self, input_quant: Quant = identity, inter_quant: Quant = identity, output_quant: Quant = identity,
        grad_quant: Quant = identity, *, seed: int | None = None,
    ) -> None:  # fmt: skip
        quants = [native_quant(quant) for quant in (input_quant, inter_quant, output_quant, grad_quant)]
        super().__init__(*quants, seed=seed)
