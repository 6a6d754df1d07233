"""The operators on ordinary tensors: checks, shapes and seeds around ``gemmsim.backends``.

Everything here runs below PyTorch's dispatcher: no autograd, no tracing, no modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.accumulator import remembers
from gemmsim.backends.backend import backend_of
from gemmsim.backends.codebook import is_codebook, round_to_codebook
from gemmsim.backends.finish import Finish
from gemmsim.formats import TENSOR_FORMATS, BlockFormat, Cast, Sharing

from .. import state
from ..casts import Target, target_dtype
from ..checks import FLOAT_DTYPES, check_device, check_float, check_integers, check_out_dtype
from ..errors import ShapeError, message
from ..seeds import Site, derive_seed, draw_seed
from . import selection
from .finishing import check_bias, finish_of
from .shapes import matmul_shape

__all__ = [
    "NOTHING",
    "call_seed",
    "cast_operand",
    "check_target",
    "count_overflows",
    "general_matmul",
    "matmul",
    "matmul_with_operands",
    "overwrite",
    "quantize",
    "quantize_into",
    "result_dtype",
    "spec_of",
    "without_operand_casts",
]

#: Most batch dimensions, and most dimensions of a strided element-wise call, that the backend takes.
_MAX_DIMS = 16
NOTHING = "nothing to compute: the result has no elements"


def _name(x: Tensor) -> str:
    return "cuda" if x.is_cuda else "cpu"


@lru_cache(maxsize=4096)
def spec_of(text: str) -> GemmSpec:
    """The spec a string names; parsed once."""
    return GemmSpec.of(text)


remembers(spec_of.cache_clear)


def call_seed(spec: GemmSpec, seed: int | None, stream: int = 0) -> int:
    """Seed of one GEMM: the one ``spec`` fixes, else the caller's, else a fresh one; 0 where no bits are needed."""
    if not spec.is_stochastic:
        return 0
    if spec.fixed_seed is not None:
        return spec.fixed_seed
    return draw_seed() if seed is None else derive_seed(seed, stream)


def result_dtype(owner: str, a: Tensor, b: Tensor, out_dtype: torch.dtype | None) -> torch.dtype:
    """``out_dtype``, or the dtype both operands promote to; ``DTypeError`` for operands that are not float tensors."""
    if a.dtype not in FLOAT_DTYPES or b.dtype not in FLOAT_DTYPES:
        check_float(owner, "a", a)
        check_float(owner, "b", b)
    if out_dtype is not None:
        check_out_dtype(owner, out_dtype)
        return out_dtype
    return a.dtype if a.dtype == b.dtype else torch.promote_types(a.dtype, b.dtype)


def check_target(target: Target, x: Tensor) -> None:
    """Refuses a tensor that cannot be rounded to ``target``.

    Raises:
        DTypeError: for another dtype; ShapeError: for a dimension it does not have.
    """
    if x.dtype not in FLOAT_DTYPES:
        check_float("quantize", "x", x)
    if not isinstance(target, TENSOR_FORMATS):
        return
    if target.sharing is not Sharing.TENSOR and not -x.dim() <= target.dim < x.dim():
        allowed = (
            f"dimensions of the tensor, {-x.dim()} to {x.dim() - 1}" if x.dim() else "tensors of one dimension or more"
        )
        asked = f"quantize: {target} of a tensor of shape {tuple(x.shape)}"
        raise ShapeError(message(asked, allowed, "Change dim, or use bfp(bits,tensor)."))


def quantize_into(
    x: Tensor, cast: Target, out: Tensor, seed: int | None, site: int = Site.QUANTIZE, stream: int = 0
) -> None:
    """Write ``cast`` of each element of ``x`` to ``out``; a stochastic cast without ``seed`` draws one."""
    bits = 0
    if cast.is_stochastic:
        bits = draw_seed() if seed is None else derive_seed(seed, stream)
    if isinstance(cast, TENSOR_FORMATS):
        backend_of(x).quantize_tensor(x, cast, out, bits, site)
    elif is_codebook(cast):
        round_to_codebook(x, cast, out)
    elif out.dim() <= _MAX_DIMS:
        backend_of(x).quantize(x, cast, out, bits, site)
    else:
        flat = torch.empty(out.numel(), dtype=out.dtype, device=out.device)
        backend_of(x).quantize(x.reshape(-1), cast, flat, bits, site)
        out.copy_(flat.view(out.shape))
    state.record("quantize", _name(x), str(cast), f"{x.numel()} elements {x.dtype} to {out.dtype}")


def overwrite(x: Tensor, cast: Target, out: Tensor, seed: int | None) -> None:
    """``quantize_into`` a tensor that others may hold: autograd learns that it changed.

    Raises:
        DTypeError, ShapeError: as ``check_target``.
    """
    check_target(cast, x)
    quantize_into(x, cast, out, seed)
    if not out.is_inference():
        torch.autograd.graph.increment_version(out)


