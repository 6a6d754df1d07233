"""What softmax, normalisations and activations compute, forward and backward, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeAlias, TypeVar

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import SpecError
from gemmsim.formats import BlockFloatFormat, Cast, Format, FormatError
from gemmsim.formats.any_format import FORMATS
from gemmsim.formats.lru import remembered

from ..cast_arguments import CastLike, RoundingLike, cast_of, resolve_cast
from ..errors import message
from ..lazy_dynamo import assume_constant_result
from ..product.affine_formats import QuantLike
from ..product.affine_plan import Quant, Step, step_of
from ..seeds import check_seed

__all__ = [
    "QGELUFormats",
    "QLayerNormFormats",
    "QSoftmaxFormats",
    "RowFormats",
    "RowFormatsLike",
    "RowPlan",
    "row_formats",
    "order_length",
    "quant_step",
    "read_quant",
    "text_of",
]

_T = TypeVar("_T", bound="RowFormats")


def order_length(owner: str, order: object) -> int:
    """1 for "sequential", n for "tree(n)", n a power of two from 2 to 1024; ``SpecError`` for anything else."""
    match = re.fullmatch(r"\s*tree\(\s*(\d{1,4})\s*\)\s*", order) if isinstance(order, str) else None
    length = int(match[1]) if match else 0
    if order == "sequential":
        return 1
    if 2 <= length <= 1024 and length & (length - 1) == 0:
        return length
    allowed = "'sequential', or 'tree(n)' with n a power of two from 2 to 1024"
    raise SpecError(message(f"{owner}: order={order!r}", allowed, "Try order='tree(64)'."))


def read_quant(owner: str, name: str, quant: QuantLike | None) -> Quant:
    """A quantiser as its cast, or the function it is; ``FormatError`` for anything else."""
    if quant is None:
        return None
    if isinstance(quant, tuple) and len(quant) == 2:
        return resolve_cast(*quant)  # type: ignore[arg-type]  # block formats are refused there
    if isinstance(quant, str):
        return cast_of(quant)
    if isinstance(quant, (Cast, *FORMATS)):
        return resolve_cast(quant)
    if callable(quant):
        return quant
    allowed = "a cast, a format, a string, a pair (format, rounding), a function or None"
    raise FormatError(message(f"{owner}: {name}={quant!r}", allowed, "Try 'e4m3'."))


@dataclass(frozen=True)
class RowPlan:
    """Formats resolved into strings and numbers, which autograd, compiled code and operator schemas can carry.

    ``fwd`` and ``bwd``: casts of the fused kernels' steps; None where the pass is PyTorch's own.
    """

    fwd: str | None = None
    bwd: str | None = None
    lse: bool = False
    zero_masked: bool = False
    order: int = 1
    seed: int | None = None
    mul: str = ""
    bwd_mul: str = ""
    bwd_acc: str = ""
    input: Step = None
    output: Step = None
    grad: Step = None
    weight: Step = None
    bias: Step = None
    inter: Step = None
    is_native: bool = False


def text_of(quant: Quant | Step) -> str:
    """The cast that a last step rounds to: that of a quantiser that is a cast, else the carrier's."""
    return str(quant) if isinstance(quant, Cast | str) else ""


@assume_constant_result
def quant_step(owner: str, quant: QuantLike | None) -> Step:
    """A quantiser as the operators carry it; a constant of compiled code."""
    return step_of(read_quant(owner, "quantiser", quant))


