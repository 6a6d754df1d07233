"""Every combination of bits, axes and blocks against the numpy oracle of the systems replaced (oracles/quant_ref.py)."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ROOT, assert_bitwise_equal

from gemmsim import tensor_quant as tq

sys.path.insert(0, str(ROOT / "tests" / "oracles"))
import quant_ref as oracle

SHAPE = (3, 4, 10)
AXES = [axes for n in range(4) for axes in itertools.combinations(range(3), n)]
HARD_AMAX = [0.0, 2.0**-149, 2.0**-126, 2.0**-24, 2.0**-23, 1.0, 3.4e38]


def inputs(seed: int, unsigned: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = oracle.wide_inputs(rng, 600).ravel()
    x = rng.permutation(x)[: math.prod(SHAPE)].reshape(SHAPE)
    return np.abs(x) if unsigned else x


def amaxes(seed: int, axes: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(seed + 1)
    shape = [n if d in axes else 1 for d, n in enumerate(SHAPE)]
    drawn = np.exp2(rng.uniform(-30, 30, shape))
    return np.where(rng.random(shape) < 0.4, rng.choice(HARD_AMAX, shape), drawn).astype(np.float32)


def same(got: torch.Tensor, want: np.ndarray, context: str) -> None:
    assert_bitwise_equal(got, torch.from_numpy(np.ascontiguousarray(want)), nan_is_nan=True, context=context)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.integers(0, 10**6), st.sampled_from(AXES), st.integers(2, 16), st.booleans(), st.booleans(),
    st.permutations(range(3)),
)  # fmt: skip
def test_integers(seed, axes, bits, unsigned, narrow, order):
    x, amax = inputs(seed, unsigned), amaxes(seed, axes)
    fake, q, scale = oracle.int_fake_quant(x, amax, bits, unsigned, narrow)
    strides = torch.from_numpy(x).permute(*order).contiguous().permute(*np.argsort(order).tolist())
    context = f"{bits} bits, axes {axes}, seed {seed}"
    same(tq.fake_tensor_quant(strides, torch.from_numpy(amax), bits, unsigned, narrow).contiguous(), fake, context)
    got_q, got_scale = tq.tensor_quant(strides, torch.from_numpy(amax), bits, unsigned, narrow)
    same(got_q.contiguous(), q, context)
    same(got_scale, scale, context)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([None, *AXES]))
def test_e4m3(seed, axes):
    x = inputs(seed, False)
    amax = None if axes is None else amaxes(seed, axes)
    got = tq.scaled_e4m3(torch.from_numpy(x), None if amax is None else torch.from_numpy(amax), 4, 3)
    same(got, oracle.e4m3_fake_quant(x, amax), f"axes {axes}, seed {seed}")


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 8), st.booleans())
def test_blocks_of_integers(seed, size, bits, narrow):
    x = inputs(seed, False)
    x = np.where(np.isfinite(x), x, 1).astype(np.float32)
    length = SHAPE[-1]
    padded = np.pad(x, [(0, 0), (0, 0), (0, -length % size)]).reshape(-1, size)
    amax = np.abs(padded).max(1, keepdims=True)
    want = oracle.int_fake_quant(padded, amax, bits, False, narrow)[0].reshape(3, 4, -1)[..., :length]
    got = tq.dynamic_block_quant(torch.from_numpy(x), size, None, None, bits, None, narrow_range=narrow)
    same(got, want, f"{bits} bits, blocks of {size}, seed {seed}")
    static = tq.TensorQuantizer({"num_bits": bits, "block_sizes": {-1: size}, "narrow_range": narrow})
    same(static(torch.from_numpy(x)), want, f"static, {bits} bits, blocks of {size}, seed {seed}")


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([16, 8, 4]))
def test_two_levels(seed, size):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((6, 16)) * np.exp2(rng.integers(-8, 8, (6, 1)))).astype(np.float32)
    x[0] = 0
    got = tq.dynamic_block_quant(torch.from_numpy(x), size, None, None, (2, 1), (4, 3))
    want = oracle.nvfp4(x, size)
    assert np.array_equal(got.numpy(), want), seed
    theirs = tq.dynamic_block_quant(torch.from_numpy(x), size, None, None, (2, 1), (8, 0), ties="toward_zero")
    kept = np.abs(x.reshape(-1, size)).max(1) > 0
    assert np.array_equal(
        theirs.numpy().reshape(-1, size)[kept], oracle.mxfp4_modelopt(x, size).reshape(-1, size)[kept]
    ), seed


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(-100, 100, width=32), st.floats(-100, 100, width=32))
def test_ranges(seed, bits, a, b):
    low, high = sorted((a, b))
    if not low < high:
        return
    x = inputs(seed, False)
    got = tq.fake_affine_tensor_quant(torch.from_numpy(x), low, high, bits)
    same(got, oracle.affine_fake_quant(x, low, high, bits), f"{bits} bits, {low}..{high}, seed {seed}")


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("axes", [axes for axes in AXES if axes], ids=str)
def test_one_bad_amax_raises_or_shows(bad, axes):
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    amax = torch.ones([n if d in axes else 1 for d, n in enumerate(SHAPE)])
    amax.view(-1)[-1] = bad
    for call in (tq.fake_tensor_quant, lambda *args, **more: tq.scaled_e4m3(*args, 4, 3, **more)):
        with pytest.raises(tq.AmaxError):
            call(x, amax)
        got = call(x, amax, nonfinite_amax="propagate")
        assert torch.equal(got.isnan(), amax.expand(SHAPE) != 1)
