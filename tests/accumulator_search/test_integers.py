"""Integer registers: the widths found are those that the exact sums of the calibration inputs need."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import gemmsim as gs
from gemmsim.accumulator_search.batches import divided, read_batches


def whole_numbers(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(32, 16, bias=False), nn.ReLU(), nn.Linear(16, 4, bias=False))
    for one in model.parameters():
        one.data = torch.randint(-7, 8, one.shape).float()
    return model.requires_grad_(False), torch.randint(0, 16, (300, 32)).float()


def needed(sums):
    """Bits of the least two's complement register that holds every one of these whole numbers."""
    low, high = int(sums.min()), int(sums.max())
    return 1 + math.ceil(math.log2(max(high + 1, -low)))


@pytest.mark.parametrize("ladder", ["int(6):int(24)", range(6, 25)])
@pytest.mark.parametrize("seed", range(3))
def test_the_least_widths(seed, ladder):
    """A register that wraps is exact as long as each total fits, whatever the partial sums do."""
    model, x = whole_numbers(seed)
    options = gs.SearchOptions(held_back=0.25)
    found = gs.search(model, x, ladder=ladder, at_most=1e-9, options=options)
    ours = divided(read_batches(x), 0.25, 0)[0][0].args[0]
    assert [row.bits for row in found.table] == [needed(model[0](ours)), needed(model(ours))]
    assert found.measured == (0.0, 0.0) and found.order == "{}"
    assert [row.spec for row in found.table] == [f":int({row.bits})" for row in found.table]