class RowFormats:
    """Common parts of the formats classes: value semantics, dictionaries, pickling."""

    _CASTS: ClassVar[tuple[str, ...]] = ()
    _QUANTS: ClassVar[tuple[str, ...]] = ()
    #: The fields that one cast for every step stands at.
    _STEPS: ClassVar[tuple[str, ...]] = ()
    seed: int | None
    #: The steps as the operators carry them; follows from the fields.
    plan: ClassVar[RowPlan]

    def _put(self, values: Mapping[str, Any]) -> None:
        """Set every field, read: casts with the rounding of their direction, quantisers, order, seed."""
        owner = type(self).__name__
        for name, value in values.items():
            if name in self._CASTS and value is not None:
                value = resolve_cast(value, values.get(f"{name[:3]}_rnd"))
            elif name in self._QUANTS:
                value = read_quant(owner, name, value)
            elif name == "order":
                order_length(owner, value)
            elif name == "seed" and check_seed(owner, value) is not None:
                value = int(value)
            if not name.endswith("_rnd"):
                object.__setattr__(self, name, value)

    def _put_plan(self, **steps: Any) -> None:
        quants: dict[str, Any] = {name[: -len("_quant")]: step_of(getattr(self, name)) for name in self._QUANTS}
        order = order_length(type(self).__name__, getattr(self, "order", "sequential"))
        native = self.is_native and not steps.get("zero_masked", False)
        object.__setattr__(self, "plan", RowPlan(order=order, seed=self.seed, is_native=native, **quants, **steps))

    def _names(self) -> list[str]:
        return [f.name for f in fields(self)]  # type: ignore[arg-type]

    def _complete(self, side: str, needed: tuple[str, ...]) -> bool:
        """Whether all of ``needed`` are given."""
        return all(getattr(self, f"{side}_{name}") is not None for name in needed)

    @property
    def is_native(self) -> bool:
        """Whether every step is PyTorch's own: nothing is rounded."""
        return all(getattr(self, name) is None for name in (*self._CASTS, *self._QUANTS))

    @classmethod
    @takes_spec("formats")
    def of(cls: type[_T], spec: RowFormatsLike | None) -> _T:
        """``spec`` itself, if it is one of these; of None, PyTorch's own operation; a cast, format or string is every
        step's.

        It is that of the forward and the backward pass. For steps that differ, name them:
        ``QSoftmaxFormats(fwd_off=..., ...)``. The result of a softmax or a normalisation is rounded by
        ``output_quant``, which stays None here.

        Raises:
            FormatError: for anything else.

        Example:
            >>> gs.QSoftmaxFormats.of("bf16")
            QSoftmaxFormats(fwd_off='e8m7', fwd_exp='e8m7', fwd_acc='e8m7', bwd_add='e8m7', bwd_mul='e8m7')
        """
        if isinstance(spec, cls):
            return spec
        if spec is None:
            return cls()
        if not isinstance(spec, (str, Cast, BlockFloatFormat, *FORMATS)):
            allowed = f"{cls.__name__}, a cast, a format, a string or None"
            asked = f"spec={spec!r} of type {type(spec).__name__}"
            raise FormatError(message(f"{cls.__name__}: {asked}", allowed, "Try 'e5m10' for every step."))
        cast = cast_of(spec) if isinstance(spec, str) else resolve_cast(spec)
        return cls(**dict.fromkeys(cls._STEPS, cast))

    def __repr__(self) -> str:
        default = type(self)()
        shown = [(n, getattr(self, n)) for n in self._names() if getattr(self, n) != getattr(default, n)]
        return f"{type(self).__name__}({', '.join(f'{n}={_text(v)!r}' for n, v in shown)})"

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self._names()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # frozen: the constructor is the one place that sets fields

    def to_dict(self) -> dict[str, object]:
        """Plain dictionary of strings and numbers, defaults left out; ``from_dict`` reads it back.

        Raises:
            FormatError: for a quantiser that is a function, which no text can name.

        Example:
            >>> gs.QSoftmaxFormats(fwd_off="bf16", fwd_lse="fp16").to_dict()
            {'fwd_off': 'e8m7', 'fwd_lse': 'e5m10'}
        """
        result: dict[str, object] = {}
        default = type(self)()
        for name in self._names():
            value = getattr(self, name)
            if name in self._QUANTS and not isinstance(value, Cast | None):
                asked = f"{type(self).__name__}.to_dict: {name} is the function {value!r}"
                raise FormatError(message(asked, "casts and formats", "Give it as a string such as 'e4m3', or pickle."))
            if value != getattr(default, name):
                result[name] = _text(value)
        return result

    @classmethod
    def from_dict(cls: type[_T], data: Mapping[str, Any]) -> _T:
        """Formats written by ``to_dict``.

        Raises:
            SpecError: for unknown fields.
        """
        known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        unknown = sorted(set(data) - set(known))
        if unknown:
            asked = f"{cls.__name__}.from_dict: {', '.join(unknown)}"
            raise SpecError(message(asked, ", ".join(known), "Remove the unknown ones."))
        return cls(**data)


