"""``gemmsim trace`` and ``gemmsim compare``: one sum step by step, and two specs on the same numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

import gemmsim as gs
from gemmsim.arithmetic import Integer
from gemmsim.formats import Cast, Format, FormatError, parse_cast, parse_scalar

from .bits import number
from .console import say, say_json

__all__ = ["coded_numbers", "coded_steps", "operand_formats"]


def trace(spec: str, a: str, b: str, seed: int, codes: bool, as_json: bool) -> None:
    """Prints the steps of sum a_k b_k as ``spec`` means it; with ``codes`` of raw codes, and the code of each value."""
    meaning = gs.GemmSpec.of(spec)
    if codes:
        of_a, of_b = operand_formats(meaning)
        left, right = coded_numbers(a, "--a", of_a), coded_numbers(b, "--b", of_b)
    else:
        left, right = _numbers(a, "--a"), _numbers(b, "--b")
    if len(left) != len(right):
        raise FormatError(
            f"{len(left)} numbers in --a, {len(right)} in --b; allowed: equally many.\n  Fill up with zeros."
        )
    found = gs.trace(left, right, spec, seed=seed)
    told = coded_steps(found, meaning) if codes else [None] * len(found.steps)
    if as_json:
        facts: dict[str, Any] = found.to_dict()
        if codes:
            for step, code in zip(facts["steps"], told, strict=True):
                step["code"], step["code_format"] = code or (None, None)
        say_json(facts)
        return
    say(_with_codes(found, told) if codes else str(found))


def _with_codes(found: gs.Trace, told: Sequence[tuple[str, str] | None]) -> str:
    """The trace, the code of each value behind its step."""
    codes = {f"{step}": f"  [{code[0]} of {code[1]}]" for step, code in zip(found.steps, told, strict=True) if code}
    lines = []
    for line in str(found).split("\n"):
        step = line[11:]  # behind the term
        lines.append(line + codes.get(step, ""))
    return "\n".join(lines)


def compare(
    spec_a: str, spec_b: str, shape: tuple[int, int, int], seed: int, spread: float, unit: str | None, as_json: bool
) -> bool:
    """Prints how two specs differ on normal numbers of that shape; whether all bits are equal."""
    m, k, n = shape
    if min(shape) < 1:
        raise FormatError(f"--shape {m} {k} {n}; allowed: M, K and N of 1 or more.\n  Give other numbers.")
    needed, there = 4 * (2 * (m * k + k * n) + 4 * m * n), _memory()
    if needed > there:
        raise FormatError(
            f"--shape {m} {k} {n}, which takes about {needed / 2**30:,.1f} GiB; allowed: what fits into the "
            f"{there / 2**30:,.1f} GiB of this machine.\n  Give smaller numbers: outputs do not depend on each other."
        )
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(m, k, generator=g) * spread, torch.randn(k, n, generator=g) * spread
    found = gs.compare(spec_a, spec_b, a, b, seed=seed, unit=unit)
    if as_json:
        say_json(found.to_dict())
    else:
        say(str(found))
    return found.equal == found.elements


def _numbers(text: str, option: str) -> list[float]:
    found = [number(word.strip()) for word in text.split(",") if word.strip()]
    if not found:
        raise FormatError(f"{option} {text!r}; allowed: numbers separated by commas.\n  Give at least one.")
    return found


def _memory() -> int:
    """Bytes of memory; where the system does not say, more than any."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 2**63


def operand_formats(spec: gs.GemmSpec) -> tuple[Format, Format]:
    """The formats whose codes ``--a`` and ``--b`` are: those that the spec casts its operands to, else binary32.

    Raises:
        FormatError: a block format, whose numbers have no codes of their own.
    """
    found: list[Format] = []
    for given in (spec.a, spec.b):
        if given is not None and not isinstance(given, Cast):
            raise FormatError(
                f"--codes with operands in {given}; allowed: formats that have a code for each number.\n"
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
            f"{option} {word!r} is not a code; allowed: hexadecimal, such as 3c.\n  Leave --codes out for numbers."
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
