"""A format alone as the formats of a layer: what it means, and what people may have meant."""

from __future__ import annotations

import sys
import warnings

import torch

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.grammar import split_spec
from gemmsim.backends.dtypes import DTYPES
from gemmsim.formats import Cast, FloatFormat, parse_cast
from gemmsim.formats.any_format import FORMATS

__all__ = ["FormatsWarning", "caller", "note_spec", "warn_of_format_alone", "warn_of_gradients"]

#: Packages whose functions are between a user's line and the warning.
_BETWEEN = (__name__.partition(".")[0], "torch")
_SEEN: set[tuple[str, str]] = set()


class FormatsWarning(UserWarning):
    """Formats that mean something else than they seem to say, or that lose gradients or operands.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     product = gs.qmatmul(torch.full((1, 2), 999.0), torch.ones(2, 1), "e4m3fnuz : chunked(3, fp32)")
        >>> print(str(caught[0].message).splitlines()[0])
        e4m3fnuz : ...: 2 of 4 elements of the operands are beyond the largest value of e4m3fnuz (240) and became NaN.
    """


def warn_of_format_alone(owner: str, name: str, value: object) -> None:
    """Warn, once for each text, where ``value`` is a format alone: "e4m3", "e4m3 -> fp16", a format, a cast.

    Such a spec names the accumulator. ``":e4m3"`` says so and does not warn, nor does ``"e4m3 : fp32"``, whose operands
    are in that format; nor formats that hold all float32 numbers, with which both are the same.
    """
    alone = _format_alone(value)
    if alone is None or (owner, alone[0]) in _SEEN:
        return
    text, fmt, rest = alone
    _SEEN.add((owner, text))
    warnings.warn(
        f"{owner}: {name}={text!r} is only a format, which means the accumulator's format: every partial sum is "
        f"rounded to {fmt}, and the operands are not.\n"
        f"  Write {f':{text}'!r} for this. For operands in {fmt}, summed in fp32, write {f'{fmt} : fp32{rest}'!r}; "
        "for training in FP8 see gemmsim.recipes.",
        FormatsWarning,
        stacklevel=caller(),
    )


#: Texts of the three products that a spec alone stands for -> its text, where it casts operands and no gradient, and
#: the formats of its operands.
_UNCAST: dict[tuple[str | None, str | None, str | None], tuple[str, list[object]]] = {}


def note_spec(spec: GemmSpec, *products: GemmSpec) -> None:
    """A spec alone was read as these products, fprop, dgrad and wgrad."""
    if spec.a is not None and products[1].a is None and not products[1].accumulator.operand_casts:
        _UNCAST[str(products[0]), str(products[1]), str(products[2])] = str(spec), [spec.a, spec.b]


def warn_of_gradients(dtype: torch.dtype, *products: str | None) -> None:
    """Warn, once for each spec, in a backward pass whose products follow from a spec alone that casts operands: their
    gradients, of ``dtype``, are not cast. Not where a cast would leave each of them as it is ("fp32 : fp32")."""
    found = _UNCAST.get(products)  # type: ignore[arg-type]
    if found is None:
        return
    text, operands = found
    if ("gradients", text) in _SEEN or all(_keeps(operand, dtype) for operand in operands):
        return
    del _UNCAST[products]  # type: ignore[arg-type]
    _SEEN.add(("gradients", text))
    warnings.warn(
        f"{text!r} rounds only the operands of the forward product: the backward products use the gradient unrounded.\n"
        f"  Write {f'all_products({text})'!r} to cast the gradient in the same formats, with grad=... in another one, "
        f"or QAffineFormats(fprop={text!r}, dgrad={products[1]!r}, wgrad={products[2]!r}) for what it does now.",
        FormatsWarning,
        stacklevel=caller(),
    )


def caller() -> int:
    """The ``stacklevel`` of a warning by the function that asks: the first one outside this package and PyTorch."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    return level


def _format_alone(value: object) -> tuple[str, str, str] | None:
    """(text, format, what follows it) of a spec that names one format and no place for it, else None."""
    if isinstance(value, (Cast, *FORMATS)):
        value = str(value)
    if not isinstance(value, str) or ":" in value:
        return None
    try:
        GemmSpec.of(value)
        parts = split_spec(value)
        cast = parse_cast(parts.accumulator)
    except ValueError:  # no format, or no spec at all, whose error comes from where it is read
        return None
    if _holds_float32(cast):
        return None
    rest = f" -> {parts.out}" if parts.out else ""
    rest += f", arithmetic={parts.arithmetic}" if parts.arithmetic else ""
    return value.strip(), parts.accumulator, rest


def _keeps(operand: object, dtype: torch.dtype) -> bool:
    """Whether a cast leaves every number of ``dtype`` as it is, infinities and NaN too; None is no cast."""
    if operand is None:
        return True
    fmt, number = operand.format if isinstance(operand, Cast) else operand, DTYPES.get(dtype)
    if not isinstance(fmt, FloatFormat) or number is None:
        return False
    whole = fmt.subnormals and fmt.has_inf and fmt.has_nan and fmt.p >= number.p
    return whole and fmt.quantum_exponent <= number.quantum and min(fmt.max, -fmt.min) >= number.largest


def _holds_float32(cast: Cast) -> bool:
    fmt = cast.format
    return isinstance(fmt, FloatFormat) and fmt.p >= 24 and fmt.emax >= 127 and fmt.emin <= -126 and fmt.subnormals