def _text(value: object) -> object:
    return str(value) if isinstance(value, Cast | Format) else value


def _refuse_part(owner: str, side: str, given: list[str], needed: str) -> None:
    asked = f"{owner}: {side} with {', '.join(given)} alone"
    raise FormatError(message(asked, needed, "Give the missing formats, or none of them for PyTorch's own operation."))


@dataclass(frozen=True, init=False, repr=False)
class QSoftmaxFormats(RowFormats):
    """Formats of the steps of a softmax and of its gradient.

    ``fwd_off``, ``fwd_exp``, ``fwd_acc``: differences from the maximum, exponentials, their sum (regular softmax).
    ``fwd_off``, ``fwd_lse``: differences, and the running logarithm of the sum of exponentials (``use_lse``). Without
    ``fwd_off`` the forward pass is PyTorch's own. ``bwd_add``, ``bwd_mul``: sums and products of the gradient; without
    both, PyTorch's own. ``fwd_rnd`` and ``bwd_rnd``: roundings that replace the formats' own.

    ``input_quant``, ``output_quant``, ``grad_quant``: a cast, a format, a string, a pair (format, rounding), or a
    function from tensor to tensor, which runs without autograd. An output cast is the rounding of the last step itself.
    ``order``: "sequential", or "tree(n)" (docs/reference/functional.md). ``masked_rows``: the result for a row of only
    -inf, "nan" or "zero"; None is PyTorch's: NaN in softmax, 0 in attention. ``seed`` fixes the bits of stochastic
    roundings.

    Immutable, hashable and picklable; two are equal if their fields are.

    Raises:
        FormatError: for formats that name nothing or are incomplete.
        SpecError, SeedError: for another order, masked_rows or seed.

    Example:
        >>> formats = gs.QSoftmaxFormats(fwd_off="bf16", fwd_lse="fp16", output_quant="e4m3")
        >>> formats.use_lse, gs.qsoftmax(torch.tensor([1.0, 2.0, 3.0]), -1, formats)
        (True, tensor([0.0938, 0.2500, 0.6875]))
    """

    fwd_off: Cast | None
    fwd_exp: Cast | None
    fwd_acc: Cast | None
    fwd_lse: Cast | None
    bwd_add: Cast | None
    bwd_mul: Cast | None
    input_quant: Quant
    output_quant: Quant
    grad_quant: Quant
    order: str
    masked_rows: str | None
    seed: int | None
    _CASTS = ("fwd_off", "fwd_exp", "fwd_acc", "fwd_lse", "bwd_add", "bwd_mul")
    _STEPS = ("fwd_off", "fwd_exp", "fwd_acc", "bwd_add", "bwd_mul")
    _QUANTS = ("input_quant", "output_quant", "grad_quant")

    def __init__(
        self,
        fwd_off: CastLike | None = None,
        fwd_exp: CastLike | None = None,
        fwd_acc: CastLike | None = None,
        fwd_lse: CastLike | None = None,
        bwd_add: CastLike | None = None,
        bwd_mul: CastLike | None = None,
        fwd_rnd: RoundingLike | None = None,
        bwd_rnd: RoundingLike | None = None,
        input_quant: QuantLike | None = None,
        output_quant: QuantLike | None = None,
        grad_quant: QuantLike | None = None,
        *,
        order: str = "sequential",
        masked_rows: str | None = None,
        seed: int | None = None,
    ) -> None:
        self._put({name: value for name, value in locals().items() if name != "self"})
        if masked_rows not in (None, "nan", "zero"):
            asked = f"QSoftmaxFormats: masked_rows={masked_rows!r}"
            raise SpecError(message(asked, "'nan', 'zero' or None", "Try masked_rows='zero'."))
        if self.fwd_off is not None and not (self._complete("fwd", ("exp", "acc")) or self.fwd_lse is not None):
            _refuse_part("QSoftmaxFormats", "forward", ["fwd_off"], "fwd_off with fwd_exp and fwd_acc, or with fwd_lse")
        self._put_plan(
            fwd=self._forward_steps(), bwd=self._backward_steps(), lse=self.use_lse, zero_masked=masked_rows == "zero"
        )

    def _forward_steps(self) -> str | None:
        if self.fwd_off is None:
            return None
        middle = (self.fwd_off, self.fwd_lse) if self.use_lse else (self.fwd_exp, self.fwd_acc)
        return f"{self.fwd_off};{middle[0]};{middle[1]};{text_of(self.output_quant)}"

    def _backward_steps(self) -> str | None:
        if self.bwd_use_default_prec:
            return None
        return f"{self.bwd_mul};{self.bwd_add};{self.bwd_add};{text_of(self.grad_quant)}"

    @property
    def fwd_use_default_prec(self) -> bool:
        """Whether the forward pass is PyTorch's own."""
        return self.fwd_off is None

    @property
    def bwd_use_default_prec(self) -> bool:
        """Whether the backward pass is PyTorch's own."""
        return not self._complete("bwd", ("add", "mul"))

    @property
    def use_lse(self) -> bool:
        """Whether the forward pass uses the logarithm of the sum."""
        return self.fwd_off is not None and not self._complete("fwd", ("exp", "acc"))


