"""Matrix products of operands in block formats, below PyTorch's dispatcher."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, SpecError
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.backends import cublas
from gemmsim.backends.backend import backend_of
from gemmsim.backends.coded import Coded, encode_operand
from gemmsim.backends.cublas import NativeType
from gemmsim.backends.finish import Finish, followed
from gemmsim.formats import (
    TENSOR_FORMATS,
    BlockFormat,
    FiniteFloatFormat,
    Sharing,
    TensorFormat,
)

from .. import acceleration
from ..errors import message
from ..seeds import Site
from . import kernels
from .selection import refused

__all__ = ["Operand", "Seconds", "count_overflows", "matmul", "operands_of", "plain_spec"]

Operand: TypeAlias = Tensor | Coded
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
    """The product of encoded (or plain) operands in ``dtype`` and of ``shape``, and what ran.

    Raises:
        SpecError: for an addend or indices, which such products have no place for.
    """
    setting = acceleration.current()
    reason = None
    if setting is not None and c is None and select is None and 0 not in shape:
        native = cublas.coded_refusal(a, b, spec, shape, setting.fast_mode)
        if not isinstance(native, str):
            return _accelerated(a, b, spec, seed, dtype, shape, native, finish)
        reason = native
    if not takes_scales(spec.accumulator):  # values of both may have a native type
        x, y = _values(a), _values(b)
        if x.is_cuda and acceleration.current() is not None:  # cuBLAS is several times as fast on bfloat16
            x, y = cublas.narrowed(x, y, spec)
        return kernels.general_matmul(x, y, plain_spec(spec), seed, dtype, c, select, finish=finish)
    if c is not None or select is not None:
        asked = f"matmul: c or select with {str(spec)!r}"
        raise SpecError(message(asked, "neither with scaled(...) or block-scaled instructions", "Add c to the result."))
    out = torch.empty(shape, dtype=dtype, device=(b.codes if isinstance(b, Coded) else b).device)
    if out.numel() == 0:
        return out, kernels.NOTHING
    backend = backend_of(out)
    if finish is None or backend.finishes(spec, finish.cast):
        run = backend.gemm_coded(a, b, spec, out, seed, finish)
    else:
        run = followed(lambda raw: backend.gemm_coded(a, b, spec, raw, seed), finish, out)
    return out, run if reason is None else refused(run, reason)


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
        return cublas.gemm_coded(a, b, spec, seed, dtype, shape, native)
    raw, run = cublas.gemm_coded(a, b, spec, seed, finish.work, shape, native)
    out = torch.empty(shape, dtype=dtype, device=raw.device)
    finish.apply(raw, out)
    return out, run


def count_overflows(a: Tensor, b: Tensor, spec: GemmSpec, counts: Tensor, seed: int) -> None:
    """Add the overflows of each element of the product to ``counts``, contiguous int64 of its shape."""
    left, right = operands_of("count_overflows", a, b, spec, seed)
    batch = counts.shape[:-2]
    if not takes_scales(spec.accumulator):
        x, y = (t.expand(*batch, *t.shape[-2:]) for t in (_values(left), _values(right)))
        backend_of(counts).count_overflows(x, y, plain_spec(spec), counts, seed)
        return
    backend_of(counts).count_coded_overflows(left, right, spec, counts, seed)


@lru_cache(maxsize=4096)
def plain_spec(spec: GemmSpec) -> GemmSpec:
    """``spec`` for operands that hold the values of its block formats already; ordinary casts stay."""
    return replace(spec, a=spec.cast_a, b=spec.cast_b)


def _values(x: Operand) -> Tensor:
    return x.values() if isinstance(x, Coded) else x
