"""Operands of a chip's FP8 (fnuz) that overflow to NaN: looked for where a result is NaN; one warning a process."""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends.backend import backend_of
from gemmsim.backends.device_tables import is_capturing
from gemmsim.formats import Cast, FloatFormat, Overflow, Specials

from ..seeds import Site
from .readings import FormatsWarning, caller

__all__ = ["look", "may_overflow"]

#: In the canonical texts of specs with such operands, and of few others.
_FNUZ = "fnuz"
_told: list[str] = []
#: Products on a GPU so far; after the first ones every so many is looked at, since looking waits for the GPU.
_products = 0
_PERIOD = 1024


def may_overflow(spec: GemmSpec) -> bool:
    """Whether ``look`` may have something to say of ``spec``; quick, asked at every product."""
    return _FNUZ in spec.key and not _told


def look(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor) -> None:
    """Warn, once in a process, where finite elements of ``a`` or ``b`` became NaN in a format that the accumulator of
    ``spec`` takes alone; ``out`` is the product. Not of specs whose casts saturate, nor while a graph is captured.

    On a GPU the 1st, 2nd, 4th, ... and every 1024th product is looked at.
    """
    global _products
    taken = spec.accumulator.operand_casts
    if taken is None or is_capturing(out.device) or out.is_meta:
        return
    if out.device.type != "cpu":
        _products += 1
        if _products & (_products - 1) and _products % _PERIOD:
            return
    if not bool(out.isnan().any()):
        return
    lost = [
        _lost(x, cast, site) for x, cast, site in ((a, spec.cast_a, Site.OPERAND_A), (b, spec.cast_b, Site.OPERAND_B))
    ]
    if not any(lost):
        return
    _told.append(spec.key)
    formats = [cast.format for cast, count in zip((spec.cast_a, spec.cast_b), lost, strict=True) if count and cast]
    said = " and ".join(f"{fmt} ({fmt.max:g})" for fmt in dict.fromkeys(formats))
    warnings.warn(
        f"{spec}: {sum(lost)} of {a.numel() + b.numel()} elements of the operands are beyond the largest value of "
        f"{said} and became NaN.\n"
        f"  Scale the operands, or have them saturate: {str(_saturating(spec))!r}.",
        FormatsWarning,
        stacklevel=caller(),
    )


def _lost(x: Tensor, cast: Cast | None, site: Site) -> int:
    """How many finite elements of ``x`` are NaN after ``cast``, if that is to a fnuz format."""
    if cast is None or not isinstance(cast.format, FloatFormat) or cast.format.specials is not Specials.FNUZ:
        return 0
    flat = x.reshape(-1)
    rounded = torch.empty_like(flat)
    backend_of(flat).quantize(flat, cast, rounded, 0, site, 0)
    return int((flat.isfinite() & rounded.isnan()).sum())


def _saturating(spec: GemmSpec) -> GemmSpec:
    a, b = (None if cast is None else replace(cast, overflow=Overflow.SATURATE) for cast in (spec.cast_a, spec.cast_b))
    return replace(spec, a=a, b=b)