@dataclass(frozen=True, init=False, repr=False)
class QLayerNormFormats(RowFormats):
    """Formats of the steps of a normalisation of rows (layer, root mean square, group) and of its gradient.

    ``fwd_acc``: differences and sums; ``fwd_mul``, ``fwd_div``, ``fwd_sqrt``: products, quotients, the root. Without
    all four the forward pass is PyTorch's own. ``bwd_acc``, ``bwd_mul``, ``bwd_div``: of the gradient, all or none.
    ``fwd_rnd`` and ``bwd_rnd``: roundings that replace the formats' own.

    The quantisers, ``order`` and ``seed`` are those of ``QSoftmaxFormats``; ``weight_quant`` and ``bias_quant`` round
    the parameters before use, ``grad_quant`` every gradient produced.

    Raises:
        FormatError, SpecError, SeedError: as ``QSoftmaxFormats``.

    Example:
        >>> formats = gs.QLayerNormFormats("fp16", "bf16", "bf16", "bf16")
        >>> gs.qlayernorm(torch.tensor([[1.0, 2.0, 6.0]]), 3, spec=formats)
        tensor([[-0.9258, -0.4629,  1.3906]])
    """

    fwd_acc: Cast | None
    fwd_mul: Cast | None
    fwd_div: Cast | None
    fwd_sqrt: Cast | None
    bwd_acc: Cast | None
    bwd_mul: Cast | None
    bwd_div: Cast | None
    input_quant: Quant
    output_quant: Quant
    grad_quant: Quant
    weight_quant: Quant
    bias_quant: Quant
    order: str
    seed: int | None
    #: ``plan`` of a normalisation that more steps follow; not a field.
    inner_plan: ClassVar[RowPlan]
    _CASTS = ("fwd_acc", "fwd_mul", "fwd_div", "fwd_sqrt", "bwd_acc", "bwd_mul", "bwd_div")
    _STEPS = _CASTS
    _QUANTS = ("input_quant", "output_quant", "grad_quant", "weight_quant", "bias_quant")

    def __init__(
        self,
        fwd_acc: CastLike | None = None,
        fwd_mul: CastLike | None = None,
        fwd_div: CastLike | None = None,
        fwd_sqrt: CastLike | None = None,
        bwd_acc: CastLike | None = None,
        bwd_mul: CastLike | None = None,
        bwd_div: CastLike | None = None,
        fwd_rnd: RoundingLike | None = None,
        bwd_rnd: RoundingLike | None = None,
        input_quant: QuantLike | None = None,
        output_quant: QuantLike | None = None,
        grad_quant: QuantLike | None = None,
        weight_quant: QuantLike | None = None,
        bias_quant: QuantLike | None = None,
        *,
        order: str = "sequential",
        seed: int | None = None,
    ) -> None:
        self._put({name: value for name, value in locals().items() if name != "self"})
        for side, names in (("fwd", ("acc", "mul", "div", "sqrt")), ("bwd", ("acc", "mul", "div"))):
            given = [f"{side}_{name}" for name in names if getattr(self, f"{side}_{name}") is not None]
            if given and len(given) < len(names):
                needed = ", ".join(f"{side}_{name}" for name in names)
                _refuse_part("QLayerNormFormats", side, given, f"all of {needed}, or none")
        a, m, d, s = (text_of(c) for c in (self.fwd_acc, self.fwd_mul, self.fwd_div, self.fwd_sqrt))
        ga, gm, gd = (text_of(c) for c in (self.bwd_acc, self.bwd_mul, self.bwd_div))
        self._put_plan(
            fwd=f"{a};{d};{a};{m};{a};{d};{a};{s};{d};{m};{text_of(self.output_quant)};{d}",
            bwd=f"{ga};{gm};{gm};{ga};{gd};{gm};{ga};{gd};{ga};{gm};{ga};{gm};{gm}",
            mul=m,
            bwd_mul=gm,
            bwd_acc=ga,
        )
        bare = f"{a};{d};{a};{m};{a};{d};{a};{s};{d};{m};;{d}"
        object.__setattr__(self, "inner_plan", replace(self.plan, fwd=bare, output=None))

    @property
    def fwd_use_default_prec(self) -> bool:
        """Whether the forward pass is PyTorch's own."""
        return self.fwd_acc is None

    @property
    def bwd_use_default_prec(self) -> bool:
        """Whether the backward pass is PyTorch's own."""
        return self.bwd_acc is None


