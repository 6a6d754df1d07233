"""Spec strings: ``operands : accumulator -> output, arithmetic=...``, and the nested constructors inside them.

    spec        := [operands ":"] accumulator ["->" cast ["->" cast]] ["," "arithmetic=" ("exact" | "fp32")]
    operands    := "" | cast | [cast] "*" [cast]          a missing cast: that operand as given
    accumulator := cast | "mul=" cast "," "add=" cast | name "(" arguments ")" | preset
    arguments   := [argument {"," argument}]              positional, then name=value; values nest
    cast        := what gemmsim.formats.parse_cast reads

Names are those of constructors and presets; a preset without arguments also goes without brackets. Blanks do not
matter. What reads as a cast is one, before any constructor of the same name is tried.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import MISSING
from typing import NamedTuple

from ..formats import FormatError, parse_block, parse_cast
from ..formats.block_grammar import is_block_name
from ..formats.errors import LONGEST, MEANINGS, shortened, shown
from ..hardware.catalogue import ARCHITECTURES, families
from ..hardware.chips import CHIPS, chip_key, no_model_words, without_model
from .accumulator import Accumulator, constructors, parses, tells_calls
from .errors import SpecError, SpecFormatError, check_text_depth, spec_error
from .presets import PRESETS, build_preset, preset_signature
from .recipe_words import RECIPES
from .sequential import Sequential

__all__ = ["SpecText", "is_call", "of_accumulator", "parse_accumulator", "split_spec"]

_CALL = re.compile(r"([A-Za-z_]\w*)\s*\((.*)\)", re.DOTALL)
_KEYWORD = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(.*)", re.DOTALL)
_EXAMPLES = "'e4m3 : e5m10', ':mul=e5m10, add=e6m9', 'bf16 : fp32 -> bf16'"
#: Formats that are written like calls; suggested together with the constructors.
_FORMAT_CALLS = ("fixed", "ufixed", "float", "supernormal", "binary8", "bfp", "mx")
#: What people call the accumulator that is a format alone.
_FUSED = ("fma", "fmadd", "fused_multiply_add")


class SpecText(NamedTuple):
    """The parts of a spec string, still text; None where the string does not have the part."""

    a: str | None
    b: str | None
    accumulator: str
    out: str | None
    arithmetic: str | None


def split_spec(text: str) -> SpecText:
    """Parts of a spec string. A string without ":" is an accumulator (and what follows it), operands as given.

    Raises:
        SpecError: for unbalanced brackets, repeated ":", "*" or "->", or a missing accumulator.
    """
    check_text_depth(text)
    head, rest = _split_once(text, ":", text)
    if rest is None:
        _check_no_operands(head, text)
        head, rest = "", head
    a, b = _split_operands(head, text)
    *fields, last = _split(rest, ",", text)
    keyword = _KEYWORD.fullmatch(last.strip())
    arithmetic = None
    if keyword is not None and keyword[1].lower() == "arithmetic":
        arithmetic, rest = keyword[2].strip(), ",".join(fields)
    accumulator, out = _split_outputs(rest, text)
    if out is not None and len(_split(out, ",", text)) > 1:
        raise spec_error(
            f"spec {shown(text)}: {shown(out.strip())} after '->'",
            "one output format, then at most ', arithmetic=exact' or ', arithmetic=fp32'",
            "Put accumulator fields before '->'.",
        )
    if not accumulator.strip():
        raise spec_error(
            f"spec {shown(text)} names no accumulator", f"strings such as {_EXAMPLES}", "Add one after ':'."
        )
    if out is not None and not out.strip():
        raise spec_error(
            f"spec {shown(text)}: nothing after '->'", "an output format", "Drop '->' to keep the accumulator's."
        )
    return SpecText(a, b, accumulator.strip(), None if out is None else out.strip(), arithmetic)


@parses
def parse_accumulator(text: str) -> Accumulator:
    """The accumulator named by ``text``: a cast, ``mul=..., add=...``, or the call of a constructor or preset.

    Raises:
        SpecError: for any other text; the message suggests the nearest known names.

    Example:
        >>> gs.arithmetic.parse_accumulator("mul=bf16, add=fp32")
        Accumulator.parse('mul=e8m7, add=e8m23')
    """
    check_text_depth(text)
    fields = [field.strip() for field in _split(text, ",", text)]
    if len(fields) > 1 or _KEYWORD.fullmatch(fields[0]):
        args, kwargs = _arguments(text, text)
        if args:
            near = difflib.get_close_matches("arithmetic", kwargs, n=1)
            meant = f"Did you mean arithmetic={kwargs[near[0]]}? " if near else ""
            raise spec_error(
                f"accumulator {shown(text)}",
                "one format, 'mul=..., add=...', or one constructor call",
                f"{meant}Further arguments go inside a constructor: sequential({shortened(fields[0])}, ...).",
            )
        return Sequential.build([], kwargs)
    call = _call(fields[0])
    if not _names_a_constructor_alone(call):
        try:
            return Sequential(parse_cast(fields[0]))
        except FormatError as error:
            _check_no_blocks(fields[0])
            name = "" if call is None else call[0].lower()
            if call is None or (name in _FORMAT_CALLS and name not in constructors()):
                raise SpecFormatError(f"accumulator {shown(text)}: {error}") from error
    assert call is not None
    name = call[0].lower()
    if name not in constructors() and name not in PRESETS:
        raise _unknown_constructor(text, *call)
    args, kwargs = _arguments(call[1], text)
    return constructors()[name].build(args, kwargs) if name in constructors() else build_preset(name, args, kwargs)


def _names_a_constructor_alone(call: tuple[str, str] | None) -> bool:
    """Whether a call is that of a constructor whose name begins no format: then no format has to be looked for, whose
    error would suggest others at length."""
    return call is not None and call[0].lower() in constructors() and call[0].lower() not in _FORMAT_CALLS


def _check_no_blocks(text: str) -> None:
    """``SpecFormatError`` for a format of blocks, which operands have and registers do not."""
    try:
        if not is_block_name(text):
            return
        parse_block(text)
    except FormatError:
        return
    raise SpecFormatError(
        f"accumulator {shown(text)} is a format of blocks, which operands have; allowed: a format of single numbers, "
        f"or a constructor of gemmsim.acc.\n  For operands in blocks, summed in float32, write {f'{text} : fp32'!r}."
    )


@tells_calls
def is_call(text: str) -> bool:
    """Whether ``text`` is the call of a constructor or preset, and no format, which "fixed(16,8)" is."""
    call = _call(text.strip())
    if call is None or (call[0].lower() not in constructors() and call[0].lower() not in PRESETS):
        return False
    if _names_a_constructor_alone(call):
        return True
    try:
        parse_cast(text)
    except FormatError:
        return True
    return False


def _call(text: str) -> tuple[str, str] | None:
    """(name, arguments) if ``text`` is one call ``name(arguments)`` from end to end, or a preset's name alone."""
    if text.strip().lower() in PRESETS:
        return text.strip(), ""
    match = _CALL.fullmatch(text)
    if match is None:
        return None
    depth = 0
    for character in match[2]:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return None
    return match[1], match[2]


