"""d-Matrix's observers and cast module: documented arguments and state, its rules, and values that its code gives."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch
from support import assert_bitwise_equal
from torch import nn

from gemmsim.compat import dmx
from gemmsim.compat.dmx.compressor.numerical import observer


def data(*shape, seed=0):
    """Numbers of many binades."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator) * torch.exp2(torch.randint(-12, 12, shape, generator=generator))


A, S = torch.per_tensor_affine, torch.per_tensor_symmetric
CA, CS = torch.per_channel_affine, torch.per_channel_symmetric


def test_observers_are_where_they_are_documented():
    for name in ("DummyObserver", "MinMaxObserver", "HistogramObserver"):
        assert getattr(observer, name) is getattr(dmx, name)
        found = inspect.signature(getattr(dmx, name)).parameters
        assert (found["dtype"].default, found["qscheme"].default, found["ch_axis"].default) == ("XP[8,0](CSN)", A, -1)
    found = inspect.signature(dmx.HistogramObserver).parameters
    assert (found["bins"].default, found["upsample_rate"].default) == (2048, 128)
    plain = dmx.MinMaxObserver()
    assert plain.dtype == dmx.aliases.INT8 and plain.eps.tolist() == [2.0**-23]
    assert dmx.MinMaxObserver(dtype=torch.float32).dtype == dmx.Same()


@pytest.mark.parametrize("text, ends", [("XP[8,0](CSN)", (-127, 127)), ("XP[4,0](C_N)", (-8, 7))])
@pytest.mark.parametrize("scheme", [A, S, CA, CS], ids=str)
def test_min_max_qparams_follow_the_documented_rule(text, ends, scheme):
    watcher = dmx.MinMaxObserver(text, scheme, ch_axis=1)
    assert (watcher.quant_min, watcher.quant_max) == ends
    batches = [data(4, 6, 5, seed=seed) + 3 for seed in range(3)]
    for batch in batches:  # the range of a channel that is positive, or negative, is widened to zero
        batch[:, 2], batch[:, 3] = batch[:, 2].abs() + 1, -batch[:, 3].abs() - 1
        assert watcher(batch) is batch
    whole = torch.cat(batches)
    rows = whole.movedim(1, 0).reshape(6, -1) if scheme in (CA, CS) else whole.reshape(1, -1)
    scale, zero = watcher.calculate_qparams()
    assert scale.shape == zero.shape == (len(rows),) and zero.dtype == torch.int64
    assert scheme in (A, S) or (rows[2].min() >= 1 and rows[3].max() <= -1)
    for row, s, z in zip(rows.numpy(), scale, zero, strict=True):
        low, high, width = min(row.min(), np.float32(0)), max(row.max(), np.float32(0)), np.float32(ends[1] - ends[0])
        if scheme in (S, CS):
            assert s.item() == max(-low, high) / (width / 2) and z == 0
        else:
            want = (high - low) / width
            assert s.item() == want and z == min(max(ends[0] - round(float(low / want)), ends[0]), ends[1])


def test_observers_that_saw_nothing_or_nothing_usable():
    for kind in (dmx.MinMaxObserver, dmx.HistogramObserver):
        watcher = kind()
        watcher(torch.empty(0))
        with pytest.warns(UserWarning, match="seen no data"):
            assert [t.tolist() for t in watcher.calculate_qparams()] == [[1.0], [0]]
        for value in (math.nan, math.inf):
            with pytest.raises(ValueError, match="NaN or infinity"):
                watcher(torch.tensor([1.0, value]))
        watcher(torch.zeros(4))
        assert watcher.calculate_qparams()[0].tolist() == [2.0**-23]  # eps
        other = kind(dtype="BFP[8|8]{64}(SN)")
        assert other.quant_min is None
        other(torch.ones(4))
        with pytest.raises(ValueError, match="FixedPoint with fraction 0"):
            other.calculate_qparams()
    assert [t.tolist() for t in dmx.DummyObserver().calculate_qparams()] == [[1.0], [0]]
    dummy = torch.ones(2)
    assert dmx.DummyObserver()(dummy) is dummy
    watcher = dmx.MinMaxObserver()
    watcher(torch.ones(3))
    watcher.reset_min_max_vals()
    assert watcher.min_val == math.inf and watcher.max_val == -math.inf
    for kind, scheme in ((dmx.HistogramObserver, CA), (dmx.MinMaxObserver, torch.per_channel_affine_float_qparams)):
        with pytest.raises(NotImplementedError, match="allowed"):
            kind(qscheme=scheme)
    with pytest.raises(TypeError, match="allowed: a Format"):
        dmx.MinMaxObserver(dtype=8)
    with pytest.raises(ValueError, match="bins"):
        dmx.HistogramObserver(bins=1)


