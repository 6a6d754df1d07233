"""What a layer does step by step: ``QAffineFormats`` resolved into plain values that the operators can carry.

A plan holds strings, numbers and (where the user gave one) callables only, because autograd contexts, compiled graphs
and operator schemas all have to carry it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from torch import Tensor

from gemmsim.arithmetic import Accumulator, Chunked, GemmSpec, Palette, Sequential, SpecError, UnsupportedSpec
from gemmsim.formats import FP64, TENSOR_FORMATS, Cast, Format, TensorFormat

from ..cast_arguments import target_of
from ..errors import message
from .epilogue import is_wide

__all__ = [
    "TRANSPOSED_SUMS",
    "AffinePlan",
    "Product",
    "Quant",
    "Step",
    "addend_sum",
    "largest_of",
    "step_of",
    "with_addend_first",
]

#: How a transposed convolution sums; see ``QAffineFormats``.
TRANSPOSED_SUMS = ("col2im", "taps", "zeros")

#: A quantiser as a user gives it to ``QAffineFormats`` after normalisation, and as a plan carries it.
Quant: TypeAlias = Cast | TensorFormat | Callable[[Tensor], Tensor] | None
Step: TypeAlias = str | Callable[[Tensor], Tensor] | None


@dataclass(frozen=True)
class Product:
    """One GEMM of a layer.

    ``spec`` takes the operands in the order of the role, ``swapped`` the other way round; both are None for PyTorch's
    own product. ``cast_a``, ``cast_b``: whether it casts that operand. ``wide``: float32 does not hold its results.
    ``init``: where its accumulator takes an addend. ``palette``: whether it takes indices of members. ``refusal``: the
    error that comes instead of it, as ``refusals`` knows it; "" for none. It has a spec all the same.
    """

    spec: str | None = None
    swapped: str | None = None
    cast_a: bool = False
    cast_b: bool = False
    wide: bool = False
    init: str = "zero"
    palette: bool = False
    refusal: str = ""

    @classmethod
    def of(cls, spec: GemmSpec | None) -> Product:
        """The product that ``spec`` means."""
        if spec is None:
            return cls()
        init = getattr(spec.accumulator, "init", "zero")
        palette = isinstance(spec.accumulator, Palette)
        return cls(
            spec.key,
            spec.transposed().key,
            spec.cast_a is not None,
            spec.cast_b is not None,
            is_wide(spec),
            init,
            palette,
        )


@dataclass(frozen=True)
class AffinePlan:
    """The steps of ``a @ b + addend`` and of its gradients; see ``QAffineFormats`` for their meaning."""

    fprop: Product = Product()
    dgrad: Product = Product()
    wgrad: Product = Product()
    #: Sum of rows in the add format of wgrad; None sums as PyTorch does.
    addend_sum: str | None = None
    addend_in_accumulator: bool = False
    #: One of ``TRANSPOSED_SUMS``.
    transposed_sum: str = "col2im"
    input_quant: Step = None
    weight_quant: Step = None
    addend_quant: Step = None
    output_quant: Step = None
    grad_quant: Step = None
    #: Largest values that scaling aims at; None: no scaling of that direction. As text, a constant of compiled code: a
    #: number would be a symbol there where sizes may change.
    scale_input: str | None = None
    scale_weight: str | None = None
    scale_grad: str | None = None
    scale_margin: int = 0
    seed: int | None = None

    #: Whether every step is PyTorch's own: nothing is rounded or scaled. Stored, because a tracer reads fields only.
    is_native: bool = field(init=False, compare=False, default=False)
    #: Whether the forward pass is one GEMM and nothing else, apart from an addend added to its result.
    is_plain: bool = field(init=False, compare=False, default=False)

    #: Whether it is plain and casts no operand: what is multiplied are the tensors as they are. Not where gradients are
    #: PyTorch's own.
    is_bare: bool = field(init=False, compare=False, default=False)

    #: Whether both gradients are PyTorch's own products of what was multiplied.
    has_native_gradients: bool = field(init=False, compare=False, default=False)

    #: Whether a gradient is one GEMM as well, and nothing else.
    has_plain_gradients: bool = field(init=False, compare=False, default=False)

    #: Whether a quantiser around the products draws random bits, which belong to elements of the tensors as they are.
    draws_in_steps: bool = field(init=False, compare=False, default=False)

    #: ``output_quant`` as far as the product itself does it as its last step; what is left of it.
    output_cast: str | None = field(init=False, compare=False, default=None)
    output_rest: Step = field(init=False, compare=False, default=None)

    #: This plan with the addend in the accumulator, which says where; None where it does not.
    with_addend: AffinePlan | None = field(init=False, compare=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if self.fprop.init != "zero" and not self.addend_in_accumulator:
            object.__setattr__(self, "with_addend", replace(self, addend_in_accumulator=True))
        quants = (self.input_quant, self.weight_quant, self.addend_quant, self.output_quant)
        forward = all(quant is None for quant in quants) and self.scale_input is None and not self.addend_in_accumulator
        steps = (*quants, self.grad_quant)
        object.__setattr__(self, "draws_in_steps", any(map(_draws, steps)))
        specs = (self.fprop.spec, self.dgrad.spec, self.wgrad.spec)
        native = forward and self.grad_quant is None and self.scale_grad is None and all(s is None for s in specs)
        last = self.output_quant if isinstance(self.output_quant, str) and _is_plain_cast(self.output_quant) else None
        object.__setattr__(self, "output_cast", last)
        object.__setattr__(self, "output_rest", self.output_quant if last is None else None)
        object.__setattr__(self, "is_native", native)
        object.__setattr__(self, "is_plain", forward and self.fprop.spec is not None)
        ours = (self.dgrad.spec, self.wgrad.spec, self.grad_quant, self.scale_grad, self.addend_sum)
        object.__setattr__(self, "has_native_gradients", all(step is None for step in ours))
        # Native gradients can be differentiated again, which takes the operands as they were given.
        casts = self.fprop.cast_a or self.fprop.cast_b or self.has_native_gradients
        object.__setattr__(self, "is_bare", self.is_plain and not casts)
        alone = self.grad_quant is None and self.scale_grad is None and self.scale_input is None
        roles = (self.dgrad, self.wgrad)
        multiplied = all(role.spec is not None and not (role.palette or role.refusal) for role in roles)
        object.__setattr__(self, "has_plain_gradients", alone and multiplied)


def _draws(step: Step) -> bool:
    """Whether ``step`` names a rounding with random bits."""
    return isinstance(step, str) and target_of(step).is_stochastic


def _is_plain_cast(text: str) -> bool:
    """Whether ``text`` names a cast of single numbers without random bits."""
    target = target_of(text)
    return isinstance(target, Cast) and not target.is_stochastic


def addend_sum(spec: GemmSpec | None) -> str | None:
    """Spec whose product of a row of ones with a matrix sums the matrix's rows, each sum rounded as in ``spec``."""
    if spec is None:
        return None
    cast = spec.accumulator.add_cast
    accumulator: Accumulator = Chunked(1, Sequential(Cast(FP64)), cast)  # each element by itself, exactly
    if cast.via is None:
        accumulator = Sequential(cast, seed=spec.fixed_seed)
    return GemmSpec(accumulator=accumulator, arithmetic=spec.arithmetic).key


def with_addend_first(spec: GemmSpec | None) -> GemmSpec:
    """``spec`` with its accumulator starting from the addend.

    Raises:
        SpecError: if there is no spec: PyTorch's own product has no accumulator to start.
        UnsupportedSpec: for an accumulator that cannot start from C.
    """
    if spec is None:
        asked = "bias_in_accumulator=True without fprop"
        raise SpecError(message(asked, "a spec for the forward product", "Give fprop."))
    accumulator = spec.accumulator
    init = getattr(accumulator, "init", None)
    if init is None:
        asked = f"bias_in_accumulator=True with {accumulator}"
        raise UnsupportedSpec(message(asked, "accumulators with an init argument", "Drop bias_in_accumulator."))
    if init != "zero":
        return spec
    return replace(spec, product=None, accumulator=replace(accumulator, init="c_first"))  # type: ignore[call-arg]


def step_of(quant: Quant) -> Step:
    """``quant`` as a plan carries it."""
    return str(quant) if isinstance(quant, (Cast, *TENSOR_FORMATS)) else quant


def largest_of(fmt: Format | None) -> str | None:
    """Largest finite value of ``fmt``, as text that reads back exactly; None for no format."""
    return None if fmt is None else repr(fmt.max)
