"""Matrix products whose first operand is read through index tables: convolutions without a matrix of their windows."""

from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import dataclass

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec

from .gemm import SITE_OUT, _known, _pack, failure
from .library import library
from .prepared import Prepared
from .quantize import DTYPES, quantize
from .records import Extras, GatherRecord
from .run import Run

__all__ = ["Gathered", "gathered_gemm"]


@dataclass(frozen=True)
class Gathered:
    """Where the operands and the result of ``groups`` products lie; all strides in elements.

    Row m of a group is ``(outer, inner) = divmod(m, len(rows))``. Element (m, k) of the first operand of group g is at
    ``g * a_group + outer * a_outer + rows[inner] + cols[k]``, element (m, n) of the result at
    ``g * c_group + outer * c_outer + inner * c_row + n * c_col``. Random bits belong to (m, g * N + n).
    """

    rows: Tensor
    cols: Tensor
    outer: int
    a_group: int
    a_outer: int
    c_group: int
    c_outer: int
    c_row: int
    c_col: int


def gathered_gemm(
    a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, where: Gathered, seed: int = 0, c: Tensor | None = None
) -> Run:
    """Write the products of ``a``, read as ``where`` says, and ``b`` (groups, K, N) into ``out``.

    Values of ``a`` are those of the spec's operand format already, since a table may read an element many times: the
    cast of the spec tells what they can be and rounds nothing. ``b`` is rounded here, unless its cast is stochastic;
    such a cast is the caller's to do. The output cast's random bits belong to ``out``'s row-major index.
    ``c`` is an addend (groups, N), the same for all rows.
    Extra memory: b packed once, and max(half a megabyte, 32 K bytes) per thread; twice that in float64 lanes.

    Raises:
        UnsupportedSpec: if ``supported(spec)`` gives a reason.
        MemoryError: if the packed panels cannot be allocated.
    """
    known = _known(spec)
    if spec.is_stochastic and spec.fixed_seed is not None:
        seed = spec.fixed_seed
    if spec.out is not None and spec.out.is_stochastic:
        raw = torch.empty_strided(out.shape, out.stride(), dtype=torch.float64)
        run = _call(known, a, b, raw, where, seed, c)
        quantize(raw, spec.out, out, seed, SITE_OUT)
        return run
    return _call(known, a, b, out, where, seed, c)


def _call(known: Prepared, a: Tensor, b: Tensor, out: Tensor, where: Gathered, seed: int, c: Tensor | None) -> Run:
    groups, k, n = b.shape
    inner = where.rows.numel()
    batch = (ctypes.c_int64 * 4)(groups, where.a_group, b.stride(0), where.c_group)
    extras, strides = Extras(), (ctypes.c_int64 * 2)()
    if c is not None:
        extras.addend, extras.addend_dtype = c.data_ptr(), DTYPES[c.dtype]
        extras.addend_row, extras.addend_col = 0, c.stride(1)
        strides[0] = c.stride(0)
        extras.batch = ctypes.addressof(strides)
    args = _pack(
        a.data_ptr(), b.data_ptr(), out.data_ptr(), DTYPES[a.dtype], DTYPES[b.dtype], DTYPES[out.dtype], 1,
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
    return Run(code)
