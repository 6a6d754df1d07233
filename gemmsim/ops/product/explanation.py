"""A spec in words, and what would run it."""

from __future__ import annotations

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import GemmSpec, Palette
from gemmsim.backends import route

from .affine_formats import QAffineFormats, formats_named
from .matmul import FormatsLike
from .recipe_table import recipe_table, source_of

__all__ = ["explain"]


@takes_spec()
def explain(spec: FormatsLike) -> str:
    """What ``spec`` computes, step by step, and for each backend whether it can run it or why not.

    For ``QAffineFormats`` and the name of a recipe, a table of operands, scales and roundings comes first, then every
    product; for a recipe also its source. Nothing is run or compiled, but the CPU library is loaded. ``SpecError``
    for a spec that means nothing.

    Example:
        >>> print(gs.explain("e4m3 : fp16").splitlines()[3])
        each step   s = R(s + a*b), one rounding to e5m10 (max 65504), to nearest, ties to even
    """
    named = formats_named(spec) if isinstance(spec, str) else None
    if named is not None:
        about = source_of(str(spec))
        return "\n".join([*([about] if about else []), _explain_formats(named)])
    if isinstance(spec, QAffineFormats):
        return _explain_formats(spec)
    meaning = GemmSpec.of(spec)
    return f"{meaning.explain()}\n{_backward(meaning)}\n{_backends(meaning)}"


def _backward(spec: GemmSpec) -> str:
    """What the backward products of a layer with this spec are, and what becomes of the gradient before them."""
    if isinstance(spec.accumulator, Palette):
        return "backward    none: select applies to the forward product only"
    formats = QAffineFormats.of(spec)
    dgrad, wgrad = formats.dgrad, formats.wgrad
    assert dgrad is not None and wgrad is not None
    products = f"dgrad {dgrad}" + (f", wgrad {wgrad}" if wgrad != dgrad else " and the same for wgrad")
    if dgrad.has_blocks:
        return f"backward    {products}: every operand is encoded again, including the gradient"
    if dgrad.cast_a is not None:
        return f"backward    {products}: the gradient is rounded to {dgrad.cast_a}"
    if spec.cast_a is None and spec.cast_b is None:
        return f"backward    {products}"
    rounds = "QAffineFormats(dgrad=..., wgrad=...) or a recipe rounds it"
    return f"backward    {products}: the gradient is not rounded to an operand format; {rounds}"


def _explain_formats(formats: QAffineFormats) -> str:
    parts = [repr(formats), recipe_table(formats)]
    for role, words in (("fprop", "input * weight"), ("dgrad", "gradient * weight"), ("wgrad", "gradient * input")):
        meaning: GemmSpec | None = getattr(formats, role)
        text = "PyTorch's own product" if meaning is None else f"{meaning.explain()}\n{_backends(meaning)}"
        parts.append(f"{role} ({words}):\n" + "\n".join(f"  {line}" for line in text.splitlines()))
    return "\n".join(parts)


def _backends(spec: GemmSpec) -> str:
    """What the routes say of the spec."""
    return "\n".join(route.explain(spec))
