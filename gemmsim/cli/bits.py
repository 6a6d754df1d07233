"""``gemmsim bits``: one dot product of a matrix instruction, step by step."""

from __future__ import annotations

from fractions import Fraction

import gemmsim.hardware as hw
from gemmsim.formats import FormatError

from .console import say


def bits(
    arch: str,
    op: str | None,
    formats: tuple[str | None, str | None],
    out: str,
    name: str | None,
    a: str,
    b: str,
    c: str,
    scales: tuple[str, str],
    codes: bool,
) -> None:
    """Prints the steps of sum a_k b_k + c under the instruction that ``name``, or op and formats, choose."""
    row = _choose(arch, op, formats, out, name)
    a_kind, b_kind, c_kind, _ = row.operands
    scale_a: tuple[int, ...] = ()
    scale_b: tuple[int, ...] = ()
    if row.scale is not None:
        kind = hw.OPERANDS[row.scale]
        scale_a, scale_b = (tuple(_codes(text, kind, codes)) for text in scales)
    elif any(scales):
        raise hw.HardwareError(f"{row.name} takes no scales; allowed: none.\n  Leave --scale-a and --scale-b out.")
    left, right = _codes(a, a_kind, codes), _codes(b, b_kind, codes)
    start = _codes(c, c_kind, codes)
    if len(start) != 1:
        raise hw.HardwareError(f"--c has {len(start)} numbers; allowed: one.\n  Give one addend for the output.")
    _print(row, hw.trace(row, left, right, start[0], scale_a=scale_a, scale_b=scale_b))


def _choose(
    arch: str, op: str | None, formats: tuple[str | None, str | None], out: str, name: str | None
) -> hw.Instruction:
    if name is not None:
        return hw.instruction(arch, name)
    if op is None or formats[0] is None:
        raise hw.HardwareError(
            "no instruction given; allowed: --instruction NAME, or --op and --in.\n"
            f"  {arch} has {', '.join(dict.fromkeys(one.unit for one in hw.instructions(arch)))}."
        )
    return hw.largest(arch, op, formats[0], formats[1], out=out)


def _codes(text: str, kind: hw.Operand, codes: bool) -> list[int]:
    """Codes of the numbers in ``text``, separated by commas."""
    return [_code(word.strip(), kind, codes) for word in text.split(",") if word.strip()]


def _code(word: str, kind: hw.Operand, codes: bool) -> int:
    if codes:
        try:
            code = int(word, 16)
        except ValueError:
            raise FormatError(
                f"{word!r} is not a code; allowed: hexadecimal, such as 3c.\n  Leave --codes out."
            ) from None
        if not 0 <= code < 1 << kind.width:
            raise FormatError(f"code {word!r} of {kind.name}; allowed: {kind.width} bits.\n  Use fewer digits.")
        return code
    return kind.storage.encode(number(word))


def number(word: str) -> float:
    """A decimal, a hexadecimal float, or something times a power of two: -1, 0x1p-3, 2^-13, 1.5*2^-25."""
    try:
        factor, star, power = word.rpartition("*") if "^" in word else (word, "", "")
        if power:
            base, _, exponent = power.partition("^")
            sign = -1.0 if base.startswith("-") else 1.0
            return (float(factor) if star else 1.0) * sign * abs(float(base)) ** int(exponent)
        return float.fromhex(word) if "x" in word.lower() else float(word)
    except (ValueError, OverflowError):
        raise FormatError(
            f"{word!r} is not a number; allowed: 1.5, 0x1p-3, 2^-13, 1.5*2^-25, inf, nan.\n  --codes takes raw codes."
        ) from None


def _print(row: hw.Instruction, trace: hw.Trace) -> None:
    say(f"{row.arch} {row.name}: {row.model.words}")
    say(f"source: {row.source}")
    for index, step in enumerate(trace.steps, 1):
        say("")
        say(f"step {index} of {len(trace.steps)}: k = {step.first} .. {step.last - 1}, then c")
        _print_step(row, step)
    say("")
    say(f"result      {_register(row, trace.result)}")
    if trace.exact is not None:
        say(f"exact       {_value(trace.exact)}")


def _print_step(row: hw.Instruction, step: hw.StepTrace) -> None:
    if step.largest is None or step.grid is None or step.total is None:
        traced = type(row.model) in (hw.FusedBlock, hw.ScaledGroups)
        reason = "NaN or infinity decides" if traced else "parts not shown for this model"
        say(f"  {reason}")
        say(f"  accumulator {_register(row, step.register)}")
        return
    say(f"  E = {step.largest}: the largest exponent; every addend is truncated below 2^{step.grid}")
    lines = [("addend", "value", "exponent", "shift", f"kept * 2^{step.grid}", "truncated")]
    shown = [term for term in step.terms if term.value or term.exponent == step.largest]
    for term in shown:
        cut = _value(term.lost) if term.lost else "-"
        exponent, shift = ("-" if one is None else str(one) for one in (term.exponent, term.shift))
        lines.append((term.name, _value(term.value), exponent, shift, str(term.kept), cut))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        say("  " + "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))
    if len(shown) < len(step.terms):
        say(f"  and {len(step.terms) - len(shown)} zeros")
    say(f"  sum         {step.total} * 2^{step.grid} = {_value(step.total * Fraction(2) ** step.grid)}")
    say(f"  accumulator {_register(row, step.register)}  ({row.model.out})")


def _register(row: hw.Instruction, code: int) -> str:
    kind = row.operands[3]
    return f"0x{code:0{kind.width // 4}x} = {kind.storage.decode(code)!r}"


def _value(value: Fraction) -> str:
    """As a decimal where it is short, otherwise as an odd integer times a power of two."""
    text = repr(float(value))
    if len(text) <= 12 or value == 0:
        return text
    odd, power = value.numerator, -(value.denominator.bit_length() - 1)
    while odd % 2 == 0:
        odd, power = odd // 2, power + 1
    return f"{odd}*2^{power}" if abs(odd) > 1 else f"{'-' if odd < 0 else ''}2^{power}"
