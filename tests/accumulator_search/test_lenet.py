"""The search on LeNet, convolutions among its layers: what it promises on calibration images holds on others."""

from __future__ import annotations

import itertools

import pytest
import torch

import gemmsim as gs

MACS = [3456, 13824, 7680, 10080, 840]


@pytest.mark.parametrize("seed", range(3))
def test_the_point_holds_on_inputs_held_back(lenet, seed):
    model, images = lenet
    found = gs.search(model, images, options=gs.SearchOptions(seed=seed))
    assert [(row.kind, row.macs) for row in found.table] == [
        *(("conv2d", macs) for macs in MACS[:2]), *(("linear", macs) for macs in MACS[2:]),
    ]  # fmt: skip
    assert found.held_back_error <= 0.05 and found.measured.limit <= 0.05
    assert 0.8 < found.inflation < 1.4 and found.random_settings == 10


def test_nothing_near_is_cheaper(lenet):
    """Every setting within one rung of the chosen one in all layers that costs less misses the target or its limit."""
    model, images = lenet
    found = gs.search(model, images, ladder="e5m3:e5m7", order="chunked(64, {})")
    from gemmsim.accumulator_search.batches import divided, read_batches
    from gemmsim.accumulator_search.metrics import Answer, measured

    ours = divided(read_batches(images), 0.25, 0)[0][0].args[0]
    widths = [int(row.register.removeprefix("e5m")) for row in found.table]
    cheaper = 0
    with torch.no_grad():
        native = [Answer(model.eval()(ours), len(ours))]
        for step in itertools.product((-1, 0, 1), repeat=5):
            near = [m + by for m, by in zip(widths, step, strict=True)]
            cost = sum((6 + m) * macs for m, macs in zip(near, MACS, strict=True))
            if cost >= 0.95 * found.chosen.cost or not all(3 <= m <= 7 for m in near):
                continue
            cheaper += 1
            rules = [(row.path, f":chunked(64, e5m{m})") for row, m in zip(found.table, near, strict=True)]
            with gs.emulate(rules):
                error = measured("logit_err", [Answer(model(ours), len(ours))], native, 150)
            assert error.limit > 0.05, near
    assert cheaper >= 5
