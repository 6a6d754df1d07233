"""Row operations on the CPU: element-wise steps, sums, softmax and normalisation, each step rounded to its format."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_int, c_int32, c_int64, c_uint64, c_void_p
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.formats import FP32, FP64, Cast, FloatFormat
from gemmsim.lowering.abi_constants import Site
from gemmsim.lowering.rowwise_ids import FUNCTIONS, OPERATIONS

from .ctypes_structs import CastRecord, cast_record
from .shared_library import LibraryError, library

__all__ = ["named_steps", "run_rows"]

_STEPS, _INPUTS, _OUTPUTS = 13, 5, 3
_CARRIERS = {torch.float32: (0, Cast(FP32)), torch.float64: (1, Cast(FP64))}
_ready: ctypes.CDLL | None = None


class _Step(ctypes.Structure):
    _fields_ = [("cast", CastRecord), ("site", c_int32), ("way", c_int32)]


class RowArgs(ctypes.Structure):
    _fields_ = [
        ("inputs", c_void_p * _INPUTS), ("outputs", c_void_p * _OUTPUTS),
        ("rows", c_int64), ("cols", c_int64),
        ("op", c_int32), ("function", c_int32), ("dtype", c_int32), ("order", c_int32),
        ("centered", c_int32), ("threads", c_int32),
        ("eps", c_double), ("seed", c_uint64),
        ("steps", _Step * _STEPS),
    ]  # fmt: skip


def run_rows(
    op: str,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    steps: Sequence[Cast | None],
    *,
    rows: int,
    cols: int,
    function: str = "copy",
    order: int = 1,
    centered: bool = True,
    eps: float = 0.0,
    seed: int = 0,
) -> torch.dtype:
    """Run row operation ``op`` (cutlass_kernels/cpu/rows/rows.h) on contiguous float tensors; return the working dtype.

    The working dtype is float32, or float64 if one of the tensors has it. PyTorch converts other tensors to it and from
    it. ``steps`` has the casts of the operation's steps in order; None is a step that is rounded to the working dtype.

    Raises:
        UnsupportedSpec: if a format's values do not fit float64.

    Example:
        >>> from gemmsim.backends import cpu
        >>> x, out, steps = torch.tensor([0.3, 5.0]), torch.empty(2), [gs.formats.parse_cast("e2m1")]
        >>> dtype = cpu.run_rows("map", [x, x], [out], steps, rows=2, cols=1, function="add"); out  # x + x
        tensor([0.5000, 6.0000])
    """
    wide = any(t is not None and t.dtype is torch.float64 for t in (*inputs, *outputs))
    work = torch.float64 if wide else torch.float32
    if not rows or not cols:
        return work
    given = [None if t is None else t.to(work) for t in inputs]
    results = [t if t.dtype is work else torch.empty(t.shape, dtype=work) for t in outputs]
    args = RowArgs()
    args.dtype, carrier = _CARRIERS[work]
    for i, tensor in enumerate(given):
        args.inputs[i] = tensor.data_ptr() if tensor is not None else None
    for i, tensor in enumerate(results):
        args.outputs[i] = tensor.data_ptr()
    args.rows, args.cols = rows, cols
    args.op, args.function, args.order = OPERATIONS[op], FUNCTIONS[function], order
    args.centered, args.eps, args.seed = int(centered), eps, seed
    args.threads = torch.get_num_threads()
    args.steps = _records(steps, args.dtype) if isinstance(steps, _NamedSteps) else _step_records(steps, carrier)
    if _library().gemmsim_rows(byref(args)):
        raise MemoryError("gemmsim: no memory for the work space of a few rows per thread. Use fewer threads.")
    for out, result in zip(outputs, results, strict=True):
        if out is not result:
            out.copy_(result)
    return work


def named_steps(casts: Sequence[Cast | None]) -> Sequence[Cast | None]:
    """Return ``casts`` for ``run_rows``, which caches their records while the caller keeps the returned object.

    Example:
        >>> from gemmsim.backends import cpu
        >>> cpu.named_steps([gs.formats.parse_cast("e4m3"), None])
        (parse_cast('e4m3'), None)
    """
    return _NamedSteps(casts)


class _NamedSteps(tuple[Cast | None, ...]):
    """Casts that are compared by identity, because hashing them would take longer than computing a row."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@lru_cache(maxsize=1024)
def _records(steps: _NamedSteps, dtype: int) -> ctypes.Array[_Step]:
    return _step_records(steps, Cast(FP64 if dtype else FP32))


def _step_records(steps: Sequence[Cast | None], carrier: Cast) -> ctypes.Array[_Step]:
    records = (_Step * _STEPS)()
    for i, cast in enumerate(steps):
        cast = carrier if cast is None else cast
        if isinstance(cast.format, FloatFormat) and not cast.format.fits_float64:
            raise UnsupportedSpec(
                f"The CPU backend cannot round to {cast}: its values do not fit float64. Use a narrower format."
            )
        records[i].cast, records[i].site = cast_record(cast), Site.ROWS + i
    return records


def _library() -> ctypes.CDLL:
    global _ready
    lib = library()
    if _ready is not lib:
        lib.gemmsim_rows_abi.restype = c_int64
        lib.gemmsim_rows.argtypes, lib.gemmsim_rows.restype = [POINTER(RowArgs)], c_int
        if lib.gemmsim_rows_abi() != ctypes.sizeof(RowArgs):
            raise LibraryError(
                f"gemmsim's CPU library has row records of {lib.gemmsim_rows_abi()} bytes; this Python code needs "
                f"{ctypes.sizeof(RowArgs)}. Install the package again so that both come from one version."
            )
        _ready = lib
    return lib
