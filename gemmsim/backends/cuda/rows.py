"""Kernels of family ``rows``: softmax, norms, sums and element-wise steps (cutlass_kernels/rows/tile_kernel.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_double, c_int32, c_int64, c_uint64, c_void_p
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.formats import FP32, FP64, Cast, FloatFormat, parse_cast
from gemmsim.lowering.abi_constants import FLOAT32
from gemmsim.lowering.casts import cast_numbers
from gemmsim.lowering.rowwise_ids import FUNCTIONS, OPERATIONS

from ..dtypes import DTYPES
from .jit.launch import launch
from .jit.source import KernelSource, cast_literal

__all__ = ["TileArgs", "row_source", "run_rows", "sources"]

_THREADS, _PARTS, _PASSES = 128, 2048, 4
_STEPS, _INPUTS, _OUTPUTS = 13, 5, 3
#: Number of blocks that keeps a large GPU busy. Tiles have one row if there would be fewer blocks.
_BLOCKS = 1024


class TileArgs(ctypes.Structure):
    """gemmsim::rows::TileArgs, field by field."""

    _fields_ = [
        ("inputs", c_void_p * _INPUTS), ("outputs", c_void_p * _OUTPUTS), ("work", c_void_p),
        ("rows", c_int64), ("cols", c_int64), ("seed", c_uint64), ("eps", c_double),
        ("tile", c_int32), ("unused", c_int32),
    ]  # fmt: skip


def _in_double(cast: Cast) -> bool:
    """Whether double rounds to ``cast`` by way of an odd number: the cast has up to 50 bits, inside float32's range."""
    c = cast_numbers(cast)
    bits = c.p + (c.rbits + 1 if cast.rounding.is_stochastic else 0)
    in_range = c.emax < FLOAT32.top and c.quantum >= FLOAT32.quantum
    return bits <= 50 and in_range and c.lo >= -(2.0**128) and c.hi <= 2.0**128


def _work_dtype(carrier: torch.dtype, exponential: Cast) -> torch.dtype:
    """Return the dtype that stores a softmax's exponentials exactly."""
    return torch.float32 if carrier == torch.float32 and cast_numbers(exponential).fits_float32 else torch.float64


@lru_cache(maxsize=4096)
def row_source(
    op: str,
    inputs: tuple[torch.dtype | None, ...],
    outputs: tuple[torch.dtype, ...],
    steps: tuple[Cast | None, ...],
    *,
    function: str = "copy",
    order: int = 1,
    centered: bool = True,
) -> KernelSource:
    """Return the kernel of row operation ``op`` (cutlass_kernels/cpu/rows/rows.h) for contiguous tensors of these
    dtypes.

    ``steps`` has the casts of its steps. None is a step rounded to float32, or to float64 where a tensor has that
    dtype.

    Raises:
        UnsupportedSpec: if a format's values do not fit float64.
    """
    carrier = torch.float64 if torch.float64 in (*inputs, *outputs) else torch.float32
    default = Cast(FP64 if carrier == torch.float64 else FP32)
    casts = [default if cast is None else cast for cast in steps]
    for cast in casts:
        if isinstance(cast.format, FloatFormat) and not cast.format.fits_float64:
            raise UnsupportedSpec(
                f"The CUDA backend cannot round to {cast}: its values do not fit float64. Use a narrower format."
            )
    wide = carrier == torch.float64 or not all(_in_double(cast) for cast in casts)
    work = _work_dtype(carrier, casts[1]) if op == "softmax" else carrier
    given = [dtype is not None for dtype in inputs] + [False] * _INPUTS
    fields = [
        f".op = {OPERATIONS[op]}, .function = {FUNCTIONS[function]}, .order = {order}",
        f".wide = {int(wide)}, .centered = {int(centered)}, .weight = {int(given[1])}, .bias = {int(given[2])}",
        f".second = {int(given[1])}",
        f".in = {{{_names(inputs, _INPUTS)}}}, .out = {{{_names(outputs, _OUTPUTS)}}}",
        f".work = gemmsim::{DTYPES[work].label}",
        ".steps = {" + ", ".join(cast_literal(cast_numbers(cast)) for cast in casts) + "}",
    ]
    text = (
        '#include "rows/tile_kernel.h"\n'
        f"constexpr gemmsim::rows::TileConfig kConfig{{{', '.join(fields)}}};\n"
        f'extern "C" __global__ void __launch_bounds__({_THREADS}) '
        "gemmsim_kernel(const gemmsim::rows::TileArgs args) {\n"
        "    gemmsim::rows::tile_body<kConfig>(args, threadIdx.x, blockIdx.x);\n"
        "}\n"
    )
    what = function if op == "map" else op if order == 1 else f"{op} tree({order})"
    names = ", ".join(dict.fromkeys(str(cast) for cast in casts))
    types = ", ".join(dict.fromkeys(DTYPES[dtype].label.lower() for dtype in (*inputs, *outputs) if dtype is not None))
    shared = 0 if op == "map" else 8 * (3 * _THREADS + (_THREADS if order == 1 else _PARTS))
    return KernelSource("rows", f"{what}, {names}, {types}", text, _THREADS, shared_bytes=shared)


