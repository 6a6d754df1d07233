"""Element-wise casts of tensors on the CPU."""

from __future__ import annotations

from ctypes import byref

import torch
from torch import Tensor

from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.formats import Cast, FloatFormat
from gemmsim.lowering.abi_constants import MAX_BATCH_DIMS, Site

from ..conversions import Conversions
from ..dtypes import NUMBERS
from .ctypes_structs import QuantizeArgs, cast_record
from .shared_library import library

__all__ = ["cast_into", "quantize"]


def quantize(x: Tensor, cast: Cast, out: Tensor, seed: int = 0, site: int = Site.QUANTIZE, start: int = 0) -> None:
    """Write ``cast(x)`` into ``out`` of the same shape; strides and float dtypes are free, ``out`` may be ``x``.

    Each value is rounded once from ``x``'s own precision, then converted to ``out``'s dtype (nearest even; exact where
    the format fits it). Random bits belong to the row-major logical index of each element, counted from ``start``.

    Raises:
        UnsupportedSpec: if the format's values do not fit float64.

    Example:
        >>> from gemmsim.backends import cpu
        >>> x = torch.tensor([0.3, 5.0])
        >>> cpu.quantize(x, gs.formats.parse_cast("e2m1"), x); x  # in place; 5 is a tie, to even
        tensor([0.5000, 4.0000])
    """
    fmt = cast.format
    if isinstance(fmt, FloatFormat) and not fmt.fits_float64:
        raise UnsupportedSpec(
            f"The CPU backend cannot round to {cast}: its values do not fit float64. gemmsim.reference can."
        )
    if out.dim() > MAX_BATCH_DIMS:
        raise ValueError(f"{out.dim()} dimensions: at most {MAX_BATCH_DIMS} are supported. Flatten some of them.")
    args = QuantizeArgs()
    args.src, args.dst = x.data_ptr(), out.data_ptr()
    args.src_dtype, args.dst_dtype = NUMBERS[x.dtype], NUMBERS[out.dtype]
    if x.is_contiguous() and out.is_contiguous():
        args.dims = 1
        args.size[0] = x.numel()
        args.src_stride[0] = args.dst_stride[0] = 1
    else:
        args.dims = out.dim()
        for d, (n, s, t) in enumerate(zip(out.shape, x.stride(), out.stride(), strict=True)):
            args.size[d], args.src_stride[d], args.dst_stride[d] = n, s, t
    args.cast = cast_record(cast)
    args.seed, args.start = seed, start
    args.site = site
    args.threads = torch.get_num_threads()
    library().gemmsim_quantize(byref(args))


cast_into = Conversions(quantize).cast_into
