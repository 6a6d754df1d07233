"""Matrix products of operands that are stored as codes of formats of at most 8 bits."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, SpecError
from gemmsim.formats import Cast, FixedFormat, FloatFormat, Format, FormatError, parse
from gemmsim.lowering.casts import cast_numbers

from ...product import Ran
from ..codes import CodeFormat, code_format
from .gemm import product, terms_of

__all__ = ["gemm_codes"]


def gemm_codes(
    a_codes: Tensor,
    b_codes: Tensor,
    a_format: Format | str,
    b_format: Format | str,
    spec: GemmSpec,
    out: Tensor,
    seed: int = 0,
    c: Tensor | None = None,
    select: Tensor | None = None,
) -> Ran:
    """Write the product that ``spec`` means of the values of two tensors of codes into ``out`` (\\*B, M, N).

    The operands are ``a_codes`` (\\*B, M, K) and ``b_codes`` (\\*B, K, N). The bits are those of ``gemm`` of the
    decoded tensors. Codes are uint8 of any strides, one per byte in its low bits. Codes of formats of 4 bits are packed
    two per byte along K, the first in the low half. K is then even, and the tensors are (\\*B, M, K / 2) and (\\*B, K /
    2, N). Codes that a format does not use are NaN; NaN, infinities and -0 are those of the format. ``spec`` must have
    no operand casts, or casts to the formats themselves, which keep their values.

    Raises:
        FormatError: for a block format, a format of more than 8 bits, an unbounded grid, or values that float64 does
            not hold.
        SpecError: for an operand cast that would change the codes' values; and as ``gemm``.
        ValueError: for tensors that are not uint8, or whose K differs; and as ``gemm``.
        UnsupportedSpec, CudaError: as ``gemm``.
    """
    formats = _element_format(a_format), _element_format(b_format)
    codes = code_format(formats[0]), code_format(formats[1])
    _check_tensors(a_codes, b_codes, codes)
    for name, cast, fmt in (("a", spec.cast_a, formats[0]), ("b", spec.cast_b, formats[1])):
        if cast is not None and not _keeps(cast, fmt):
            raise SpecError(
                f"{name}_codes of {fmt} with the operand cast {cast} of {str(spec)!r}; allowed: no cast of {name}, or "
                f"{fmt} itself.\n  Drop the cast, or decode the codes and give tensors to gemm."
            )
    known = replace(spec, a=Cast(formats[0]), b=Cast(formats[1]))
    return product(a_codes, b_codes, known, out, seed, c, select, codes)


def _element_format(fmt: Format | str) -> Format:
    found = parse(fmt) if isinstance(fmt, str) else fmt
    if not isinstance(found, FloatFormat | FixedFormat):
        raise FormatError(f"codes of {found}; allowed: formats of single numbers.\n  Give the format of its elements.")
    return found


def _keeps(cast: Cast, fmt: Format) -> bool:
    """Whether ``cast`` keeps all values of ``fmt`` unchanged; a cast might clamp infinities."""
    if cast.format != fmt:
        return False
    record = cast_numbers(cast)
    return isinstance(fmt, FixedFormat) or not fmt.has_inf or math.isinf(record.inf_pos)


def _check_tensors(a: Tensor, b: Tensor, codes: tuple[CodeFormat, CodeFormat]) -> None:
    for name, x in (("a_codes", a), ("b_codes", b)):
        if x.dtype != torch.uint8:
            raise ValueError(f"{name} of {x.dtype}; allowed: torch.uint8.\n  View them with .view(torch.uint8).")
    terms = terms_of(a, codes[0]), terms_of(b, codes[1], -2)
    if terms[0] != terms[1]:
        asked = f"a_codes {tuple(a.shape)} of {terms[0]} terms and b_codes {tuple(b.shape)} of {terms[1]}"
        raise ValueError(f"{asked}; allowed: the same K.\n  4-bit codes are packed two per byte along K.")
