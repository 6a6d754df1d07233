"""Products that reach every tile of the kernels that are timed, at sizes that can be compared.

A product takes the tile that its sizes make cheapest (``tiles.cheapest``), and rounds its operands beforehand where they
are read often (``gemm.cast_operand``): a kernel that is timed at 4096^3 is not the one that a small product launches.
Tests ask for each tile in turn.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import pytest
import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.backends.cuda.jit.source import KernelSource
from gemmsim.backends.cuda.simt import launch_cache, tile_heuristic
from gemmsim.backends.decoded_product import plain_spec
from gemmsim.backends.encoded_operand import Coded
from gemmsim.formats import BlockFormat
from support import ROOT
from support.cuda_gemm import _launching, cuda_blocks, cuda_gemm

__all__ = [
    "SHAPES", "Shape", "asked_tile", "benchmark", "gemm_sources", "operands", "tile_of", "tiles_for", "timed_specs",
]  # fmt: skip
#: More than any kernel has.
_MOST_TILES = 8


@dataclass(frozen=True)
class Shape:
    """A product of (\\*batch, m, k) and (\\*batch, k, n)."""

    m: int
    k: int
    n: int
    batch: tuple[int, ...] = ()


#: Sizes for which a GPU takes tiles of every kind, large ones as for a product that is timed; lines that can be read 16
#: bytes at a time, and lines that can not; operands that are rounded beforehand, and while they are loaded. K is a multiple
#: of a block or of nothing.
SHAPES = {
    "one": Shape(1, 37, 1),
    "row": Shape(1, 64, 4100),
    "long row": Shape(1, 48, 16400),
    "long column": Shape(16400, 48, 1),
    "few rows": Shape(16, 100, 2100),
    "few columns": Shape(2100, 100, 16),
    "tall": Shape(3100, 72, 33),
    "wide": Shape(33, 72, 3100),
    "small": Shape(64, 64, 64),
    "ragged": Shape(200, 333, 270),
    "some tiles": Shape(400, 64, 400),
    "batches": Shape(130, 61, 190, (3,)),
    "many batches": Shape(70, 40, 66, (40,)),
    "middle": Shape(768, 96, 768),
    "middle, ragged": Shape(700, 131, 777),
    "large": Shape(1408, 208, 1536),
    "large, ragged": Shape(1409, 201, 1537),
}


@contextmanager
def _path_of_benchmarks() -> Iterator[None]:
    folder = str(ROOT / "benchmarks")
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        for name in set(sys.modules) - before:  # another test may import them otherwise
            if name.startswith("gpu_"):
                del sys.modules[name]


@cache
def benchmark() -> ModuleType:
    """``benchmarks/gpu_timings.py``."""
    with _path_of_benchmarks():
        return importlib.import_module("gpu_timings")


def timed_specs() -> list[str]:
    """The products that are timed."""
    return [text for text, *_ in benchmark().TIMED]


def operands(text: str, shape: Shape, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Float32 operands as they are timed, here and there larger or smaller, zeros of both signs, infinity and NaN.

    Whole numbers where ``text`` takes no others.
    """
    g = torch.Generator().manual_seed(1000 * shape.m + seed)
    a = torch.randn(*shape.batch, shape.m, shape.k, generator=g)
    b = torch.randn(*shape.batch, shape.k, shape.n, generator=g)
    if text.startswith("int8"):
        return (a * 20).round(), (b * 20).round()
    a[..., 5::7, :] *= 2.0**9
    a[..., 6::11, :] *= 2.0**-12
    a[..., 3::13, ::3], a[..., 4::13, :] = 0.0, -0.0
    b[..., :, 5::9] *= 2.0**-7
    a[..., 8::97, 1], b[..., 2, 9::89] = float("inf"), float("nan")
    return a, b


@contextmanager
def asked_tile(position: int) -> Iterator[None]:
    """Products take this one of their kernels' tiles (``gemm_tiles.tiles_of``), whatever their sizes; the last one
    where there are fewer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tile_heuristic, "_asked", position)
        patch.setattr(launch_cache, "_ready", {})  # launches that were planned otherwise
        yield


def tile_of(source: KernelSource) -> str:
    """Outputs of a block of a kernel of family ``gemm``, as its name says them: "128x128"."""
    return source.name.rpartition(", ")[2]


def tiles_for(text: str) -> list[str]:
    """The tiles that products of ``text`` may take whose operands were rounded beforehand, in the order in which they are
    asked for."""
    found: list[str] = []
    for position in range(_MOST_TILES):
        with asked_tile(position), pytest.MonkeyPatch.context() as patch:
            patch.setattr(cuda_gemm, "_is_read_often", lambda x, others: True)
            found.append(tile_of(gemm_sources(text, Shape(64, 64, 64))[0]))
    return list(dict.fromkeys(found))


def gemm_sources(text: str, shape: Shape) -> list[KernelSource]:
    """Kernels of family ``gemm`` that float32 tensors of ``shape`` launch, by their sizes alone; nothing is computed."""
    spec, found = GemmSpec.of(text), []
    a, b = torch.empty(*shape.batch, shape.m, shape.k), torch.empty(*shape.batch, shape.k, shape.n)
    out = torch.empty(*shape.batch, shape.m, shape.n)
    with _launching(lambda source, *rest: found.append(source)), pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_blocks, "launch", lambda source, *rest: found.append(source))
        patch.setattr(launch_cache, "_ready", {})
        if takes_scales(spec.accumulator):
            cuda_blocks.gemm_blocks(_blocks(a, spec.a, -1), _blocks(b, spec.b, -2), spec, out)
        else:
            cuda_gemm.gemm(a, b, plain_spec(spec), out)
    return [source for source in found if source.family == "gemm"]


def _blocks(x: Tensor, fmt: BlockFormat, dim: int) -> Coded:
    """An operand as it lies when it was encoded, without values."""
    counts = list(x.shape)
    counts[dim] = -(-counts[dim] // fmt.block_size)
    second = torch.ones(()) if fmt.tensor_scale else 1.0
    codes, scales = (torch.empty(shape, dtype=torch.uint8) for shape in (x.shape, counts))
    return Coded(codes, scales, fmt, dim, x.shape[dim], "bytes", second)
