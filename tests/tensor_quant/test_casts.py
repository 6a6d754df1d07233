"""Kernels, tensor operations and the numpy oracle against the exact reference: the same bits, signs of zero included."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ROOT, assert_bitwise_equal, assert_values_equal

from gemmsim import reference
from gemmsim.tensor_quant import (
    dynamic_block_quant,
    fake_affine_tensor_quant,
    fake_tensor_quant,
    scaled_e4m3,
    tensor_quant,
    torch_fallback,
)
from gemmsim.tensor_quant.grids import ELEMENTS, ElementGrid, IntegerGrid, grid_of

sys.path.insert(0, str(ROOT / "tests" / "oracles"))
import quant_ref as oracle

F32 = st.floats(width=32)
AMAX = st.one_of(
    st.floats(0, width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [0.0, 2.0**-149, 2.0**-126, 2.0**-24, float(np.nextafter(np.float32(2.0**-24), np.float32(1))), 1.0, 3.0e38]
    ),
    st.floats(2.0**-20, 1024.0, width=32),
)
BITS = st.tuples(st.integers(2, 23), st.booleans(), st.booleans())
FLOATS = [key for key in ELEMENTS if isinstance(key, tuple)]
NEAR = st.builds(lambda n, k: float(np.float32(n * 2.0**k)), st.integers(-(2**12), 2**12), st.integers(-14, 6))
LISTS = st.lists(st.one_of(F32, NEAR), min_size=1, max_size=70)


def tensor(values):
    return torch.tensor(values, dtype=torch.float32)


def signed(values, unsigned):
    return [abs(v) for v in values] if unsigned else values


def same(got, want, context=""):
    assert_bitwise_equal(got, tensor(want), nan_is_nan=True, context=context)


@given(LISTS, AMAX, BITS)
def test_integers_are_those_of_the_reference(values, amax, bits):
    values = signed(values, bits[1])
    want = [reference.scaled_integer(v, amax, *bits) for v in values]
    x = tensor(values)
    same(fake_tensor_quant(x, amax, *bits), [w[0] for w in want])
    q, scale = tensor_quant(x, amax, *bits)
    same(q, [w[1] for w in want])
    assert scale.item() == want[0][2]
    grid = IntegerGrid(*bits)
    same(torch_fallback.fake_quantize(x, tensor(amax), grid), [w[0] for w in want])


@given(LISTS, st.one_of(st.none(), AMAX), st.sampled_from(FLOATS))
def test_elements_are_those_of_the_reference(values, amax, bits):
    want = [reference.scaled_element(v, amax, bits) for v in values]
    x = tensor(values)
    same(scaled_e4m3(x, amax, *bits), want)
    same(torch_fallback.fake_quantize(x, None if amax is None else tensor(amax), ELEMENTS[bits]), want)


@given(LISTS, F32.filter(math.isfinite), F32.filter(math.isfinite), st.integers(1, 16))
def test_affine_is_that_of_the_reference(values, a, b, bits):
    low, high = sorted((a, b))
    if low == high or np.float32(high) - np.float32(low) == np.inf:
        return
    want = [reference.scaled_affine(v, low, high, bits) for v in values]
    x = tensor(values)
    same(fake_affine_tensor_quant(x, low, high, bits), want)
    same(torch_fallback.affine(x, tensor(low), tensor(high), bits), want)


@settings(max_examples=50)
@given(
    LISTS,
    st.sampled_from([*ELEMENTS]),
    st.sampled_from(["e8m0", "e4m3"]),
    st.sampled_from([1, 7, 8, 16, 32, 40]),
    AMAX,
    st.sampled_from(["even", "toward_zero", "away"]),
)
def test_blocks_of_elements_are_those_of_the_reference(values, bits, scale, size, amax, ties):
    want = []
    for i in range(0, len(values), size):
        want += reference.scaled_block(values[i : i + size], bits, scale, amax, ties)
    x, scale_bits = tensor(values), (8, 0) if scale == "e8m0" else (4, 3)
    got = dynamic_block_quant(x, size, amax, None, bits, scale_bits, ties=ties, nonfinite_amax="propagate")
    same(got, want)
    grid = ELEMENTS[bits]
    grid = grid if ties == "even" else ElementGrid(grid.name, grid.trailing, grid.emin, grid.maximum, ties)
    same(torch_fallback.blocks(x, grid, size, scale, tensor(amax)), want)


@given(LISTS, BITS, st.sampled_from([1, 5, 16, 32, 33]))
def test_blocks_of_integers_are_those_of_the_reference(values, bits, size):
    values = signed(values, bits[1])
    want = []
    for i in range(0, len(values), size):
        want += reference.scaled_block(values[i : i + size], bits, "amax")
    x = tensor(values)
    options = {"unsigned": bits[1], "narrow_range": bits[2]}
    same(dynamic_block_quant(x, size, None, None, bits[0], None, nonfinite_amax="propagate", **options), want)
    same(torch_fallback.blocks(x, IntegerGrid(*bits), size, "amax", None), want)


@pytest.mark.parametrize("amax", [0.0, 1e-8, 2.0**-24, 6e-8, 1e-3, 0.9, 3.7, 448.0, 1e30, math.inf, math.nan])
def test_numpy_oracle(amax, isa):
    x = oracle.wide_inputs(np.random.default_rng(3), 4000)
    t, a = torch.from_numpy(x), torch.tensor(amax)
    for bits in ((2, False, True), (4, True, False), (8, False, False), (8, True, True), (16, False, True)):
        y = np.abs(x) if bits[1] else x
        want = torch.from_numpy(oracle.int_fake_quant(y, amax, *bits)[0])
        got = fake_tensor_quant(torch.from_numpy(y), a, *bits, nonfinite_amax="propagate")
        assert_values_equal(got, want, context=str(bits))
    assert_values_equal(
        scaled_e4m3(t, a, 4, 3, nonfinite_amax="propagate"), torch.from_numpy(oracle.e4m3_fake_quant(x, amax))
    )
    if 1e-4 < amax < 1e4:
        blocks = torch.from_numpy(oracle.nvfp4(x[:2048][np.isfinite(x[:2048])][:1024].clip(-amax, amax), 16, amax))
        part = torch.from_numpy(x[:2048][np.isfinite(x[:2048])][:1024].clip(-amax, amax))
        assert_values_equal(dynamic_block_quant(part, 16, amax, None, (2, 1), (4, 3)), blocks)


GRIDS = ["int8", "uint4", "int23/narrow", *(str(g) for g in ELEMENTS.values()), "e2m1/toward_zero", "e4m3/away"]


@pytest.mark.parametrize("name", GRIDS)
def test_every_way_through_the_kernel_gives_the_bits_of_the_tensor_operations(name, isa):
    """Scales per tensor, axis and element, biases, strides, dtypes, blocks: against the arithmetic written out."""
    from gemmsim.tensor_quant.operators import blocks_op, fake_op

    grid = grid_of(name)
    g = torch.Generator().manual_seed(1)
    x = torch.randn(3, 10, 70, generator=g) * torch.exp2(torch.randint(-12, 12, (3, 10, 70), generator=g))
    x = x.abs() if name.startswith("u") else x
    amaxes = [None, (), (3, 1, 1), (1, 10, 1), (1, 1, 70), (70,), (3, 1, 70), (3, 10, 70), (10, 1)]
    for view in (
        x,
        x.transpose(0, 2).contiguous().transpose(0, 2),
        x[:, ::2, 3:68:4],
        x.double(),
        x.half(),
        x.bfloat16(),
    ):
        for shape in amaxes:
            if (shape is None and isinstance(grid, IntegerGrid)) or (
                shape and len(shape) == 3 and view.shape != x.shape
            ):
                continue
            if shape and view.shape != x.shape and torch.Size(shape[-1:]) != torch.Size([1]):
                continue
            if shape and view.shape != x.shape:
                shape = (1, 1)
            amax = None if shape is None else torch.rand(shape, generator=g) * 8
            for bias in (None, torch.rand(view.shape[-1], generator=g) * -1):
                want = torch_fallback.fake_quantize(view, amax, grid, bias)
                assert_bitwise_equal(
                    fake_op(view, amax, name, bias), want, nan_is_nan=True, context=f"{shape} {view.stride()}"
                )
        scales = ("amax",) if isinstance(grid, IntegerGrid) else ("amax", "e8m0", "e4m3")
        for scale in scales:
            for size in (8, 16, 32, 100):
                want = torch_fallback.blocks(view, grid, size, scale, torch.tensor(900.0))
                got = blocks_op(view, name, size, scale, torch.tensor(900.0))
                assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{scale} {size} {view.stride()}")


def test_threads_and_memory_do_not_matter():
    x = torch.randn(64, 70001, generator=torch.Generator().manual_seed(2))
    amax = x.abs().amax(1, keepdim=True) * 0.9
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        shifted = torch.empty(x.numel() + 3)[3:].view(x.shape)  # not aligned
        fake_tensor_quant(x, amax, 8, False, False, out=shifted)
        blocks = torch.empty(x.numel() + 1)[1:].view(x.shape)
        dynamic_block_quant(x, 32, None, None, 8, None, out=blocks)
        results.append((shifted, blocks, fake_tensor_quant(x, amax, 8, False, False)))
    for result in results:
        assert_bitwise_equal(result[0], results[0][2])
        assert_bitwise_equal(result[1], torch_fallback.blocks(x, IntegerGrid(8), 32, "amax", None))
    inplace = x.clone()
    assert fake_tensor_quant(inplace, amax, 8, False, False, out=inplace) is inplace
    assert_bitwise_equal(inplace, results[0][2])


def test_a_processor_that_flushes_subnormals_changes_nothing():
    x = torch.tensor([2.0**-140, -(2.0**-130), 1e-38])
    want = dynamic_block_quant(x, 32)
    torch.set_flush_denormal(True)
    try:
        assert torch.equal(dynamic_block_quant(x, 32).view(torch.int32), want.view(torch.int32))
    finally:
        torch.set_flush_denormal(False)
    assert (want != 0).any()
