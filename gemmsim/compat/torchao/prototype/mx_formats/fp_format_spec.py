"""``torchao.prototype.mx_formats.fp_format_spec``: fields, formulas and notable codes of number formats, as values.

They are read from ``gemmsim.formats``. ``python -m gemmsim.compat.torchao.prototype.mx_formats.fp_format_spec`` prints
the notable codes of every format; ``gemmsim formats NAME --codes`` prints all codes of one.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
from torch import Tensor

from gemmsim.formats import FloatFormat, Specials, parse

from ...casts import get_bits as get_bits
from ...errors import ElementError, LayoutError, message
from ...kinds import DTYPE_FP6_E2M3 as DTYPE_FP6_E2M3
from ...kinds import DTYPE_FP6_E3M2 as DTYPE_FP6_E3M2

__all__ = [
    "assert_same",
    "dtype_to_bitwidth",
    "dtype_to_exp_bias",
    "dtype_to_int_dtype",
    "dtype_to_interesting_values",
    "dtype_to_sem_len",
    "exp_encoding_to_exp",
    "float4_e2m1_interesting_values",
    "float6_e2m3_interesting_values",
    "float6_e3m2_interesting_values",
    "get_sem_bits",
    "run",
    "sem_bits_to_sem_vals",
    "sem_vals_to_f32",
    "sem_vals_to_formula",
]

_FLOATS: dict[Any, str] = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.float8_e4m3fnuz: "e4m3fnuz",
    torch.float8_e5m2fnuz: "e5m2fnuz",
}
_SIX: dict[Any, str] = {DTYPE_FP6_E3M2: "e3m2", DTYPE_FP6_E2M3: "e2m3"}
#: ``torch.uint8`` stands for codes of e2m1, one to a byte, where torchao's functions take it.
_FOUR = torch.float4_e2m1fn_x2
_ALL: dict[Any, str] = {**_FLOATS, **_SIX, _FOUR: "e2m1"}


def _format(dtype: object) -> FloatFormat:
    name = _ALL.get(dtype) if isinstance(dtype, (torch.dtype, str)) else None
    if name is None:
        allowed = ", ".join(map(str, _ALL))
        raise ElementError(message(f"fp_format_spec of {dtype!r}", allowed, "Try torch.float8_e4m3fn."))
    found = parse(name)
    assert isinstance(found, FloatFormat)
    return found


def _lengths(name: str) -> tuple[int, int, int]:
    found = parse(name)
    assert isinstance(found, FloatFormat)
    return 1, found.exponent_bits, found.trailing_bits


dtype_to_bitwidth: dict[Any, int] = {dtype: sum(_lengths(name)) for dtype, name in {**_FLOATS, **_SIX}.items()}
#: Bits of sign, exponent and significand.
dtype_to_sem_len: dict[Any, tuple[int, int, int]] = {
    **{dtype: _lengths(name) for dtype, name in _FLOATS.items()},
    torch.uint8: _lengths("e2m1"),
}
dtype_to_exp_bias: dict[Any, int] = {dtype: _format(dtype).bias for dtype in (*_FLOATS, *_SIX)}
#: Integers of the same width.
dtype_to_int_dtype: dict[Any, torch.dtype] = {
    **{dtype: {32: torch.int32, 16: torch.int16, 8: torch.int8}[dtype_to_bitwidth[dtype]] for dtype in _FLOATS},
    torch.uint8: torch.uint8,
}


def get_sem_bits(x: Tensor, bitwidth: int) -> tuple[str, str, str]:
    """The bits of sign, exponent and significand of a tensor of one number, each a text of zeros and ones.

    ``bitwidth``: of the format: 32, 16 or 8 of a tensor of that dtype; 4 of a uint8 tensor, a code of e2m1 in bits 0-3.

    Raises:
        LayoutError: for more or less than one number.
        ElementError: for other dtypes and widths. Both are ``AssertionError``.
    """
    if x.numel() != 1:
        raise LayoutError(message(f"get_sem_bits of {x.numel()} numbers", "one", "Take one element of the tensor."))
    wanted = 4 if x.dtype == torch.uint8 else dtype_to_bitwidth.get(x.dtype)
    if bitwidth != wanted:
        asked = f"get_sem_bits of {x.dtype} with bitwidth={bitwidth}"
        allowed = ", ".join(f"{dtype} with {width}" for dtype, width in {**_widths(), torch.uint8: 4}.items())
        raise ElementError(message(asked, allowed, "Give the width of the tensor's dtype."))
    text = get_bits(x.view(dtype_to_int_dtype[x.dtype]))[-bitwidth:]
    sign, exponent, _ = dtype_to_sem_len[x.dtype]
    return text[:sign], text[sign : sign + exponent], text[sign + exponent :]


def _widths() -> dict[Any, int]:
    return {dtype: dtype_to_bitwidth[dtype] for dtype in _FLOATS}


def exp_encoding_to_exp(exp_bit_str: str, dtype: Any) -> int:
    """The exponent that these bits encode; all zeros (subnormals) encode that of the smallest normal number.

    Raises:
        ElementError: for an unknown dtype.
    """
    return max(int(exp_bit_str, 2), 1) - _format(dtype).bias


def sem_bits_to_sem_vals(
    s_enc: str, e_enc: str, m_enc: str, dtype: Any
) -> tuple[int | None, int | None, float | None, float | None]:
    """(sign 1 or -1, exponent, significand, None) of a finite number, (None, None, None, value) of another.

    The significand is below 1 for subnormals and 0 for zeros.

    Raises:
        ElementError: for an unknown dtype.
    """
    fmt = _format(dtype)
    value = float(fmt.decode(int(s_enc + e_enc + m_enc, 2)))
    if not math.isfinite(value):
        return None, None, None, value
    implicit = 0 if int(e_enc, 2) == 0 else 1
    fraction = int(m_enc, 2) / 2 ** len(m_enc) if m_enc else 0.0
    return 1 if s_enc == "0" else -1, exp_encoding_to_exp(e_enc, dtype), implicit + fraction, None


def sem_vals_to_f32(s_i: int | None, e_i: int | None, m_f: float | None, special_value: float | None) -> float:
    """The number of ``sem_bits_to_sem_vals``'s result."""
    if special_value is not None:
        return special_value
    assert s_i is not None and e_i is not None and m_f is not None
    return s_i * 2.0**e_i * m_f


