"""``gemmsim trace`` and ``gemmsim compare``: one sum step by step, and two specs on the same numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

import gemmsim as gs
from gemmsim.formats import FormatError

from .bits import number
from .console import say, say_json
from .trace_codes import coded_numbers, coded_steps, operand_formats


def trace(spec: str, a: str, b: str, seed: int, codes: bool, as_json: bool) -> None:
    """Prints the steps of sum a_k b_k as ``spec`` means it; with ``codes`` of raw codes, and the code of each value."""
    meaning = gs.GemmSpec.of(spec)
    if codes:
        of_a, of_b = operand_formats(meaning)
        left, right = coded_numbers(a, "--a", of_a), coded_numbers(b, "--b", of_b)
    else:
        left, right = _numbers(a, "--a"), _numbers(b, "--b")
    if len(left) != len(right):
        raise FormatError(f"{len(left)} numbers in --a, {len(right)} in --b; allowed: equally many.\n  Write zeros.")
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
            f"{there / 2**30:,.1f} GiB of this machine.\n  Give smaller numbers: outputs do not depend on one another."
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
