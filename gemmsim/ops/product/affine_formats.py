"""What a linear layer or matrix product computes, forward and backward, as one value."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeAlias

from torch import Tensor

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import GemmSpec, Sequential, SpecError, SpecLike, UnsupportedSpec
from gemmsim.arithmetic.recipe_words import RecipeCall, recipe_call
from gemmsim.formats import (
    TENSOR_FORMATS,
    BlockFormat,
    Cast,
    FixedFormat,
    Format,
    FormatError,
    TensorFormat,
    parse_scalar,
)
from gemmsim.formats.any_format import FORMATS
from gemmsim.formats.errors import shown

from ..cast_arguments import CastLike, RoundingLike, TargetLike, resolve_cast, resolve_target, target_of
from ..errors import message
from ..seeds import check_seed
from .affine_plan import (
    TRANSPOSED_SUMS,
    AffinePlan,
    Product,
    Quant,
    addend_sum,
    largest_of,
    step_of,
    with_addend_first,
)
from .format_warnings import note_spec, warn_of_format_alone

__all__ = ["MacLike", "QAffineFormats", "QuantLike", "formats_named"]

#: Formats of a multiply-accumulate: one for a fused step, or a pair (add, mul).
MacLike: TypeAlias = CastLike | tuple[()] | tuple[CastLike] | tuple[CastLike, CastLike]
#: A quantiser: a cast, a format, their name, a pair (format, rounding), or any function from tensor to tensor.
QuantLike: TypeAlias = TargetLike | tuple[TargetLike, RoundingLike] | Callable[[Tensor], Tensor]
_Rounding: TypeAlias = RoundingLike | tuple[RoundingLike, RoundingLike] | tuple[()]

_SPECS = ("fprop", "dgrad", "wgrad")
_QUANTS = ("weight_quant", "bias_quant", "input_quant", "output_quant", "grad_quant")
_SCALED = ("weight_scaled_format", "input_scaled_format", "grad_scaled_format")


@dataclass(frozen=True, init=False, repr=False)
class QAffineFormats:
    """Formats of ``y = x @ w + bias`` and of its gradients.

    The products, each a GEMM spec, or None for PyTorch's own:

    * ``fprop``: ``input * weight``;
    * ``dgrad``: ``gradient * weight``, the gradient of the input;
    * ``wgrad``: ``gradient * input``, the gradient of the weight. In a spec with operand formats the first one is the
      gradient's.

    A single format ("e4m3", "e4m3 -> fp16") is the accumulator's, as in every spec. Because people may mean the
    operands it warns once (``FormatsWarning``); ":e4m3" and "e4m3 : fp32" are unambiguous and do not warn.

    ``fwd_mac`` and ``bwd_mac`` are a second way to give the products: one format is a fused multiply-add, a pair is
    (add, mul); ``bwd_mac`` means both dgrad and wgrad; None or () leaves PyTorch's own. ``fwd_rnd`` and ``bwd_rnd`` are
    their roundings (one, or a pair (add, mul)), default nearest. ``rbits`` (one, or a pair (add, mul)) is the number of
    random bits where these roundings are stochastic, 0 for the default of 16.

    ``*_quant`` round tensors: input, weight and bias before use, the output last, every incoming gradient before use
    and every gradient produced. Each is a cast, a format, a string, a pair (format, rounding), or a function from
    tensor to tensor, which runs without autograd. Gradients pass through all of them unchanged (straight-through).

    ``use_scaling``: operands are multiplied by a power of two that brings the largest finite magnitude of each matrix
    to at most ``max / 2**scale_margin`` of its scaled format, and results by its inverse. This happens forward if the
    input and weight formats are known, and backward if the gradient's is. The default of a scaled format is the format
    of the quantiser, or without one that of the operand in the spec. The bias is not scaled.

    ``bias_in_accumulator``: the (quantised) bias starts the sum instead of being added in float32 after it.
    ``bias_sum``: how the gradient of the bias, a sum over rows, is summed. "wgrad" adds rows sequentially, each
    addition rounded as in wgrad's accumulator. "torch" is PyTorch's own sum, which is also used where wgrad is
    PyTorch's: matrix units do not compute this sum. ``transposed_sum``: how transposed convolutions, which are also the
    gradients of convolutions, sum. "col2im": a product over the channels for each kernel position, whose results for
    one place are then added in float32; "taps": one sum over channels and the kernel positions at which elements of the
    input lie; "zeros": one sum over channels and all kernel positions, of the input with ``stride - 1`` zeros between
    its elements (docs/reference/conv.md). ``seed``: fixes the random bits of all steps at every call; None takes a seed
    from torch's generator.

    Two are equal if their fields are; ``fwd_mac="e5m10"`` and ``fprop=":e5m10"`` are equal. Immutable, hashable,
    picklable.

    Raises:
        FormatError: for formats, quantisers or sums that name nothing.
        SpecError: for specs that name nothing, or a product given twice.
        UnsupportedSpec: for ``compensated``, which no accumulator of this version implements.

    Example:
        >>> formats = gs.QAffineFormats(fprop="e4m3 : fp16", dgrad="e5m2 * e4m3 : fp32", wgrad="e5m2 * e4m3 : fp32")
        >>> x = torch.ones(1, 4, requires_grad=True)
        >>> gs.qlinear(x, torch.full((1, 4), 0.3), spec=formats)
        tensor([[1.2500]], grad_fn=<AffineFunctionBackward>)
    """

    fprop: GemmSpec | None
    dgrad: GemmSpec | None
    wgrad: GemmSpec | None
    weight_quant: Quant
    bias_quant: Quant
    input_quant: Quant
    output_quant: Quant
    grad_quant: Quant
    use_scaling: bool
    weight_scaled_format: Format | None
    input_scaled_format: Format | None
    grad_scaled_format: Format | None
    scale_margin: int
    bias_in_accumulator: bool
    bias_sum: str
    transposed_sum: str
    seed: int | None
    #: The steps as the operators carry them; follows from the other fields.
    plan: AffinePlan = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        fwd_mac: MacLike | None = None,
        bwd_mac: MacLike | None = None,
        fwd_rnd: _Rounding | None = None,
        bwd_rnd: _Rounding | None = None,
        weight_quant: QuantLike | None = None,
        bias_quant: QuantLike | None = None,
        input_quant: QuantLike | None = None,
        output_quant: QuantLike | None = None,
        grad_quant: QuantLike | None = None,
        compensated: bool | None = None,
        use_scaling: bool = False,
        weight_scaled_format: str | Format | None = None,
        input_scaled_format: str | Format | None = None,
        grad_scaled_format: str | Format | None = None,
        scale_margin: int = 0,
        rbits: int | tuple[int, int] = 0,
        *,
        fprop: SpecLike | None = None,
        dgrad: SpecLike | None = None,
        wgrad: SpecLike | None = None,
        bias_in_accumulator: bool = False,
        bias_sum: str = "wgrad",
        transposed_sum: str = "col2im",
        seed: int | None = None,
    ) -> None:
        if compensated:
            raise UnsupportedSpec(
                message("QAffineFormats: compensated=True", "sequential accumulators", "Leave compensated out.")
            )
        bits = _pair("rbits", rbits)
        forward, backward = _mac_spec("fwd", fwd_mac, fwd_rnd, bits), _mac_spec("bwd", bwd_mac, bwd_rnd, bits)
        for name, spec in (("fprop", fprop), ("dgrad", dgrad), ("wgrad", wgrad)):
            warn_of_format_alone("QAffineFormats", name, spec)
        put = object.__setattr__
        put(self, "fprop", _one_spec("fprop", fprop, "fwd_mac", forward))
        put(self, "dgrad", _one_spec("dgrad", dgrad, "bwd_mac", backward))
        put(self, "wgrad", _one_spec("wgrad", wgrad, "bwd_mac", backward))
        quants = (weight_quant, bias_quant, input_quant, output_quant, grad_quant)
        for name, quant in zip(_QUANTS, quants, strict=True):
            put(self, name, _read_quant(name, quant, bits[0]))
        put(self, "use_scaling", bool(use_scaling))
        self._put_scaled_formats(weight_scaled_format, input_scaled_format, grad_scaled_format)
        put(self, "scale_margin", _integer("scale_margin", scale_margin))
        put(self, "bias_in_accumulator", bool(bias_in_accumulator))
        put(self, "bias_sum", _one_of("bias_sum", bias_sum, ("wgrad", "torch")))
        put(self, "transposed_sum", _one_of("transposed_sum", transposed_sum, TRANSPOSED_SUMS))
        put(self, "seed", seed if check_seed("QAffineFormats", seed) is None else int(seed))  # type: ignore[arg-type]
        put(self, "plan", self._make_plan())

    def _put_scaled_formats(self, *given: str | Format | None) -> None:
        """Each scaled format as given, else that of the quantiser, else that of the operand in the spec."""
        operands = (_operand(self.fprop, "b"), _operand(self.fprop, "a"), _operand(self.dgrad, "a"))
        quants = (self.weight_quant, self.input_quant, self.grad_quant)
        for name, fmt, quant, operand in zip(_SCALED, given, quants, operands, strict=True):
            source = quant if quant is not None else operand
            found = parse_scalar(fmt) if isinstance(fmt, str) else fmt
            if found is None and isinstance(source, Cast) and not isinstance(source.format, FixedFormat):
                found = source.format
            if found is not None and not isinstance(found, FORMATS):
                raise FormatError(message(f"QAffineFormats: {name}={fmt!r}", "a format or its name", "Try 'e4m3'."))
            object.__setattr__(self, name, found)

    def _make_plan(self) -> AffinePlan:
        scaled = self.use_scaling and self.input_scaled_format is not None and self.weight_scaled_format is not None
        return AffinePlan(
            fprop=Product.of(with_addend_first(self.fprop) if self.bias_in_accumulator else self.fprop),
            dgrad=Product.of(self.dgrad),
            wgrad=Product.of(self.wgrad),
            addend_sum=addend_sum(self.wgrad) if self.bias_sum == "wgrad" else None,
            addend_in_accumulator=self.bias_in_accumulator,
            transposed_sum=self.transposed_sum,
            input_quant=step_of(self.input_quant),
            weight_quant=step_of(self.weight_quant),
            addend_quant=step_of(self.bias_quant),
            output_quant=step_of(self.output_quant),
            grad_quant=step_of(self.grad_quant),
            scale_input=largest_of(self.input_scaled_format) if scaled else None,
            scale_weight=largest_of(self.weight_scaled_format) if scaled else None,
            scale_grad=largest_of(self.grad_scaled_format) if self.use_scaling else None,
            scale_margin=self.scale_margin,
            seed=self.seed,
        )

    @classmethod
    @takes_spec("formats")
    def of(cls, spec: QAffineFormats | SpecLike | None) -> QAffineFormats:
        """``spec`` as ``QAffineFormats``; None means PyTorch's own products, a spec is for every product.

        The name of a recipe ("hopper_fp8", "hopper_fp8(margin=1)") means the formats that ``gemmsim.recipes`` makes of
        it. The text of ``QAffineFormats`` means the formats that it was printed from.

        In dgrad and wgrad the operand formats of a spec are dropped: these products multiply the incoming gradient,
        uncast, by the operand that the forward pass had already cast. Accumulator, output format and arithmetic stay.
        An accumulator that only takes certain formats (hw) casts the gradient to the format of the operand in whose
        place it is. Block formats stay: each operand is encoded anew, from values in full precision, along the
        contraction dimension of each product, the gradient in the format of the operand in whose place it is.

        Raises:
            SpecError, FormatError: for what names nothing.

        Example:
            >>> formats = gs.QAffineFormats.of("e4m3 : fp16")
            >>> formats.fprop, formats.dgrad  # the gradient comes as it is
            (GemmSpec.parse('e4m3 : e5m10'), GemmSpec.parse(':e5m10'))
        """
        if isinstance(spec, QAffineFormats):
            return spec
        if spec is None:
            return _NATIVE
        named = formats_named(spec) if isinstance(spec, str) else None
        return _of_spec(GemmSpec.of(spec)) if named is None else named

    def with_arithmetic(self, arithmetic: str) -> QAffineFormats:
        """These formats with ``arithmetic`` ("exact" or "fp32") in every product."""
        changed: dict[str, Any] = {}
        for name in _SPECS:
            spec = getattr(self, name)
            changed[name] = None if spec is None else replace(spec, arithmetic=arithmetic)
        return replace(self, **changed)

    @property
    def fwd_use_default_prec(self) -> bool:
        """Whether the forward product is PyTorch's own."""
        return self.fprop is None

    @property
    def bwd_use_default_prec(self) -> bool:
        """Whether both backward products are PyTorch's own."""
        return self.dgrad is None and self.wgrad is None

    def __repr__(self) -> str:
        shown = [(f.name, getattr(self, f.name)) for f in _fields(self)]
        parts = [f"{name}={_text(value)!r}" for name, value in shown if value != getattr(_DEFAULTS, name, None)]
        return f"QAffineFormats({', '.join(parts)})"

    def __getstate__(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in _fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # frozen: the constructor is the one place that sets fields

    def to_dict(self) -> dict[str, object]:
        """Plain dictionary of strings and numbers, defaults left out; ``from_dict`` reads it back.

        Raises:
            FormatError: for a quantiser that is a function, which no text can name.
        """
        result: dict[str, object] = {}
        for f in _fields(self):
            value = getattr(self, f.name)
            if f.name in _QUANTS and value is not None and not isinstance(value, (Cast, *TENSOR_FORMATS)):
                asked = f"QAffineFormats.to_dict: {f.name} is the function {value!r}"
                raise FormatError(message(asked, "casts and formats", "Give it as a string such as 'e4m3', or pickle."))
            if value != getattr(_DEFAULTS, f.name):
                result[f.name] = _text(value)
        return result

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> QAffineFormats:
        """Formats written by ``to_dict``.

        Raises:
            SpecError: for unknown fields.
        """
        unknown = sorted(set(data) - {f.name for f in _fields(cls)})
        if unknown:
            known = ", ".join(f.name for f in _fields(cls))
            asked = f"QAffineFormats.from_dict: {', '.join(unknown)}"
            raise SpecError(message(asked, known, "Remove the unknown ones."))
        return cls(**data)


def formats_named(text: str) -> QAffineFormats | None:
    """What the word of a recipe or the text of ``QAffineFormats`` says of all three products; None for a spec's text.

    Raises:
        SpecError, FormatError: for arguments that the recipe or ``QAffineFormats`` does not take.
    """
    call = recipe_call(text)
    if call is not None:
        return _of_recipe(call)
    return _of_repr(text) if text.lstrip().startswith(f"{QAffineFormats.__name__}(") else None


def _of_recipe(call: RecipeCall) -> QAffineFormats:
    # By name: recipes are made of the class above.
    make: Callable[..., QAffineFormats] = getattr(import_module("gemmsim.recipes"), call.name)
    takes = list(inspect.signature(make).parameters)
    wrong = next((name for name in call.kwargs if name not in takes), None)
    placed = takes[: len(call.args)]
    if wrong is not None or len(placed) < len(call.args) or not call.kwargs.keys().isdisjoint(placed):
        asked = "more arguments than it takes" if wrong is None else f"unknown option {wrong!r}"
        allowed = ", ".join(f"{name}=" for name in takes) or "none"
        do = f"Did you mean {takes[0]}={call.kwargs[wrong]}?" if wrong and takes else f"Try {call.name!r}."
        raise SpecError(message(f"recipe {call.name!r}: {asked}", allowed, do))
    return make(*call.args, **call.kwargs)


def _of_repr(text: str) -> QAffineFormats:
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or call.args or not all(one.arg for one in call.keywords):
            raise ValueError("no call with arguments by name")
        given = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        return QAffineFormats.from_dict(given)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise _no_text(text, error) from None
    except ValueError as error:
        if isinstance(error, (SpecError, FormatError, UnsupportedSpec)):
            raise
        raise _no_text(text, error) from None


def _no_text(text: str, error: Exception) -> SpecError:
    do = "Quantisers that are functions have no text; for others see QAffineFormats.to_dict."
    return SpecError(message(f"formats {shown(text)}: {error}", "what str(QAffineFormats(...)) writes", do))


class _Defaults:
    """Values of the fields that a default object has, before there is one."""

    use_scaling = False
    scale_margin = 0
    bias_in_accumulator = False
    bias_sum = "wgrad"
    transposed_sum = "col2im"

    def __getattr__(self, name: str) -> None:
        return None


_DEFAULTS = _Defaults()


def _fields(formats: QAffineFormats | type[QAffineFormats]) -> list[Field[Any]]:
    """Fields that the constructor takes."""
    return [f for f in fields(formats) if f.init]


def _text(value: object) -> object:
    return str(value) if isinstance(value, (GemmSpec, Cast, *TENSOR_FORMATS, *FORMATS)) else value


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(message(f"QAffineFormats: {name}={value!r}", "an integer", f"Give {name} as an int."))
    return value


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        asked = f"QAffineFormats: {name}={value!r}"
        raise FormatError(message(asked, " or ".join(map(repr, allowed)), f"Try {name}={allowed[0]!r}."))
    return str(value)


def _pair(name: str, value: int | tuple[int, int]) -> tuple[int, int]:
    pair = value if isinstance(value, tuple) else (value, value)
    if len(pair) != 2 or any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n <= 32 for n in pair):
        raise FormatError(message(f"QAffineFormats: {name}={value!r}", "0 to 32, or a pair (add, mul)", "Try rbits=8."))
    return pair


