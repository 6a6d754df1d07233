"""The digits study: real data, a deterministic network, and the known shape of its result."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import study
from gemmsim.study import digits, digits_network, plot, summary
from gemmsim.study.grid import accumulator_grid


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    return study.run("digits", folder)


@pytest.fixture(scope="module")
def accuracy(finished):
    return {(point.format, point.rounding): point.accuracy for point in summary.points(finished.rows)}


def test_every_cell_of_the_grid_is_there(finished):
    assert finished.left == 0
    assert len(finished.rows) == 1 + len(digits.FORMATS) * (2 + len(digits.SEEDS))
    for name in ("results.jsonl", "results.csv", "table.txt", "plot.png", "network.npz"):
        assert (finished.folder / name).stat().st_size > 0, name


def test_rows_carry_a_spec_that_parses_to_itself(finished):
    for row in finished.rows:
        assert str(gs.GemmSpec.parse(row["spec"])) == row["spec"]
        assert 0 <= row["accuracy"] <= 1 and row["images"] == 599


def test_the_shape_of_the_result_is_the_known_one(finished, accuracy):
    exact = summary.truth_row(finished.rows)["accuracy"]
    assert exact > 0.95
    assert abs(accuracy["e5m10", "rne"] - exact) < 0.005
    assert abs(accuracy["bf16", "rne"] - exact) < 0.01
    # Three significand bits: nearest keeps about nine in ten, truncation loses most.
    assert 0.85 < accuracy["e5m2", "rne"] < 0.96
    assert accuracy["e5m2", "rtz"] < 0.6
    for fmt in digits.FORMATS:
        assert accuracy[fmt, "rtz"] <= accuracy[fmt, "rne"] + 0.005
        assert accuracy[fmt, "sr8"] > accuracy[fmt, "rtz"] - 0.005


def test_logit_error_falls_with_every_significand_bit(finished):
    for rounding in digits.ROUNDINGS:
        series = [point for point in summary.points(finished.rows) if point.rounding == rounding]
        errors = [p.logit_error for p in sorted(series, key=lambda point: point.significand_bits)]
        assert errors[0] > 20 * errors[-1]
        if rounding == "rne":
            assert errors == sorted(errors, reverse=True)


def test_a_row_is_reproduced_from_its_spec_and_seed_alone(finished):
    data = digits_network.load_data()
    network = digits_network.trained_network(data, finished.folder / "network.npz", digits.digest(digits.SETTING))
    row = next(row for row in finished.rows if row["spec"] == ":e5m2/sr8" and row["seed"] == 1)
    hidden = torch.relu(gs.qmatmul(data.test_images, network.w1.T, row["spec"], seed=2) + network.b1)
    out = gs.qmatmul(hidden, network.w2.T, row["spec"], seed=3) + network.b2
    assert int((out.argmax(1) == data.test_labels).sum()) == row["correct"]


def test_training_is_the_same_twice_whatever_the_threads():
    data = digits_network.load_data()
    torch.set_num_threads(1)
    first = digits_network.train(data, epochs=2)
    torch.set_num_threads(2)
    torch.manual_seed(123)
    second = digits_network.train(data, epochs=2)
    assert torch.get_num_threads() == 2
    assert_bitwise_equal(first.w1, second.w1)
    assert first.fingerprint() == second.fingerprint()


def test_a_damaged_or_foreign_network_file_is_trained_again(tmp_path, monkeypatch):
    data = digits_network.load_data()
    calls = []
    short = digits_network.train(data, epochs=1)
    monkeypatch.setattr(digits_network, "train", lambda data: calls.append(1) or short)
    path = tmp_path / "network.npz"
    for _ in range(2):
        digits_network.trained_network(data, path, "a")
    assert len(calls) == 1
    digits_network.trained_network(data, path, "b")
    assert len(calls) == 2
    path.write_bytes(path.read_bytes()[:1000])
    digits_network.trained_network(data, path, "b")
    assert len(calls) == 3


def test_the_data_is_real_and_the_split_fixed():
    data = digits_network.load_data()
    assert data.test_images.shape == (digits_network.Data.TEST_IMAGES, 64) and len(data.train_labels) == 1198
    assert data.test_labels[:5].tolist() == [0, 3, 6, 9, 2]
    assert bool((data.test_images * 16 == (data.test_images * 16).round()).all())


def test_the_grid_repeats_only_stochastic_accumulators():
    points = accumulator_grid(["e5m2", "bf16", "fixed(8,4)"], ["rne", "sr8"], seeds=(4, 5))
    assert [(p.spec, p.seed, p.significand_bits) for p in points] == [
        (":e5m2", 4, 3), (":e5m2/sr8", 4, 3), (":e5m2/sr8", 5, 3),
        (":e8m7", 4, 8), (":e8m7/sr8", 4, 8), (":e8m7/sr8", 5, 8),
        (":fixed(8,4)", 4, 7), (":fixed(8,4)/sr8", 4, 7), (":fixed(8,4)/sr8", 5, 7),
    ]  # fmt: skip


def test_the_title_states_the_finding(finished):
    title = plot.finding(summary.points(finished.rows), summary.truth_row(finished.rows))
    assert "within 1 point of exact" in title and "to nearest even" in title and "toward zero" in title
    assert plot.finding([], None) == "Accuracy by accumulator (unfinished)"


def test_the_picture_is_a_png_that_can_be_drawn_from_any_part_of_the_rows(finished, tmp_path):
    chosen = study.get("digits")
    for rows in (finished.rows, finished.rows[:1], finished.rows[1:3], finished.rows[5:20]):
        chosen.plot(rows, tmp_path / "plot.png")
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG\r\n")
        chosen.table(rows)


def test_bits_needed_looks_from_the_widest_down():
    def point(bits: int, value: float) -> summary.Point:
        return summary.Point("f", "rne", bits, value, value, value, 0.0, 1)

    series = [point(2, 0.97), point(3, 0.5), point(4, 0.965), point(8, 0.97)]
    assert summary.bits_needed(series, 0.97, 0.01) == 4
    assert summary.bits_needed(series[:2], 0.97, 0.01) is None
