"""TensorQuantizer: switches, state, blocks, learned amax."""

from __future__ import annotations

import copy
import io
import math
import pickle

import pytest
import torch
from support.rounding import assert_near, largest

from gemmsim import tensor_quant as tq
from gemmsim.tensor_quant import ScaledQuantDescriptor, TensorQuantizer


def data(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_amax_of_each_input_until_there_is_one():
    q, x = TensorQuantizer(ScaledQuantDescriptor(8)), data(4, 6)
    assert q.amax is None and not q.state_dict()
    assert torch.equal(q(x), tq.fake_tensor_quant(x, x.abs().max(), 8, False, False))
    q.amax = 1.5
    assert torch.equal(q(x), tq.fake_tensor_quant(x, 1.5, 8, False, False))
    assert list(q.state_dict()) == ["_amax"] and q.step_size == 1.5 / 127 and q.maxbound == 127
    with pytest.raises(RuntimeError, match="shape"):
        q.amax = torch.ones(4, 1)
    q.reset_amax()
    assert q.amax is None
    axis = TensorQuantizer({"num_bits": 4, "axis": -1, "narrow_range": True})
    assert torch.equal(axis(x), tq.fake_tensor_quant(x, x.abs().amax(0, keepdim=True), 4))
    assert "dynamic" in repr(axis) and "4 bit" in repr(axis)


def test_switches():
    q, x = TensorQuantizer(ScaledQuantDescriptor(amax=1.0)), data(9)
    want = q(x)
    q.disable_quant()
    assert torch.equal(q(x), x)
    q.enable_quant()
    q.disable()
    assert torch.equal(q(x), x) and repr(q) == "TensorQuantizer(disabled)" and not q.is_enabled
    q.enable()
    assert torch.equal(q(x), want)
    with pytest.raises(ValueError, match="learn_amax"):
        q.enable_clip()
    with pytest.raises(RuntimeError, match="amax from each input"):
        TensorQuantizer({"type": "dynamic"}).enable_calib()


def test_calibration_of_one_quantizer():
    q = TensorQuantizer(ScaledQuantDescriptor(axis=0))
    with pytest.raises(RuntimeError, match="nothing was collected"):
        q.load_calib_amax()
    q.enable_calib()
    q.disable_quant()
    x = data(3, 50)
    for piece in x.split(20, 1):
        assert torch.equal(q(piece), piece)
    q.load_calib_amax()
    assert torch.equal(q.amax, x.abs().amax(1, keepdim=True))
    empty = TensorQuantizer()
    with pytest.warns(UserWarning, match="nothing was collected"):
        empty.load_calib_amax(strict=False)
    with pytest.raises(ValueError, match="NaN"):
        empty(x)
    histogram = TensorQuantizer(ScaledQuantDescriptor(calib_method="histogram"), if_calib=True)
    histogram(x)
    histogram.load_calib_amax("percentile", percentile=50)
    # Half of normal numbers are below 0.674. The median of 150 deviates by 0.5 / (0.635 sqrt(150)) = 0.064.
    assert abs(histogram.amax - 0.674) < 4 * 0.064


def test_export_amax_replaces_zeros():
    q = TensorQuantizer(ScaledQuantDescriptor(axis=0, amax=[[0.0], [2.0]]))
    assert q.export_amax().flatten().tolist() == [127, 2] and TensorQuantizer().export_amax() is None


def test_state_copies_and_pickles():
    q = TensorQuantizer(ScaledQuantDescriptor(axis=0, amax=[[1.0], [2.0]]))
    q.pre_quant_scale = 0.5
    x = data(2, 7)
    stored = io.BytesIO()
    torch.save(q.state_dict(), stored)
    stored.seek(0)
    fresh = TensorQuantizer(ScaledQuantDescriptor(axis=0))
    fresh.load_state_dict(torch.load(stored, weights_only=True))
    for other in (fresh, copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        assert torch.equal(other(x), q(x))
    learned = TensorQuantizer(ScaledQuantDescriptor(learn_amax=True, amax=1.0))
    fresh = TensorQuantizer(ScaledQuantDescriptor(learn_amax=True))
    fresh.load_state_dict(learned.state_dict())
    assert torch.equal(fresh(x), learned(x))


def test_static_blocks():
    x = data(3, 50)
    q = TensorQuantizer({"num_bits": 8, "block_sizes": {-1: 32}, "narrow_range": True}, if_calib=True)
    padded = torch.nn.functional.pad(x, (0, 14)).view(-1, 32)
    want = tq.fake_tensor_quant(padded, padded.abs().amax(1, keepdim=True)).view(3, 64)[:, :50]
    assert torch.equal(q(x), want)
    q.load_calib_amax()
    q.disable_calib()
    assert q.amax.shape == (6, 1) and torch.equal(q(x), want)
    with pytest.raises(ValueError, match="static blocks"):
        q(data(4, 50))


@pytest.mark.parametrize(
    "shape, sizes",
    [((6, 10), {-1: 4, -2: 3}), ((2, 6, 10), {1: 4}), ((2, 6, 10), {-1: None}), ((4, 5), {0: 8, 1: None})],
)
def test_blocks_along_several_dimensions(shape, sizes):
    x = data(*shape)
    q = TensorQuantizer({"num_bits": 8, "block_sizes": sizes, "narrow_range": True})
    got, want = q(x), torch.empty_like(x)
    steps = [sizes.get(d, sizes.get(d - len(shape), 1)) or n for d, n in enumerate(shape)]
    for start in torch.cartesian_prod(*(torch.arange(0, n, s) for n, s in zip(shape, steps, strict=True))):
        block = tuple(slice(int(a), int(a) + s) for a, s in zip(start, steps, strict=True))
        want[block] = tq.fake_tensor_quant(x[block], x[block].abs().max())
    assert torch.equal(got, want)


def test_dynamic_blocks():
    x = data(4, 48)
    nvfp4 = {"num_bits": (2, 1), "block_sizes": {-1: 16, "type": "dynamic", "scale_bits": (4, 3)}}
    q = TensorQuantizer(nvfp4, if_calib=True)
    assert torch.equal(q(x), tq.dynamic_block_quant(x, 16, None, None, (2, 1), (4, 3)))
    q.load_calib_amax()
    assert torch.equal(q(x / 2), tq.dynamic_block_quant(x / 2, 16, x.abs().max(), None, (2, 1), (4, 3)))
    mx = TensorQuantizer({"num_bits": (4, 3), "block_sizes": {0: 4, "type": "dynamic", "scale_bits": (8, 0)}})
    assert torch.equal(mx(x), tq.dynamic_block_quant(x.mT, 4).mT)
    integers = TensorQuantizer({"num_bits": 4, "block_sizes": {-1: 16, "type": "dynamic"}})
    assert torch.equal(integers(x), tq.dynamic_block_quant(x, 16, None, None, 4, None, narrow_range=False))
    two = TensorQuantizer({"num_bits": (4, 3), "block_sizes": {-1: 4, -2: 4, "type": "dynamic", "scale_bits": (8, 0)}})
    with pytest.raises(ValueError, match="one dimension"):
        two(x)


def test_scales_of_blocks_quantised_themselves():
    x = data(8, 32)
    q = TensorQuantizer({"num_bits": 4, "block_sizes": {-1: 16, "scale_bits": 8, "scale_block_sizes": {-1: 4}}})
    amax = x.view(-1, 16).abs().amax(1)
    centred = (amax - amax.mean()).view(-1, 4)
    amax = tq.fake_tensor_quant(centred, centred.abs().amax(1, keepdim=True), None, 8).view(-1, 1) + amax.mean()
    assert torch.equal(q(x), tq.fake_tensor_quant(x.view(-1, 16), amax, 4, False, False).view_as(x))


def test_learned_ends_and_learned_amax():
    x = torch.tensor([-2.0, 0.3, 4.0])
    q = TensorQuantizer(ScaledQuantDescriptor(learn_amax=True, amax=1.0))
    q(x).sum().backward()
    assert q.clip_min.grad == 1 and q.clip_max.grad == 1 and q.amax == 1
    q.disable_clip()
    lsq = TensorQuantizer(ScaledQuantDescriptor(learn_amax="lsq", amax=1.0))
    lsq(x).sum().backward()
    assert lsq.learned_amax.grad is not None and list(lsq.state_dict()) == ["learned_amax", "_amax"]
    with pytest.raises(RuntimeError, match="without an amax"):
        TensorQuantizer(ScaledQuantDescriptor(learn_amax=True)).init_learn_amax()
    with pytest.raises(ValueError, match="learn_amax"):
        TensorQuantizer().init_learn_amax()
    channels = TensorQuantizer(ScaledQuantDescriptor(learn_amax=True))
    channels.amax = [1.0, 3.0]
    with pytest.warns(UserWarning, match="largest"):
        channels.init_learn_amax()
    assert channels.clip_max == 3


def test_rotation_real_quantisation_bias_and_scale():
    x = data(3, 8)
    h = torch.tensor([[1.0]])
    for _ in range(3):
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    rotated = TensorQuantizer({"rotate": True}, if_quant=False)(x)
    assert_near(rotated, x @ h / math.sqrt(8), 8 + 2, size=largest(x.abs().sum(1)) / math.sqrt(8))
    with pytest.raises(ValueError, match="power of two"):
        TensorQuantizer({"rotate": True})(data(3, 6))
    real = TensorQuantizer({"fake_quant": False, "narrow_range": True})
    q, scale = tq.tensor_quant(x, x.abs().max())
    assert torch.equal(real(x), q) and torch.equal(real.scale, scale)
    biased = TensorQuantizer({"narrow_range": True})
    biased.bias, biased.amax = 0.5, 2.0
    assert torch.equal(biased(x), tq.fake_tensor_quant(x, 2.0, torch.tensor(0.5)))
    scaled = TensorQuantizer(ScaledQuantDescriptor(scale_amax=0.5, amax=2.0, narrow_range=True))
    assert torch.equal(scaled(x), tq.fake_tensor_quant(x, 1.0))
    e4m3 = TensorQuantizer({"num_bits": (4, 3)})
    assert torch.equal(e4m3(x), tq.scaled_e4m3(x, x.abs().max(), 4, 3)) and e4m3.maxbound == 448


def test_the_mean_of_scales_depends_on_no_order():
    from fractions import Fraction

    from gemmsim.tensor_quant.block_quantization import _mean

    g = torch.Generator().manual_seed(3)
    for n in (1, 7, 1000, 70000):
        x = torch.rand(n, generator=g) * torch.exp2(torch.randint(-12, 12, (n,), generator=g))
        mean = _mean(x)
        assert torch.equal(mean, _mean(x[torch.randperm(n, generator=g)]))
        exact = float(sum(map(Fraction, x.tolist())) / n)
        assert abs(mean.item() - exact) <= 2.0**-24 * (1 + 2.0**-20) * exact  # rounded once, of a quotient in float64
    assert _mean(torch.zeros(3)) == 0 and _mean(torch.tensor([1.0, float("nan")])).isnan()