def quantize(
    x: Tensor,
    cast: Target,
    seed: int | None = None,
    site: int = Site.QUANTIZE,
    stream: int = 0,
    widen: bool = False,
) -> Tensor:
    """``cast`` of each element of ``x`` as a new tensor of its dtype; ``widen``: of one that holds the format.

    Raises:
        DTypeError, ShapeError: as ``check_target``.
    """
    check_target(cast, x)
    out = torch.empty_like(x, dtype=target_dtype(cast, x.dtype) if widen else x.dtype)
    quantize_into(x, cast, out, seed, site, stream)
    return out


def matmul(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    seed: int | None = None,
    out_dtype: torch.dtype | None = None,
    c: Tensor | None = None,
    stream: int = 0,
    select: Tensor | None = None,
    bias: Tensor | None = None,
    output: Cast | None = None,
) -> Tensor:
    """The matrix product ``spec`` of matrices, or of batches of matrices whose batch dimensions broadcast.

    ``bias`` (N,) and ``output``, a deterministic cast: what follows (``finishing``).
    """
    dtype = result_dtype("matmul", a, b, out_dtype)
    bits = call_seed(spec, seed, stream)
    finish = None if bias is None and output is None else _finish(a, b, spec, bias, output, dtype)
    plan: object
    if spec.has_blocks:
        out, plan = _block_matmul(a, b, spec, bits, dtype, c, select, finish)
    elif c is None and select is None and finish is None and a.dim() == 2 and b.dim() == 2 and a.shape[1] == b.shape[0]:
        out = torch.empty((a.shape[0], b.shape[1]), dtype=dtype, device=a.device)
        plan = selection.gemm(a, b, spec, out, bits) if out.numel() else NOTHING
    else:
        out, plan = general_matmul(a, b, spec, bits, dtype, c, select, finish=finish)
    state.record("matmul", _name(a), spec.key, plan)
    return out


def _finish(
    a: Tensor, b: Tensor, spec: GemmSpec, bias: Tensor | None, output: Cast | None, dtype: torch.dtype
) -> Finish | None:
    """``finish_of``, the bias checked."""
    if bias is not None:
        check_float("matmul", "bias", bias)
        check_device("matmul", a, b, bias)
        check_bias("matmul", bias, b.shape[-1])
    return finish_of(spec, bias, output, dtype)


def _block_matmul(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    seed: int,
    dtype: torch.dtype,
    c: Tensor | None,
    select: Tensor | None,
    finish: Finish | None = None,
) -> tuple[Tensor, object]:
    """``matmul`` of operands that ``spec`` puts into block formats, and what ran."""
    from . import blocks as block_product

    shape = matmul_shape("matmul", a, b)
    left, right = block_product.operands_of("matmul", a, b, spec, seed)
    return block_product.matmul(left, right, spec, seed, dtype, shape, c, select, finish)


def general_matmul(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    seed: int,
    dtype: torch.dtype,
    c: Tensor | None,
    select: Tensor | None,
    named: GemmSpec | None = None,
    finish: Finish | None = None,
) -> tuple[Tensor, object]:
    """``matmul`` of operands of any rank from two, and what ran; ``named``: the spec of casts made already.

    Raises:
        DTypeError: for ``select`` that holds no integers; errors of ``matmul``.
    """
    named = spec if named is None else named
    shape = matmul_shape("matmul", a, b)
    out = torch.empty(shape, dtype=dtype, device=a.device)
    if len(shape) > 2:
        spec, a, b = _cast_stochastic_operands(spec, a, b, seed)
    if c is not None:
        c = _expand("c", c, shape)
    if select is not None:
        check_integers("matmul", "select", select)
        select = _expand("select", select, shape)
    if out.numel() == 0:
        return out, NOTHING
    target = out
    if len(shape) > 2:
        a, b, target, c, select = _batched(a, b, out, c, select)
    return out, selection.gemm(a, b, spec, target, seed, c, select, named, finish)


def count_overflows(a: Tensor, b: Tensor, spec: GemmSpec, seed: int | None = None) -> Tensor:
    """How often each element's register left its range, int64 in the shape of ``matmul``'s result.

    Raises:
        DTypeError, DeviceError: for operands that do not fit.
        UnsupportedSpec: where the operands' backend does not count.
    """
    check_float("count_overflows", "a", a)
    check_float("count_overflows", "b", b)
    check_device("count_overflows", a, b)
    counts = torch.zeros(matmul_shape("count_overflows", a, b), dtype=torch.int64, device=a.device)
    bits = call_seed(spec, seed)
    if spec.has_blocks:
        from . import blocks as block_product

        if counts.numel() and a.shape[-1]:
            block_product.count_overflows(a, b, spec, counts, bits)
        return counts
    if counts.dim() > 2:
        spec, a, b = _cast_stochastic_operands(spec, a, b, bits)
    if counts.numel() == 0 or a.shape[-1] == 0:
        return counts
    target = counts
    if counts.dim() > 2:
        a, b, target, _ = _batched(a, b, counts, None)
    if spec.accumulator.is_lookup:
        selection.count_lookup_overflows(a, b, spec, target, bits)
        return counts
    backend_of(a).count_overflows(a, b, spec, target, bits)
    return counts


