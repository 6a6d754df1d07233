"""The search on the digits network: exhaustive search, inputs held back, equal results, and what takes the config."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import replace

import pytest
import torch
from support import assert_bitwise_equal
from torch import nn

import gemmsim as gs
import gemmsim.nn as qnn
from gemmsim.accumulator_search.batches import divided, read_batches
from gemmsim.emulation import Config

ORDERS = ("{}", "chunked(64, {})", "pairwise({})", "kahan({})")
MACS = (64 * 256, 256 * 10)


def relative(found, wanted):
    return float(torch.linalg.norm(found.double() - wanted.double()) / torch.linalg.norm(wanted.double()))


def forward(network, images, specs):
    """The network by two calls of ``qmatmul``: nothing of ``emulate`` or of the search is in it."""
    hidden = torch.relu(gs.qmatmul(images, network.w1.mT, specs[0]) + network.b1)
    return gs.qmatmul(hidden, network.w2.mT, specs[1]) + network.b2


@pytest.mark.parametrize("at_most", [0.05, 0.1])
@pytest.mark.parametrize("order", ORDERS)
def test_within_5_percent_of_exhaustive_search(digits, network, order, at_most):
    """All 100 settings on the same calibration images; those count whose error is at most the target, without margin."""
    model, images = digits
    found = gs.search(model, images, order=order, at_most=at_most)
    ours = divided(read_batches(images), 0.25, 0)[0][0].args[0]
    assert len(ours) == found.samples == 449
    native = torch.relu(ours @ network.w1.mT + network.b1) @ network.w2.mT + network.b2
    costs = {}
    for widths in itertools.product(range(1, 11), repeat=2):
        specs = [":" + order.replace("{}", f"e5m{m}") for m in widths]
        error = relative(forward(network, ours, specs), native)
        costs[widths] = (sum((6 + m) * macs for m, macs in zip(widths, MACS, strict=True)), error)
    least = min(cost for cost, error in costs.values() if error <= at_most)
    chosen = costs[tuple(int(name.removeprefix("e5m")) for name in found.chosen.registers)]
    assert chosen == (
        found.chosen.cost,
        pytest.approx(found.measured.error, rel=1e-5),
    )  # native sums have no fixed order
    assert chosen[1] <= at_most and least <= found.chosen.cost <= 1.05 * least


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("order", ORDERS)
def test_the_point_holds_on_inputs_held_back(digits, order, seed):
    model, images = digits
    found = gs.search(model, images, order=order, options=gs.SearchOptions(seed=seed))
    assert found.samples_held_back == 150 and found.held_back_error <= found.at_most
    held = divided(read_batches(images), 0.25, seed)[1][0].args[0]
    with torch.no_grad(), gs.emulate(found.config):
        emulated = model(held)
    with torch.no_grad():
        assert found.held_back_error == pytest.approx(relative(emulated, model(held)), rel=1e-12)


def test_equal_arguments_give_an_equal_result(digits):
    model, images = digits
    first, second = (gs.search(model, images, order="kahan({})") for _ in range(2))
    torch.rand(7)  # torch's generator has no part in it
    assert replace(first, seconds=0.0) == replace(second, seconds=0.0)
    assert replace(first, seconds=0.0).to_json() == replace(second, seconds=0.0).to_json()


def test_random_bits_follow_the_seed(digits):
    model, images = digits
    options = gs.SearchOptions(seed=3)
    found = [gs.search(model, images, ladder="e5m3/sr8:e5m10/sr8", options=options) for _ in range(2)]
    assert replace(found[0], seconds=0.0) == replace(found[1], seconds=0.0)
    ours = divided(read_batches(images), 0.25, 3)[0][0].args[0]
    with torch.no_grad(), gs.emulate(found[0].config, seed=3, step=0):
        emulated = model(ours)
    with torch.no_grad():
        assert found[0].measured.error == pytest.approx(relative(emulated, model(ours)), rel=1e-12)


def test_the_config_gives_the_measured_error_everywhere(digits):
    """Under emulate, after convert, in layers of gemmsim.nn, and from the config's text."""
    model, images = digits
    found = gs.search(model, images, order="e4m3 : chunked(64, {})", at_most=0.1)
    ours = divided(read_batches(images), 0.25, 0)[0][0].args[0]
    with torch.no_grad():
        native = model(ours)
        with gs.emulate(found.config):
            emulated = model(ours)
        converted = gs.convert(copy.deepcopy(model), Config.from_json(found.config.to_json()))(ours)
        layers = [qnn.QLinear.from_float(model[int(row.path)], found.config.formats(row.path, row.kind))
                  for row in found.table]  # fmt: skip
        modules = nn.Sequential(layers[0], nn.ReLU(), layers[1])(ours)
    assert found.measured.error == pytest.approx(relative(emulated, native), rel=1e-12)
    assert_bitwise_equal(converted, emulated)
    assert_bitwise_equal(modules, emulated)


def test_the_model_is_as_it_was(digits):
    model, images = digits
    model.train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gs.search(model, images)
    assert model.training and not model[1].training and model[0].training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_contexts_around_a_search_have_no_effect(digits):
    model, images = digits
    alone = gs.search(model, images)
    with gs.emulate(":e5m1"):
        inside = gs.search(model, images)
    assert replace(alone, seconds=0.0) == replace(inside, seconds=0.0)


