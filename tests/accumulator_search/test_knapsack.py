"""The Pareto front against every setting, one by one, in exact integers."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from gemmsim.accumulator_search.knapsack import Option, pareto_front


def options(seed, layers, rungs, *, infinite=0.0):
    """Costs and squared errors that are whole numbers, so that all sums are exact; errors need not fall with cost."""
    generator = random.Random(seed)
    return [
        [
            Option(rung, float(generator.randint(1, 30) + 3 * rung),
                   math.inf if generator.random() < infinite else float(generator.randint(0, 2 ** (rungs - rung + 2))))
            for rung in range(rungs)
        ]
        for _ in range(layers)
    ]  # fmt: skip


def brute_force(layers):
    """(cost, square) of the settings that no other beats, by looking at all."""
    found = {(sum(o.cost for o in chosen), sum(o.square for o in chosen)) for chosen in itertools.product(*layers)}
    finite = sorted(one for one in found if math.isfinite(one[1]))
    return [one for i, one in enumerate(finite) if all(other[1] > one[1] for other in finite[:i])]


@pytest.mark.parametrize("layers, rungs", [(1, 1), (1, 6), (2, 10), (4, 5), (6, 3)])
@pytest.mark.parametrize("infinite", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_the_front_is_that_of_all_settings(layers, rungs, infinite, seed):
    given = options(seed, layers, rungs, infinite=infinite)
    front = pareto_front(given)
    assert [(point.cost, point.square) for point in front] == brute_force(given)
    for point in front:
        chosen = [{option.rung: option for option in row}[rung] for row, rung in zip(given, point.setting, strict=True)]
        assert (sum(o.cost for o in chosen), sum(o.square for o in chosen)) == (point.cost, point.square)


@pytest.mark.parametrize("seed", range(5))
def test_a_thinned_front_is_near_the_exact_one(seed):
    """With 200 settings a layer instead of all: cheaper never, and at each target at most 2 % dearer."""
    given = options(seed, 6, 5)
    exact, thin = pareto_front(given, most=10**6), pareto_front(given, most=200)
    assert len(thin) <= 201 < len(exact) or len(exact) <= 201
    for point in exact[:: max(1, len(exact) // 40)]:
        best = min((one.cost for one in thin if one.square <= 1.05 * point.square), default=math.inf)
        assert best <= 1.02 * point.cost or point is exact[-1]
    assert thin[0].cost == exact[0].cost and thin[-1].square == exact[-1].square


def test_a_layer_without_a_finite_option_has_no_front():
    assert pareto_front([[Option(0, 1.0, 1.0)], [Option(0, 1.0, math.inf)]]) == []


def test_fifty_layers_with_real_costs_take_a_moment():
    generator = random.Random(0)
    given = [[Option(r, (7 + r) * scale, sens * 4.0**-r) for r in range(10)]
             for scale, sens in ((generator.uniform(1, 9), generator.uniform(0.1, 4)) for _ in range(50))]  # fmt: skip
    front = pareto_front(given)
    assert front[0].setting == (0,) * 50 and front[-1].setting == (9,) * 50
    squares = [point.square for point in front]
    assert squares == sorted(squares, reverse=True) and len(front) <= 20_001
