"""Specifications in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeAlias

from ..formats import (
    TENSOR_FORMATS,
    Binary8Format,
    Binary8Policy,
    BlockFormat,
    Cast,
    FixedFormat,
    FloatFormat,
    Overflow,
    OwnExponentFormat,
    ScaledCast,
    Specials,
    TensorFormat,
)

__all__ = ["explain_accumulator", "explain_spec"]

_HEADING_WIDTH = 12
_Operand: TypeAlias = Cast | BlockFormat | TensorFormat | None


class _Accumulator(Protocol):
    """What is asked of an accumulator here."""

    @property
    def add_cast(self) -> Cast: ...

    @property
    def fixed_seed(self) -> int | None: ...

    def casts(self) -> Iterator[Cast]: ...

    def explain_lines(self) -> list[tuple[str, str]]: ...


class _Spec(Protocol):
    """What is asked of a ``GemmSpec`` here."""

    @property
    def a(self) -> _Operand: ...

    @property
    def b(self) -> _Operand: ...

    @property
    def accumulator(self) -> _Accumulator: ...

    @property
    def out(self) -> Cast | None: ...

    @property
    def arithmetic(self) -> str: ...

    @property
    def group(self) -> int | None: ...

    @property
    def fixed_seed(self) -> int | None: ...

    def casts(self) -> Iterator[Cast]: ...


def _under_scales(spec: _Spec, lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What an accumulator says of groups and scales, in the words of binary32 scales where operands have such."""
    formats = [fmt for fmt in (spec.a, spec.b) if isinstance(fmt, ScaledCast)]
    if all(fmt.block_format is not None for fmt in formats):
        return lines
    words = {
        "groups": "the terms that share the scales of both operands are added as above, starting from +0; s is the sum",
        "scales": "X = Xa * Xb in binary32; S = R(S + X * s) for the groups in order, exact before R, to "
        + spec.accumulator.add_cast.words(),
    }
    return [(about, words.get(about, says)) for about, says in lines]


def explain_spec(spec: _Spec) -> str:
    """What ``spec`` computes: operands, product, steps, order, overflow, output, arithmetic, random bits."""
    lines = [("spec", str(spec)), *_operand_lines(spec), *_under_scales(spec, spec.accumulator.explain_lines())]
    lines += _overflow_lines(spec)
    result = "the accumulator's value" if spec.out is None else f"rounded to {spec.out.words()}"
    lines.append(("output", f"{result}, then to nearest even in the output tensor's dtype"))
    if spec.arithmetic == "exact":
        lines.append(("arithmetic", "exact: every rounding happens once, from the exact value"))
    else:
        lines.append(("arithmetic", "fp32: each exact value is first rounded to binary32 (to nearest even)"))
    lines += _random_lines(spec.casts(), spec.fixed_seed)
    return _layout(lines)


def explain_accumulator(accumulator: _Accumulator) -> str:
    """What ``accumulator`` computes: product, steps, order, overflow, random bits."""
    lines = [("accumulator", str(accumulator)), *accumulator.explain_lines()]
    lines += [("overflow", text) for text in _overflow_texts(accumulator.casts())]
    lines += _random_lines(accumulator.casts(), accumulator.fixed_seed)
    return _layout(lines)


def _operand_lines(spec: _Spec) -> list[tuple[str, str]]:
    if spec.a == spec.b:
        return [("operands", f"a and b {_operand_words(spec.a)}"), *_block_lines(spec)]
    return [("operand a", _operand_words(spec.a)), ("operand b", _operand_words(spec.b)), *_block_lines(spec)]


def _operand_words(step: _Operand) -> str:
    if step is None:
        return "as given"
    if isinstance(step, Cast):
        return f"rounded to {step.words()}"
    if isinstance(step, TENSOR_FORMATS):
        return step.words()
    return f"in {step}: blocks of {step.block_size} {step.element} along k with a {step.scale} scale"


def _block_lines(spec: _Spec) -> list[tuple[str, str]]:
    """What the values of block formats are, and where the scales enter."""
    if not any(isinstance(fmt, BlockFormat) for fmt in (spec.a, spec.b)):
        return []
    tensor = any(isinstance(fmt, BlockFormat) and fmt.tensor_scale for fmt in (spec.a, spec.b))
    if spec.group is None:
        second = " * the tensor's scale" if tensor else ""
        return [("scales", f"in each product: values are element * scale{second}, exact")]
    lines = [("scales", f"separate from the elements; each {spec.group} adjacent terms share one pair of scales")]
    if tensor:
        lines.append(
            (
                "",
                f"at the end T * S with the tensors' scales T, rounded once to {spec.accumulator.add_cast.format}",
            )
        )
    return lines


def _overflow_lines(spec: _Spec) -> list[tuple[str, str]]:
    return [("overflow", text) for text in _overflow_texts(spec.casts())]


def _overflow_texts(casts: Iterable[Cast]) -> list[str]:
    """One text for each format and policy, in order of appearance."""
    texts: dict[str, None] = {}
    for step in casts:
        texts[f"{step.format}: {_overflow_words(step)}"] = None
    return list(texts)


def _overflow_words(step: Cast) -> str:
    fmt = step.format
    if isinstance(fmt, FixedFormat):
        return "saturates" if fmt.clamp else "none, the grid has no bounds"
    if isinstance(fmt, Binary8Format):
        if fmt.policy is Binary8Policy.SATURATE_PROPAGATE:
            return "saturates; infinities stay"
        infinity = fmt.policy is Binary8Policy.SATURATE_INFTY
        return "to infinity in every rounding mode" if infinity else "saturates, including infinities"
    if isinstance(fmt, OwnExponentFormat):
        infinite = "infinities stay" if fmt.keep_infinity else "infinities saturate too"
        return f"no carry: each number stays at the largest integer of its exponent, at most 127; {infinite}"
    if step.overflow is not Overflow.INFINITY:
        return step.overflow.describe()
    if fmt.has_inf:
        return "to infinity"
    if isinstance(fmt, FloatFormat) and fmt.has_nan and fmt.specials is not Specials.P3109_FINITE:
        return "to NaN (no infinity in the format)"
    return "to the largest value (the format is finite)"


def _random_lines(casts: Iterable[Cast], seed: int | None) -> list[tuple[str, str]]:
    bits = sorted({step.rounding.bits for step in casts if step.is_stochastic})
    if not bits:
        return []
    amount = " or ".join(map(str, bits))
    source = "a new seed at each call" if seed is None else f"seed {seed}"
    return [
        (
            "random",
            f"{amount} random bits per rounding, Philox4x32-10, {source}; same bits for any tiling and thread count",
        )
    ]


def _layout(lines: list[tuple[str, str]]) -> str:
    texts, previous = [], ""
    for heading, text in lines:
        texts.append(f"{'' if heading == previous else heading:<{_HEADING_WIDTH}}{text}")
        previous = heading
    return "\n".join(texts)
