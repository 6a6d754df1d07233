"""Operands beyond the largest value of a format that makes NaN of them: found by sampling, reported once a spec."""

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
from .format_warnings import FormatsWarning, caller

__all__ = ["look", "may_overflow"]

#: Signed formats without infinity whose numbers beyond the largest become NaN: e4m3 and the fnuz ones.
_NAN_BEYOND = (Specials.FNUZ, Specials.NAN_ONLY)
#: Texts of specs -> products so far; ``_DONE`` where nothing can be found, or was reported.
_PRODUCTS: dict[str, int] = {}
_DONE = -1
_MOST_SPECS = 4096
#: After the first products of a spec every so many is looked at: a pass over the result, and a wait for a GPU.
_PERIOD = 1024


def may_overflow(spec: GemmSpec) -> bool:
    """Whether ``look`` may have something to say of this product by ``spec``; quick, asked once at every product.

    That is so at the 1st, 2nd, 4th, ... and every 1024th product of a spec whose operand formats make NaN.
    """
    key = spec.key
    count = _PRODUCTS.get(key)
    if count is None:
        if len(_PRODUCTS) >= _MOST_SPECS:
            _PRODUCTS.clear()
        count = 0 if _makes_nan(spec.cast_a) or _makes_nan(spec.cast_b) else _DONE
        _PRODUCTS[key] = count
    if count == _DONE:
        return False
    count += 1
    _PRODUCTS[key] = count
    return not (count & (count - 1) and count % _PERIOD)


def look(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor) -> None:
    """Warn, once for a spec, where finite elements of ``a`` or ``b`` became NaN in its operand formats; ``out`` is the
    product. Not of casts that saturate, nor of the output format, nor while a graph is captured."""
    if is_capturing(out.device) or out.is_meta:
        return
    if not bool(out.isnan().any()):
        return
    lost = [
        _lost(x, cast, site) for x, cast, site in ((a, spec.cast_a, Site.OPERAND_A), (b, spec.cast_b, Site.OPERAND_B))
    ]
    if not any(lost):
        return
    _PRODUCTS[spec.key] = _DONE
    formats = [cast.format for cast, count in zip((spec.cast_a, spec.cast_b), lost, strict=True) if count and cast]
    said = " and ".join(f"{fmt} ({fmt.max:g})" for fmt in dict.fromkeys(formats))
    warnings.warn(
        f"{spec}: {sum(lost)} of {a.numel() + b.numel()} elements of the operands are beyond the largest value of "
        f"{said} and became NaN.\n"
        f"  Scale the operands, or have them saturate: {str(_saturating(spec))!r}.",
        FormatsWarning,
        stacklevel=caller(),
    )


def _makes_nan(cast: Cast | None) -> bool:
    """Whether ``cast`` makes NaN of finite numbers of either sign."""
    fmt = None if cast is None or cast.overflow is not Overflow.INFINITY else cast.format
    return isinstance(fmt, FloatFormat) and fmt.signed and fmt.specials in _NAN_BEYOND


def _lost(x: Tensor, cast: Cast | None, site: Site) -> int:
    """How many finite elements of ``x`` are NaN after ``cast``, if that is of such a format."""
    if cast is None or not _makes_nan(cast):
        return 0
    flat = x.reshape(-1)
    rounded = torch.empty_like(flat)
    backend_of(flat).quantize(flat, cast, rounded, 0, site, 0)
    return int((flat.isfinite() & rounded.isnan()).sum())


def _saturating(spec: GemmSpec) -> GemmSpec:
    """``spec`` with operands that saturate; other formats stay."""
    casts = ((spec.a, spec.cast_a), (spec.b, spec.cast_b))
    a, b = (
        replace(cast, overflow=Overflow.SATURATE) if cast is not None and _makes_nan(cast) else given
        for given, cast in casts
    )
    return replace(spec, a=a, b=b)
