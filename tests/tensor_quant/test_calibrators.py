"""Calibrators: the same for any split of the data, mergeable, and right by their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rounding import assert_near, largest

from gemmsim import tensor_quant as tq
from gemmsim.tensor_quant.amax_search import entropy_amax, mse_amax


def data(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def splits(x, cuts):
    return x.tensor_split(sorted(cuts))


CUTS = st.lists(st.integers(0, 300), max_size=6)


@given(CUTS)
def test_maxima_do_not_depend_on_the_split(cuts):
    x = data(300, 4, 3)
    for axis in (None, 1, -1, (1, 2)):
        whole, parts = tq.MaxCalibrator(axis=axis), [tq.MaxCalibrator(axis=axis) for _ in range(2)]
        whole.collect(x)
        for i, part in enumerate(splits(x, cuts)):
            parts[i % 2].collect(part)
        parts[0].merge(parts[1])
        assert torch.equal(whole.compute_amax(), parts[0].compute_amax())
        dims = {None: (0, 1, 2), 1: (0, 2), -1: (0, 1), (1, 2): (0,)}[axis]
        want = x.abs().amax(dims, keepdim=axis is not None)
        assert torch.equal(whole.compute_amax(), want)


def test_max_calibrator():
    calibrator = tq.MaxCalibrator(track_amax=True, axis=0)
    assert calibrator.compute_amax() is None
    calibrator.collect(data(2, 3))
    calibrator.collect(torch.empty(0, 3))
    assert len(calibrator.amaxs) == 1 and calibrator.compute_amax().shape == (2, 1)
    with pytest.raises(RuntimeError, match="amax shape changed!"):
        calibrator.collect(data(3, 3))
    for bad in (math.nan, math.inf):
        with pytest.raises(AssertionError, match="NaN or infinity"):
            calibrator.collect(torch.tensor([[1.0], [bad]]))
    with pytest.raises(RuntimeError, match="axis"):
        calibrator.merge(tq.MaxCalibrator())
    calibrator.reset()
    assert calibrator.compute_amax() is None and calibrator.amaxs == []
    with pytest.raises(RuntimeError, match="dimension"):
        tq.MaxCalibrator(axis=4).collect(data(2, 2))


@settings(max_examples=30)
@given(CUTS, st.permutations(range(7)))
def test_doubling_histograms_depend_on_neither_split_nor_order(cuts, order):
    x = data(300, 10) * torch.exp2(torch.arange(300.0) / 30 - 20)[:, None]
    whole = tq.HistogramCalibrator(grow_method="double", num_bins=256)
    whole.collect(x)
    parts = [tq.HistogramCalibrator(grow_method="double", num_bins=256) for _ in range(2)]
    pieces = splits(x, cuts)
    for number in order:
        if number < len(pieces):
            parts[number % 2].collect(pieces[number])
    parts[0].merge(parts[1])
    assert torch.equal(whole.calib_hist, parts[0].calib_hist) and int(whole.calib_hist.sum()) == x.numel()
    assert torch.equal(whole.calib_bin_edges, parts[0].calib_bin_edges)
    for method in ("percentile", "mse", "entropy"):
        options = {} if method == "percentile" else {"stride": 16}
        assert torch.equal(whole.compute_amax(method, **options), parts[0].compute_amax(method, **options))
    index = torch.bucketize(x.abs().flatten(), whole.calib_bin_edges, right=True) - 1
    assert torch.equal(torch.bincount(index, minlength=512), whole.calib_hist)


def test_adding_histograms_are_those_of_any_split_after_the_largest():
    x = data(40, 50)
    x[0, 0] = 9.0
    whole, parts = tq.HistogramCalibrator(), tq.HistogramCalibrator()
    whole.collect(x)
    for piece in x.split(7):
        parts.collect(piece)
    assert torch.equal(whole.calib_hist, parts.calib_hist)
    other = tq.HistogramCalibrator()
    other.collect(x)
    parts.merge(other)
    assert torch.equal(parts.calib_hist, 2 * whole.calib_hist)
    third = tq.HistogramCalibrator()
    third.collect(x[:, :1] / 2)
    with pytest.raises(RuntimeError, match="wide"):
        parts.merge(third)
    with pytest.raises(RuntimeError, match="grow_method"):
        parts.merge(_collected(tq.HistogramCalibrator(grow_method="double"), x))


def _collected(calibrator, x):
    calibrator.collect(x)
    return calibrator


def test_searches_follow_their_definitions():
    counts = torch.histc(data(4000).abs(), bins=300, min=0, max=4).long()
    counts[5] = counts[40] = 0
    edges = torch.linspace(0, 4, 301)
    centres = (edges[1:] + edges[:-1]) / 2
    losses = {
        i: float(
            (counts.double() * (tq.fake_tensor_quant(centres, centres[i], 4).double() - centres.double()) ** 2).mean()
        )
        for i in range(128, 300, 3)
    }
    assert mse_amax(counts, edges, 4, False, 3, 128) == centres[min(losses, key=losses.get)]
    divergences = {i: _divergence(counts, i, 16) for i in range(128, 301, 3)}
    least = min(divergences.values())
    end = max(i for i, d in divergences.items() if d <= least + 1e-12)
    assert entropy_amax(counts, edges, 5, False, 3, 128) == edges[end]


def _divergence(counts, end, levels):
    """Bin by bin."""
    bins = [float(c) for c in counts]
    bins[0] = bins[1]
    p, groups = bins[:end], [[] for _ in range(levels)]
    p[-1] += sum(bins[end:])
    for i in range(end):
        groups[i * levels // end].append(i)
    q = [0.0] * end
    for members in groups:
        filled = [i for i in members if bins[i] > 0]
        for i in filled:
            q[i] = sum(bins[j] for j in filled) / len(filled)
    p, q = [v / sum(p) for v in p], [v / sum(q) for v in q]
    return sum(a * math.log(a / b) if b else math.inf for a, b in zip(p, q, strict=True) if a)


def test_histogram_errors_and_edges():
    calibrator = tq.HistogramCalibrator()
    assert calibrator.compute_amax("percentile") is None
    with pytest.raises(TypeError, match="method"):
        calibrator.compute_amax("mean")
    with pytest.raises(NotImplementedError, match="axis"):
        tq.HistogramCalibrator(axis=0)
    with pytest.raises(RuntimeError, match="grow_method"):
        tq.HistogramCalibrator(grow_method="triple")
    with pytest.raises(AssertionError):
        calibrator.collect(torch.tensor([1.0, math.nan]))
    calibrator.collect(data(50))
    with pytest.raises(ValueError, match="percentile"):
        calibrator.compute_amax("percentile", percentile=101)
    assert calibrator.compute_amax("percentile", percentile=0) == 0
    zeros = _collected(tq.HistogramCalibrator(skip_zeros=True), torch.zeros(5))
    assert zeros.calib_hist is None
    zeros = _collected(tq.HistogramCalibrator(grow_method="double"), torch.zeros(5))
    assert int(zeros.calib_hist[0]) == 5


def test_mse_calibrator():
    x = data(6, 200)
    x[0, 0] = 30
    calibrator = tq.MseCalibrator(x.abs().amax(1, keepdim=True), axis=0)
    assert calibrator.compute_amax() is None
    parts = [tq.MseCalibrator(x.abs().amax(1, keepdim=True), axis=0) for _ in range(2)]
    calibrator.collect(x)
    for number, piece in enumerate(x.split(50, 1)):
        parts[number % 2].collect(piece)
    parts[0].merge(parts[1])
    best = calibrator.compute_amax()
    assert best.shape == (6, 1) and torch.equal(best, parts[0].compute_amax())
    multiples = torch.linspace(0.25, 4, 10)
    losses = torch.stack(
        [(tq.fake_tensor_quant(x, x.abs().amax(1, keepdim=True) * m).double() - x).square().sum(1) for m in multiples]
    )
    assert torch.equal(best.flatten(), x.abs().amax(1) * multiples[losses.argmin(0)])
    scalar = tq.MseCalibrator(torch.tensor(2.0), quant_func=lambda t, a: tq.scaled_e4m3(t, a, 4, 3))
    scalar.collect(x)
    assert scalar.compute_amax().shape == ()
    with pytest.raises(RuntimeError):
        scalar.merge(calibrator)


def test_bias_calibrator():
    x = data(40, 6) + 3
    mean, ends = tq.BiasCalibrator("mean", axis=0), tq.BiasCalibrator("max_min", axis=0)
    assert mean.compute_bias() is None
    for piece in x.split(10):
        mean.collect(piece)
        ends.collect(piece)
    assert_near(mean.compute_bias(), x.mean(0, keepdim=True), 40 + 1, size=largest(x))
    assert torch.equal(ends.compute_bias(), ((x.amax(0, keepdim=True).double() + x.amin(0, keepdim=True)) / 2).float())
    with pytest.raises(RuntimeError):
        tq.BiasCalibrator("median")
    with pytest.raises(RuntimeError):
        mean.merge(ends)


@pytest.mark.parametrize("method", ["percentile", "mse", "entropy"])
def test_no_amax_lies_beyond_the_data(method):
    for seed, count in ((0, 32), (1, 500)):
        x = torch.randn(count, generator=torch.Generator().manual_seed(seed))
        doubling = tq.HistogramCalibrator(grow_method="double")
        doubling.collect(x)
        width = float(doubling.calib_bin_edges[1])
        assert float(doubling.compute_amax(method, percentile=100)) <= float(x.abs().max()) + width
    zeros = tq.HistogramCalibrator(grow_method="double")
    zeros.collect(torch.zeros(5))
    assert float(zeros.compute_amax(method)) <= 4096 * 2.0**-149, "an end of a bin, each as wide as the smallest number"