@dataclass(frozen=True, init=False, repr=False)
class QGELUFormats(RowFormats):
    """Roundings of an activation ``x * gate(x)`` (GELU, SiLU): its input, its gate, its result and its gradient.

    ``inter_quant`` rounds the inner function (erf, tanh, sigmoid). Quantisers and ``seed`` as in ``QSoftmaxFormats``.

    Example:
        >>> gs.qgelu(torch.tensor([1.0]), gs.QGELUFormats(inter_quant="e4m3", output_quant="bf16"))
        tensor([0.8438])
    """

    input_quant: Quant
    inter_quant: Quant
    output_quant: Quant
    grad_quant: Quant
    seed: int | None
    _QUANTS = ("input_quant", "inter_quant", "output_quant", "grad_quant")
    _STEPS = _QUANTS

    def __init__(
        self,
        input_quant: QuantLike | None = None,
        inter_quant: QuantLike | None = None,
        output_quant: QuantLike | None = None,
        grad_quant: QuantLike | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        self._put({name: value for name, value in locals().items() if name != "self"})
        self._put_plan()


#: What says how an operation of rows is rounded: the formats of its steps, or one cast for all of them.
RowFormatsLike: TypeAlias = RowFormats | CastLike


def row_formats(cls: type[_T], formats: RowFormatsLike | None) -> _T:
    """``cls.of(formats)``, remembered for casts and strings, a constant of compiled code."""
    return formats if isinstance(formats, cls) else _row_formats(cls, formats)


@assume_constant_result
def _row_formats(cls: type[_T], formats: Any) -> _T:
    return _read(cls, formats)


@remembered
def _read(cls: type[_T], formats: RowFormatsLike | None) -> _T:
    return cls.of(formats)
