"""Convolutions as matrix products with implicit im2col (cutlass_kernels/gemm/simt/implicit_im2col.h)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.lowering.abi_constants import Site

from ...epilogue import Finish
from ...implicit_im2col import Gathered
from ...product import Ran
from ..casts.cast import quantize
from ..jit.launch import launch
from ..jit.source import KernelSource
from ..ran import ran
from .gemm import (
    blocks_of,
    cast_operand,
    check_devices,
    check_finish,
    check_product,
    fill_orders,
    finish_of,
    is_beforehand,
    layout_of,
    tile_for,
)
from .gemm_args import GemmArgs, fill_bias
from .gemm_operands import Operands
from .gemm_source import gemm_source, is_permuted
from .tile_candidates import tiles_of

__all__ = ["gathered_gemm", "sources"]


def gathered_gemm(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    out: Tensor,
    where: Gathered,
    seed: int = 0,
    c: Tensor | None = None,
    finish: Finish | None = None,
) -> Ran:
    """Write the products of ``a``, read as ``where`` says, and ``b`` (groups, K, N) into ``out``.

    This is ``gemmsim.backends.cpu.gathered_gemm`` with the same bits; the tables, too, are on the GPU. ``finish`` is an
    epilogue in the same kernel, as in ``gemm``, with a bias (groups, N).

    Raises:
        UnsupportedSpec, ValueError, CudaError: as ``gemm``.
    """
    check_product(spec, b.shape[1], c, None)
    check_devices(a, b, out, c, where.rows, where.cols, None if finish is None else finish.bias)
    check_finish(spec, finish)
    if out.numel() == 0:
        return ran()
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    if spec.out is not None and is_beforehand(spec.out) and finish is None:
        raw = torch.empty_strided(out.shape, out.stride(), dtype=torch.float64, device=out.device)
        run = gathered_gemm(a, b, replace(spec, out=None), raw, where, seed, c)
        quantize(raw, spec.out, out, seed, Site.OUTPUT)
        return run
    accumulator, terms = spec.accumulator, where.cols.numel()
    rows = where.outer * where.rows.numel()
    b, done_b = cast_operand(b, None if is_stochastic(spec) else spec.cast_b, rows, seed)
    layout = 0 if is_permuted(accumulator) else layout_of(b, b.dim() - 1, b.dim() - 2)
    dtype_c = None if c is None else c.dtype
    operands = Operands(
        a.dtype, b.dtype, out.dtype, dtype_c, False, True, done_b or is_stochastic(spec), 0, layout,
        finish=finish_of(finish), gathered=True,
    )  # fmt: skip
    tile = tile_for(spec, accumulator, operands, out.device, b.shape[0], rows, b.shape[2], terms)
    kernel = gemm_source(spec, accumulator, operands, tile)
    args = _args(a, b, out, where, rows, terms, seed, c)
    fill_bias(args, None if finish is None else finish.bias)
    keep = fill_orders(args, accumulator, out.device), where
    launch(kernel.source, out.device, (blocks_of(args, kernel), 1, 1), args)
    del keep  # the caching allocator reuses memory of this stream only for later work of the same stream
    return ran(kernel.source)


def is_stochastic(spec: GemmSpec) -> bool:
    """Whether ``b``'s cast has random bits, so that the caller has applied it."""
    return spec.cast_b is not None and spec.cast_b.is_stochastic


def _args(
    a: Tensor, b: Tensor, out: Tensor, where: Gathered, rows: int, terms: int, seed: int, c: Tensor | None
) -> GemmArgs:
    groups, _, n = b.shape
    args = GemmArgs(seed=seed, dims=1, batches=groups, m=rows, n=n, k=terms)
    args.a, args.b, args.out = a.data_ptr(), b.data_ptr(), out.data_ptr()
    args.batch[0], args.a_batch[0], args.b_batch[0] = groups, where.a_group, b.stride(0)
    args.out_batch[0] = where.c_group
    args.b_row, args.b_col, args.out_row, args.out_col = b.stride(1), b.stride(2), where.c_row, where.c_col
    if c is not None:
        args.c, args.c_col, args.c_batch[0] = c.data_ptr(), c.stride(1), c.stride(0)
    args.rows, args.cols, args.inner = where.rows.data_ptr(), where.cols.data_ptr(), where.rows.numel()
    args.a_outer, args.out_outer = where.a_outer, where.c_outer
    return args


#: The products that CI compiles.
_LISTED = ("e4m3 : e6m9", "e4m3 : e5m10", ":bf16/sr8", ":interleaved(4, bf16)")


def sources() -> Iterator[KernelSource]:
    """Yield a kernel for each of a few products, with the tile of large ones."""
    for text in _LISTED:
        spec = GemmSpec.of(text)
        dtypes, layout = (torch.float32,) * 3, int(not is_permuted(spec.accumulator))
        operands = Operands(*dtypes, None, False, True, True, 0, layout, gathered=True)
        yield gemm_source(spec, spec.accumulator, operands, tiles_of(spec, spec.accumulator, operands)[0]).source
