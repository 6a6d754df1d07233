"""Lays out the parameters of a CUTLASS kernel in Python.

No host compiler sees CUTLASS' types, so its functions for this (``to_underlying_arguments``) cannot run. The machine
code exports the offsets of members and the compiled kernel's tiles and boxes (cutlass_kernels/collective/layout.h).
They are compared with this record before a kernel is launched.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_int32, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..errors import CudaError, DriverError, message
from ..jit.bindings import cuda_driver
from ..jit.elf_constants import exported

__all__ = ["CollectiveParams", "Lines", "Tiling", "check_layout", "encode_map", "grid_of", "params_of", "tensor_map"]

_MAP_BYTES = 128


class _Shift(ctypes.Structure):
    """cutlass::FastDivmodU64Pow2: division by a power of two."""

    _fields_ = [("divisor", c_uint64), ("shift_right", c_uint32)]


class _Divide(ctypes.Structure):
    """cutlass::FastDivmodU64: division by the high half of a multiplication."""

    _fields_ = [("divisor", c_uint64), ("multiplier", c_uint64), ("shift_right", c_uint32), ("round_up", c_uint32)]


class CollectiveParams(ctypes.Structure):
    """``GemmUniversal::Params`` of gemmsim::CollectiveGemm, with nested members in sequence."""

    _fields_ = [
        ("mode", c_int32), ("problem", c_int32 * 4), ("_0", c_uint8 * 44),
        ("map_a", c_uint8 * _MAP_BYTES), ("_1", c_uint8 * 64), ("map_b", c_uint8 * _MAP_BYTES), ("_2", c_uint8 * 64),
        ("bytes", c_uint32), ("bytes_a", c_uint32), ("bytes_b", c_uint32), ("promotion", c_uint32),
        ("_3", c_uint8 * 48),
        ("out", c_void_p), ("out_row", c_int64), ("out_batch", c_int64),
        ("device", c_int32), ("processors", c_int32), ("clusters", c_int32), ("_4", c_uint32 * 7),
        ("major", _Shift), ("minor", _Shift), ("batch", _Divide), ("along", _Divide),
        ("blocks", c_uint64), ("log_swizzle", c_int32), ("raster", c_int32),
        ("tiles_m", c_uint32), ("tiles_n", c_uint32), ("tiles_l", c_uint32), ("cluster_m", c_uint32),
        ("cluster_n", c_uint32), ("_5", c_uint32), ("workspace", c_void_p),
    ]  # fmt: skip


@dataclass(frozen=True)
class Tiling:
    """Compile-time sizes of a kernel: outputs and terms of a tile, stages, bytes of shared memory and of an element.

    ``promoted``: terms between promotions, 0 for none. Two blocks, one below the other, form a cluster.
    """

    m: int
    n: int
    k: int
    stages: int
    shared: int
    element: int
    promoted: int

    #: Blocks of a cluster along M and N; terms of one instruction times the bytes of an element.
    CLUSTER = (2, 1)
    INSTRUCTION = 32


@dataclass(frozen=True)
class Lines:
    """An operand in memory: ``batch`` matrices of ``lines`` lines of ``terms`` terms; strides are in bytes.

    ``kind`` is the name of its elements in CUtensorMapDataType.
    """

    address: int
    terms: int
    lines: int
    batch: int
    line_stride: int
    batch_stride: int
    kind: str


#: RasterOrder of CUTLASS: the dimension, M or N, along which consecutive blocks lie.
_ALONG_M, _ALONG_N = 0, 1
_GEMM_MODE = 0
#: Largest log2 of the number of consecutive clusters across the raster order. Their tiles share data in the cache.
_MOST_SWIZZLE = 3


def _offset(name: str) -> int:
    return int(getattr(CollectiveParams, name).offset)


def _expected(tiling: Tiling) -> dict[str, int]:
    """Return what ``collective_layout`` should export, in its order."""
    problem, map_a, out = _offset("problem"), _offset("map_a"), _offset("out")
    left, right = tiling.m * tiling.k * tiling.element, tiling.n * tiling.k * tiling.element
    found = {
        "the record's size": ctypes.sizeof(CollectiveParams), "its alignment": 64, "mode": _offset("mode"),
        "problem": problem, "the problem's size": 16, "mainloop": map_a, "map_a": map_a, "map_b": _offset("map_b"),
        "size of a map with what follows it": _offset("map_b") - map_a, "bytes": _offset("bytes"),
        "bytes_a": _offset("bytes_a"), "bytes_b": _offset("bytes_b"),
        "promotion": _offset("promotion") if tiling.promoted else 0, "the mainloop's size": out - map_a,
    }  # fmt: skip
    members = (
        "out", "out_row", "out_batch", "device", "processors", "clusters", "major", "minor", "batch", "along",
        "blocks", "log_swizzle", "raster", "tiles_m", "tiles_n", "tiles_l", "cluster_m", "cluster_n", "workspace",
    )  # fmt: skip
    found |= {name: _offset(name) for name in members}
    return found | {
        "size of a division": ctypes.sizeof(_Divide), "its multiplier": _Divide.multiplier.offset,
        "its shift": _Divide.shift_right.offset, "its rounding": _Divide.round_up.offset,
        "size of a shift": ctypes.sizeof(_Shift), "its number": _Shift.shift_right.offset,
        "shared memory": tiling.shared, "stages": tiling.stages, "the mode of one product": _GEMM_MODE,
        "order along M": _ALONG_M, "order along N": _ALONG_N,
        "dimensions of A's box": 3, "its terms": tiling.k, "its lines": tiling.m, "its bytes": left,
        "dimensions of B's box": 3, "terms of B's box": tiling.k, "lines of B's box": tiling.n,
        "bytes of B's box": right, "bytes of a stage": left + right,
    }  # fmt: skip


def check_layout(cubin: bytes, tiling: Tiling, kernel: str) -> None:
    """Check that the machine code uses the parameters as this module writes them.

    Raises:
        CudaError: if not, with the first member that lies elsewhere.
    """
    words = exported(cubin, "gemmsim_layout")
    found = struct.unpack(f"<{len(words) // 4}I", words)
    wanted = _expected(tiling)
    order = struct.unpack("<4i", exported(cubin, "gemmsim_problem"))
    pairs = [*zip(wanted.items(), found, strict=False), (("order of M, N, K and L", (1, 2, 3, 4)), order)]
    wrong = [f"{name} is {is_now}, not {was}" for (name, was), is_now in pairs if is_now != was]
    if len(found) != len(wanted):
        wrong.append(f"{len(found)} numbers are exported, not {len(wanted)}")
    if wrong:
        asked = f"the parameters of {kernel}, which its compiler laid out differently: {wrong[0]}"
        do = "Install the pinned versions: pip install 'gemmsim[cuda]'."
        raise CudaError(message(asked, "the layout of nvidia-cutlass 4.2.0.0", do))


#: CUtensorMapDataType of cuda.h. As in CUTLASS, maps only move bytes, so any type of the right size will do.
_KINDS = {"UINT8": 0, "UINT16": 1}
#: CU_TENSOR_MAP_INTERLEAVE_NONE, _SWIZZLE_128B, _L2_PROMOTION_L2_128B, _FLOAT_OOB_FILL_NONE (zeros).
_MODES = (0, 3, 2, 0)
_ALIGNMENT = 64
#: The first version of CUDA with tensor maps.
_SINCE = 12000


@lru_cache(maxsize=1)
def _encoder() -> Any:
    """Return ``cuTensorMapEncodeTiled`` itself.

    The wrapper of cuda-bindings writes the map into a Python object at a multiple of 16 bytes. The driver requires a
    multiple of 64 bytes.
    """
    driver = cuda_driver()
    try:
        status, address, _ = driver.cuGetProcAddress(b"cuTensorMapEncodeTiled", _SINCE, 0)
    except RuntimeError as error:  # cuda-bindings raises this without a driver
        raise DriverError(f"The CUDA driver refuses a query for tensor maps: {error}") from error
    if int(status) or not int(address):
        raise DriverError(f"The CUDA driver has no tensor maps: {getattr(status, 'name', status)}.")
    pointers = [c_void_p] * 5
    return ctypes.CFUNCTYPE(c_int32, c_void_p, c_int32, c_uint32, *pointers, *[c_int32] * len(_MODES))(int(address))


def encode_map(kind: str, address: int, dims: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> bytes:
    """Return the tensor map that ``cuTensorMapEncodeTiled`` makes.

    ``kind``: elements as CUtensorMapDataType names them. ``address``: start of the data. ``dims``: sizes, the innermost
    first. ``strides``: strides in bytes of all dimensions but the innermost. ``box``: sizes that one instruction loads.

    Raises:
        DriverError: if the driver refuses them, or there is none.
    """
    room = (c_uint8 * (_MAP_BYTES + _ALIGNMENT))()
    at = -(-ctypes.addressof(room) // _ALIGNMENT) * _ALIGNMENT
    rank = len(dims)
    sizes, steps = (c_uint64 * rank)(*dims), (c_uint64 * (rank - 1))(*strides)
    boxes, ones = (c_uint32 * rank)(*box), (c_uint32 * rank)(*[1] * rank)
    status = _encoder()(at, _KINDS[kind], rank, address, sizes, steps, boxes, ones, *_MODES)
    if status:
        asked = f"{kind} at {address:#x}, sizes {dims}, strides {strides}, box {box}"
        raise DriverError(f"The CUDA driver made no tensor map of {asked}: error {status}.")
    return ctypes.string_at(at, _MAP_BYTES)


@lru_cache(maxsize=4096)
def tensor_map(x: Lines, terms: int, lines: int) -> bytes:
    """Return the 128 bytes with which TMA loads boxes of ``terms`` by ``lines`` of ``x``, swizzled by 128 bytes.

    Terms and lines beyond the last are zeros.
    """
    dims, strides = (x.terms, x.lines, x.batch), (x.line_stride, x.batch_stride)
    return encode_map(x.kind, x.address, dims, strides, (terms, lines, 1))


def _divide(divisor: int) -> _Divide:
    """Return the constants of a division of 64-bit numbers: the high half of ``(x + round_up) * multiplier``, then a
    shift.

    Source: Robison, N-bit unsigned division via N-bit multiply-add, ARITH 2005. Powers of two have the multiplier 0,
    which means a shift alone.
    """
    shift = divisor.bit_length() - 1
    if divisor == 1 << shift:
        return _Divide(divisor, 0, shift, 0)
    low, high = (1 << (64 + shift)) // divisor, ((1 << (64 + shift)) + (1 << shift)) // divisor
    return _Divide(divisor, high, shift, int(low == high))


def _shift(divisor: int) -> _Shift:
    return _Shift(divisor, divisor.bit_length() - 1)


def _blocks(m: int, n: int, tiling: Tiling) -> tuple[int, int, int]:
    """Return the blocks along M and N, in whole clusters, and the log2 of the largest swizzle that adds no blocks."""
    along_m, along_n = (
        -(-size // (tile * side)) * side
        for size, tile, side in zip((m, n), (tiling.m, tiling.n), Tiling.CLUSTER, strict=True)
    )
    for log in range(_MOST_SWIZZLE, 0, -1):
        if along_m % (Tiling.CLUSTER[0] << log) == 0 and along_n % (Tiling.CLUSTER[1] << log) == 0:
            return along_m, along_n, log
    return along_m, along_n, 0


def grid_of(m: int, n: int, batch: int, tiling: Tiling, processors: int) -> tuple[int, int, int]:
    """Return the grid: one block per processor in as many clusters as run at once, or as there are tiles for."""
    along_m, along_n, _ = _blocks(m, n, tiling)
    side = Tiling.CLUSTER[0]
    clusters = min(max(processors // side, 1), along_m * along_n * batch // side)
    return (side, clusters, 1) if along_n <= along_m else (side * clusters, 1, 1)


def params_of(
    a: Lines, b: Lines, out: int, out_strides: tuple[int, int], tiling: Tiling, processors: int
) -> CollectiveParams:
    """Return the record for the product of ``a`` and ``b``.

    ``out`` is an address; ``out_strides`` are strides of rows and batches in elements.

    Raises:
        DriverError: if the driver refuses a tensor map.
    """
    args = CollectiveParams(mode=_GEMM_MODE, out=out, out_row=out_strides[0], out_batch=out_strides[1])
    args.problem[:] = (a.lines, b.lines, a.terms, a.batch)
    cluster_m, cluster_n = Tiling.CLUSTER
    # Each block of a cluster loads a share of the data that all of them read. Blocks below each other share B.
    args.map_a[:] = tensor_map(a, tiling.k, tiling.m // cluster_n)
    args.map_b[:] = tensor_map(b, tiling.k, tiling.n // cluster_m)
    args.bytes_a, args.bytes_b = (side * tiling.k * tiling.element for side in (tiling.m, tiling.n))
    args.bytes = args.bytes_a + args.bytes_b
    args.promotion = tiling.promoted * tiling.element // Tiling.INSTRUCTION
    args.processors = processors
    along_m, along_n, args.log_swizzle = _blocks(a.lines, b.lines, tiling)
    args.raster = _ALONG_N if along_n <= along_m else _ALONG_M
    inner, across = (along_n, along_m) if args.raster == _ALONG_N else (along_m, along_n)
    side_inner, side_across = (cluster_n, cluster_m) if args.raster == _ALONG_N else (cluster_m, cluster_n)
    args.major, args.minor = _shift(side_inner), _shift(side_across)
    args.batch, args.along = _divide(along_m * along_n), _divide(inner // side_inner)
    args.blocks = inner * across * a.batch
    args.tiles_m, args.tiles_n, args.tiles_l = along_m // cluster_m, along_n // cluster_n, a.batch
    args.cluster_m, args.cluster_n = cluster_m, cluster_n
    return args
