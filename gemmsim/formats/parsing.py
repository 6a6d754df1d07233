"""Text and formats: the one reader of names, whatever they name, and the names that users register.

Classes of formats write their own names and do not know this module; where their ``from_json`` meets a name, it comes
here through ``reader``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from .any_format import FORMATS, Format
from .binary8 import Binary8Format
from .block import BLOCK_NAMES, BlockFormat
from .block_float import BlockFloatFormat, is_block_float_name, parse_block_float
from .block_grammar import is_block_name, parse_block
from .canonical_names import is_shorthand
from .cast import Cast
from .dmatrix_names import TENSOR_FORMATS, TensorFormat, parse_shorthand, parse_tensor_format
from .errors import AsWritten, FormatError, format_error, meaning, shown, suggestion, unknown, unknown_format
from .float_format import FloatFormat
from .grammar import parse_pattern
from .json_fields import install
from .named import NAMED
from .own_exponent import own_exponent
from .rounding import (
    Overflow,
    Rounding,
    is_overflow_name,
    is_rounding_name,
    overflow_names,
    parse_overflow,
    parse_rounding,
    rounding_names,
)
from .scaled_cast import is_scaled_cast_name, parse_scaled_cast

__all__ = ["AnyFormat", "aliases", "names", "parse", "parse_cast", "parse_scalar", "register"]

#: What ``parse`` gives.
AnyFormat: TypeAlias = Format | BlockFormat | TensorFormat

_BUILT_IN: dict[str, Format] = {}
for _entry in NAMED:
    _BUILT_IN[str(_entry.format)] = _entry.format
    _BUILT_IN.update(dict.fromkeys(_entry.aliases, _entry.format))
_REGISTERED: dict[str, Format] = {}
_VIA = re.compile(r"\s*via\(.*\)\s*", re.IGNORECASE)
#: Words of the grammar that are no names.
_WORDS = ("ftz", "via", "float", "fixed", "ufixed", "supernormal", "binary8", "bfp", "posit", "codebook", "mul", "add")


def names() -> list[str]:
    """The sorted names that ``parse`` looks up: named formats, their aliases and registered names.

    The names of block formats are in ``BLOCK_NAMES``.

    Example:
        >>> [name for name in gs.formats.names() if name.startswith("e4m3")]
        ['e4m3', 'e4m3b11fnuz', 'e4m3fn', 'e4m3fnuz']
    """
    return sorted({**_BUILT_IN, **_REGISTERED})


def aliases(fmt: Format) -> list[str]:
    """The sorted names of ``fmt`` other than ``str(fmt)``.

    Example:
        >>> gs.formats.aliases(gs.formats.BF16)
        ['b', 'bf16', 'bfloat16']
    """
    known = {**_BUILT_IN, **_REGISTERED}
    return sorted(name for name, format in known.items() if format == fmt and name != str(fmt))


def register(name: str, fmt: Format) -> None:
    """Makes ``parse(name)`` give ``fmt`` in this process; ``str(fmt)`` stays its canonical name.

    Registering the same pair again does nothing.

    Raises:
        FormatError: for a name that is not letters, digits and underscores starting with a letter, that already means
            another format, or that is the name of a rounding or overflow policy.

    Example:
        >>> gs.formats.register("tiny_float", gs.formats.parse("e2m3"))
        >>> gs.GemmSpec.parse("tiny_float : fp32")
        GemmSpec.parse('e2m3 : e8m23')
    """
    if not isinstance(fmt, FORMATS):
        raise format_error(
            f"register({shown(name)}, {fmt!r})", "a format of single numbers", "Use parse(text) for a name."
        )
    key = name.strip().lower() if isinstance(name, str) else ""
    reserved = is_rounding_name(key) or is_overflow_name(key) or key in _WORDS
    if re.fullmatch(r"[a-z][a-z0-9_]*", key) is None or (reserved and key not in _BUILT_IN):
        raise format_error(
            f"register({shown(name)}, ...)",
            "a letter, then letters, digits and underscores; no word of the grammar",
            "Choose another name.",
        )
    try:
        taken: AnyFormat | None = parse(key)
    except FormatError:
        taken = None
    if taken is not None and taken != fmt:
        raise format_error(
            f"register({shown(name)}, {fmt})", f"names that are free; this one is {taken}", "Choose another name."
        )
    _REGISTERED[key] = fmt
    _parse.cache_clear()


def parse(text: str | AnyFormat) -> AnyFormat:
    """The format named by ``text``. ``parse(str(f)) == f`` for every format, and a format is returned as it is.

    Case and spaces do not matter, and "torch.float16" is read as "float16". "/ftz" after a float drops its subnormals.
    Names of block formats ("mxfp8_e4m3", "nvfp4", "mx(e3m2)/b16") give a ``BlockFormat``, those of block floating point
    ("bfp(8,16)", "bfp(8,tensor)/sr8") a ``BlockFloatFormat``. d-Matrix's shorthand ("BFP[8|8]{64}(SN)",
    "FP[1|4|3,7](_N)", "SBFP<..><..>{16}", "MXFP8[E4M3]{32}", "XP[8,+4](CSN)") is read too.

    Raises:
        FormatError: for an unknown name (the message suggests the nearest ones), for numbers that describe no format,
            and for a name with a rounding or overflow policy, which is a cast.

    Example:
        >>> str(gs.formats.parse("bfloat16"))
        'e8m7'
        >>> gs.formats.parse("fixed(8,4)").max
        7.9375
    """
    if isinstance(text, (BlockFormat, *TENSOR_FORMATS)):
        return text
    grammar = _grammar(text) if isinstance(text, str) else ""
    return _READERS[grammar](text) if grammar in _READERS else parse_scalar(text)  # type: ignore[arg-type]


def _grammar(text: str) -> str:
    """Which names ``text`` begins as; "single" for those of single numbers, which have no beginning in common."""
    if is_scaled_cast_name(text):
        return "scaled cast"
    if is_shorthand(text):
        return "shorthand"
    if is_block_name(text) and text.strip().lower() not in _REGISTERED:
        return "block"
    return "block float" if is_block_float_name(text) else "single"


def _of_shorthand(text: str) -> AnyFormat:
    found = parse_shorthand(text)
    if not isinstance(found, Cast):
        return found
    if found.rounding != Rounding.RNE:
        raise format_error(
            f"format {shown(text)} with a rounding", "formats, rounded to nearest", "Use parse_cast for casts."
        )
    return found.format


#: Readers of the grammars of which ``parse`` gives what they give.
_READERS: dict[str, Callable[[str], AnyFormat]] = {
    "shorthand": _of_shorthand,
    "block": parse_block,
    "block float": parse_block_float,
    "scaled cast": parse_scaled_cast,
}


def parse_scalar(text: str | Format | BlockFloatFormat) -> Format:
    """``parse`` for formats of single numbers. Here "bfp(8,1)", blocks of one number, gives an ``OwnExponentFormat``.

    Raises:
        FormatError: as ``parse``, and for block formats.

    Example:
        >>> gs.formats.parse_scalar("bfp(8,1)")
        OwnExponentFormat(bits=8, symmetric=True, keep_infinity=False)
    """
    if isinstance(text, FORMATS):
        return text
    grammar = _grammar(text) if isinstance(text, str) else ""
    found: AnyFormat | str = text
    if grammar in ("shorthand", "block float", "scaled cast"):
        found = _READERS[grammar](str(text))
        if isinstance(found, FORMATS):
            return found
    if isinstance(found, BlockFloatFormat):
        fmt, rounding = own_exponent(found)
        if rounding != Rounding.RNE:
            raise format_error(
                f"format {str(found)!r} with a rounding", "formats, rounded to nearest", "Use parse_cast for casts."
            )
        return fmt
    if isinstance(found, TENSOR_FORMATS):
        raise format_error(
            f"format {str(found)!r} where single numbers are rounded",
            "formats of single numbers; these are of tensors, whose blocks share a scale or have no overflow policy",
            "Use gemmsim.quantize for blocks, or a float, fixed-point or bfp(bits,1) format here.",
        )
    if grammar == "block" and "(" not in str(text):
        parse_block(str(text))  # an unknown name says so itself
    if grammar == "block" or isinstance(found, BlockFormat):
        raise format_error(
            f"format {str(found)!r} where single numbers are rounded",
            "formats of single numbers; a block format needs to know the dimension its blocks lie along",
            "Use gemmsim.mx.quantize for blocks, or the element's format.",
        )
    if not isinstance(found, str):
        raise format_error(f"format {shown(found)} of type {type(found).__name__}", "a name or a format", "Try 'e4m3'.")
    return _parse(found)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Format:
    base, *written = text.split("/")
    options = [AsWritten(option) for option in written]
    for option in options:
        if is_rounding_name(option) or is_overflow_name(option):
            raise format_error(
                f"format {shown(text)} with {shown(option)}",
                "a format, with at most /ftz",
                "Use parse_cast for a format with rounding and overflow.",
            )
        if option != "ftz" or len(options) > 1:
            raise format_error(
                f"format {shown(text)}: {'/' + option.written!r}",
                "/ftz, once",
                suggestion(option, ("ftz",)) or "Drop it.",
            )
    fmt = _parse_base(base)
    return without_subnormals(text, fmt) if options else fmt


def without_subnormals(text: str, fmt: Format) -> Format:
    """``fmt`` with its subnormals dropped; ``FormatError`` if it is no float."""
    if isinstance(fmt, Binary8Format):
        return replace(fmt, subnormals=False)
    if not isinstance(fmt, FloatFormat):
        raise format_error(
            f"format {shown(text)}", "/ftz for floating-point formats, which have subnormals", "Drop /ftz."
        )
    return FloatFormat(fmt.p, fmt.emin, fmt.emax, fmt.specials, fmt.signed, subnormals=False)


def _parse_base(written: str) -> Format:
    base = AsWritten(written).removeprefix("torch.")
    known = _REGISTERED.get(base) or _BUILT_IN.get(base) or parse_pattern(re.sub(r"(?i)^\s*torch\.", "", written))
    if known is None:
        raise unknown_format(written.strip(), _hint(base, written.strip()))
    return known


#: What people call a width, and the formats of that width.
_WIDTHS = {
    **dict.fromkeys(("fp8", "float8", "f8"), ("e4m3", "e5m2")),
    **dict.fromkeys(("fp6", "float6", "f6"), ("e3m2", "e2m3")),
    **dict.fromkeys(("float4", "f4"), ("e2m1",)),
    "hf8": ("e4m3",),
    "bf8": ("e5m2",),
}


#: What people call a format that is a list of values.
_LISTS = ("codebook", "lut", "palette", "table", "values")


def _hint(base: str, written: str) -> str:
    """What a name that is none may have meant: a format, or what a higher layer knows under it or one like it."""
    common = ["e5m10", "e8m7", "e8m23", "e11m52", "fixed(8,4)", "ufixed(8,4)", "ieee_e4m3"]
    common += ["supernormal(4,3)", "binary8(3)", "bfp(8,16)", "posit(8,2)", "codebook(-1,0,1)"]
    if base in _WIDTHS:
        return f"Did you mean {' or '.join(map(repr, _WIDTHS[base]))}?"
    kind = "a rounding mode" if is_rounding_name(base) else "an overflow policy" if is_overflow_name(base) else ""
    if kind or base == "ftz":
        return f"{written!r} is {kind or 'an option'}, which follows a format: 'bf16/{base}'."
    if base.partition("(")[0] in _LISTS:
        return f"A format that is a list of values needs the values: 'codebook(-1, 0, 1)'. {meaning(written)}"
    known = [*names(), *BLOCK_NAMES, *common]
    near = suggestion(base, known, cutoff=0.75) or meaning(written, near=True) or suggestion(base, known)
    return meaning(written) or near


def parse_cast(text: str | Format | BlockFloatFormat | Cast) -> Cast:
    """The cast named by ``text``: a format, then "/rounding", "/overflow", "/ftz" and "/via(format)".

    Each option may be given once, in any order. ``parse_cast(str(c)) == c`` for every cast. A cast is returned as it
    is; a format gets the defaults rne and ``Overflow.INFINITY``. Block floating point is that of single numbers,
    "bfp(8,1)/sr8" or such a ``BlockFloatFormat``: its format is an ``OwnExponentFormat`` with the rounding of the block
    format; ``dim`` has no meaning then.

    Raises:
        FormatError: for an unknown format or option (the message suggests the nearest ones) or a repeated option.

    Example:
        >>> gs.formats.parse_cast("fp16/rtz/sat")
        parse_cast('e5m10/rtz/sat')
    """
    if isinstance(text, Cast):
        return text
    if isinstance(text, FORMATS):
        return Cast(text)
    if isinstance(text, str) and is_shorthand(text):
        found = parse_shorthand(text)
        return found if isinstance(found, Cast) else Cast(parse_scalar(text))  # raises
    if isinstance(text, BlockFloatFormat):
        return Cast(*own_exponent(text))
    if not isinstance(text, str):
        raise format_error(
            f"cast {shown(text)} of type {type(text).__name__}", "a name, a format or a Cast", "Try 'e4m3/sat'."
        )
    return _parse_cast(text)


def _parse_cast(text: str) -> Cast:
    base, *options = text.split("/")
    blocks = own_exponent(parse_block_float(base))[0] if is_block_float_name(base) else None
    kinds: dict[str, AsWritten] = {}
    for option in map(AsWritten, options):
        kind = _option_kind(text, option)
        if kind in kinds:
            raise format_error(
                f"cast {shown(text)}: {kinds[kind]!r} and {shown(option)}", f"one {kind}", "Drop one of them."
            )
        kinds[kind] = option
    if blocks is None or "ftz" in kinds:
        fmt: Format = parse_scalar(f"{base.strip()}/ftz" if "ftz" in kinds else base.strip())
    else:
        fmt = blocks
    rounding = parse_rounding(kinds["rounding"]) if "rounding" in kinds else Rounding.RNE
    overflow = parse_overflow(kinds["overflow policy"]) if "overflow policy" in kinds else Overflow.INFINITY
    via = parse_scalar(kinds["via"].strip()[4:-1]) if "via" in kinds else None
    return Cast(fmt, rounding, overflow, via)  # type: ignore[arg-type]


def _option_kind(text: str, option: AsWritten) -> str:
    if option == "ftz":
        return "ftz"
    if _VIA.fullmatch(option):
        return "via"
    if is_rounding_name(option):
        return "rounding"
    if is_overflow_name(option):
        return "overflow policy"
    hint = suggestion(option, [*rounding_names(), *overflow_names(), "ftz"])
    allowed = (
        "a rounding (rne rna rtz ru rd ro sr srN srbN srcN), an overflow policy (sat satprop clamp infinity) or ftz"
    )
    raise unknown(f"cast {shown(text)}: unknown option {shown(option)}", hint, "Options", allowed, "Drop it.")


install(scalar=parse_scalar, block=parse_block, tensor=parse_tensor_format, cast=parse_cast)