def sem_vals_to_formula(
    s_i: int | None, e_i: int | None, m_f: float | None, special_value: float | None
) -> str | float:
    """ "sign * 2^exponent * significand" of a finite number, the value of another."""
    return f"{s_i} * 2^{e_i} * {m_f}" if special_value is None else special_value


def _positive(fmt: FloatFormat) -> dict[int, str]:
    """Codes of notable finite numbers above zero and their notes; of e2m1 all."""
    largest, normal = int(fmt.encode(fmt.max)), 1 << fmt.trailing_bits
    notes = {
        largest: "largest_normal",
        normal: "smallest_normal",
        normal - 1: "largest_denormal",
        1: "smallest_denormal",
    }
    if fmt.bits > 4:
        return notes
    return {code: notes.get(code, f"val{code}") for code in range(1, largest + 1)}


def _notable(dtype: Any) -> dict[int, str]:
    """Codes of notable numbers of both signs, zeros, infinities, NaN and two others, and their notes."""
    fmt = _format(dtype)
    sign = 1 << (fmt.bits - 1)
    found = {0: "zero", **({sign: "zero_neg"} if fmt.has_negative_zero else {})}
    if fmt.has_nan:
        found[int(fmt.encode(math.nan))] = "nan"
    if fmt.specials is Specials.IEEE:
        found |= {int(fmt.encode(math.inf)): "inf", int(fmt.encode(-math.inf)): "inf_neg"}
    for code, note in _positive(fmt).items():
        found |= {code: note, code | sign: f"{note}_neg"}
    if fmt.bits > 6:
        positive = 30.0 if fmt.is_representable(30.0) else 32.0
        found |= {int(fmt.encode(positive)): "random_pos", int(fmt.encode(-24.0)): "random_neg"}
    return found


def _row(dtype: Any, code: int, note: str) -> tuple[float, str | float, str, str, str, str]:
    """(value, formula, bits of sign, exponent and significand, note)."""
    sign, exponent, trailing = _lengths(_ALL[dtype])
    text = f"{code:0{sign + exponent + trailing}b}"
    parts = text[:1], text[1 : 1 + exponent], text[1 + exponent :]
    vals = sem_bits_to_sem_vals(*parts, dtype)
    return sem_vals_to_f32(*vals), sem_vals_to_formula(*vals), *parts, note


def _rows(dtype: Any) -> list[tuple[float, str | float, str, str, str, str]]:
    return [_row(dtype, code, note) for code, note in _notable(dtype).items()]


#: dtype -> rows of (value, bits of sign, exponent and significand, note); values are exact.
dtype_to_interesting_values: dict[Any, list[tuple[float, str, str, str, str]]] = {
    dtype: [(value, s, e, m, note) for value, _, s, e, m, note in _rows(dtype)] for dtype in _FLOATS
}
#: Rows of (value, formula, bits of sign, exponent and significand, note): of e2m1 every number.
float4_e2m1_interesting_values = _rows(_FOUR)
float6_e3m2_interesting_values = _rows(DTYPE_FP6_E3M2)
float6_e2m3_interesting_values = _rows(DTYPE_FP6_E2M3)


def assert_same(fp1: float, fp2: float) -> None:
    """Check that both are the same number, or both NaN.

    Raises:
        AssertionError: otherwise.
    """
    if fp1 != fp2 and not (math.isnan(fp1) and math.isnan(fp2)):
        raise AssertionError(f"{fp2} and {fp1}; allowed: the same number")


def run(dtype: Any) -> None:
    """Print the notable numbers of a dtype as a table: value, formula, bits, note.

    Raises:
        ElementError: for an unknown dtype.
    """
    _format(dtype)
    header = ("orig_val", "formula", "s_enc", "e_enc", "m_enc", "note")
    table = [header, *(tuple(map(str, row)) for row in _rows(dtype))]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    table.insert(1, tuple("-" * width for width in widths))
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    sys.stdout.write("\n".join([f"dtype {dtype}", *lines, "", ""]))


if __name__ == "__main__":
    for _dtype in _ALL:
        run(_dtype)
