"""Products on the CPU of operands in block formats, for accumulators that separate scales from elements."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.hardware import Hardware
from gemmsim.formats import E8M0, BlockFormat, Cast, FloatFormat
from gemmsim.lowering.abi_constants import Site

from ..dtypes import carrier_dtype
from ..encoded_operand import Coded
from ..encoded_values import elements_of, factors_of
from ..epilogue import Finish
from ..product import Ran
from .block import decode_blocks
from .gemm import count_overflows, gemm
from .quantize import cast_into
from .scales import Scales

__all__ = ["count_coded_overflows", "finishes", "gemm_coded"]


def finishes(spec: GemmSpec, cast: Cast | None) -> bool:
    """False: no kernel here applies a bias or a cast after the product; the epilogue is passes over the result.

    Example:
        >>> from gemmsim.backends import cpu
        >>> cpu.finishes(gs.GemmSpec.parse("e4m3 : fp32"), None)
        False
    """
    return False


def gemm_coded(
    a: Tensor | Coded,
    b: Tensor | Coded,
    spec: GemmSpec,
    out: Tensor,
    seed: int = 0,
    finish: Finish | None = None,
    row: int = 0,
) -> Ran:
    """Write the product that ``spec`` means into ``out`` (\\*B, M, N), contiguous.

    Elements and scales are decoded into separate tensors. A plain operand has scale 1 and is cast as ``spec`` says.
    ``finish`` must be None, because ``finishes`` returns False.
    """
    assert finish is None
    shape = out.shape
    left, right, scales = _parts(a, b, spec, seed, shape[:-2])
    if (
        len(shape) > 2 and right.numel() == right.shape[-2] * right.shape[-1]
    ):  # b is one matrix: all rows form one product
        rows = out.numel() // shape[-1]
        left, scales = left.reshape(rows, left.shape[-1]), _one_batch(scales, rows)
        return gemm(left, right.reshape(right.shape[-2:]), spec, out.view(rows, -1), seed, scales=scales, row=row)
    return gemm(left, right, spec, out, seed, scales=scales, row=row)


def count_coded_overflows(a: Tensor | Coded, b: Tensor | Coded, spec: GemmSpec, counts: Tensor, seed: int = 0) -> Ran:
    """Add to ``counts`` (\\*B, M, N), contiguous int64, how often each element's register left its range."""
    left, right, scales = _parts(a, b, spec, seed, counts.shape[:-2])
    return count_overflows(left, right, spec, counts, seed, scales)


def _parts(
    a: Tensor | Coded, b: Tensor | Coded, spec: GemmSpec, seed: int, batch: tuple[int, ...]
) -> tuple[Tensor, Tensor, Scales]:
    """Return the elements of both operands and their scales, all expanded to the batch."""
    k = a.shape[-1]
    group = spec.group
    assert group is not None
    sizes = [x.format.block_size if isinstance(x, Coded) else group for x in (a, b)]
    counts = [-(-k // size) for size in sizes]
    unit = torch.ones(1, dtype=torch.float64)
    left_scales = factors_of(a) if isinstance(a, Coded) else unit.expand(a.shape[-2], counts[0])
    right_scales = factors_of(b) if isinstance(b, Coded) else unit.expand(counts[1], b.shape[-1])
    seconds = [float(x.tensor_scale) for x in (a, b) if isinstance(x, Coded) and x.format.tensor_scale]
    tensor = None if not seconds else seconds[0] * (seconds[1] if len(seconds) > 1 else 1.0)
    left = elements_of(a, decode_blocks) if isinstance(a, Coded) else _cast(a, spec.cast_a, seed, Site.OPERAND_A)
    right = elements_of(b, decode_blocks) if isinstance(b, Coded) else _cast(b, spec.cast_b, seed, Site.OPERAND_B)
    tensors = [left, right, left_scales, right_scales]
    left, right, left_scales, right_scales = (t.expand(*batch, *t.shape[-2:]) for t in tensors)
    return left, right, Scales(left_scales, right_scales, sizes[0], sizes[1], tensor, _scale_format(spec))


def _cast(x: Tensor, cast: Cast | None, seed: int, site: int) -> Tensor:
    """Return a plain operand after its cast, whose random bits belong to the tensor as given."""
    if cast is None:
        return x
    rounded = torch.empty_like(x, dtype=carrier_dtype(cast.format, x.dtype))
    cast_into(x, cast, rounded, seed, site)
    return rounded


def _scale_format(spec: GemmSpec) -> FloatFormat:
    """Return the format of the scales of a block-scaled instruction; other accumulators do not depend on it."""
    if not isinstance(spec.accumulator, Hardware):
        return E8M0
    blocks = [fmt for fmt in (spec.a, spec.b) if isinstance(fmt, BlockFormat)]
    return blocks[0].scale


def _one_batch(scales: Scales, rows: int) -> Scales:
    a, b = scales.a, scales.b
    one = b.reshape(-1, *b.shape[-2:])[0]
    return replace(scales, a=a.reshape(rows, a.shape[-1]), b=one)
