"""Only runs of the whole model decide: with tables that are wrong, in steps that are counted, and by both methods."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import gemmsim as gs
from gemmsim.accumulator_search import error_table, least
from gemmsim.accumulator_search.error_table import ErrorTable


def independent(model, found, images):
    """The error of the config on the calibration images, by ``emulate`` alone."""
    ours = torch.cat([batch.args[0] for batch in found_batches(images)])
    with torch.no_grad():
        native = model(ours)
        with gs.emulate(found.config):
            return float((model(ours).double() - native.double()).norm() / native.double().norm())


def found_batches(images):
    from gemmsim.accumulator_search.batches import divided, read_batches

    return divided(read_batches(images), 0.25, 0)[0]


def zeros(table):
    return tuple((0.0,) * len(row) for row in table.errors)


WRONG = {
    "all errors 0": zeros,
    "a thousandth": lambda table: tuple(tuple(e / 1000 for e in row) for row in table.errors),
    "a thousand times": lambda table: tuple(tuple(e * 1000 for e in row) for row in table.errors),
    "layers exchanged": lambda table: table.errors[::-1],
    "upside down": lambda table: tuple(row[::-1] for row in table.errors),
    "infinite": lambda table: tuple((float("inf"),) * len(row) for row in table.errors),
}


@pytest.mark.parametrize(
    "model, wrong", [*(("digits", name) for name in WRONG), ("lenet", "all errors 0"), ("lenet", "upside down")]
)
def test_a_wrong_table_still_gives_a_point_that_holds(model, wrong, request, monkeypatch):
    network, images = request.getfixturevalue(model)
    right = gs.search(network, images)
    make = least.make_table
    monkeypatch.setattr(least, "make_table", lambda *args: replace(table := make(*args), errors=WRONG[wrong](table)))
    found = gs.search(network, images)
    assert independent(network, found, images) == pytest.approx(found.measured.error, rel=1e-12)
    assert found.measured.limit <= 0.05 and found.chosen.measured == found.measured.error
    assert found.chosen.cost >= 0.95 * right.chosen.cost  # a wrong table does not find what holds by chance


@pytest.mark.parametrize("wrong", ["layers exchanged", "upside down", "infinite"])
def test_narrowing_leaves_no_layer_that_could_be_narrower(digits, wrong, monkeypatch):
    """Where a wrong table made repair widen too much, each layer goes down again as far as the model allows."""
    model, images = digits
    right = gs.search(model, images)
    make = least.make_table
    monkeypatch.setattr(least, "make_table", lambda *args: replace(table := make(*args), errors=WRONG[wrong](table)))
    found = gs.search(model, images)
    for at in range(2):
        registers = list(found.chosen.registers)
        registers[at] = f"e5m{int(registers[at].removeprefix('e5m')) - 1}"
        narrower = replace(found, config=found.config_at(replace(found.chosen, registers=tuple(registers))))
        assert independent(model, narrower, images) > 0.05 / 1.06  # of which the 95 % limit is up to 6 % away
    assert found.chosen.cost <= 1.05 * right.chosen.cost


def test_without_verification_the_wrong_table_would_pass(digits, monkeypatch):
    """What the test above guards: taken at its word, the table of zeros chooses a setting that misses by far."""
    model, images = digits
    make = least.make_table
    monkeypatch.setattr(least, "make_table", lambda *args: replace(table := make(*args), errors=zeros(table)))
    monkeypatch.setattr(least.Verifier, "holds", lambda self, setting: True)
    with pytest.warns(gs.SearchWarning, match="on the 150 held-back samples, above at_most=0.05"):
        found = gs.search(model, images)
    assert found.chosen.registers == ("e5m1", "e5m1") and independent(model, found, images) > 0.2


def test_repair_and_narrowing_spend_at_most_the_runs_allowed(digits, monkeypatch):
    model, images = digits
    counts = []
    for runs in (1, 3, 400):
        found = gs.search(model, images, options=gs.SearchOptions(runs=runs))
        assert found.measured.limit <= 0.05
        counts.append(found.passes)
    assert counts[0] <= counts[1] <= counts[2]


def test_the_captured_way_holds_and_is_near_the_other(lenet):
    model, images = lenet
    whole, captured = (
        gs.search(model, images, order="chunked(64, {})", options=gs.SearchOptions(method=method))
        for method in ("whole", "captured")
    )
    assert (whole.method, captured.method) == ("whole", "captured")
    assert captured.measured.limit <= 0.05 and captured.held_back_error <= 0.05
    assert captured.chosen.cost <= 1.05 * whole.chosen.cost
    assert all(row.sensitivity > 0 for row in captured.table) and all(row.sensitivity is None for row in whole.table)
    assert "times a sensitivity" in str(captured) and "sensitivity" not in str(whole)
    for row in captured.table:  # the same quantity by two ways: within a factor of two
        config = [gs.emulation.Rule(row.path, row.kind, row.spec)]
        with torch.no_grad():
            native = model.eval()(images)
            with gs.emulate(config):
                alone = float((model(images) - native).norm() / native.norm())
        assert alone / 2 < row.alone < alone * 2


def test_local_errors_are_those_of_the_layer_on_its_own_inputs(digits):
    from gemmsim.accumulator_search.ladder import read_ladder
    from gemmsim.accumulator_search.layers import find_layers
    from gemmsim.accumulator_search.runs import Runs, evaluating

    model, images = digits
    rungs = read_ladder("e5m2:e5m4", "{}")
    batches = found_batches(images)
    with evaluating(model):
        layers = find_layers(model, batches, rungs[-1].spec, gs.SearchOptions()).layers
        runs = Runs(model, batches, layers, rungs, "logit_err", None, 0)
        local = error_table._local_errors(runs)
        x = batches[0].args[0][:32]
        for layer, given in ((0, x), (1, model[:2](x))):
            wide = model[2 * layer](given)
            for rung in range(3):
                narrow = gs.qlinear(given, model[2 * layer].weight, model[2 * layer].bias, rungs[rung].spec)
                error = float((narrow.double() - wide.double()).norm() / wide.double().norm())
                assert local[layer][rung] == pytest.approx(error, rel=1e-12)


def test_auto_takes_the_whole_model_where_that_is_cheap(digits, monkeypatch):
    model, images = digits
    assert gs.search(model, images).method == "whole"
    monkeypatch.setattr(error_table, "_MOST_MACS", 1e6)
    assert gs.search(model, images).method == "captured"


class Twice(nn.Module):
    """Calls a layer twice, multiplies outside of layers, and has a path that is no plain pattern."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"a[0]": nn.Linear(16, 16), "b": nn.Linear(16, 4)})

    def forward(self, x):
        x = torch.relu(self.parts["a[0]"](x))
        x = torch.relu(self.parts["a[0]"](x))
        logits = self.parts["b"](x) @ torch.eye(4)
        return {"scale": torch.tensor([1]), "logits": logits @ torch.eye(4, 6) @ torch.eye(6, 4)}


