"""The errors of this package, and the wording its messages share."""

from __future__ import annotations

from collections.abc import Mapping

from ..formats import FormatError
from ..formats.errors import LONGEST, message, shortened, shown

__all__ = [
    "MAX_DEPTH",
    "SelectError",
    "SpecError",
    "SpecFormatError",
    "UnsupportedSpec",
    "check_json_depth",
    "check_text_depth",
    "spec_error",
    "too_deep",
]

#: Brackets or accumulators in one another; no meaning needs more, and reading them calls itself.
MAX_DEPTH = 64


class SpecError(ValueError):
    """A GEMM specification or accumulator without meaning: a bad string, a bad argument, or a contradiction.

    Example:
        >>> gs.GemmSpec.parse("e4m3 : chunkd(64, bf16)")
        Traceback (most recent call last):
            ...
        gemmsim.arithmetic.errors.SpecError: ...unknown constructor 'chunkd'. Did you mean chunked(...)?
          Accumulators allowed: a format such as e5m10, ...
    """


class SpecFormatError(SpecError, FormatError):
    """An unknown format, rounding or overflow policy in a spec: a ``SpecError`` and a ``FormatError``.

    Example:
        >>> gs.GemmSpec.parse("e4m : fp32")
        Traceback (most recent call last):
            ...
        gemmsim.arithmetic.errors.SpecFormatError: GemmSpec, a: unknown format 'e4m'. Did you mean 'e4m3' or 'ue4m3'?
          Formats allowed: names such as e4m3, bf16, e5m10 and fixed(8,4); `gemmsim formats` lists them.
    """


class UnsupportedSpec(ValueError):
    """A specification that has a meaning but that the requested backend cannot compute.

    Example:
        >>> gs.qsqrt(torch.ones(2), "posit(8,2)")
        Traceback (most recent call last):
            ...
        gemmsim.arithmetic.errors.UnsupportedSpec: posit(8,2) here; allowed: lists of values as operands, ...
          Use a float, fixed-point or block format for the steps of functions.
    """


class SelectError(ValueError, IndexError):
    """A palette without ``select``, or with an index in ``select`` that is out of range.

    Example:
        >>> gs.qmatmul(torch.ones(1, 2), torch.ones(2, 1), "palette(bf16, fp32)")
        Traceback (most recent call last):
            ...
        gemmsim.arithmetic.errors.SelectError: a palette without select; allowed: one index for each element ...
          Give select=, integers that broadcast to the result (gemmsim.qmatmul, gemmsim.qmm).
    """


def spec_error(asked: str, allowed: str, do: str) -> SpecError:
    """``SpecError`` that says what was asked, what is allowed and what to do."""
    return SpecError(message(asked, allowed, shortened(do, 2 * LONGEST)))


def too_deep(asked: str) -> SpecError:
    """``SpecError`` for what is nested deeper than ``MAX_DEPTH``."""
    return spec_error(asked, f"at most {MAX_DEPTH}", "Nest fewer.")


def check_text_depth(text: str) -> None:
    """``SpecError`` for brackets nested deeper than ``MAX_DEPTH``."""
    if text.count("(") <= MAX_DEPTH:
        return
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth > MAX_DEPTH:
            raise too_deep(f"{shown(text)}: brackets nested deeper than {MAX_DEPTH}")


def check_json_depth(data: object) -> None:
    """``SpecError`` for lists and mappings nested deeper than any accumulator's."""
    level: list[object] = [data]
    for _ in range(MAX_DEPTH + 8):  # an argument such as a cast is a few mappings more
        inside: list[object] = []
        for one in level:
            inside += one.values() if isinstance(one, Mapping) else one if isinstance(one, (list, tuple)) else ()
        if not inside:
            return
        level = inside
    raise too_deep(f"JSON nested deeper than {MAX_DEPTH}")
