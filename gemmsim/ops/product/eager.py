"""The operators on ordinary tensors: checks, shapes and seeds around ``gemmsim.backends``.

Everything here runs below PyTorch's dispatcher: no autograd, no tracing, no modes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.accumulator import remembers
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.backends import route
from gemmsim.backends.backend import backend_name, backend_of
from gemmsim.backends.batch_dims import batched
from gemmsim.backends.epilogue import Finish
from gemmsim.backends.product import Product
from gemmsim.formats import TENSOR_FORMATS, BlockFormat

from .. import last_run
from ..cast_arguments import cast_of
from ..checks import FLOAT_DTYPES, check_device, check_float, check_out_dtype
from ..errors import message
from ..quantize_eager import cast_operand
from ..seeds import Site, at_counter, derive_seed, draw_seed
from . import blocks, operand_overflow
from .affine_formats import formats_named
from .broadcasting import NOTHING, expanded, general_matmul
from .epilogue import check_bias, finish_of
from .matmul_extras import MatmulExtras
from .shapes import matmul_shape

__all__ = [
    "call_seed",
    "count_events",
    "count_overflows",
    "matmul",
    "matmul_with_operands",
    "plain_spec_of",
    "result_dtype",
    "spec_of",
    "without_operand_casts",
]

_NONE = MatmulExtras()


@lru_cache(maxsize=4096)
def spec_of(text: str) -> GemmSpec:
    """The spec a string names; parsed once."""
    return GemmSpec.of(text)


remembers(spec_of.cache_clear)


@lru_cache(maxsize=4096)
def plain_spec_of(text: str) -> GemmSpec | None:
    """As ``spec_of``; None for text that says more than one product (a recipe's word)."""
    return spec_of(text) if formats_named(text) is None else None


remembers(plain_spec_of.cache_clear)


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


def matmul(a: Tensor, b: Tensor, spec: GemmSpec, extras: MatmulExtras = _NONE) -> Tensor:
    """The matrix product ``spec`` of matrices, or of batches of matrices whose batch dimensions broadcast.

    Raises:
        UnsupportedSpec: for an operand a whose random bits know no row; errors of ``result_dtype`` and backends.
    """
    dtype, bits, row, finish = _resolved(a, b, spec, extras)
    c, select = extras.c, extras.select
    plan: object
    named, given = spec, a
    if row:
        matmul_shape("qmatmul", a, b)
        a, spec = _cast_from(row, a, spec, bits)
    if spec.has_blocks:
        out, plan = _block_matmul(a, b, spec, bits, dtype, extras, finish, row)
    elif c is None and select is None and row == 0 and _have_equal_batches(a, b):
        out = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=dtype, device=a.device)
        plan = route.gemm(a, b, spec, out, bits, finish) if out.numel() else NOTHING
    else:
        out, plan = general_matmul(a, b, spec, bits, dtype, c, select, named, finish, row)
    if (named.a or named.b) and operand_overflow.may_overflow(named):
        operand_overflow.look(given, b, named, out)
    last_run.record("matmul", backend_name(a), named.key, plan)
    return out


_Resolved: TypeAlias = tuple[torch.dtype, int, int, Finish | None]


def _resolved(a: Tensor, b: Tensor, spec: GemmSpec, extras: MatmulExtras) -> _Resolved:
    """The dtype of the result, seed, first row and epilogue that ``extras`` mean, after checks.

    Raises:
        DTypeError, DeviceError, ShapeError: for operands, a dtype or a bias that do not fit.
    """
    dtype = result_dtype("qmatmul", a, b, extras.out_dtype)
    finish, bias = None, extras.bias
    if bias is not None or extras.output is not None:
        if bias is not None:
            check_float("qmatmul", "bias", bias)
            check_device("qmatmul", a, b, bias)
            check_bias("qmatmul", bias, b.shape[-1])
        finish = finish_of(spec, bias, None if extras.output is None else cast_of(extras.output), dtype)
    if not spec.is_stochastic:
        return dtype, 0, 0, finish
    seed = extras.seed if extras.counter is None else at_counter(extras.seed, extras.counter)
    return dtype, call_seed(spec, seed, extras.stream), extras.row, finish


def _have_equal_batches(a: Tensor, b: Tensor) -> bool:
    """Whether the operands are two matrices, or as many of each, whose contracted sizes are equal."""
    return a.dim() == b.dim() and a.shape[-1] == b.shape[-2] and (a.dim() == 2 or a.shape[:-2] == b.shape[:-2])


def _cast_from(row: int, a: Tensor, spec: GemmSpec, seed: int) -> tuple[Tensor, GemmSpec]:
    """``a`` after a stochastic cast, its elements those from ``row`` on, and the spec that is left."""
    _check_row_of(row, spec)
    if spec.cast_a is None or not spec.cast_a.is_stochastic:
        return a, spec
    return cast_operand(a, spec.cast_a, seed, Site.OPERAND_A, row * a.shape[-1]), replace(spec, a=None)


