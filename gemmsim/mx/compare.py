"""Inputs on which systems' MX conversions differ, in every mode. ``python -m gemmsim.mx.compare [FORMAT]`` prints."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gemmsim.formats import E8M0, BlockFormat, BlockMode, FormatError, ScaleRule

from .arguments import BlockLike, block_of
from .convert import decode, encode

__all__ = ["Case", "compare_modes", "main"]

MODES = tuple(str(mode) for mode in BlockMode)
_RULES = {
    "ocp": tuple(ScaleRule(name) for name in ("floor", "ceil", "even", "rceil")),
    "torchao-0.18": tuple(ScaleRule(name) for name in ("floor", "ceil", "even", "rceil")),
}


class Case(NamedTuple):
    """One input: what it is, its first elements, and in each column the scale's code and what comes back.

    ``outcomes`` goes from a mode, with "/rule" after it for rules but floor, to "code: values". Modes without the
    format are left out; ``differs`` says whether two outcomes of the rule floor differ.
    """

    what: str
    block: tuple[float, ...]
    outcomes: dict[str, str]

    @property
    def differs(self) -> bool:
        """Whether the modes' outcomes of the rule floor are not all the same."""
        return len({text for name, text in self.outcomes.items() if "/" not in name}) > 1


def _blocks(fmt: BlockFormat) -> list[tuple[str, list[float], torch.dtype]]:
    """(what, values, dtype) of each input. ``unit`` is the largest power of two of the elements."""
    largest, unit = float(fmt.element.max), 2.0**fmt.emax
    quantum = float(next(value for value in fmt.element.values() if value > 0))
    below = 2.0**100 * (1 - 2.0**-24)
    return [
        ("nothing special", [1.0, -0.5, 0.25], torch.float32),
        ("one step of float32 below 2^100", [below, 2.0**90], torch.float32),
        ("one step of bfloat16 below 2^100", [2.0**100 * (1 - 2.0**-8), 2.0**90], torch.bfloat16),
        ("beyond the largest element", [(largest + 2 * unit) / 2, 1.0], torch.float32),
        ("a tie between two elements", [unit, 0.5 * quantum, 1.5 * quantum, 2.5 * quantum], torch.float32),
        ("just below half of the least element", [unit, (0.5 - 2.0**-25) * quantum], torch.float32),
        ("zeros and what underflows", [unit, -0.0, -quantum / 8], torch.float32),
        ("zeros alone", [0.0, -0.0], torch.float32),
        ("a NaN", [1.0, float("nan")], torch.float32),
        ("an infinity", [1.0, float("inf")], torch.float32),
        ("the largest float32", [3.4028234663852886e38, 1.0], torch.float32),
        ("a block for scale code 0", [2.0 ** (fmt.emax - 127), 0.0], torch.float32),
        ("a subnormal of float32", [2.0**-130, 0.0], torch.float32),
    ]


def _outcome(x: Tensor, fmt: BlockFormat, shown: int) -> str:
    encoded = encode(x, fmt, packing="bytes")
    values = decode(encoded, fmt, packing="bytes", size=x.numel())[:shown].tolist()
    return f"{int(encoded.scales[0])}: {' '.join(_short(value) for value in values)}"


def _short(value: float) -> str:
    """Short text that tells values apart: hexadecimal for all but few digits."""
    text = f"{value:g}"
    return text if float(text) == value or value != value else re.sub(r"\.?0*p", "p", value.hex())


def _formats(fmt: BlockFormat) -> dict[str, BlockFormat]:
    """Column names and formats, those that exist."""
    found = {}
    for mode in MODES:
        for rule in _RULES.get(mode, (ScaleRule.FLOOR,)):
            try:
                meant = replace(fmt, mode=BlockMode(mode), rule=rule, flush=False)
            except FormatError:
                continue  # torchmx has no e5m2
            found[mode if rule is ScaleRule.FLOOR else f"{mode}/{rule}"] = meant
    return found


def compare_modes(fmt: BlockLike = "mxfp8_e4m3") -> list[Case]:
    """Return what each conversion mode computes for inputs on which systems differ, for the elements and block size
    of ``fmt``.

    Each case has the text ``what``, the input ``block`` and its ``outcomes``: for each mode the scale code, a colon,
    and the decoded elements. ``encode`` and ``decode`` compute every outcome; none is stored.

    Raises:
        FormatError: for an unknown format, and for formats whose scales are not e8m0, which have one mode.

    Example:
        >>> case = gs.mx.compare_modes("mxfp8_e4m3")[3]
        >>> case.what, case.block
        ('beyond the largest element', (480.0, 1.0))
        >>> case.outcomes["ocp"], case.outcomes["ocp/ceil"]
        ('127: 448 1', '128: 480 1')
    """
    meaning = block_of(fmt)
    if meaning.scale != E8M0:
        raise FormatError(f"compare_modes of {meaning}; allowed: scales of e8m0.\n  Only these have several modes.")
    formats = _formats(replace(meaning, rule=ScaleRule.FLOOR))
    cases = []
    for what, values, dtype in _blocks(meaning):
        block = torch.zeros(max(meaning.block_size, len(values)), dtype=dtype)
        block[: len(values)] = torch.tensor(values, dtype=dtype)
        outcomes = {name: _outcome(block, mode, len(values)) for name, mode in formats.items()}
        cases.append(Case(what, tuple(values), outcomes))
    return cases


def main(arguments: Sequence[str] | None = None, write: Callable[[str], Any] = print) -> int:
    """Print the cases of the format named on the command line (mxfp8_e4m3); 2 for a usage error."""
    names = list(sys.argv[1:] if arguments is None else arguments)
    if len(names) > 1:
        print("usage: python -m gemmsim.mx.compare [FORMAT]", file=sys.stderr)
        return 2
    try:
        cases = compare_modes(names[0] if names else "mxfp8_e4m3")
    except FormatError as error:
        print(error, file=sys.stderr)
        return 2
    for case in cases:
        write(f"{case.what}: {' '.join(_short(value) for value in case.block)}")
        groups: dict[str, list[str]] = {}
        for name, text in case.outcomes.items():
            groups.setdefault(text, []).append(name)
        width = max(len(text) for text in groups)
        for text, columns in groups.items():
            write(f"  {text:{width}}  {', '.join(columns)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
