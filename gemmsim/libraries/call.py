"""One product that a library is asked for: shape, formats, flags."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..formats import Format, FormatError, parse_scalar
from ..formats.errors import shown
from .errors import library_error

__all__ = ["FP8", "Call", "format_name", "read_call", "size"]

FP8 = frozenset({"e4m3", "e5m2"})
#: Formats that libraries multiply or return, by their names here.
_COMMON = ("fp16", "bf16", "fp32", "fp64", "tf32", "e4m3", "e5m2")
#: What a caller may write -> name; filled as words are read.
_NAMES: dict[Any, str] = {}
_DTYPES = {
    "torch.float16": "fp16",
    "torch.bfloat16": "bf16",
    "torch.float32": "fp32",
    "torch.float64": "fp64",
    "torch.float8_e4m3fn": "e4m3",
    "torch.float8_e5m2": "e5m2",
}
_LARGEST = 2**31 - 1


class Call(NamedTuple):
    """A product of M x K by K x N: formats by name, ``fast`` for accumulation without promotion (FP8).

    Example:
        >>> gs.libraries.cublaslt("h100").plan(64, 64, 8192, "fp16", config="66,,,,,,35").call[:6]
        (64, 64, 8192, 'fp16', 'fp16', 'fp16')
    """

    M: int
    N: int
    K: int
    a: str
    b: str
    out: str
    fast: bool

    def __str__(self) -> str:
        operands = self.a if self.a == self.b else f"{self.a} * {self.b}"
        fast = ", fast accumulation" if self.fast else ""
        return f"{self.M} x {self.N} x {self.K} in {operands} to {self.out}{fast}"


def read_call(M: Any, N: Any, K: Any, a: Any, b: Any, out: Any, fast: Any) -> Call:
    """The call that these arguments name: b is a by default, out is a, for FP8 fp16.

    Raises:
        LibraryError: sizes that are no positive integers, formats that do not exist, a flag that is no bool.
    """
    for name, value in (("M", M), ("N", N), ("K", K)):
        if type(value) is not int or not 1 <= value <= _LARGEST:
            size(name, value)
    if fast is not True and fast is not False:
        raise library_error(f"fast_accumulation={shown(fast)}", "True or False", "Leave it out for False.")
    of_a = format_name("a", a)
    of_b = of_a if b is None else format_name("b", b)
    if out is None:
        return Call(M, N, K, of_a, of_b, "fp16" if of_a in FP8 else of_a, fast)
    return Call(M, N, K, of_a, of_b, format_name("out", out), fast)


def size(name: str, value: Any) -> int:
    """``value`` as a size.

    Raises:
        LibraryError: what is no integer from 1 to 2^31 - 1; a bool is none.
    """
    if type(value) is not int or not 1 <= value <= _LARGEST:
        raise library_error(
            f"{name}={shown(value)}", "an integer from 1 to 2147483647", "Give the shape of the product."
        )
    return value


def format_name(argument: str, value: Any) -> str:
    """The short name of a format, given by a name, a format or a torch dtype.

    Raises:
        LibraryError: for what is neither.
    """
    try:
        found = _NAMES.get(value)
    except TypeError:
        found = None
    return found if found is not None else _read(argument, value)


def _read(argument: str, value: Any) -> str:
    text = _DTYPES.get(str(value), "") if not isinstance(value, (str, Format)) else value
    try:
        if text == "":
            raise FormatError("no dtype of a number format")
        fmt = parse_scalar(text) if isinstance(text, str) else text
    except FormatError:
        raise library_error(
            f"{argument}={shown(value)}",
            "a format or its name, such as 'fp16', 'bf16', 'e4m3', or a torch dtype of one",
            "`gemmsim formats` lists the names.",
        ) from None
    name = _short(fmt)
    if isinstance(value, str) or str(value) in _DTYPES:
        if len(_NAMES) > 256:
            _NAMES.clear()
        _NAMES[value] = name
    return name


def _short(fmt: Format) -> str:
    return next((name for name in _COMMON if parse_scalar(name) == fmt), str(fmt))