def distributions():
    return {
        "cubes": torch.linspace(-3, 3, 4097) ** 3 / 3,
        "squares": torch.linspace(0, 2, 4097) ** 2,
        "outliers": torch.cat([torch.linspace(-1, 1, 4001), torch.tensor([-4.0, 4.0])]),
    }


#: Scale and zero point that dmx-compressor 0.1.11 gives (of ranges between integers, which it does not cut).
HISTOGRAMS = [
    ("cubes", "XP[8,0](CSN)", A, "0x1.2122440000000p-4", 0),
    ("cubes", "XP[8,0](CSN)", S, "0x1.22448a0000000p-4", 0),
    ("cubes", "XP[4,0](C_N)", A, "0x1.2480000000000p+0", 0),
    ("cubes", "XP[4,0](C_N)", S, "0x1.3333340000000p+0", 0),
    ("squares", "XP[8,0](CSN)", A, "0x1.01e3c80000000p-6", -127),
    ("squares", "XP[8,0](CSN)", S, "0x1.01e3c80000000p-5", 0),
    ("squares", "XP[4,0](C_N)", A, "0x1.0e44440000000p-2", -8),
    ("squares", "XP[4,0](C_N)", S, "0x1.0e44440000000p-1", 0),
    ("outliers", "XP[8,0](CSN)", A, "0x1.01e3c80000000p-5", 0),
    ("outliers", "XP[8,0](CSN)", S, "0x1.0204080000000p-5", 0),
    ("outliers", "XP[4,0](C_N)", A, "0x1.5555560000000p-2", 4),
    ("outliers", "XP[4,0](C_N)", S, "0x1.1111120000000p-1", 0),
]


@pytest.mark.parametrize("name, text, scheme, scale, zero", HISTOGRAMS, ids=str)
def test_histogram_qparams_are_those_of_dmx(name, text, scheme, scale, zero):
    watcher, x = dmx.HistogramObserver(dtype=text, qscheme=scheme), distributions()[name]
    for batch in (x, x.flip(0)):
        assert watcher(batch) is batch
    found = watcher.calculate_qparams()
    assert found[0].tolist() == [float.fromhex(scale)] and found[1].tolist() == [zero]


def test_a_histogram_of_any_bin_takes_a_wider_range():
    """Values keep their number and, up to a bin, their place; one number is a range, too."""
    watcher = dmx.HistogramObserver(bins=64)
    watcher(torch.full((5,), 2.0))
    assert watcher.histogram.sum() == 5 and (watcher.min_val, watcher.max_val) == (2, 2)
    watcher(torch.linspace(-1, 3, 1000))
    narrow = watcher.histogram.clone()
    assert watcher.histogram.sum() == 1005 and narrow.argmax() == 48  # 2 lies in [-1 + 48/16, -1 + 49/16)
    watcher(torch.tensor([-5.0, 11.0]))
    assert watcher.histogram.sum() == pytest.approx(1007) and (watcher.min_val, watcher.max_val) == (-5, 11)
    assert torch.allclose(
        watcher.histogram[16:32] - torch.eye(16, dtype=torch.float64)[0] * 0, narrow.view(16, 4).sum(1)
    )


# CastTo


def test_cast_to_has_the_documented_arguments_and_state():
    found = inspect.signature(dmx.CastTo).parameters
    assert [(p.name, p.default) for p in list(found.values())[:4]] == [
        ("format", "SAME"), ("observer", dmx.DummyObserver), ("group_size", None), ("block_dim", -1)
    ]  # fmt: skip
    layer = dmx.CastTo("XP[8,0](CSN)")
    assert layer.dtype == layer.format == dmx.aliases.INT8 and layer.qscheme is A and layer.ch_axis == -1
    assert (layer.fake_quant_enabled.tolist(), layer.observer_enabled.tolist()) == ([1], [0])
    assert {key: value.tolist() for key, value in layer.state_dict().items()} == {"scale": [1.0], "zero_point": [0]}
    with pytest.raises(TypeError, match="block_dim by its name"):
        dmx.CastTo("XP[8,0](CSN)", 0)
    with pytest.raises(ValueError, match="group_size"):
        dmx.CastTo("XP[8,0](CSN)", dmx.MinMaxObserver, 4, qscheme=CA)


def quantised(x, scale, zero, low=-127, high=127):
    """(cast(x / scale + zero) - zero) * scale, each step in float32."""
    scale, zero = (np.asarray(t, dtype=np.float32) for t in (scale, zero))
    return torch.from_numpy((np.clip(np.rint(x.numpy() / scale + zero), low, high) - zero) * scale)


