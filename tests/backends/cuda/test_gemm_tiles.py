"""Every tile of the kernels that are timed, run on the host, has the CPU backend's bits; and the products that tests on a
GPU compare (``SHAPES``) launch all of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from support import assert_bitwise_equal, traces
from support.cuda_gemm import compile_on_host, cuda_gemm, host_blocks, host_gemm
from support.cuda_tiles import SHAPES, Shape, asked_tile, gemm_sources, operands, tile_of, tiles_for, timed_specs
from torch import Tensor

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.backends import cpu
from gemmsim.backends.decoded_product import plain_spec
from gemmsim.backends.encoded_operand import Coded

TIMED = Shape(4096, 4096, 4096)
SPECS = timed_specs()


def small(text: str, tile: str) -> Shape:
    """Two tiles each way, the second ones ragged; lines that are read 16 bytes at a time, and K in the middle of a chunk,
    or of a block."""
    height, width = map(int, tile.split("x"))
    return Shape(height + 5, 80 if GemmSpec.of(text).has_blocks else 88, width + 16)


@contextmanager
def as_timed(text: str, position: int) -> Iterator[Shape]:
    """``small`` of the tile at ``position``, which is taken, and operands rounded beforehand as large ones are."""
    shape = small(text, tiles_for(text)[position])
    with asked_tile(position), pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_gemm, "_is_read_often", lambda x, others: True)
        yield shape


def encoded(x: Tensor, fmt: object, dim: int) -> Coded:
    found = gs.mx.encode(x, fmt, dim=dim)
    second = 1.0 if found.tensor_scale is None else found.tensor_scale
    return Coded(found.codes, found.scales, fmt, dim, x.shape[dim], "bytes", second)


def compare(text: str, shape: Shape) -> None:
    """The product with its kernels run on the host, beside the CPU backend's."""
    if traces.current is None:
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
        for position in range(len(tiles_for(text))):
            with as_timed(text, position) as shape:
                wanted += gemm_sources(text, shape)
    compile_on_host(wanted)


@pytest.mark.parametrize("text", SPECS)
def test_every_tile_of_what_is_timed(text):
    timed, launched = gemm_sources(text, TIMED), []
    for position in range(len(tiles_for(text))):
        with as_timed(text, position) as shape:
            launched += gemm_sources(text, shape)
            compare(text, shape)
    assert [tile_of(source) for source in launched] == tiles_for(text), "one product for each tile"
    assert timed == launched[:1], "the kernel that is timed is one of those that were compared"


@pytest.mark.parametrize("text", ["e4m3 : e5m10", "mxfp8_e4m3 : scaled(fp32)"])
def test_tiles_that_are_chosen_for_many_of_them(text):
    """As a GPU runs it: no tile is asked for, and blocks loop over more tiles than there are of them."""
    shape = replace(SHAPES["large"], k=48)
    assert gemm_sources(text, shape) == gemm_sources(text, TIMED)
    compare(text, shape)


@pytest.mark.parametrize("text", SPECS)
def test_large_products_that_are_compared_on_a_gpu_are_those_that_are_timed(text):
    """With what is rounded beforehand and what while it is loaded."""
    found = {name: gemm_sources(text, shape) for name, shape in SHAPES.items()}
    assert found["large"] == gemm_sources(text, TIMED)
    assert found["one"] != found["large"] != found["large, ragged"]
