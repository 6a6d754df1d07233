"""Decides which specs kernels can compute: those that have a program, with formats that fit the carriers."""

from __future__ import annotations

from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import Cast, CodebookFormat, FixedFormat, FloatFormat
from gemmsim.formats.errors import shown

from .abi_constants import FLOAT32, Method
from .accumulators import programs
from .refusal import Refusal

__all__ = ["refuses"]


def _refuses_cast(role: str, cast: Cast, register: bool, backend: str) -> Refusal | None:
    fmt = cast.format
    if isinstance(fmt, CodebookFormat):
        return Refusal(f"{role} {shown(str(cast))}: a list of values, which no kernel looks up")
    if isinstance(fmt, FloatFormat) and not fmt.fits_float64:
        return Refusal(f"{role} {cast}: its values do not fit float64, the widest carrier of the {backend}")
    if isinstance(fmt, FixedFormat) and not fmt.clamp and register:
        return Refusal(f"{role} {cast}: an accumulator needs bounds; give it bits, fixed(bits,frac) with bits <= 53")
    return None


def _refuses_in_fp32(role: str, cast: Cast) -> Refusal | None:
    fmt = cast.format
    if isinstance(fmt, FloatFormat) and (fmt.p > FLOAT32.p or fmt.emin < FLOAT32.emin or fmt.emax >= FLOAT32.top):
        return Refusal(f'{role} {cast} is wider than fp32, which arithmetic="fp32" computes in; use arithmetic="exact"')
    return None


def refuses(spec: GemmSpec, backend: str) -> Refusal | None:
    """Return why kernels cannot compute ``spec``, or ``None`` if they can. ``backend`` is the backend's name in the
    reason.
    """
    found = programs(spec.accumulator, spec.group)
    if isinstance(found, Refusal):
        return found
    roles: list[tuple[str, Cast | None, bool]] = [
        ("operand a", spec.cast_a, False),
        ("operand b", spec.cast_b, False),
        ("output", spec.out, False),
    ]
    for one in found:
        roles += [("product", one.mul, one.method != Method.FIXED), ("accumulator", one.add, True)]
        roles += [("totals", wrapper.cast, True) for wrapper in one.wrappers]
    for role, cast, register in roles:
        if cast is None:
            continue
        reason = _refuses_cast(role, cast, register, backend)
        if reason is None and spec.arithmetic == "fp32" and register:
            reason = _refuses_in_fp32(role, cast)
        if reason is not None:
            return reason
    return None
