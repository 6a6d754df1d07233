"""Matrix products of operands in block formats, below PyTorch's dispatcher."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, SpecError
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.arithmetic.hardware import Hardware
from gemmsim.backends import cpu
from gemmsim.backends.cublas import NativeType
from gemmsim.formats import (
    E8M0,
    TENSOR_FORMATS,
    BlockFormat,
    Cast,
    FiniteFloatFormat,
    FloatFormat,
    Sharing,
    TensorFormat,
)

from . import acceleration, block_gpu, block_native, kernels
from .block_operands import BlockOperand, encode_operand
from .errors import message
from .finishing import Finish, finished
from .seeds import Site
from .selection import Refused, backend_of

__all__ = ["Operand", "Seconds", "count_overflows", "matmul", "operands_of", "plain_spec"]

Operand: TypeAlias = Tensor | BlockOperand
#: Tensors' own scales of both operands; None: to be found.
Seconds: TypeAlias = tuple[float | Tensor | None, float | Tensor | None]


def operands_of(
    owner: str, a: Tensor, b: Tensor, spec: GemmSpec, seed: int = 0, seconds: Seconds = (None, None)
) -> tuple[Operand, Operand]:
    """``a`` and ``b`` in the block formats that ``spec`` names, blocks along the contraction dimension.

    ``seconds``: scales of the tensors of which they are parts; None: their own.
    """
    left: Operand = encode_operand(owner, a, spec.a, -1, seconds[0]) if isinstance(spec.a, BlockFormat) else a
    right: Operand = encode_operand(owner, b, spec.b, -2, seconds[1]) if isinstance(spec.b, BlockFormat) else b
    if isinstance(spec.a, TENSOR_FORMATS):
        left = kernels.quantize(a, spec.a, seed, Site.OPERAND_A)
    if isinstance(spec.b, TENSOR_FORMATS):
        by_block = not isinstance(spec.b, FiniteFloatFormat) and spec.b.sharing is Sharing.BLOCK
        fmt: TensorFormat = replace(spec.b, dim=-2) if by_block else spec.b  # type: ignore[arg-type]
        right = kernels.quantize(b, fmt, seed, Site.OPERAND_B)
    return left, right


def matmul(
    a: Operand,
    b: Operand,
    spec: GemmSpec,
    seed: int,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    c: Tensor | None = None,
    select: Tensor | None = None,
    finish: Finish | None = None,
) -> tuple[Tensor, object]:
    """The product of encoded (or plain) operands in ``dtype`` and of ``shape``, and what ran."""
    setting = acceleration.current()
    reason = None
    if setting is not None and c is None and select is None and 0 not in shape:
        native = block_native.refusal(a, b, spec, shape, setting)
        if not isinstance(native, str):
            return _accelerated(a, b, spec, seed, dtype, shape, native, finish)
        reason = native
    if not takes_scales(spec.accumulator):  # values of both may have a native type
        x, y = _values(a), _values(b)
        if x.is_cuda and acceleration.current() is not None:  # cuBLAS is several times as fast on bfloat16
            x, y = block_gpu.narrowed(x, y, spec)
        return kernels.general_matmul(x, y, plain_spec(spec), seed, dtype, c, select, finish=finish)
    if c is not None or select is not None:
        asked = f"matmul: c or select with {str(spec)!r}"
        raise SpecError(message(asked, "neither with scaled(...) or block-scaled instructions", "Add c to the result."))
    out = torch.empty(shape, dtype=dtype, device=(b.codes if isinstance(b, BlockOperand) else b).device)
    if out.numel() == 0:
        return out, kernels.NOTHING
    if out.is_cuda and (finish is None or block_gpu.finishes(spec, finish)):
        run = block_gpu.product(a, b, spec, out, seed, finish)
    elif finish is not None:
        run = finished(lambda raw: _scaled(a, b, spec, seed, raw), finish, out)
    else:
        run = _scaled(a, b, spec, seed, out)
    return out, run if reason is None else Refused(run, out.device.type, reason)


def _accelerated(
    a: Operand,
    b: Operand,
    spec: GemmSpec,
    seed: int,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    native: NativeType,
    finish: Finish | None,
) -> tuple[Tensor, object]:
    """``matmul`` by the library, and what follows."""
    if finish is None:
        return block_native.product(a, b, spec, seed, dtype, shape, native)
    raw, run = block_native.product(a, b, spec, seed, finish.work, shape, native)
    out = torch.empty(shape, dtype=dtype, device=raw.device)
    finish.apply(raw, out)
    return out, run


def _scaled(a: Operand, b: Operand, spec: GemmSpec, seed: int, out: Tensor) -> object:
    """Write the product of an accumulator that takes scales apart to ``out``, contiguous; what ran."""
    if out.is_cuda:
        return block_gpu.product(a, b, spec, out, seed)
    shape = out.shape
    left, right, scales = _parts(a, b, spec, seed, shape[:-2])
    if len(shape) > 2 and right.numel() == right.shape[-2] * right.shape[-1]:  # one matrix b: all rows in one product
        rows = out.numel() // shape[-1]
        left, scales = left.reshape(rows, left.shape[-1]), _one_batch(scales, rows)
        return cpu.gemm(left, right.reshape(right.shape[-2:]), spec, out.view(rows, -1), seed, scales=scales)
    return cpu.gemm(left, right, spec, out, seed, scales=scales)


def count_overflows(a: Tensor, b: Tensor, spec: GemmSpec, counts: Tensor, seed: int) -> None:
    """Add the overflows of each element of the product to ``counts``, contiguous int64 of its shape."""
    left, right = operands_of("count_overflows", a, b, spec, seed)
    batch = counts.shape[:-2]
    if not takes_scales(spec.accumulator):
        x, y = (t.expand(*batch, *t.shape[-2:]) for t in (_values(left), _values(right)))
        backend_of(counts).count_overflows(x, y, plain_spec(spec), counts, seed)
        return
    if counts.is_cuda:
        block_gpu.count_overflows(left, right, spec, counts, seed)
        return
    x, y, scales = _parts(left, right, spec, seed, batch)
    cpu.count_overflows(x, y, spec, counts, seed, scales)


@lru_cache(maxsize=4096)
def plain_spec(spec: GemmSpec) -> GemmSpec:
    """``spec`` for operands that hold the values of its block formats already; ordinary casts stay."""
    return replace(spec, a=spec.cast_a, b=spec.cast_b)


def _values(x: Operand) -> Tensor:
    return x.values() if isinstance(x, BlockOperand) else x


def _parts(
    a: Operand, b: Operand, spec: GemmSpec, seed: int, batch: tuple[int, ...]
) -> tuple[Tensor, Tensor, cpu.Scales]:
    """Elements of both operands, and their scales, all expanded to the batch."""
    k = a.shape[-1]
    group = spec.group
    assert group is not None
    sizes = [x.format.block_size if isinstance(x, BlockOperand) else group for x in (a, b)]
    counts = [-(-k // size) for size in sizes]
    unit = torch.ones(1, dtype=torch.float64)
    left_scales = a.factors() if isinstance(a, BlockOperand) else unit.expand(a.shape[-2], counts[0])
    right_scales = b.factors() if isinstance(b, BlockOperand) else unit.expand(counts[1], b.shape[-1])
    seconds = [float(x.tensor_scale) for x in (a, b) if isinstance(x, BlockOperand) and x.format.tensor_scale]
    tensor = None if not seconds else seconds[0] * (seconds[1] if len(seconds) > 1 else 1.0)
    left = a.elements() if isinstance(a, BlockOperand) else _cast(a, spec.cast_a, seed, Site.OPERAND_A)
    right = b.elements() if isinstance(b, BlockOperand) else _cast(b, spec.cast_b, seed, Site.OPERAND_B)
    tensors = [left, right, left_scales, right_scales]
    left, right, left_scales, right_scales = (t.expand(*batch, *t.shape[-2:]) for t in tensors)
    return left, right, cpu.Scales(left_scales, right_scales, sizes[0], sizes[1], tensor, _scale_format(spec))


def _cast(x: Tensor, cast: Cast | None, seed: int, site: int) -> Tensor:
    """A plain operand after its cast, whose random bits belong to the tensor as given."""
    return x if cast is None else kernels.quantize(x, cast, seed, site, widen=True)


def _scale_format(spec: GemmSpec) -> FloatFormat:
    """Format of the scales of a block-scaled instruction; elsewhere nothing depends on it."""
    if not isinstance(spec.accumulator, Hardware):
        return E8M0
    blocks = [fmt for fmt in (spec.a, spec.b) if isinstance(fmt, BlockFormat)]
    return blocks[0].scale


def _one_batch(scales: cpu.Scales, rows: int) -> cpu.Scales:
    a, b = scales.a, scales.b
    one = b.reshape(-1, *b.shape[-2:])[0]
    return replace(scales, a=a.reshape(rows, a.shape[-1]), b=one)
