"""How block-format layers compute, as values."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from gemmsim.arithmetic import Accumulator
from gemmsim.formats import BlockFormat
from gemmsim.ops.lazy_dynamo import assume_constant_result
from gemmsim.ops.product.short_text import cut

from .arguments import block_of

__all__ = [
    "MXAttentionConfig",
    "MXInferenceConfig",
    "MXLinearConfig",
    "attention_constants",
    "linear_constants",
    "short_config",
]

#: As an accumulator: that of the forward product.
SAME = "same"


def _normalise(config: Any, accumulators: tuple[str, ...], others: tuple[str, ...] = ()) -> None:
    """Formats and accumulators of a frozen dataclass as canonical strings; errors for what does not parse."""
    for field in fields(config):
        value = getattr(config, field.name)
        if value is None or field.name in others:
            continue
        if field.name not in accumulators:
            object.__setattr__(config, field.name, str(block_of(value)))
        elif value != SAME:
            object.__setattr__(config, field.name, str(Accumulator.parse(str(value))))


def _check_products(*products: tuple[Any, Any, Any]) -> None:
    """``SpecError`` for an accumulator that the formats of both operands do not go with."""
    from .tensor_matmul import spec_of_product

    for a_format, b_format, accumulator in products:
        if accumulator is not None:
            spec_of_product(a_format, b_format, str(accumulator))


@dataclass(frozen=True)
class MXLinearConfig:
    """The three products of a linear layer in training.

    Args:
        input, weight, grad: block formats of the input, the weight and the output's gradient; None is ``input``'s.
        accumulator: of ``x @ W.T``; None is a native PyTorch product of the decoded operands.
        dgrad_accumulator, wgrad_accumulator: of the products for the gradients of x and W; "same" is ``accumulator``.
        wgrad_with_hp: whether the weight's gradient is computed from operands that are not encoded.

    Each product encodes its operands from the high-precision tensors, with blocks along its own sum.

    Raises:
        FormatError, SpecError: for formats and accumulators that mean nothing.
    """

    input: str | BlockFormat = "mxfp8_e4m3"
    weight: str | BlockFormat | None = None
    grad: str | BlockFormat | None = None
    accumulator: str | Accumulator | None = "fp32"
    dgrad_accumulator: str | Accumulator | None = SAME
    wgrad_accumulator: str | Accumulator | None = SAME
    wgrad_with_hp: bool = False

    def __post_init__(self) -> None:
        for name in ("weight", "grad"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, self.input)
        _normalise(self, ("accumulator", "dgrad_accumulator", "wgrad_accumulator"), ("wgrad_with_hp",))
        for name in ("dgrad_accumulator", "wgrad_accumulator"):
            if getattr(self, name) == SAME:
                object.__setattr__(self, name, self.accumulator)
        x, w, g = self.input, self.weight, self.grad
        last = (None, None) if self.wgrad_with_hp else (g, x)
        _check_products((x, w, self.accumulator), (g, w, self.dgrad_accumulator), (*last, self.wgrad_accumulator))


@dataclass(frozen=True)
class MXInferenceConfig:
    """The product of a linear layer whose weight is kept in a block format.

    Args:
        weight: block format of the weight, blocks along its input features.
        activation: block format to which the input is encoded at each call; None multiplies it as it is (weight-only).
        accumulator: of ``x @ W.T``; None is a native PyTorch product of the decoded operands.

    Raises:
        FormatError, SpecError: for formats and accumulators that mean nothing.
    """

    weight: str | BlockFormat = "mxfp8_e4m3"
    activation: str | BlockFormat | None = "mxfp8_e4m3"
    accumulator: str | Accumulator | None = "fp32"

    def __post_init__(self) -> None:
        _normalise(self, ("accumulator",))
        weight = None if self.activation is None else self.weight
        _check_products((self.activation, weight, self.accumulator))


@dataclass(frozen=True)
class MXAttentionConfig:
    """The two products of attention: scores, and probabilities times values.

    Args:
        query, key: block formats along the head's dimension.
        value: along the sequence.
        probabilities: along the keys.
        grad: of the gradients of both products' results; each is encoded along the sum it enters.
        accumulator: of all products, those of the gradients included; None is PyTorch's own.

    Formats that are None are ``query``'s.

    Raises:
        FormatError, SpecError: for formats and accumulators that mean nothing.
    """

    query: str | BlockFormat = "mxfp8_e4m3"
    key: str | BlockFormat | None = None
    value: str | BlockFormat | None = None
    probabilities: str | BlockFormat | None = None
    grad: str | BlockFormat | None = None
    accumulator: str | Accumulator | None = "fp32"

    def __post_init__(self) -> None:
        for name in ("key", "value", "probabilities", "grad"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, self.query)
        _normalise(self, ("accumulator",))
        q, k, v, p, g = self.query, self.key, self.value, self.probabilities, self.grad
        _check_products(*((a, b, self.accumulator) for a, b in ((q, k), (p, v), (g, k), (q, g), (g, v), (p, g))))


def short_config(config: MXLinearConfig | MXInferenceConfig) -> str:
    """A config as printed layers show it: the one block format that makes it, or up to 48 letters in the class's name.

    ``'mxfp8_e4m3'``; ``MXLinearConfig('mxfp8_e4m3', grad='mxfp8_e5m2', accumulator='e5m10')``, where fields that are
    not shown are the first one's format, float32 and what follows from the others.
    """
    first, *rest = ((field.name, getattr(config, field.name)) for field in fields(config))
    usual = {
        **dict.fromkeys(("weight", "grad", "activation"), first[1]),
        **dict.fromkeys(("dgrad_accumulator", "wgrad_accumulator"), config.accumulator),
        "accumulator": str(Accumulator.parse("fp32")),
        "wgrad_with_hp": False,
    }
    other = [f"{name}={value!r}" for name, value in rest if value != usual[name]]
    return f"{type(config).__name__}({cut(', '.join([repr(first[1]), *other]))})" if other else repr(first[1])


@assume_constant_result
def linear_constants(fmt: str | BlockFormat) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """Formats and accumulators of ``MXLinearConfig(fmt)``; constants of compiled code, whose tracer parses nothing."""
    made = MXLinearConfig(fmt)
    return (made.input, made.weight, made.grad), (made.accumulator, made.dgrad_accumulator, made.wgrad_accumulator)


@assume_constant_result
def attention_constants(fmt: str | BlockFormat) -> tuple[Any, ...]:
    """Fields of ``MXAttentionConfig(fmt)`` in order; constants of compiled code, whose tracer parses nothing."""
    made = MXAttentionConfig(fmt)
    return made.query, made.key, made.value, made.probabilities, made.grad, made.accumulator
