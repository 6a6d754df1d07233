"""Convolutions on the CPU as matrix products with implicit im2col: index tables say where operand a is read."""

from __future__ import annotations

import ctypes
from ctypes import byref

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.lowering.abi_constants import Site

from ..dtypes import NUMBERS
from ..implicit_im2col import Gathered
from ..product import Ran
from .ctypes_structs import Extras, GatherRecord
from .gemm import _known, _pack, failure
from .kernel_report import ran
from .quantize import quantize
from .shared_library import library
from .spec_cache import Prepared

__all__ = ["gathered_gemm"]


def gathered_gemm(
    a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, where: Gathered, seed: int = 0, c: Tensor | None = None
) -> Ran:
    """Write the products of ``a``, read as ``where`` says, and ``b`` (groups, K, N) into ``out``.

    Values of ``a`` must already be values of the spec's operand format, because a table may read an element many times.
    The spec's cast of ``a`` says which values are possible and rounds nothing. This function rounds ``b``, unless its
    cast is stochastic; the caller must apply a stochastic cast. The output cast's random bits belong to ``out``'s
    row-major index. ``c`` is an addend (groups, N), the same for all rows.

    Extra memory: b packed once, and max(half a megabyte, 32 K bytes) per thread; twice that in float64 lanes.

    Raises:
        UnsupportedSpec: if ``refuses(spec)`` gives a reason.
        MemoryError: if the packed panels cannot be allocated.
    """
    known = _known(spec)
    if spec.is_stochastic and spec.fixed_seed is not None:
        seed = spec.fixed_seed
    if spec.out is not None and spec.out.is_stochastic:
        raw = torch.empty_strided(out.shape, out.stride(), dtype=torch.float64)
        run = _call(known, a, b, raw, where, seed, c)
        quantize(raw, spec.out, out, seed, Site.OUTPUT)
        return run
    return _call(known, a, b, out, where, seed, c)


def _call(known: Prepared, a: Tensor, b: Tensor, out: Tensor, where: Gathered, seed: int, c: Tensor | None) -> Ran:
    groups, k, n = b.shape
    inner = where.rows.numel()
    batch = (ctypes.c_int64 * 4)(groups, where.a_group, b.stride(0), where.c_group)
    extras, strides = Extras(), (ctypes.c_int64 * 2)()
    if c is not None:
        extras.addend, extras.addend_dtype = c.data_ptr(), NUMBERS[c.dtype]
        extras.addend_row, extras.addend_col = 0, c.stride(1)
        strides[0] = c.stride(0)
        extras.batch = ctypes.addressof(strides)
    args = _pack(
        a.data_ptr(), b.data_ptr(), out.data_ptr(), NUMBERS[a.dtype], NUMBERS[b.dtype], NUMBERS[out.dtype], 1,
        where.outer * inner, n, k, 0, 0, b.stride(1), b.stride(2), where.c_row, where.c_col,
        ctypes.addressof(batch), ctypes.addressof(extras) if c is not None else 0, seed, torch.get_num_threads(), 0,
    )  # fmt: skip
    part = known.part
    if known.shuffles:
        part, _alive = known.of(k)
    tables = GatherRecord(where.rows.data_ptr(), where.cols.data_ptr(), inner, where.a_outer, where.c_outer)
    code = library().gemmsim_gathered_gemm(args + part, byref(tables))
    if code < 0:
        raise failure(code, k, n)
    return ran(code)
