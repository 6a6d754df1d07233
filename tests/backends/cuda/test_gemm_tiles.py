"""Every tile of the kernels that are timed, run on the host, has the CPU backend's bits; and the products that tests on a
GPU compare (``SHAPES``) launch all of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import support_traces
import torch
from support import assert_bitwise_equal
from support_cuda_gemm import compile_on_host, cuda_gemm, host_blocks, host_gemm
from support_cuda_tiles import SHAPES, Shape, enough_tiles, gemm_sources, operands, side_of, timed_specs
from torch import Tensor

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.backends import cpu
from gemmsim.backends.coded import Coded
from gemmsim.backends.route import plain_spec

TIMED = Shape(4096, 4096, 4096)
SPECS = timed_specs()
#: Outputs of a thread each way, of all tiles that there are.
SIDES = (8, 4, 2, 1)


def small(text: str, side: int) -> Shape:
    """Two tiles each way, the second ones ragged, and one tile of the next larger size; lines that are read 16 bytes at
    a time, and K in the middle of a chunk, or of a block."""
    return Shape(16 * side + 5, 80 if GemmSpec.of(text).has_blocks else 88, 16 * side + 16)


@contextmanager
def as_timed(text: str, side: int) -> Iterator[Shape]:
    """``small(text, side)``, for which tiles of ``side`` are chosen and operands rounded beforehand as large ones are."""
    shape = small(text, side)
    with enough_tiles(shape.tiles(side)), pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_gemm, "_is_read_often", lambda x, others: True)
        yield shape


def sides_of(text: str) -> list[int]:
    """The tiles that products of ``text`` may take, largest first."""
    found = []
    for side in SIDES:
        with as_timed(text, side) as shape:
            found.append(side_of(gemm_sources(text, shape)[0]))
    return list(dict.fromkeys(found))


def encoded(x: Tensor, fmt: object, dim: int) -> Coded:
    found = gs.mx.encode(x, fmt, dim=dim)
    second = 1.0 if found.tensor_scale is None else found.tensor_scale
    return Coded(found.codes, found.scales, fmt, dim, x.shape[dim], "bytes", second)


def compare(text: str, shape: Shape) -> None:
    """The product with its kernels run on the host, beside the CPU backend's."""
    if support_traces.current is None:
        compile_together()
    spec, (a, b) = GemmSpec.of(text), operands(text, shape)
    got = torch.full((shape.m, shape.n), 7.0)
    if takes_scales(spec.accumulator):
        host_blocks(encoded(a, spec.a, -1), encoded(b, spec.b, -2), spec, got)
        want = gs.qmatmul(a, b, spec)
    else:
        if spec.has_blocks:
            a, b, spec = gs.mx.quantize(a, spec.a, dim=-1), gs.mx.quantize(b, spec.b, dim=-2), plain_spec(spec)
        want = torch.empty_like(got)
        host_gemm(a, b, spec, got, 1)
        cpu.gemm(a, b, spec, want, 1)
    assert_bitwise_equal(got, want, context=f"{text} {shape}")


@functools.cache
def compile_together() -> None:
    """Compiled at once: most of the time of a kernel alone are its headers."""
    wanted = []
    for text in SPECS:
        for side in sides_of(text):
            with as_timed(text, side) as shape:
                wanted += gemm_sources(text, shape)
    compile_on_host(wanted)


@pytest.mark.parametrize("text", SPECS)
def test_every_tile_of_what_is_timed(text):
    timed, launched = gemm_sources(text, TIMED), []
    for side in sides_of(text):
        with as_timed(text, side) as shape:
            launched += gemm_sources(text, shape)
            compare(text, shape)
    assert [side_of(source) for source in launched] == sides_of(text), "one product for each tile"
    assert timed == launched[:1], "the kernel that is timed is one of those that were compared"


@pytest.mark.parametrize("text", ["e4m3 : e5m10", "mxfp8_e4m3 : scaled(fp32)"])
def test_tiles_that_are_chosen_for_many_of_them(text):
    """As a GPU runs it: nothing is lowered, and blocks loop over more tiles than there are of them."""
    shape = replace(SHAPES["large"], k=48)
    assert gemm_sources(text, shape) == gemm_sources(text, TIMED)
    compare(text, shape)


@pytest.mark.parametrize("text", SPECS)
def test_products_that_are_compared_on_a_gpu_launch_every_tile(text):
    """With what is rounded beforehand and what while it is loaded, and every kernel that is timed."""
    found = {name: gemm_sources(text, shape) for name, shape in SHAPES.items()}
    launched = [source for sources in found.values() for source in sources]
    assert {side_of(source) for source in launched} == set(sides_of(text))
    assert found["large"] == gemm_sources(text, TIMED)
    assert found["one"] != found["large"] != found["large, ragged"]


def test_what_is_enough_decides_the_tile():
    """The knob that the tests above turn."""
    shape = Shape(300, 40, 300)
    for tiles, side in ((1, 8), (9, 8), (10, 4), (25, 4), (26, 2), (1000, 2)):
        with enough_tiles(tiles):
            assert side_of(gemm_sources(":e5m10", shape)[0]) == side