def _arguments(inside: str, text: str) -> tuple[list[object], dict[str, object]]:
    """Positional and keyword arguments, as text."""
    args: list[object] = []
    kwargs: dict[str, object] = {}
    if not inside.strip():
        return args, kwargs
    parts = _split(inside, ",", text)
    if not all(map(str.strip, parts)):
        where = "a comma at the end" if parts[-1].strip() == "" else "a comma with nothing before it"
        raise spec_error(f"{shown(text)}: {where}", "one argument between commas", "Leave the comma out.")
    for part in parts:
        keyword = _KEYWORD.fullmatch(part.strip())
        if keyword is None:
            if kwargs:
                raise spec_error(
                    f"{shown(text)}: {shown(part.strip())} after {next(reversed(kwargs))}=",
                    "name=value there",
                    _forward(kwargs),
                )
            args.append(part.strip())
        elif keyword[1] in kwargs:
            raise spec_error(f"{shown(text)}: {keyword[1]}= twice", "each argument once", "Drop one of them.")
        else:
            kwargs[keyword[1]] = keyword[2].strip()
    return args, kwargs


def _forward(kwargs: Mapping[str, object]) -> str:
    """What to do about an argument without a name behind ``kwargs``."""
    if {"mul", "add"} <= set(kwargs):  # the two roundings of a spec, which are not an argument of a constructor
        return f"Write an accumulator with two roundings as sequential({kwargs['add']}, {kwargs['mul']})."
    return "Move it before the named arguments."


def _check_no_operands(alone: str, text: str) -> None:
    """``SpecError`` for operands without an accumulator, "bf16 * bf16" or "bf16 * bf16 -> fp16"."""
    before, out = _split_outputs(alone, text)
    operands = _split(before, ",", text)[0].strip()
    if len(_split(operands, "*", text)) > 1:
        meant = f"{operands} : fp32" + ("" if out is None else f" ->{alone.partition('->')[2]}")
        raise spec_error(
            f"spec {shown(text)} names operands and no accumulator",
            f"strings such as {_EXAMPLES}",
            f"Add ': fp32' for that of float32: {meant!r}.",
        )


def _split_operands(head: str, text: str) -> tuple[str | None, str | None]:
    first, second = _split_once(head, "*", text)
    a = first.strip() or None
    return (a, a) if second is None else (a, second.strip() or None)


