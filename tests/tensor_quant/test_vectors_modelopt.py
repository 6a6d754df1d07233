"""What ModelOpt 0.40 and 0.13 gave on CPU (tests/golden/README.md): gemmsim.tensor_quant gives the same values."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from support import GOLDEN, assert_values_equal

from gemmsim.tensor_quant import (
    HistogramCalibrator,
    dynamic_block_quant,
    fake_affine_tensor_quant,
    fake_tensor_quant,
    scaled_e4m3,
    tensor_quant,
)

FOLDER = GOLDEN / "modelopt"


def load(name):
    with np.load(FOLDER / f"modelopt_{name}.npz") as stored:
        index = json.loads(str(stored["index_json"]))
        return {key: torch.from_numpy(np.array(stored[key])) for key in stored.files if key != "index_json"}, dict(
            index
        )


CURRENT, CURRENT_INDEX = load("current")
LEGACY, LEGACY_INDEX = load("legacy")


def of(index, *functions):
    return [key for key, case in index.items() if case["fn"] in functions]


def arguments(data, case):
    """Inputs and amax of a case."""
    name, _, dtype = case["x"].partition(" as ")
    x = data[name.removeprefix("abs(").removesuffix(")")]
    x = x.abs() if name.startswith("abs(") else x
    amax = case.get("amax")
    return x.to(getattr(torch, dtype)) if dtype else x, data[amax] if isinstance(amax, str) else amax


def test_the_vectors_are_all_there():
    assert len(CURRENT_INDEX) == 37 and len(LEGACY_INDEX) == 11


@pytest.mark.parametrize("key", of(CURRENT_INDEX, "fake_tensor_quant"))
def test_fake_tensor_quant(key, isa):
    case = CURRENT_INDEX[key]
    x, amax = arguments(CURRENT, case)
    options = case["num_bits"], case["unsigned"], case["narrow_range"]
    for result in (fake_tensor_quant(x, amax, *options), fake_tensor_quant(x, amax, None, *options)):
        assert result.dtype == x.dtype
        assert_values_equal(result.float(), CURRENT[key])


@pytest.mark.parametrize("key", of(CURRENT_INDEX, "scaled_e4m3"))
def test_scaled_e4m3(key, isa):
    x, amax = arguments(CURRENT, CURRENT_INDEX[key])
    for result in (scaled_e4m3(x, amax, 4, 3), scaled_e4m3(x, amax, None, 4, 3)):
        assert_values_equal(result, CURRENT[key])


@pytest.mark.parametrize("key", of(LEGACY_INDEX, "tensor_quant[0]"))
def test_tensor_quant(key):
    case = LEGACY_INDEX[key]
    x, amax = arguments(LEGACY, case)
    q, scale = tensor_quant(x, amax, case["num_bits"], case["unsigned"], case["narrow_range"])
    assert_values_equal(q, LEGACY[key])
    assert_values_equal(scale, LEGACY[key.replace("_q_", "_s_")])


@pytest.mark.parametrize("key", of(LEGACY_INDEX, "fake_affine_tensor_quant"))
def test_fake_affine_tensor_quant(key, isa):
    case = LEGACY_INDEX[key]
    ends = case["min_range"], case["max_range"]
    assert_values_equal(fake_affine_tensor_quant(LEGACY["x"], *ends, case["num_bits"]), LEGACY[key])
    tensors = [torch.tensor(end) for end in ends]
    assert_values_equal(fake_affine_tensor_quant(LEGACY["x"], *tensors, case["num_bits"]), LEGACY[key])


def test_blocks(isa):
    assert_values_equal(dynamic_block_quant(CURRENT["x4"], 16, None, None, (2, 1), (4, 3)), CURRENT["nvfp4"])
    got = dynamic_block_quant(CURRENT["x4m"], 32, None, None, (2, 1), (8, 0), ties="toward_zero")
    assert_values_equal(got, CURRENT["mxfp4"])


def test_the_gradient():
    x = CURRENT["xc"].clone().requires_grad_()
    fake_tensor_quant(x, CURRENT["amax_c"]).sum().backward()
    assert_values_equal(x.grad, CURRENT["int_axis0_grad"])


@pytest.fixture(scope="module")
def histogram():
    calibrator = HistogramCalibrator()
    for row in CURRENT["calib_x"]:
        calibrator.collect(row)
    return calibrator


def test_the_histogram(histogram):
    assert torch.equal(histogram.calib_hist.float(), CURRENT["calib_hist"])
    assert torch.equal(histogram.calib_bin_edges, CURRENT["calib_edges"])


@pytest.mark.parametrize("key", [k for k in CURRENT_INDEX if k.startswith("calib_") and "mse" not in k])
def test_amax_from_the_histogram(key, histogram):
    case = CURRENT_INDEX[key]
    options = {name: case[name] for name in ("stride", "percentile") if name in case}
    assert histogram.compute_amax(case["method"], **options) == CURRENT[key]
