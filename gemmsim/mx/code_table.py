"""Every code of an element or scale format, field by field. ``python -m gemmsim.mx.code_table FORMAT`` prints it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from gemmsim.formats import (
    TENSOR_FORMATS,
    BlockFormat,
    CodebookFormat,
    FixedFormat,
    Format,
    FormatError,
    parse,
)

__all__ = ["format_table", "main"]

_MOST_BITS = 16


def format_table(fmt: str | Format | BlockFormat) -> list[dict[str, object]]:
    """Return one dictionary for each code of a format, in ascending order of codes.

    The keys are ``code``, the bits of sign ``s``, exponent ``e`` and significand ``m`` as strings, and ``value``.
    ``fmt`` is a format of up to 16 bits; for a block format the table lists its elements. Fields that a format lacks
    are empty strings; integers have their bits in ``m``.

    Raises:
        FormatError: for an unknown format, and for one of more than 16 bits.

    Example:
        >>> gs.mx.format_table("e2m1")[1]  # the subnormal
        {'code': 1, 's': '0', 'e': '00', 'm': '1', 'value': 0.5}
        >>> [row["value"] for row in gs.mx.format_table("mxfp4")[:8]]
        [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    """
    single = element_of(fmt)
    if single.bits > _MOST_BITS:
        raise FormatError(
            f"format_table of {single} with {single.bits} bits; allowed: formats of up to {_MOST_BITS} bits.\n"
            "  Call decode(code) on the codes of interest."
        )
    return [{"code": code, **_fields(single, code), "value": single.decode(code)} for code in single.codes()]


def element_of(fmt: str | Format | BlockFormat) -> Format:
    """The format of single numbers that ``fmt`` names, or that the elements of the block format have.

    Raises:
        FormatError: for an unknown format, and for block floating point, whose elements are plain integers.
    """
    meaning = parse(fmt)
    if isinstance(meaning, TENSOR_FORMATS):
        raise FormatError(
            f"elements of {meaning}; allowed: formats of single numbers and block formats, which have codes.\n"
            "  Use gemmsim.quantize for formats of tensors."
        )
    return meaning.element if isinstance(meaning, BlockFormat) else meaning


def _fields(fmt: Format, code: int) -> dict[str, object]:
    text = f"{code:0{fmt.bits}b}"
    if isinstance(fmt, FixedFormat):
        return {"s": text[0] if fmt.signed else "", "e": "", "m": text[int(fmt.signed) :]}
    if isinstance(fmt, CodebookFormat):
        return {"s": "", "e": "", "m": text}
    sign = int(fmt.signed)
    return {"s": text[:sign], "e": text[sign : sign + fmt.exponent_bits], "m": text[sign + fmt.exponent_bits :]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of the format named on the command line; 2 for a usage error."""
    names = list(sys.argv[1:] if arguments is None else arguments)
    if len(names) != 1:
        print("usage: python -m gemmsim.mx.code_table FORMAT", file=sys.stderr)
        return 2
    try:
        rows = format_table(names[0])
    except FormatError as error:
        print(error, file=sys.stderr)
        return 2
    lines = [f"{row['code']:#06x}  {row['s']} {row['e']} {row['m']}  {row['value']!r}" for row in rows]
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:  # `| head` reads no more; nor may the interpreter's last flush write
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
