"""The record of a kernel of CUTLASS, laid out in Python, against the one that CUTLASS' own host code fills in, by g++."""

from __future__ import annotations

import ctypes
import itertools
from ctypes import c_int64, c_uint8, c_uint64

import pytest
import torch
from support.cute import include_options
from support.host import HOST, host_library
from support.tensor_cores import encode_map

from gemmsim.backends.cuda.tensor_cores import cutlass_mainloop, cutlass_params
from gemmsim.backends.cuda.tensor_cores.cutlass_params import Lines, grid_of, params_of

BF16, PROMOTED = cutlass_mainloop._LISTED
SIZES = [
    (1, 1, 1, 1), (128, 256, 64, 1), (129, 257, 72, 2), (300, 5000, 208, 3), (5000, 300, 4096, 2), (4096, 4096, 4096, 1),
    (2037, 4093, 1000, 1), (100_000, 1000, 16, 1), (640, 100_000, 48, 5), (65_536, 65_536, 128, 1), (8192, 28_672, 8192, 7),
]  # fmt: skip
PROCESSORS = (2, 78, 114, 132)


class Asked(ctypes.Structure):
    """underlying::Asked; strides in elements."""

    _fields_ = [
        (name, c_int64)
        for name in "m n k batch a b out line_a line_b batch_a batch_b row batch_out processors swizzle".split()
    ]


class Map(ctypes.Structure):
    """underlying::Map"""

    _fields_ = [
        ("type", c_uint64), ("rank", c_uint64), ("address", c_uint64), ("sizes", c_uint64 * 5), ("strides", c_uint64 * 5),
        ("box", c_uint64 * 5), ("steps", c_uint64 * 5), ("modes", c_uint64 * 4),
    ]  # fmt: skip


class Found(ctypes.Structure):
    """underlying::Found"""

    _fields_ = [
        ("grid", c_uint64 * 3), ("bytes", c_uint64), ("maps", c_uint64), ("map", Map * 2), ("record", c_uint8 * 4096),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def underlying():
    calls = "\n".join(
        f"using Gemm{i} = gemmsim::CollectiveGemm<gemmsim::CollectiveConfig{{gemmsim::Element::{one.a.upper()}, "
        f"gemmsim::Element::{one.b.upper()}, {one.promoted}}}>;\n"
        f'extern "C" void fill{i}(const underlying::Asked& asked, underlying::Found& found) '
        f"{{ underlying::fill<Gemm{i}>(asked, found); }}\n"
        f'extern "C" void epilogue{i}(float* out, int m, int n, int64_t row, int along_m, int along_n, int batch, int64_t step) '
        f"{{ underlying::epilogue<Gemm{i}>(out, m, n, row, along_m, along_n, batch, step); }}"
        for i, one in enumerate((BF16, PROMOTED))
    )
    text = f'#include "underlying.h"\n{calls}\n'
    options = ("-fpermissive", *include_options())
    return host_library(text, "CUTLASS' host code", beside=HOST / "underlying", link=options)


def strides(lines, terms, batch, size, padded):
    """Elements between lines and between matrices; ``padded``: of a part of something larger."""
    line = -(-terms * size // 16) * 16 // size + (32 if padded else 0)
    return line, line * lines + (128 if padded else 0)


@pytest.mark.parametrize("which", [0, 1], ids=[str(BF16), str(PROMOTED)])
def test_the_record_is_the_one_of_cutlass(underlying, which, monkeypatch):
    """Every member that the kernel reads, the grid, and what the driver is asked to encode."""
    one = (BF16, PROMOTED)[which]
    asked_maps = []
    monkeypatch.setattr(cutlass_params, "encode_map", lambda *asked: asked_maps.append(asked) or encode_map(*asked))
    size, kind = one.tiling.element, cutlass_mainloop._ELEMENTS[one.a][2]
    for m, n, k, batch in SIZES:
        for processors in PROCESSORS:
            padded = processors == 132
            line_a, batch_a = strides(m, k, batch, size, padded)
            line_b, batch_b = strides(n, k, batch, size, padded)
            asked_maps.clear()
            cutlass_params.tensor_map.cache_clear()
            ours = params_of(
                Lines(1 << 20, k, m, batch, line_a * size, batch_a * size, kind),
                Lines(1 << 34, k, n, batch, line_b * size, batch_b * size, kind),
                1 << 40, (n, m * n), one.tiling, processors,
            )  # fmt: skip
            places, steps = (1 << 20, 1 << 34, 1 << 40), (line_a, line_b, batch_a, batch_b, n, m * n)
            asked, found = Asked(m, n, k, batch, *places, *steps, processors, 1 << ours.log_swizzle), Found()
            getattr(underlying, f"fill{which}")(ctypes.byref(asked), ctypes.byref(found))
            context = (m, n, k, batch, processors)
            assert found.bytes == ctypes.sizeof(ours), context
            theirs = type(ours).from_buffer_copy(bytes(found.record)[: found.bytes])
            for name, *_ in ours._fields_:
                if not name.startswith(("_", "map")) and (name != "promotion" or one.promoted):
                    assert values(getattr(ours, name)) == values(getattr(theirs, name)), (name, *context)
            assert bytes(theirs.map_a) == b"\1" * 128 and bytes(theirs.map_b) == b"\2" * 128, "the first one is of A"
            assert tuple(found.grid) == grid_of(m, n, batch, one.tiling, processors), context
            assert [described(one) for one in found.map] == [given(*asked) for asked in asked_maps], context


@pytest.mark.parametrize("which", [0, 1], ids=[str(BF16), str(PROMOTED)])
@pytest.mark.parametrize(("m", "n", "row"), [(512, 1024, 1024), (300, 700, 701), (129, 513, 600), (1, 1, 1)])
def test_every_sum_is_written_where_it_belongs(underlying, which, m, n, row):
    """By each thread what wgmma left to it, nothing beyond the result's ends, in a batch's second matrix."""
    tiling = (BF16, PROMOTED)[which].tiling
    out = torch.full((2, 513, row), -1.0)
    for i, j in itertools.product(range(-(-m // tiling.m) + 1), range(-(-n // tiling.n) + 1)):
        where = (m, n, c_int64(row), i, j, 1, c_int64(out.stride(0)))
        getattr(underlying, f"epilogue{which}")(ctypes.c_void_p(out.data_ptr()), *where)
    rows, columns = torch.arange(m) % tiling.m, torch.arange(n) % tiling.n
    want = torch.full_like(out, -1.0)
    want[1, :m, :n] = 1024.0 * rows[:, None] + columns
    assert torch.equal(out, want)


def values(x):
    """A member of the record as numbers that can be compared."""
    if isinstance(x, ctypes.Structure):
        return [getattr(x, name) for name, *_ in x._fields_]
    return list(x) if isinstance(x, ctypes.Array) else x


def described(found):
    """What CUTLASS asked the driver for."""
    rank = found.rank
    rows = found.sizes[:rank], found.strides[: rank - 1], found.box[:rank], found.steps[:rank], found.modes[:]
    return found.type, found.address, *map(list, rows)


def given(kind, address, dims, strides, box):
    """What is asked for here."""
    modes = [cutlass_params._MODES[i] for i in range(4)]
    return cutlass_params._KINDS[kind], address, list(dims), list(strides), list(box), [1] * len(dims), modes
