"""What kernels compute of a product whose operands are under scales of blocks (``ScaledCast``)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from gemmsim.arithmetic import GemmSpec, UnsupportedSpec
from gemmsim.arithmetic.block_operands import stored_blocks, takes_scales
from gemmsim.arithmetic.scaled import Scaled
from gemmsim.formats import FloatFormat, ScaledCast

from .decoded_product import plain_spec

__all__ = ["has_binary_scales", "in_blocks", "inner_spec", "kernel_spec"]

#: Bits of a total that, times a binary32 scale, float64 holds.
_MOST_BITS = 29


@lru_cache(maxsize=1024)
def has_binary_scales(spec: GemmSpec) -> bool:
    """Whether scales of blocks are binary32 numbers that multiply the totals of groups of terms."""
    formats = [fmt for fmt in (spec.a, spec.b) if isinstance(fmt, ScaledCast)]
    return isinstance(spec.accumulator, Scaled) and any(fmt.block_format is None for fmt in formats)


@lru_cache(maxsize=1024)
def in_blocks(spec: GemmSpec) -> GemmSpec:
    """``spec`` with the block formats that its scaled casts are stored in."""
    a, b = (stored_blocks(fmt) if isinstance(fmt, ScaledCast) else fmt for fmt in (spec.a, spec.b))
    return spec if (a, b) == (spec.a, spec.b) else replace(spec, a=a, b=b)


@lru_cache(maxsize=1024)
def inner_spec(spec: GemmSpec) -> GemmSpec:
    """The product of the elements of one group of terms.

    Raises:
        UnsupportedSpec: for an inner register of more than 29 bits, and an outer one wider than fp32.
    """
    accumulator = spec.accumulator
    assert isinstance(accumulator, Scaled)
    inner = GemmSpec(accumulator=accumulator.inner, arithmetic=spec.arithmetic)
    for cast, bits in ((inner.accumulator.add_cast, _MOST_BITS), (accumulator.outer, 24)):
        fmt = cast.format
        if not isinstance(fmt, FloatFormat) or fmt.p > bits or fmt.emax > 127:
            raise UnsupportedSpec(
                f"{spec}: {accumulator} with binary32 scales; allowed: inner registers of float formats up to 29 bits, "
                "and outer ones up to fp32.\n  Use power-of-two scales (/pow2), or narrower accumulators."
            )
    return inner


def kernel_spec(spec: GemmSpec) -> GemmSpec:
    """The spec of the product that kernels compute for ``spec``; ``spec`` itself without scaled casts.

    Raises:
        UnsupportedSpec: as ``inner_spec``.
    """
    if not (isinstance(spec.a, ScaledCast) or isinstance(spec.b, ScaledCast)):
        return spec
    if has_binary_scales(spec):
        return inner_spec(spec)
    return in_blocks(spec) if takes_scales(spec.accumulator) else plain_spec(spec)
