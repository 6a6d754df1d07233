"""Inputs as batches, and which samples are held back."""

from __future__ import annotations

import pytest
import torch

import gemmsim as gs
from gemmsim.accumulator_search.batches import divided, read_batches, samples_in


def test_forms():
    x, y = torch.arange(6.0).view(3, 2), torch.arange(3)
    assert [(len(one.args), one.samples) for one in read_batches(x)] == [(1, 3)]
    assert [(len(one.args), one.samples) for one in read_batches((x, y))] == [(2, 3)]
    assert [(sorted(one.kwargs), one.samples) for one in read_batches({"x": x, "y": y})] == [(["x", "y"], 3)]
    assert [one.samples for one in read_batches([x, (x, y), {"x": x[:1]}, x[:0]])] == [3, 3, 1]


def test_tensors_of_other_sizes_are_one_sample():
    (found,) = read_batches((torch.ones(3, 2), torch.ones(4)))
    assert found.samples == 1 and not found.is_divisible
    (found,) = read_batches((torch.ones(3, 2), torch.tensor(2.0)))
    assert found.samples == 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share, held", [(0.3, 3), (0.0, 0), (0.001, 1), (0.99, 9)])
def test_each_sample_is_on_one_side(seed, share, held):
    x = torch.arange(7.0).view(7, 1)
    batches = read_batches([(x, x + 100), {"x": x[:3] + 10, "scale": 2}])
    ours, theirs = divided(batches, share, seed)
    assert (samples_in(ours), samples_in(theirs)) == (10 - held, held)
    seen = [float(v) for one in (*ours, *theirs) for v in (*one.args[:1], *one.kwargs.values()) if torch.is_tensor(v)
            for v in v.flatten()]  # fmt: skip
    assert sorted(seen) == [0, 1, 2, 3, 4, 5, 6, 10, 11, 12]
    assert all(torch.equal(one.args[0] + 100, one.args[1]) for one in (*ours, *theirs) if one.args)
    assert all(one.kwargs["scale"] == 2 for one in (*ours, *theirs) if one.kwargs)


def test_the_seed_chooses_and_repeats():
    batches = read_batches(torch.arange(100.0))
    chosen = [divided(batches, 0.25, seed)[1][0].args[0].tolist() for seed in (0, 0, 1, 2**64 - 1)]
    assert chosen[0] == chosen[1] != chosen[2] and len(chosen[3]) == 25


def test_indivisible_batches_stay_whole():
    batches = read_batches([(torch.ones(3), torch.ones(4)) for _ in range(8)])
    ours, theirs = divided(batches, 0.25, 0)
    assert (len(ours), len(theirs)) == (6, 2)


@pytest.mark.parametrize("inputs", [3, None, "x", (), {}, {"x": 3}, [torch.ones(2), 4], {3: torch.ones(2)}])
def test_no_tensors(inputs):
    with pytest.raises(gs.SearchError, match="without tensors; allowed: a tensor, a tuple"):
        read_batches(inputs)


@pytest.mark.parametrize("inputs", [torch.ones(0, 3), [], [torch.ones(0)]])
def test_no_samples(inputs):
    with pytest.raises(gs.SearchError, match="inputs without a sample"):
        read_batches(inputs)


def test_empty_in_another_dimension():
    with pytest.raises(gs.SearchError, match=r"a tensor of shape \(3, 0\)"):
        read_batches(torch.ones(3, 0))