def _check_row_of(row: int, spec: GemmSpec) -> None:
    """``UnsupportedSpec`` for an operand a whose random bits always count from its own first element."""
    if isinstance(spec.a, TENSOR_FORMATS) and spec.a.is_stochastic:
        asked = f"qmatmul: row={row} with operand a in {spec.a}, whose random bits start at its first element"
        do = "Round the whole of a beforehand with gemmsim.quantize."
        raise UnsupportedSpec(message(asked, "row=0, or another rounding of a", do))


def _block_matmul(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    seed: int,
    dtype: torch.dtype,
    extras: MatmulExtras,
    finish: Finish | None = None,
    row: int = 0,
) -> tuple[Tensor, object]:
    """``matmul`` of operands that ``spec`` puts into block formats, and what ran."""
    shape = matmul_shape("qmatmul", a, b)
    left, right = blocks.operands_of("qmatmul", a, b, spec, seed, blocks.seconds_of(spec, extras.amax))
    return blocks.matmul(left, right, spec, seed, dtype, shape, extras.c, extras.select, finish, row)


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
    if counts.numel() and a.shape[-1]:
        if spec.has_blocks:
            blocks.count_overflows(a, b, spec, counts, bits)
        else:
            route.run(Product(a, b, spec, counts, bits, count=True))
    return counts


def count_events(
    a: Tensor, b: Tensor, spec: GemmSpec, seed: int | None = None, c: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``matmul``'s result, and how many additions of each element swamped, were inexact, underflowed and overflowed:
    int64, (4, ...) and the result's shape.

    Raises:
        DTypeError, DeviceError, ShapeError: for operands that do not fit.
        UnsupportedSpec: where the operands' backend does not count; SpecError: for ``c`` without a place.
    """
    dtype = result_dtype("count_events", a, b, None)
    check_device("count_events", a, b, c)
    shape = matmul_shape("count_events", a, b)
    out = torch.empty(shape, dtype=dtype, device=a.device)
    counts = torch.zeros((4, *shape), dtype=torch.int64, device=a.device)
    bits = call_seed(spec, seed)
    if spec.has_blocks and not takes_scales(spec.accumulator):
        a, b, spec = blocks.decoded("count_events", a, b, spec, bits)
    product = Product(a, b, spec, out, bits, None if c is None else expanded("count_events", c, shape))
    if out.dim() > 2:
        product = batched(product)
    backend = backend_of(out)
    backend.count_events(product.a, product.b, product.spec, product.out, counts, product.seed, product.c)  # type: ignore[arg-type]
    return out, counts


def matmul_with_operands(
    a: Tensor, b: Tensor, spec: GemmSpec, extras: MatmulExtras = _NONE
) -> tuple[Tensor, Tensor, Tensor]:
    """``matmul`` and the operands it multiplied, cast, for the backward pass; empty where ``spec`` has no operand cast.

    The product has the bits of ``matmul``: the same seed serves the operand casts and the GEMM.

    Raises:
        UnsupportedSpec: as ``matmul``.
    """
    dtype, bits, row, finish = _resolved(a, b, spec, extras)
    matmul_shape("qmatmul", a, b)
    c, select = extras.c, extras.select
    if row:
        _check_row_of(row, spec)
    start = row * a.shape[-1]
    cast_a = a.new_empty(0) if spec.cast_a is None else cast_operand(a, spec.cast_a, bits, Site.OPERAND_A, start)
    cast_b = b.new_empty(0) if spec.cast_b is None else cast_operand(b, spec.cast_b, bits, Site.OPERAND_B)
    left, right = (a if spec.cast_a is None else cast_a), (b if spec.cast_b is None else cast_b)
    stripped = without_operand_casts(spec)
    if spec.has_blocks:
        out, plan = _block_matmul(left, right, stripped, bits, dtype, extras, finish, row)
    else:
        out, plan = general_matmul(left, right, stripped, bits, dtype, c, select, spec, finish, row)
    if operand_overflow.may_overflow(spec):
        operand_overflow.look(a, b, spec, out)
    last_run.record("matmul", backend_name(a), spec.key, plan)
    return out, cast_a, cast_b


@lru_cache(maxsize=4096)
def without_operand_casts(spec: GemmSpec) -> GemmSpec:
    """``spec`` for operands that are cast already; block formats stay."""
    blocks = (BlockFormat, *TENSOR_FORMATS)
    a, b = (fmt if isinstance(fmt, blocks) else None for fmt in (spec.a, spec.b))
    return replace(spec, a=a, b=b)