def _expand(name: str, t: Tensor, shape: Sequence[int]) -> Tensor:
    try:
        return t.expand(tuple(shape))
    except RuntimeError:
        asked = f"matmul: {name} has shape {tuple(t.shape)}, the product {tuple(shape)}"
        raise ShapeError(message(asked, f"a {name} that broadcasts to the product", f"Reshape {name}.")) from None


def _cast_stochastic_operands(spec: GemmSpec, a: Tensor, b: Tensor, seed: int) -> tuple[GemmSpec, Tensor, Tensor]:
    """Stochastic operand casts done beforehand, so that an element's bits depend on its index in its own tensor.

    Inside a batched GEMM a repeated (broadcast) operand has lost that index.
    """
    if spec.cast_a is not None and spec.cast_a.is_stochastic:
        a, spec = cast_operand(a, spec.cast_a, seed, Site.OPERAND_A), replace(spec, a=None)
    if spec.cast_b is not None and spec.cast_b.is_stochastic:
        b, spec = cast_operand(b, spec.cast_b, seed, Site.OPERAND_B), replace(spec, b=None)
    return spec, a, b


def cast_operand(t: Tensor, cast: Cast, seed: int, site: int) -> Tensor:
    """``t`` cast, in a dtype that holds the format."""
    return quantize(t, cast, seed, site, widen=True)


def matmul_with_operands(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    seed: int | None = None,
    out_dtype: torch.dtype | None = None,
    c: Tensor | None = None,
    stream: int = 0,
    select: Tensor | None = None,
    bias: Tensor | None = None,
    output: Cast | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """``matmul`` and the operands it multiplied, cast, for the backward pass; empty where ``spec`` has no operand cast.

    The product has the bits of ``matmul``: the same seed serves the operand casts and the GEMM.
    """
    dtype = result_dtype("matmul", a, b, out_dtype)
    matmul_shape("matmul", a, b)
    bits = call_seed(spec, seed, stream)
    finish = None if bias is None and output is None else _finish(a, b, spec, bias, output, dtype)
    cast_a = a.new_empty(0) if spec.cast_a is None else cast_operand(a, spec.cast_a, bits, Site.OPERAND_A)
    cast_b = b.new_empty(0) if spec.cast_b is None else cast_operand(b, spec.cast_b, bits, Site.OPERAND_B)
    left, right = (a if spec.cast_a is None else cast_a), (b if spec.cast_b is None else cast_b)
    stripped = without_operand_casts(spec)
    if spec.has_blocks:
        out, plan = _block_matmul(left, right, stripped, bits, dtype, c, select, finish)
    else:
        out, plan = general_matmul(left, right, stripped, bits, dtype, c, select, spec, finish)
    state.record("matmul", _name(a), spec.key, plan)
    return out, cast_a, cast_b


@lru_cache(maxsize=4096)
def without_operand_casts(spec: GemmSpec) -> GemmSpec:
    """``spec`` for operands that are cast already; block formats stay."""
    blocks = (BlockFormat, *TENSOR_FORMATS)
    a, b = (fmt if isinstance(fmt, blocks) else None for fmt in (spec.a, spec.b))
    return replace(spec, a=a, b=b)


def _batched(a: Tensor, b: Tensor, out: Tensor, *others: Tensor | None) -> tuple[Any, ...]:
    """Operands with equal batch dimensions, or with none where b is one matrix and the rest flattens without a copy.

    ``others`` have the shape of ``out``.
    """
    if b.numel() == b.shape[-2] * b.shape[-1]:
        rows, n = out.numel() // out.shape[-1], out.shape[-1]
        flat_a = _flat_view(a.expand(*out.shape[:-1], a.shape[-1]), rows)
        flat = [None if t is None else _flat_view(t, rows) for t in others]
        if flat_a is not None and all(t is None or f is not None for t, f in zip(others, flat, strict=True)):
            return flat_a, b.reshape(b.shape[-2], n), out.view(rows, n), *flat
    batch = out.shape[:-2]
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    if len(batch) <= _MAX_DIMS:
        return a, b, out, *others
    a, b, out = (t.reshape(-1, *t.shape[-2:]) for t in (a, b, out))
    return a, b, out, *(None if t is None else t.reshape(out.shape) for t in others)


def _flat_view(t: Tensor, rows: int) -> Tensor | None:
    """``t`` as (rows, last) if that needs no copy."""
    try:
        return t.view(rows, t.shape[-1])
    except RuntimeError:
        return None