def _mac_spec(side: str, mac: MacLike | None, rounding: Any, bits: tuple[int, int]) -> GemmSpec | None:
    """The spec of ``fwd_mac``/``bwd_mac``: sequential, with ``rounding`` in place of the formats' own where given."""
    if mac is None or (isinstance(mac, tuple) and not mac):
        if rounding:
            asked = f"QAffineFormats: {side}_rnd={rounding!r} without {side}_mac"
            raise SpecError(message(asked, "a rounding of given formats", f"Give {side}_mac, or drop {side}_rnd."))
        return None
    steps = mac if isinstance(mac, tuple) else (mac,)
    roundings = rounding if isinstance(rounding, tuple) else (rounding, rounding)
    if len(steps) > 2 or len(roundings) not in (0, 2):
        asked = f"QAffineFormats: {side}_mac={mac!r}, {side}_rnd={rounding!r}"
        do = "Other accumulators go into fprop, dgrad, wgrad."
        raise SpecError(message(asked, "one format, or pairs (add, mul)", do))
    roundings = roundings or (None, None)
    casts = [resolve_cast(s, r or None, None, b) for s, r, b in zip(steps, roundings, bits, strict=False)]
    return GemmSpec(accumulator=Sequential(*casts))


def _one_spec(name: str, spec: SpecLike | None, mac_name: str, mac: GemmSpec | None) -> GemmSpec | None:
    if spec is not None and mac is not None:
        asked = f"QAffineFormats: both {name}={spec!s} and {mac_name}"
        raise SpecError(message(asked, "one of the two", f"Drop {mac_name}."))
    return mac if spec is None else GemmSpec.of(spec)


