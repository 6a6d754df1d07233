"""``gemmsim trace --codes``: operands as raw codes, and the code of each step's value."""

from __future__ import annotations

from typing import Any

import gemmsim as gs
from gemmsim.arithmetic import Integer
from gemmsim.formats import Cast, Format, FormatError, parse_cast, parse_scalar

__all__ = ["coded_numbers", "coded_steps", "operand_formats"]


def operand_formats(spec: gs.GemmSpec) -> tuple[Format, Format]:
    """The formats whose codes ``--a`` and ``--b`` are: those that the spec casts its operands to, else binary32.

    Raises:
        FormatError: a block format, whose numbers have no codes of their own.
    """
    found: list[Format] = []
    for given in (spec.a, spec.b):
        if given is not None and not isinstance(given, Cast):
            raise FormatError(
                f"--codes with operands in {given}; allowed: formats with a code for each number.\n"
                "  Leave --codes out, or give the elements' format."
            )
        found.append(gs.formats.FP32 if given is None else given.format)
    return found[0], found[1]


def coded_numbers(text: str, option: str, fmt: Format) -> list[float]:
    """The numbers of the codes in ``text``, hexadecimal and separated by commas.

    Raises:
        FormatError: what is no code of ``fmt``.
    """
    return [_decoded(word.strip(), option, fmt) for word in text.split(",") if word.strip()]


def _decoded(word: str, option: str, fmt: Format) -> float:
    try:
        code = int(word, 16)
    except ValueError:
        raise FormatError(
            f"{option} {word!r} is no code; allowed: hexadecimal, such as 3c.\n  Leave --codes out for numbers."
        ) from None
    if not 0 <= code < 1 << fmt.bits:
        raise FormatError(f"{option}: code {word!r} of {fmt}; allowed: {fmt.bits} bits.\n  Use fewer digits.")
    return float(fmt.decode(code))


def coded_steps(found: gs.Trace, spec: gs.GemmSpec) -> list[tuple[str, str] | None]:
    """Code and format of the value of each step; None for a value that its format does not hold, such as a product.

    The format is what the step rounds to, for sums else the register's.
    """
    register = _register(spec)
    return [_coded(step, register) for step in found.steps]


def _coded(step: Any, register: Format) -> tuple[str, str] | None:
    if step.kind in ("operands", "order"):
        return None
    if step.cast is not None:
        fmt: Format = parse_cast(step.cast).format
    elif step.kind in ("product", "shift"):
        return None
    else:
        fmt = register
    try:
        code = fmt.encode(float(step.value))
    except (FormatError, AttributeError):
        return None
    return f"{int(code):0{(fmt.bits + 3) // 4}x}", str(fmt)


def _register(spec: gs.GemmSpec) -> Format:
    """The format of sums: of an integer register two's complement, or binary, of its bits."""
    accumulator = spec.accumulator
    while accumulator.integer_operands and not isinstance(accumulator, Integer) and hasattr(accumulator, "inner"):
        accumulator = accumulator.inner
    if isinstance(accumulator, Integer):
        return parse_scalar(f"{'' if accumulator.signed else 'u'}fixed({accumulator.P},0)")
    return accumulator.add_cast.format