def _split_outputs(text: str, whole: str) -> tuple[str, str | None]:
    """The accumulator and the output; of two outputs in a row the first becomes ``via`` of the second."""
    parts = _split(text, "->", whole)
    if len(parts) > 3:
        raise spec_error(
            f"spec {shown(whole)} has {len(parts) - 1} '->' signs",
            "one output, or two roundings in a row as in '-> fp32 -> bf16'",
            "Keep the last ones.",
        )
    if len(parts) < 3:
        return _split_once(text, "->", whole)
    accumulator, first, last = parts
    if not first.strip() or not last.strip() or "/" in first:
        raise spec_error(
            f"spec {shown(whole)}: two roundings in a row, {shown(first.strip())} and {shown(last.strip())}",
            "a float format without options, then a format with its rounding, as in '-> fp32 -> bf16'",
            "The first one is to nearest even.",
        )
    return accumulator, f"{last.strip()}/via({first.strip()})"


def _split_once(text: str, separator: str, whole: str) -> tuple[str, str | None]:
    parts = _split(text, separator, whole)
    if len(parts) > 2:
        raise spec_error(
            f"spec {shown(whole)} has {len(parts) - 1} times {separator!r}", "at most one", f"Examples: {_EXAMPLES}."
        )
    return parts[0], parts[1] if len(parts) == 2 else None


def _split(text: str, separator: str, whole: str) -> list[str]:
    """``text`` cut at each ``separator`` that is outside brackets."""
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        depth += (text[at] in "([") - (text[at] in ")]")
        if depth < 0:
            break
        if depth == 0 and text.startswith(separator, at):
            parts.append(text[start:at])
            at = start = at + len(separator)
        else:
            at += 1
    if depth:
        raise spec_error(f"{shown(whole)}: brackets do not match", "one ')' for each '('", "Count the brackets.")
    return [*parts, text[start:]]


def _unknown_constructor(text: str, written: str, inside: str) -> SpecError:
    name = written.lower()
    near = difflib.get_close_matches(name, [*constructors(), *PRESETS, *_FORMAT_CALLS], n=2, cutoff=0.5)
    hint = f"Did you mean {' or '.join(f'{word}(...)' for word in near)}?" if near else ""
    hint = of_accumulator(name).strip() or _no_constructor(written, inside) or hint
    asked = f"accumulator {shown(text)}: unknown constructor {shown(written)}"
    allowed = "a format such as e5m10, 'mul=..., add=...', or a constructor or preset of gemmsim.acc"
    if not hint:
        return spec_error(asked, allowed, f"Constructors: {', '.join(sorted(constructors()))}.")
    return SpecError(f"{shortened(asked, 2 * LONGEST)}. {hint}\n  Accumulators allowed: {allowed}.")


def _no_constructor(written: str, inside: str) -> str:
    """Sentence about a call of a word that means something without brackets; empty for other words."""
    if written.lower() in _FUSED:
        fmt = shortened(inside.strip()) if _is_cast(inside) else "fp16"
        return f"A fused multiply-add is the format alone, {fmt!r}: products are exact, and each sum is rounded once."
    if not _is_cast(written):
        return ""
    chip = of_accumulator(inside.partition(",")[0]).strip()
    return chip or f"{written!r} is a format, which takes no brackets: write {written!r}."


def _is_cast(text: str) -> bool:
    try:
        parse_cast(text)
    except FormatError:
        return False
    return True


def of_accumulator(word: str, near: bool = False) -> str:
    """Sentence naming the accumulator or chip that ``word`` is (``near``: resembles), before any bracket; or empty."""
    if not near and any(mark in word for mark in (":", "*", "->")):
        return "That is the spec of a product, such as 'bf16 * bf16 : fp32'; here one format is needed. "
    written = word.partition("(")[0].strip()
    name, key = written.lower(), chip_key(written)
    if near:
        names = difflib.get_close_matches(name, [*constructors(), *PRESETS, *RECIPES], n=1, cutoff=0.7)
        keys = difflib.get_close_matches(key, [*ARCHITECTURES, *CHIPS], n=1, cutoff=0.7)
        name, key = (names or [""])[0], (keys or [""])[0]
    if "(" in word and not near and (name in constructors() or name in PRESETS):
        return f"{written!r} makes an accumulator; here a format is needed. "
    if name in constructors():
        return f"Did you mean the accumulator {_constructor(constructors()[name])}? "
    if name in PRESETS:
        return f"Did you mean the accumulator {preset_signature(name)}? "
    if name in RECIPES:
        return f"Did you mean the recipe {name!r}, which is a spec by itself? "
    arch = CHIPS.get(key, key)
    if arch not in ARCHITECTURES:
        unknown = None if near else without_model(written)
        return "" if unknown is None else f"{written!r} is a chip: {no_model_words(*unknown)}. "
    first = families(arch)[0]
    op = {"tcgen05mma": "tcgen05"}.get(first.unit, first.unit)
    chip = key if near else written
    return f"{chip!r} is a chip: did you mean its instruction, such as hw({key}, {op}, {first.operands[0][0]})? "


def _constructor(cls: type[Accumulator]) -> str:
    """``kahan(fmt)``: the constructor with the arguments it needs."""
    needed = [field.name for field, _ in cls._arguments() if field.default is MISSING]
    return f"{cls.name}({', '.join(needed)})"


MEANINGS.append(of_accumulator)