#: Scheme, group size, axis -> how the scales are repeated over a tensor of shape (6, 10).
SCHEMES = {
    "tensor": ({}, lambda t: t),
    "tensor, symmetric": ({"qscheme_to_overload": S}, lambda t: t),
    "channels": ({"qscheme_to_overload": CA, "ch_axis": 0}, lambda t: t[:, None]),
    "channels, symmetric": ({"qscheme_to_overload": CS, "ch_axis": -1}, lambda t: t),
    "groups": ({"group_size": 4, "ch_axis": 1}, lambda t: t.repeat(4)[:10]),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_calibration_gives_scales_and_zero_points_and_the_documented_cast(name):
    keywords, repeated = SCHEMES[name]
    layer = dmx.CastTo("XP[8,0](CSN)")
    layer.enable_calibration(True, dmx.MinMaxObserver, **keywords)
    assert (layer.fake_quant_enabled.tolist(), layer.observer_enabled.tolist()) == ([0], [1])
    batches = [data(6, 10, seed=seed).clamp(-50, 20) for seed in (1, 2)]
    for batch in batches:
        assert torch.equal(layer(batch), batch)  # not cast meanwhile
    layer.enable_calibration(False)
    assert (layer.fake_quant_enabled.tolist(), layer.observer_enabled.tolist()) == ([1], [0])
    parts = {"groups": [torch.cat(batches)[:, at : at + 4] for at in (0, 4, 8)]}.get(name)
    if parts:
        rules = [dmx.MinMaxObserver() for _ in parts]
        pairs = [(rule(part), rule.calculate_qparams())[1] for rule, part in zip(rules, parts, strict=True)]
        scale, zero = (torch.cat(found) for found in zip(*pairs, strict=True))
    else:
        rule = dmx.MinMaxObserver(qscheme=keywords.get("qscheme_to_overload", A), ch_axis=keywords.get("ch_axis", -1))
        for batch in batches:
            rule(batch)
        scale, zero = rule.calculate_qparams()
    assert torch.equal(layer.scale, scale) and torch.equal(layer.zero_point, zero)
    x = data(6, 10, seed=3).requires_grad_()
    y = layer(x)
    want = quantised(x.detach(), *(repeated(t.numpy()) for t in (scale, zero)))
    assert_bitwise_equal(y.detach() + 0.0, want + 0.0)
    y.backward(torch.arange(60.0).view(6, 10))
    assert torch.equal(x.grad, torch.arange(60.0).view(6, 10))  # straight through, clipped or not
    again = dmx.CastTo("XP[8,0](CSN)", dmx.MinMaxObserver, keywords.get("group_size"))
    again.enable_calibration(True, dmx.MinMaxObserver, **keywords)
    again.enable_calibration(False)
    again.load_state_dict(layer.state_dict())
    assert_bitwise_equal(again(x).detach(), y.detach())


def test_calibration_uses_histograms_unless_said():
    layer = nn.Sequential(dmx.CastTo("XP[4,0](C_N)"))
    layer[0].enable_calibration()
    assert isinstance(layer[0].activation_post_process, dmx.HistogramObserver)
    layer(distributions()["cubes"])
    assert layer[0].scale.tolist() == [float.fromhex("0x1.2480000000000p+0")]


def test_cast_to_follows_its_switches_and_its_format():
    x = data(4, 8)
    layer = dmx.CastTo("XP[8,+2](CSN)", dmx.MinMaxObserver)
    layer.enable_observer()
    with pytest.raises(ValueError, match="fraction 0"):
        layer(x)
    layer.disable_observer()
    assert torch.equal(layer(x), dmx.FixedPoint(8, 2).cast(x))
    layer.set_format("XP[8,0](CSN)")
    assert layer.activation_post_process.quant_max == 127
    layer.enable_observer()
    layer(x)
    assert layer.scale.tolist() == [((x.max() - x.min()) / 254).item()]
    layer.disable_fake_quant()
    assert layer(x) is x
    layer.enable_fake_quant()
    layer.set_format("BFP[8|8]{16}(SN)")
    layer.disable_observer()
    assert torch.equal(layer(x), dmx.BlockFloatingPoint(8, 16).cast(x, -1))  # no scale outside fixed point
    for dtype in (torch.bfloat16, torch.float64):
        assert dmx.CastTo("XP[8,0](CSN)")(x.to(dtype)).dtype == dtype
    assert dmx.CastTo("XP[8,0](CSN)")(torch.tensor(1.4)) == 1
    assert "scale=[1.0]" in str(dmx.CastTo("XP[8,0](CSN)")) and "block_dim=-1" in str(layer)


def test_precision_is_the_formats_or_the_inputs():
    assert dmx.CastTo("BFP[8|8]{64}(SN)").get_precision() == 8.125
    same = dmx.CastTo()
    with pytest.raises(RuntimeError, match="Call the module first"):
        same.get_precision()
    x = torch.ones(2, dtype=torch.bfloat16)
    assert torch.equal(same(x), x) and same.get_precision() == 16 and same.physical_dtype == torch.bfloat16
    same.enable_observer()
    assert torch.equal(same(x), x)  # nothing is observed for no cast
