"""Specs of every family of accumulators with parameters at random."""

from __future__ import annotations

import random
from collections.abc import Callable

from gemmsim.arithmetic import GemmSpec, SpecError
from gemmsim.formats import FormatError
from gemmsim.probe.candidates import hardware_rows

__all__ = ["FAMILIES", "draw"]

_FORMATS = ["fp32", "fp16", "bf16", "e6m9", "e5m2", "e4m3", "e8m10", "e7m12", "e5m7"]
_ENDS = ["", "", "", "/rtz", "/ru", "/rd", "/rna", "/ro", "/sat", "/ftz"]
_PLAIN = ["fp32", "fp16", "bf16", "e6m9", "e8m10"]
_TREES = ["(3+(0+2))+1", "((0+1)+3)+2", "(0+3)+(1+2)"]

Choice = random.Random


def _cast(r: Choice) -> str:
    return r.choice(_FORMATS) + r.choice(_ENDS)


def _plain(r: Choice) -> str:
    return r.choice(_PLAIN)


def _n(r: Choice) -> int:
    return r.choice([2, 3, 4, 5, 8, 12, 16])


def _inner(r: Choice) -> str:
    return r.choice(
        [
            _cast(r),
            _cast(r),
            _cast(r),
            f"sequential({_cast(r)}, mul={_cast(r)})",
            f"kahan({_plain(r)})",
            f"two_sum({_plain(r)})",
        ]
    )


def _row(r: Choice) -> str:
    return r.choice(hardware_rows())[0]


def _runs_of_instructions(r: Choice) -> str:
    text, row = r.choice(hardware_rows())
    return r.choice(
        [f":promote({text}, {row.k})", f":splitk(2, {text}, fp32, grain={row.k})", f":splitk(3, {text}, fp32, grain=8)"]
    )


def _fused(r: Choice) -> str:
    out = r.choice(["fp32/rtz", "fp32", "e8m13/rtz", "fp16"])
    return f":fused({r.choice([1, 2, 4, 8, 16, 32])}, {r.choice([10, 13, 20, 25, 'exact'])}, {out}, a={r.choice(['fp16', 'bf16', 'e4m3'])})"


FAMILIES: dict[str, Callable[[Choice], str]] = {
    "sequential": lambda r: f":{_cast(r)}",
    "rounded products": lambda r: f":mul={_cast(r)}, add={_cast(r)}",
    "chunked": lambda r: f":chunked({_n(r)}, {_inner(r)}, {_plain(r)})",
    "chunked in one register": lambda r: f":chunked({_n(r)}, {_cast(r)})",
    "promote": lambda r: f":promote({_cast(r)}, {_n(r)})",
    "pairwise": lambda r: f":pairwise({_cast(r)}, {r.choice([1, 1, 2, 3, 4, 8])}{r.choice(['', ', pairs=halves'])})",
    "interleaved": lambda r: (
        f":interleaved({_n(r)}, {_cast(r)}{r.choice(['', ', combine=pairwise', ', combine=halves'])}"
        f"{r.choice(['', ', width=2', ', width=4'])})"
    ),
    "splitk": lambda r: f":splitk({r.choice([2, 3, 4, 5])}, {_cast(r)}, {_plain(r)})",
    "slices": lambda r: f":splitk([{r.choice([10, 20, 9])}, {r.choice([7, 30, 16])}, 8], {_cast(r)}, {_plain(r)})",
    "tree": lambda r: f":interleaved(4, {_plain(r)}, combine=tree({r.choice(_TREES)}){r.choice(['', ', width=4'])})",
    "shuffled": lambda r: f":shuffled({_cast(r)}, {r.randrange(1000)})",
    "kahan": lambda r: f":kahan({_cast(r)})",
    "neumaier": lambda r: f":neumaier({_cast(r)})",
    "two_sum": lambda r: f":two_sum({_cast(r)})",
    "fast_two_sum": lambda r: f":fast_two_sum({_cast(r)})",
    "exact": lambda r: f":exact({_cast(r)})",
    "binned": lambda r: f":binned({_plain(r)}, carry={r.randrange(1, 9)})",
    "int": lambda r: (
        f":int({r.choice([8, 12, 16, 24, 32])}, {r.choice(['wrap', 'saturate'])}"
        f"{r.choice(['', ', when=end', ', shift=2'])})"
    ),
    "fixed": lambda r: (
        f":fixed({r.choice([8, 12, 16, 24])}, {r.choice([0, 4, 8])}, rounding={r.choice(['rtz', 'rne'])}, "
        f"overflow={r.choice(['wrap', 'saturate'])})"
    ),
    "fused": _fused,
    "instructions": lambda r: f":{_row(r)}",
    "runs of instructions": _runs_of_instructions,
    "operands": lambda r: (
        f"{r.choice(['e4m3', 'e5m2', 'bf16', 'fp16', 'tf32', 'e3m4'])} : {_cast(r)} -> {r.choice(['bf16', 'fp16', 'fp32'])}"
    ),
    "totals": lambda r: f":chunked({_n(r)}, {_plain(r)}, {r.choice(['kahan', 'two_sum', 'neumaier'])}({_plain(r)}))",
}


def draw(choice: Choice, family: str) -> str:
    """A spec of the family that means something."""
    while True:
        text = FAMILIES[family](choice)
        try:
            GemmSpec.parse(text)
        except (SpecError, FormatError):
            continue
        return text
