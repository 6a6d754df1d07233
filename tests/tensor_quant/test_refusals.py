"""What the functions refuse, so that nothing is NaN in silence, and that compiled code does as much."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gemmsim import tensor_quant as tq


def data(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tq.fake_tensor_quant(x, None),
        lambda x: tq.legacy_fake_tensor_quant(x, None),
        lambda x: tq.tensor_quant(x, None),
        lambda x: tq.quantize_op(x, None),
        lambda x: tq.static_block_quant(x, 4, None),
        lambda x: tq.learned_fake_tensor_quant(x, None),
        lambda x: tq.integer_values(x, None),
        lambda x: tq.static_blockwise_fp4_fake_quant(x, None),
        lambda x: tq.MseCalibrator(None),
    ],
)
def test_a_missing_amax_raises(call):
    with pytest.raises(tq.AmaxError, match="amax=None; allowed: a number or a tensor"):
        call(data(8))


@pytest.mark.parametrize("amax", [1e300, torch.tensor(1e300, dtype=torch.float64)], ids=["number", "tensor"])
def test_an_amax_that_float32_has_not_raises(amax):
    x = data(8)
    for call in (tq.fake_tensor_quant, tq.tensor_quant, lambda x, a: tq.scaled_e4m3(x, a, 4, 3)):
        with pytest.raises(tq.AmaxError, match="infinity"):
            call(x, amax)
    assert tq.fake_tensor_quant(x, amax, nonfinite_amax="propagate").isnan().all()
    largest = torch.finfo(torch.float32).max
    assert tq.fake_tensor_quant(x, torch.tensor(largest, dtype=torch.float64)).eq(0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_static_fp4_blocks_check_their_amaxes(bad):
    x = torch.arange(8.0)
    for scales in (True, False):
        with pytest.raises(tq.AmaxError, match="static_blockwise_fp4_fake_quant"):
            tq.static_blockwise_fp4_fake_quant(x, torch.tensor([1.0, bad]), None, scales)
    with pytest.raises(tq.AmaxError, match="static_blockwise_fp4_fake_quant"):
        tq.static_blockwise_fp4_fake_quant(x, torch.ones(2), bad)
    with pytest.raises(tq.BlockSizeError, match="7 elements, 2 block amaxes"):
        tq.static_blockwise_fp4_fake_quant(x[:7], torch.ones(2))


def test_straight_through_results_are_the_grids_values():
    x = torch.tensor([1e9, -1e9, math.inf, 0.3, 0.1, -0.0, math.nan, 3.0], requires_grad=True)
    y = tq.static_blockwise_fp4_fake_quant(x, torch.tensor([6.0]), None, False)
    assert y[:6].tolist() == [6.0, -6.0, 6.0, 0.5, 0.0, -0.0] and y[6].isnan() and y[7] == 3
    y.backward(torch.arange(8.0))
    assert torch.equal(x.grad, torch.arange(8.0))
    leaf = data(4, 64).requires_grad_()
    assert torch.equal(tq.nf4_fake_quant(leaf), tq.nf4_fake_quant(leaf.detach()))


@pytest.mark.parametrize("ends", [(-3e38, 3e38), (-1e-45, 1e-45), (1.0, 1.0 + 1e-12)], ids=str)
def test_affine_ranges_without_a_float32_step_raise(ends):
    low, high = (torch.tensor(end, dtype=torch.float64) for end in ends)
    with pytest.raises(tq.AmaxError, match=r"\(max - min\) / 255"):
        tq.fake_affine_tensor_quant(data(8), low, high)


def test_scale_bits_that_are_no_pair_raise():
    with pytest.raises(tq.ElementFormatError, match="scale_bits=8; allowed"):
        tq.dynamic_block_quant(data(8), 4, None, None, (2, 1), 8)


def test_learned_amax_may_be_a_number():
    x = data(8)
    assert torch.equal(tq.learned_fake_tensor_quant(x, 1.5), tq.fake_tensor_quant(x, 1.5))


def test_every_function_class_has_its_steps():
    for name in ("Static", "Dynamic"):
        cls = getattr(tq, f"{name}BlockQuantizationFunction")
        for step in ("forward", "backward", "symbolic"):
            assert getattr(cls, step) is not getattr(torch.autograd.Function, step, None), (name, step)
    x, amax = data(2, 8), torch.full((4,), 2.0)
    assert torch.equal(tq.StaticBlockQuantizationFunction.apply(x, 4, amax), tq.static_block_quant(x, 4, amax))


@pytest.mark.parametrize(
    "fields",
    [
        {"axis": "0"},
        {"axis": (0, 1.5)},
        {"axis": True},
        {"calib_method": "median"},
        {"scale_amax": -1.0},
        {"scale_amax": math.nan},
        {"amax": [[1, 2], [3]]},
        {"block_sizes": {-1: 4, "type": "sliding"}},
    ],
    ids=str,
)
def test_descriptors_check_their_fields(fields):
    with pytest.raises((tq.DescriptorError, tq.DescriptorTypeError, tq.BlockSizeError), match="allowed"):
        tq.ScaledQuantDescriptor(**fields)
    if "axis" in fields:
        with pytest.raises(tq.DescriptorTypeError, match="quantizer: axis"):
            tq.QuantizerAttributeConfig(**fields)


@pytest.mark.parametrize("calibrator", [3, "median", (), (3, 4)], ids=str)
def test_configs_check_their_calibrator(calibrator):
    with pytest.raises(tq.DescriptorError, match="calibrator"):
        tq.QuantizerAttributeConfig(calibrator=calibrator)


def test_calibrators_refuse_what_they_cannot_use():
    for bad in (math.nan, math.inf):
        with pytest.raises(tq.CalibrationDataError, match="NaN or infinity"):
            tq.MseCalibrator(torch.tensor(1.0)).collect(torch.tensor([1.0, bad]))
        with pytest.raises(tq.AmaxError, match="MseCalibrator"):
            tq.MseCalibrator(bad)
    x = data(4, 9)
    one, each = tq.MseCalibrator(2.0, axis=0), tq.MseCalibrator(torch.full((4, 1), 2.0), axis=0)
    for c in (one, each):
        c.collect(x)
    assert torch.equal(one.compute_amax(), each.compute_amax()) and one.compute_amax().shape == (4, 1)
    for bins in (0, -4, 1, 2.5):
        with pytest.raises(tq.CalibrationError, match="num_bins"):
            tq.HistogramCalibrator(num_bins=bins)
    h = tq.HistogramCalibrator()
    h.collect(torch.tensor([1e-6]))
    with pytest.raises(tq.CalibrationError, match=r"2.05e\+12 bins"):
        h.collect(torch.tensor([1e3]))
    with pytest.raises(tq.CalibrationDataError, match="stride=0"):
        h.compute_amax("entropy", stride=0)


FUNCTIONS = {
    "nf4": lambda x: tq.nf4_fake_quant(x, 8),
    "nf4, plain scales": lambda x: tq.nf4_fake_quant(x, 8, None),
    "fp4": lambda x: tq.static_blockwise_fp4_fake_quant(x, torch.full((8,), 2.0)),
    "learned": lambda x: tq.learned_fake_tensor_quant(x, torch.tensor(1.5), 4),
    "pact": lambda x: tq.pact(x, torch.tensor(-1.0), torch.tensor(1.0)),
    "int_linear": lambda x: tq.int_linear(x, x.detach()[:3], input_amax=2.0, weight_amax=2.0, spec="int(14, wrap)"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_compile_and_map(name):
    f, x = FUNCTIONS[name], data(4, 16)
    torch._dynamo.reset()
    compiled, plain = x.clone().requires_grad_(), x.clone().requires_grad_()
    y = torch.compile(f, fullgraph=True, backend="aot_eager")(compiled)
    want = f(plain)
    assert torch.equal(y, want)
    y.sum().backward()
    want.sum().backward()
    assert torch.equal(compiled.grad, plain.grad)
    many = data(3, 4, 16, seed=1)
    assert torch.equal(torch.vmap(f)(many), torch.stack([f(t) for t in many]))


def test_compiled_code_checks_amaxes_too():
    torch._dynamo.reset()
    f = torch.compile(lambda x: tq.nf4_fake_quant(x, 8, None), fullgraph=True, backend="aot_eager")
    with pytest.raises(tq.AmaxError, match="nf4_fake_quant"):
        f(torch.full((2, 8), math.nan))


@pytest.mark.parametrize("scale", [0.0, float("nan"), float("inf"), torch.tensor([[1.0], [0.0]])], ids=str)
def test_scales_of_integer_products_that_would_give_nan(scale):
    a, b = torch.ones(2, 3), torch.ones(3, 2)
    with pytest.raises(tq.AmaxError, match="scale_a holds 0, NaN or infinity"):
        tq.int_matmul(a, b, scale)
    with pytest.raises(tq.AmaxError, match="scale_b"):
        tq.int_matmul(a, b, 1.0, scale if not isinstance(scale, torch.Tensor) else scale.mT)


@pytest.mark.parametrize(
    ("batch", "kind"),
    [
        (3, "a int"),
        ("text", "a str"),
        (None, "a NoneType"),
        ([3], "a list of int"),
        ((None, "x"), "a tuple of NoneType, str"),
        ({"input": 3}, "a dict of int"),
        ({3: torch.ones(1, 4)}, "a dict of Tensor"),
        (np.ones((1, 4), np.float32), "a ndarray"),
    ],
)
def test_batches_that_are_none_are_named_and_change_nothing(batch, kind):
    model = tq.quantize_(torch.nn.Sequential(torch.nn.Linear(4, 4)), {"*": {"num_bits": 8}})
    with pytest.raises(tq.CalibrationError, match=rf"^calibrate: batch 2 is {kind} \(.*\); allowed: a tensor, a tuple"):
        tq.calibrate(model, [torch.ones(1, 4), batch])
    assert all(q.amax is None for q in model.modules() if isinstance(q, tq.TensorQuantizer))


def test_other_batches_are_the_models_own_business():
    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = tq.quantize_(torch.nn.Sequential(torch.nn.Linear(4, 4)), {"*": {"num_bits": 8}})

        def forward(self, rows=1, failing=None):
            return self.inner(torch.ones(rows, 4)) if failing is None else failing.nothing

    for batches in ([3], [(3,)], [()], [{}], [{"rows": 3}]):
        model = tq.calibrate(Outer(), batches)
        assert model.inner[0].input_quantizer.amax == 1
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tq.calibrate(Outer(), [(1, torch.ones(1))])
