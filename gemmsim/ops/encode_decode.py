"""Codes of tensors: ``encode`` and ``decode`` of the formats, as operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.backends.code_layout import code_dtype, parts_of_codes, to_values
from gemmsim.backends.code_tables import codes_of, values_of_codes
from gemmsim.backends.device_tables import is_capturing
from gemmsim.formats import FixedFormat, Format, FormatError, OwnExponentFormat, parse_scalar
from gemmsim.formats.tensor_codec import CODECS

from .cast_arguments import RoundingLike, cast_name, fits
from .checks import FLOAT_DTYPES, check_float, check_tensor
from .errors import DTypeError, message
from .lazy_dynamo import assume_constant_result
from .product.operators import quantize_op
from .registration import define
from .seeds import check_seed

__all__ = ["decode", "encode"]

_INTEGERS = (torch.uint8, torch.int8, *(getattr(torch, f"{sign}int{n}") for n in (16, 32, 64) for sign in ("", "u")))
#: Elements that are looked at together: a dozen int64 tensors of so many are in memory at once.
_AT_ONCE = 1 << 20


def encode(
    x: Tensor,
    fmt: Format | str,
    *,
    rounding: RoundingLike | None = None,
    overflow: object = None,
    seed: int | None = None,
) -> Tensor:
    """Codes of the elements of ``x`` in ``fmt``, as ``FloatFormat.encode`` says.

    Raises:
        FormatError: for an element without a code; for formats without codes or beyond float64.
        DTypeError: unless ``x`` is a float tensor.
    """
    name = _checked(fmt)
    check_float("encode", "x", x)
    if rounding is not None or overflow is not None:
        x = quantize_op(x.detach(), cast_name(name, rounding, overflow), check_seed("encode", seed), widen=True)
    result: Tensor = _encode_op(x.detach(), name)
    return result


def decode(codes: Tensor, fmt: Format | str, *, dtype: torch.dtype | None = None) -> Tensor:
    """Values of ``codes`` of ``fmt``, as ``FloatFormat.decode`` says.

    Raises:
        FormatError: for a code that is out of range or unused; for formats without codes or beyond float64.
        DTypeError: unless ``codes`` is an integer tensor, and for a ``dtype`` that does not hold every value.
    """
    name = _checked(fmt)
    check_tensor("decode", "codes", codes)
    if codes.dtype not in _INTEGERS:
        asked = f"decode: codes have dtype {codes.dtype}"
        raise DTypeError(message(asked, "integers", "View them as integers: codes.view(torch.uint8)."))
    result: Tensor = _decode_op(codes, name, _value_dtype(name, dtype))
    return result


@assume_constant_result
def _checked(fmt: Format | str) -> str:
    """Name of a format that has codes, whose values float64 holds."""
    found = parse_scalar(fmt)
    if isinstance(found, OwnExponentFormat):
        found.codes()  # says that there are none
    if isinstance(found, FixedFormat) and not found.clamp:
        found.codes()  # likewise
    if not fits(found, torch.float64):
        raise FormatError(
            f"codes of {found} as tensors; allowed: formats whose values float64 holds.\n"
            "  Use decode_exact(code), one by one."
        )
    return str(found)


@assume_constant_result
def _value_dtype(name: str, dtype: torch.dtype | None) -> torch.dtype:
    fmt = parse_scalar(name)
    if dtype is None:
        return torch.float32 if fits(fmt, torch.float32) else torch.float64
    if dtype not in FLOAT_DTYPES or not fits(fmt, dtype):
        holding = ", ".join(str(d) for d in sorted(FLOAT_DTYPES, key=str) if fits(fmt, d))
        raise DTypeError(message(f"decode: dtype={dtype} for {fmt}", holding, "Leave it out, and convert the result."))
    return dtype


def _encode(x: Tensor, fmt: str) -> Tensor:
    meaning = parse_scalar(fmt)
    out = torch.empty(x.shape, dtype=code_dtype(meaning), device=x.device)
    flat, target = x.reshape(-1), out.view(-1)
    for start in range(0, flat.numel(), _AT_ONCE):
        part = flat[start : start + _AT_ONCE]
        codes, good = codes_of(fmt, meaning, part)
        if not is_capturing(part.device) and not bool(good.all()):  # a captured graph waits for nothing
            first = part[~good][0].to(torch.float64).item()
            raise _no_code(meaning, first, int((~good).sum()))
        target[start : start + _AT_ONCE] = codes
    return out


def _no_code(fmt: Any, value: float, count: int) -> FormatError:
    """The error that ``fmt.encode`` of the number raises, for a tensor."""
    try:
        fmt.encode(value)
    except FormatError as error:
        said, _, do = str(error).partition("\n")
        more = f" (and {count - 1} more)" if count > 1 else ""
        advice = "NaN has no code there: replace it first." if value != value else "Give rounding='rne', or another."
        return FormatError(f"encode{more}: {said}\n  {advice if value == value or not fmt.has_nan else do.strip()}")
    raise AssertionError(f"{fmt}: {value!r} has a code")


def _decode(codes: Tensor, fmt: str, dtype: torch.dtype) -> Tensor:
    meaning = parse_scalar(fmt)
    out = torch.empty(codes.shape, dtype=dtype, device=codes.device)
    flat, target = codes.reshape(-1), out.view(-1)
    width = codes.element_size() * 8
    for start in range(0, flat.numel(), _AT_ONCE):
        part = flat[start : start + _AT_ONCE].to(torch.int64)
        if width == meaning.bits and width < 64:
            part = part & ((1 << width) - 1)  # bits as they are stored, whether the dtype has a sign or not
        in_range = (part >= 0) & (part < 1 << meaning.bits) if meaning.bits < 63 else (part >= 0) | (meaning.bits == 64)
        index = torch.where(in_range, part, 0)
        if meaning.bits <= 16:
            table, in_use = values_of_codes(fmt, dtype, codes.device)
            values, used = table[index], in_use[index]
        else:
            parts, used = parts_of_codes(meaning, index)
            values = to_values(parts, dtype)
        good = used & in_range
        if not is_capturing(part.device) and not bool(good.all()):  # a captured graph waits for nothing
            meaning.decode(int(part[~good][0]))  # raises
            raise AssertionError(f"{meaning}: {int(part[~good][0])} is a code")
        target[start : start + _AT_ONCE] = values
    return out


def _encode_fake(x: Tensor, fmt: str) -> Tensor:
    return torch.empty(x.shape, dtype=code_dtype(parse_scalar(fmt)), device=x.device)


def _decode_fake(codes: Tensor, fmt: str, dtype: torch.dtype) -> Tensor:
    return torch.empty(codes.shape, dtype=dtype, device=codes.device)


def _encode_batched(
    op: Any, info: Any, in_dims: tuple[int | None, ...], x: Tensor, fmt: str
) -> tuple[Tensor, int | None]:
    return op(x, fmt), in_dims[0]


def _decode_batched(
    op: Any, info: Any, in_dims: tuple[int | None, ...], codes: Tensor, fmt: str, dtype: torch.dtype
) -> tuple[Tensor, int | None]:
    return op(codes, fmt, dtype), in_dims[0]


_encode_op = define("encode(Tensor x, str fmt) -> Tensor", _encode, _encode_fake, vmap=_encode_batched, tags=())
_decode_op = define(
    "decode(Tensor codes, str fmt, ScalarType dtype) -> Tensor", _decode, _decode_fake, vmap=_decode_batched, tags=()
)
CODECS.update(encode=encode, decode=decode)