def test_the_result_in_words_and_as_json(digits, tmp_path):
    model, images = digits
    found = gs.search(model, images)
    first, second, row = found.table[0], found.table[1], found.chosen
    assert [(one.path, one.kind, one.K, one.macs) for one in found.table] == [
        ("0", "linear", 64, MACS[0]), ("2", "linear", 256, MACS[1]),
    ]  # fmt: skip
    assert row.cost == first.bits * MACS[0] + second.bits * MACS[1] and row.bits == row.cost / sum(MACS)
    assert row in found.front and row.measured == found.measured.error <= found.measured.limit <= 0.05
    costs = [point.cost for point in found.front]
    assert costs == sorted(costs) and sum(point.measured is not None for point in found.front) >= 8
    text = str(found)
    for part in (f"{found.held_back_error:.3g} on 150", f"{found.passes} runs", first.spec, second.spec):
        assert part in text
    found.save(tmp_path / "found.json")
    data = json.loads((tmp_path / "found.json").read_text())
    assert data == found.to_dict() and Config.from_dict(data["config"]) == found.config
    assert len(repr(found)) < 120 and "SearchResult" in repr(found)


def test_other_points_have_configs(digits):
    model, images = digits
    found = gs.search(model, images)
    assert found.config_at(found.chosen) == found.config
    other = next(point for point in found.front if point.measured is not None and point != found.chosen)
    ours = divided(read_batches(images), 0.25, 0)[0][0].args[0]
    with torch.no_grad():
        native = model(ours)
        with gs.emulate(found.config_at(other)):
            assert relative(model(ours), native) == pytest.approx(other.measured, rel=1e-12)
    with pytest.raises(gs.SearchError, match="a point of another search"):
        found.config_at(replace(other, registers=("e5m1",)))


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_front_is_drawn(digits, tmp_path, suffix):
    model, images = digits
    path = gs.search(model, images).plot(tmp_path / f"front.{suffix}")
    assert path.stat().st_size > 2000
    if suffix == "svg":
        text = path.read_text()
        for words in ("measured", "predicted", "chosen", "at most 0.05", "mean accumulator width"):
            assert words in text
    with pytest.raises(ValueError, match="allowed: .png and .svg"):
        gs.search(model, images).plot(tmp_path / "front.gif")


def test_costs_change_the_choice(digits):
    model, images = digits
    by_macs, by_bits = (gs.search(model, images, cost=cost, at_most=0.06) for cost in ("bits*macs", "bits"))
    assert sum(row.bits for row in by_bits.table) <= sum(row.bits for row in by_macs.table)
    assert by_bits.chosen.cost == sum(row.bits for row in by_bits.table)
    squared = gs.search(model, images, cost=lambda bits, macs: bits * bits * macs)
    assert squared.chosen.cost == sum(row.bits**2 * row.macs for row in squared.table)


def test_metrics_and_forms_of_inputs(digits):
    model, images = digits

    def flips(found, wanted):
        return (found.argmax(1) != wanted.argmax(1)).float().mean()

    found = gs.search(model, [images[:300], images[300:]], metric=flips, at_most=0.02)
    assert found.metric == "flips" and found.measured.error <= 0.02 and found.samples == 449
    assert gs.search(model, (images,), metric="max_err").measured.error <= 0.05
    assert gs.search(model, {"input": images}).config == gs.search(model, images).config


def test_held_back_inputs_may_be_given(digits):
    model, images = digits
    options = gs.SearchOptions(held_back=[images[400:500], images[500:]])
    found = gs.search(model, images[:400], options=options)
    assert (found.samples, found.samples_held_back) == (400, 199)
    with pytest.warns(gs.SearchWarning, match="0 held-back samples of 40"):
        none = gs.search(model, images[:40], options=gs.SearchOptions(held_back=0))
    assert none.held_back is None and "no samples were held back" in str(none)


def test_only_selected_layers_are_narrowed(digits):
    model, images = digits
    found = gs.search(model, images, options=gs.SearchOptions(modules="0"))
    assert [row.path for row in found.table] == ["0"] and found.native_macs == MACS[1]
    assert "13.5 % of the multiply-adds were not searched and stay native: linear in '2'" in str(found)
    with torch.no_grad(), gs.emulate(found.config), gs.audit() as report:
        model(images)
    assert [record.module for record in report.native] == ["2"]


def test_relative_to_the_widest_setting(digits):
    """Operands of 6 bits alone are off by more than the target; accumulators are judged against those."""
    model, images = digits
    with pytest.raises(gs.SearchError, match=r"misses with an error of 0\.0.*\n.*reference='widest'"):
        gs.search(model, images, order="e4m1 : {}", at_most=0.03)
    found = gs.search(model, images, order="e4m1 : {}", at_most=0.03, options=gs.SearchOptions(reference="widest"))
    ours = divided(read_batches(images), 0.25, 0)[0][0].args[0]
    with torch.no_grad():
        with gs.emulate("e4m1 : e5m10"):
            wanted = model(ours)
        with gs.emulate(found.config):
            assert found.measured.error == pytest.approx(relative(model(ours), wanted), rel=1e-12)
    assert found.widest == 0 and found.measured.error <= 0.03