def _names(dtypes: Sequence[torch.dtype | None], length: int) -> str:
    known = [DTYPES[torch.float32 if dtype is None else dtype].label for dtype in dtypes]
    return ", ".join(f"gemmsim::{name}" for name in known + ["F32"] * (length - len(known)))


def _tile(rows: int, order: int) -> int:
    """Return the number of rows of a block. With more rows, fewer threads wait while others add."""
    tile = 1
    while tile < _THREADS and tile * 2 * order <= _PARTS and rows > tile * _BLOCKS:
        tile *= 2
    return tile


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
    """Run row operation ``op`` on contiguous CUDA tensors, each float32, float64, float16 or bfloat16.

    Return the dtype of the first result, because kernels convert while they load and write. The bits are those of
    ``gemmsim.backends.cpu.run_rows``, with the canonical NaN. The kernel runs on torch's current stream.

    Raises:
        UnsupportedSpec: if a format's values do not fit float64.
        CudaError: if the kernel cannot be compiled or launched.
    """
    dtypes = tuple(None if t is None else t.dtype for t in inputs), tuple(t.dtype for t in outputs)
    if not rows or not cols:
        return dtypes[1][0]
    source = row_source(op, *dtypes, tuple(steps), function=function, order=order, centered=centered)
    args = TileArgs(rows=rows, cols=cols, seed=seed, eps=eps, tile=_tile(rows, order))
    for i, tensor in enumerate(inputs):
        args.inputs[i] = tensor.data_ptr() if tensor is not None else None
    for i, tensor in enumerate(outputs):
        args.outputs[i] = tensor.data_ptr()
    kept = None
    if op == "softmax":
        carrier = torch.float64 if torch.float64 in (*dtypes[0], *dtypes[1]) else torch.float32
        work = _work_dtype(carrier, Cast(FP32) if steps[1] is None else steps[1])
        same = outputs[0].dtype == work
        kept = outputs[0] if same else torch.empty(outputs[0].shape, dtype=work, device=outputs[0].device)
        args.work = kept.data_ptr()
    blocks = -(-rows // (_THREADS * _PASSES if op == "map" else args.tile))
    launch(source, outputs[0].device, (blocks, 1, 1), args)
    return dtypes[1][0]


def sources() -> Iterator[KernelSource]:
    """Yield every operation in e5m10 steps of float32, sums and maps of every kind of step, 16-bit and float64
    tensors.
    """
    f32, f16 = torch.float32, torch.float16
    e5m10, sr = parse_cast("e5m10"), parse_cast("e5m10/sr8")
    yield row_source("softmax", (f32,), (f32,), (e5m10, e5m10, e5m10, None))
    yield row_source("softmax", (f16,), (f16,), (e5m10, e5m10, e5m10, e5m10), order=64)
    yield row_source("log_softmax", (f32,), (f32,), (e5m10, e5m10, e5m10, None))
    yield row_source("softmax_grad", (f32, f32), (f32,), (e5m10,) * 4)
    yield row_source("norm", (f32, f32, f32), (f32, f32, f32), (e5m10,) * 12)
    yield row_source("norm_grad", (f32, f32, f32, f32, f32), (f32, f32), (e5m10,) * 13)
    for cast in (e5m10, sr, parse_cast("supernormal(4,3)")):
        yield row_source("sum", (f32,), (f32,), (cast,))
    yield row_source("sum", (f32,), (f32,), (e5m10,), order=64)
    yield row_source("sum", (torch.float64,), (torch.float64,), (None,))
    for function in ("add", "div", "sqrt", "erf", "pow"):
        second = f32 if function in ("add", "div", "pow") else None
        yield row_source("map", (f32, second), (f32,), (e5m10,), function=function)
