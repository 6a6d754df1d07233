"""The record of a kernel's arguments, gemmsim::GemmArgs (cutlass_kernels/gemm/simt/config.h), and its filling."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_uint64, c_void_p

from torch import Tensor

from gemmsim.lowering.abi_constants import MAX_BATCH_DIMS, MAX_WRAPPERS

__all__ = ["GemmArgs", "fill_bias", "gemm_args"]

_Dims = c_int64 * MAX_BATCH_DIMS
#: Tensors with separate strides, in the order of the record.
_TENSORS = ("a", "b", "c", "out", "select")


class GemmArgs(ctypes.Structure):
    """gemmsim::GemmArgs, field by field."""

    _fields_ = [
        ("a", c_void_p), ("b", c_void_p), ("c", c_void_p), ("out", c_void_p), ("select", c_void_p),
        ("term", c_void_p), ("key", c_void_p),
        ("m", c_int64), ("n", c_int64), ("k", c_int64), ("batches", c_int64),
        *((f"{name}_{axis}", c_int64) for name in _TENSORS for axis in ("row", "col")),
        ("seed", c_uint64), ("row", c_uint64), ("dims", c_int32), ("member", c_int32),
        ("size", c_int64 * MAX_WRAPPERS), ("batch", _Dims),
        *((f"{name}_batch", _Dims) for name in _TENSORS),
        ("scale_a", c_void_p), ("scale_b", c_void_p), ("second_a", c_void_p), ("second_b", c_void_p),
        ("block_a", c_int64), ("block_b", c_int64),
        ("scale_a_row", c_int64), ("scale_a_block", c_int64), ("scale_b_block", c_int64), ("scale_b_col", c_int64),
        ("scale_a_batch", _Dims), ("scale_b_batch", _Dims),
        ("bias", c_void_p), ("bias_col", c_int64), ("bias_batch", _Dims),
        ("rows", c_void_p), ("cols", c_void_p), ("inner", c_int64), ("a_outer", c_int64), ("out_outer", c_int64),
        ("totals", c_void_p), ("slices", c_int64), ("slice", c_int64),
        ("schedule", c_void_p), ("schedule_count", c_int64),
    ]  # fmt: skip


def _fill(args: GemmArgs, name: str, x: Tensor) -> None:
    setattr(args, name, x.data_ptr())
    strides = x.stride()
    setattr(args, f"{name}_row", strides[-2])
    setattr(args, f"{name}_col", strides[-1])
    getattr(args, f"{name}_batch")[: len(strides) - 2] = strides[:-2]


def gemm_args(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    seed: int,
    c: Tensor | None = None,
    select: Tensor | None = None,
    row: int = 0,
) -> GemmArgs:
    """Return the record of a product: pointers, sizes, strides, seed and the first row's index for random bits.

    All other fields are zero.

    Raises:
        ValueError: for more than 16 batch dimensions.
    """
    dims = out.dim() - 2
    if dims > MAX_BATCH_DIMS:
        raise ValueError(f"{dims} batch dimensions: at most {MAX_BATCH_DIMS} are supported. Flatten some of them.")
    args = GemmArgs(seed=seed, row=row, dims=dims, batches=1, m=out.shape[-2], n=out.shape[-1], k=a.shape[-1])
    for name, x in (("a", a), ("b", b), ("out", out), ("c", c), ("select", select)):
        if x is not None:
            _fill(args, name, x)
    for d in range(dims):
        args.batch[d] = out.shape[d]
        args.batches *= out.shape[d]
    return args


def fill_bias(args: GemmArgs, bias: Tensor | None) -> None:
    """Fill the fields of the bias (\\*B, N), or (N,) for every matrix of the batch."""
    if bias is not None:
        args.bias, args.bias_col = bias.data_ptr(), bias.stride(-1)
        args.bias_batch[: bias.dim() - 1] = bias.stride()[:-1]
