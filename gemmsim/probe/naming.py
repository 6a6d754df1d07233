"""Formats and casts by what was measured of them: precision, range, rounding."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch

from ..formats import FloatFormat, FormatError, names, parse_scalar

__all__ = ["cast_texts", "dtype_format", "format_texts"]

_WIDE = {24: "fp32", 8: "bf16", 53: "fp64"}
#: Names that people use, of the formats that have others.
_USUAL = {"e8m23": "fp32", "e8m7": "bf16", "e5m10": "fp16", "e11m52": "fp64", "e8m10": "e8m10"}
_DTYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.float8_e4m3fnuz: "e4m3fnuz",
    torch.float8_e5m2fnuz: "e5m2fnuz",
}


def dtype_format(dtype: torch.dtype) -> str | None:
    """The format of a torch dtype of floating-point numbers; None of others."""
    return _DTYPES.get(dtype)


def format_texts(p: int, found: tuple[int, int], reach: tuple[int, int]) -> list[str]:
    """Names of formats of ``p`` bits, the likely ones first: those whose powers of two end where those that were found
    do, and one with as many exponents as it takes. ``reach``: exponents that could be asked; where these end both, the
    format may go on."""
    if not 1 <= p <= 53:
        return []
    wide = _WIDE.get(p, f"e{8 if p <= 24 else 11}m{p - 1}")
    open_ends = (found[0] == reach[0], found[1] == reach[1])
    if p > 24:
        return list(dict.fromkeys([wide, *_fitting(p, *found)]))
    if all(open_ends):
        return list(dict.fromkeys([*(["fp16"] if p == 11 and -24 <= found[0] and found[1] <= 15 else []), wide]))
    half = ["fp16"] if p == 11 and found[0] >= -24 and found[1] <= 15 else []
    return list(dict.fromkeys([*_fitting(p, *found), *half, wide, *_wider(p, *found)]))


def _wider(p: int, low: int, high: int) -> Iterator[str]:
    """Formats that reach beyond both ends: another step may have ended there first."""
    for bits in range(7, 3, -1):
        fmt = parse_scalar(f"e{bits}m{p - 1}")
        if isinstance(fmt, FloatFormat) and fmt.p == p and fmt.emax > high and fmt.quantum_exponent < low:
            yield str(fmt)


@lru_cache(maxsize=256)
def _fitting(p: int, low: int, high: int) -> tuple[str, ...]:
    """Formats that end where exponents do, at both ends; then such as end so above and go on below, or the reverse."""
    whole: list[str] = []
    above: list[str] = []
    below: list[str] = []
    seen = set()
    for text in _texts(p, high):
        try:
            fmt = parse_scalar(text)
        except FormatError:
            continue
        if not isinstance(fmt, FloatFormat) or fmt.p != p or not fmt.signed or fmt in seen:
            continue
        seen.add(fmt)
        name = _USUAL.get(text, text)
        if fmt.emax == high and fmt.quantum_exponent == low:
            whole.append(name)
        elif fmt.emax == high and fmt.emin == low:
            whole.append(f"{name}/ftz")
        elif fmt.emax == high and fmt.quantum_exponent < low:
            above.append(name)
        elif fmt.emax > high and fmt.quantum_exponent == low:
            below.append(name)
    usual = [*_USUAL.values(), *(f"e{bits}m{p - 1}" for bits in range(2, 9))]
    some = [name for name in (*above, *below) if name in usual]
    return tuple(dict.fromkeys([*whole, *some[:3]]))


def _texts(p: int, high: int) -> Iterator[str]:
    for bits in range(2, 9 if p <= 24 else 12):
        yield f"e{bits}m{p - 1}"
    yield from names()
    for bits in range(2, 8):
        for top in (2**bits - 2, 2**bits - 1):
            if top - high > 0:
                yield f"e{bits}m{p - 1}b{top - high}"


def cast_texts(
    p: int, modes: tuple[str, ...], found: tuple[int, int], reach: tuple[int, int], past: float | None
) -> list[str]:
    """Casts to formats of ``p`` bits with the first two of these roundings. ``past``: what a power of two beyond the
    highest gives; a number where it saturates."""
    saturates = past is not None and past == past and abs(past) != float("inf")
    texts = []
    for mode in modes[:2] or ("rne",):
        rounding = "" if mode == "rne" else f"/{mode}"
        ends = ["", "/sat"] if mode not in ("rne", "rna", "rnd", "rnu") else ["/sat", ""]
        for text in format_texts(p, found, reach):
            base, _, more = text.partition("/")
            for end in ends if saturates else [""]:
                texts.append(f"{base}{rounding}{end}{f'/{more}' if more else ''}")
    return texts