def _read_quant(name: str, quant: Any, bits: int) -> Quant:
    if quant is None:
        return None
    if isinstance(quant, tuple) and len(quant) == 2:
        return resolve_target(quant[0], quant[1], None, bits)
    if isinstance(quant, str):
        return target_of(quant)
    if isinstance(quant, (Cast, *TENSOR_FORMATS, *FORMATS)):
        return resolve_target(quant)
    if callable(quant):
        return quant
    allowed = "a cast, a format, a string, a pair (format, rounding), a function or None"
    raise FormatError(message(f"QAffineFormats: {name}={quant!r}", allowed, "Try 'e4m3'."))


def _operand(spec: GemmSpec | None, name: str) -> Cast | BlockFormat | TensorFormat | None:
    return None if spec is None else getattr(spec, name)


@lru_cache(maxsize=4096)
def _of_spec(spec: GemmSpec) -> QAffineFormats:
    # Block formats stay: their blocks lie along the contraction, which is another dimension in each product.
    blocks = (BlockFormat, *TENSOR_FORMATS)
    a, b = (fmt if isinstance(fmt, blocks) else None for fmt in (spec.a, spec.b))
    backward = replace(spec, a=a, b=b)
    # An accumulator that takes certain operands gets each in its own place: the gradient stands where the other was.
    note_spec(spec, spec, backward, backward.transposed())
    return QAffineFormats(fprop=spec, dgrad=backward, wgrad=backward.transposed())


_NATIVE = QAffineFormats()
