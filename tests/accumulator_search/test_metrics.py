"""Errors against definitions in float64, limits against new samples, and what is refused."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

import gemmsim as gs
from gemmsim.accumulator_search.metrics import Answer, measured, read_metric, tensor_of


def pairs(seed=0, samples=(5, 3), noise=0.1):
    torch.manual_seed(seed)
    wanted = [torch.randn(n, 4) for n in samples]
    found = [one + noise * torch.randn_like(one) for one in wanted]
    return [Answer(one, len(one)) for one in found], [Answer(one, len(one)) for one in wanted]


def test_logit_err_is_the_norm_of_all_batches():
    found, wanted = pairs()
    ours, theirs = (torch.cat([one.output for one in side]).double() for side in (found, wanted))
    assert measured("logit_err", found, wanted).error == pytest.approx(float((ours - theirs).norm() / theirs.norm()))


def test_max_err():
    found, wanted = pairs()
    ours, theirs = (torch.cat([one.output for one in side]).double() for side in (found, wanted))
    error = float((ours - theirs).abs().max() / theirs.abs().max())
    assert measured("max_err", found, wanted) == (pytest.approx(error),) * 2


def test_the_limit_covers_other_samples():
    """Of 400 pairs of 60 and 20 samples at least 92 % (95 % less 2.8 standard errors of 0.0109) lie below it."""
    covered = 0
    for seed in range(400):
        found, wanted = pairs(seed, (60,))
        others, theirs = pairs(seed + 10_000, (20,))
        covered += measured("logit_err", others, theirs).error <= measured("logit_err", found, wanted, 20).limit
    assert 0.92 * 400 <= covered < 400


def test_one_sample_has_no_margin():
    error, limit = measured("logit_err", *pairs(samples=(1,)))
    assert error == limit > 0


def test_rows_that_are_no_samples_are_not_taken_apart():
    found, wanted = [Answer(torch.ones(7), 3)], [Answer(torch.full((7,), 2.0), 3)]
    assert measured("logit_err", found, wanted) == (0.5, 0.5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("metric", ["logit_err", "max_err"])
def test_outputs_that_are_not_finite(metric, value):
    found, wanted = pairs()
    found[1].output[1, 2] = value
    assert measured(metric, found, wanted) == (math.inf, math.inf)


def test_functions_are_weighted_by_samples():
    found, wanted = pairs(samples=(6, 2))
    assert measured(lambda one, other: len(one), found, wanted).error == (6 * 6 + 2 * 2) / 8
    assert measured(lambda one, other: torch.tensor(0.25), found, wanted).error == 0.25
    assert measured(lambda one, other: math.nan, found, wanted).error == math.inf


@pytest.mark.parametrize("value, said", [(-0.5, "returned -0.5"), (None, "a NoneType"), (torch.ones(2), "a Tensor")])
def test_functions_that_give_no_error(value, said):
    with pytest.raises(gs.SearchError, match=f"metric that returned {said}|metric that {said}"):
        measured(lambda one, other: value, *pairs())


def test_logits_are_found():
    x, y = torch.ones(2), torch.zeros(3)
    assert tensor_of(x) is x and tensor_of((torch.tensor([1]), [{"a": y}])) is y
    assert tensor_of(SimpleNamespace(logits=y)) is y
    for nothing in (None, torch.tensor([1]), (), "x", torch.ones(0)):
        with pytest.raises(gs.SearchError, match="without floating-point tensors"):
            tensor_of(nothing)


@pytest.mark.parametrize("metric", ["logit_er", "accuracy", None, 3])
def test_unknown_metrics(metric):
    with pytest.raises(gs.SearchError, match="'logit_err', 'max_err', or a function.*\n.*Try 'logit_err'"):
        read_metric(metric)
