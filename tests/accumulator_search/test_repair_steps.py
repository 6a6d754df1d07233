"""Repair, narrowing and exchange on models of two numbers: what the whole model gives is a formula, the table is wrong."""

from __future__ import annotations

import itertools
import math
import random
from types import SimpleNamespace

import pytest

from gemmsim.accumulator_search.error_table import ErrorTable
from gemmsim.accumulator_search.metrics import Measurement
from gemmsim.accumulator_search.prediction import Prediction
from gemmsim.accumulator_search.verification import Verifier

RUNGS = 8


class Formula:
    """In the place of ``Runs``: errors of layers add by squares, and each run counts."""

    def __init__(self, scales):
        self.scales = scales
        self.rungs = range(RUNGS)
        self.seen = {}

    def measure(self, setting):
        error = math.sqrt(sum((scale * 2.0**-rung) ** 2 for scale, rung in zip(self.scales, setting, strict=True)))
        self.seen[setting] = Measurement(error, error)
        return self.seen[setting]

    def known(self, setting):
        return self.seen.get(setting)


def verifier(scales, table_scales, macs, *, runs=400, at_most=0.05):
    table = ErrorTable(tuple(tuple(s * 2.0**-r for r in range(RUNGS)) for s in table_scales), "whole")
    costs = tuple(tuple(float((6 + r) * m) for r in range(RUNGS)) for m in macs)
    formula = Formula(scales)
    wide = (RUNGS - 1,) * len(macs)
    return Verifier(Prediction.of(table, costs), formula, at_most, runs, wide), formula


def least_cost(prediction, formula, layers, at_most=0.05):
    settings = itertools.product(range(RUNGS), repeat=layers)
    return min(prediction.cost(one) for one in settings if formula.measure(one).limit <= at_most)


@pytest.mark.parametrize("seed", range(20))
def test_two_layers_end_at_the_least_cost_whatever_the_table_says(seed):
    generator = random.Random(seed)
    scales, wrong = ([generator.uniform(0.02, 1.5) for _ in range(2)] for _ in range(2))
    macs = [generator.uniform(1, 20) for _ in range(2)]
    search, formula = verifier(scales, wrong, macs)
    found = search.find()
    assert formula.measure(found).limit <= 0.05
    assert search.prediction.cost(found) <= 1.02 * least_cost(search.prediction, Formula(scales), 2)


def test_an_exchange_is_what_remains():
    """A dear and a cheap layer, from 2^-6 and 2^-4: no single step holds, and 2^-4 and 2^-6 do for less."""
    search, formula = verifier([1.0, 1.0], [0.1, 10.0], [10.0, 1.0], at_most=0.0645)
    for setting, holds in (((6, 4), True), ((5, 4), False), ((6, 3), False), ((4, 6), True), ((4, 5), False)):
        assert search.holds(setting) == holds
    assert search._narrowed((6, 4)) == (4, 6)


@pytest.mark.parametrize("layers", [1, 2, 12])
def test_a_table_of_zeros_is_repaired_in_few_runs(layers):
    """Twice as many layers are widened each time: runs grow with the rungs, not with layers times rungs."""
    search, formula = verifier([0.5] * layers, [0.0] * layers, [1.0] * layers)
    repaired = search._repaired((0,) * layers)
    assert formula.measure(repaired).limit <= 0.05
    assert search.spent <= RUNGS + math.ceil(math.log2(layers)) + 1


def test_a_budget_of_one_run_ends_wide():
    search, formula = verifier([0.5] * 3, [0.0] * 3, [1.0] * 3, runs=1)
    assert search.find() == search.wide and search.spent == 1


def test_rungs_of_equal_cost_are_passed_over():
    search, formula = verifier([0.1], [0.1], [1.0])
    search.prediction = SimpleNamespace(
        costs=((6.0, 7.0, 7.0, 7.0, 10.0, 11.0, 12.0, 13.0),), table=search.prediction.table,
        cost=lambda setting: search.prediction.costs[0][setting[0]], square=lambda setting: 1.0,
    )  # fmt: skip
    assert search._narrowed((3,)) == (3,) and formula.known((0,)) is not None and formula.known((2,)) is None


def test_a_table_that_is_too_high_by_a_factor_is_corrected_in_a_few_runs():
    """Thirty layers: one run says by how much the table is off, and the front has the setting for it."""
    generator = random.Random(0)
    scales = [generator.uniform(0.02, 1.0) for _ in range(30)]
    macs = [generator.uniform(1, 20) for _ in range(30)]
    search, formula = verifier(scales, [4 * one for one in scales], macs, runs=12)
    found = search.find()
    assert formula.measure(found).limit <= 0.05 and search.spent <= 12
    true, _ = verifier(scales, scales, macs)
    least = true.prediction.cost(true.prediction.cheapest(0.05))
    assert search.prediction.cost(found) <= 1.01 * least