@pytest.mark.parametrize("method", ["whole", "captured"])
def test_layers_called_twice_and_products_of_the_model_itself(method):
    torch.manual_seed(0)
    model, x = Twice(), torch.randn(200, 16)
    found = gs.search(model, x, options=gs.SearchOptions(method=method))
    rows = {(row.path, row.kind): (row.K, row.macs) for row in found.table}
    assert rows == {
        ("parts.a[0]", "linear"): (16, 512),
        ("parts.b", "linear"): (16, 64),
        ("", "matmul"): (6, 16 + 24 + 24),
    }
    with torch.no_grad(), gs.emulate(found.config), gs.audit() as report:
        model(x)
    specs = {row.path: row.spec for row in found.table}
    assert {(record.module, record.spec) for record in report} == set(specs.items()) and not report.native


def test_a_sensitivity_that_is_no_number_keeps_the_layer_wide(digits):
    """A table whose entries are all infinite but one: that one is chosen."""
    table = ErrorTable(((float("inf"),) * 9 + (0.001,), (float("inf"), 0.002) + (0.001,) * 8), "whole")
    model, images = digits
    make = least.make_table
    try:
        least.make_table = lambda *args: table
        found = gs.search(model, images)
    finally:
        least.make_table = make
    assert found.measured.limit <= 0.05
