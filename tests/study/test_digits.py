"""The digits study: real data, a shipped network, and the numbers that are stated."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from support import run_python

import gemmsim as gs
from gemmsim import study
from gemmsim.study.kinds import accuracy
from gemmsim.study.networks import digits as network_of


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return study.run("digits", tmp_path_factory.mktemp("digits"))


def rows_of(finished, label, fmt):
    return [row for row in finished.rows if (row["label"], row["acc_format"]) == (label, fmt)]


def test_thirteen_formats_and_six_orders(finished):
    assert finished.left == 0 and len(finished.rows) == 1 + 13 * (5 + 3)
    assert len({row["cell"] for row in finished.rows}) == len(finished.rows)
    assert len({row["acc_format"] for row in finished.rows}) == 1 + 13
    assert {row["label"] for row in finished.rows} == {
        *("exact", "sequential", "rtz", "chunk16", "pairwise", "kahan", "sr8"),
    }
    for name in ("results.jsonl", "results.csv", "table.txt", "plot.png", "plot.svg", "verdicts.json"):
        assert (finished.folder / name).stat().st_size > 0, name


def test_all_checks_pass(finished):
    assert finished.ok and len(finished.verdicts) == 13
    assert all(verdict.ok for verdict in finished.verdicts)


def test_the_stated_accuracies(finished):
    stated = {"sequential": 0.915, "rtz": 0.229, "chunk16": 0.962, "pairwise": 0.968, "kahan": 0.967}
    for label, value in stated.items():
        (row,) = rows_of(finished, label, "e5m2")
        assert round(row["accuracy"], 3) == value
        assert row["correct"] == round(row["accuracy"] * 599) and row["images"] == 599


def test_rows_carry_what_reproduces_them(finished):
    data, network = network_of.load_data(), network_of.shipped_network()
    for row in finished.rows[:3] + finished.rows[-30::9]:
        spec = gs.GemmSpec.from_json(row["spec_json"])
        assert str(spec) == row["spec"]
        if row["what"] == "truth":
            continue
        hidden = torch.relu(gs.qmatmul(data.test_images, network.w1.T, spec, seed=2 * row["seed"]) + network.b1)
        out = gs.qmatmul(hidden, network.w2.T, spec, seed=2 * row["seed"] + 1) + network.b2
        assert int((out.argmax(1) == data.test_labels).sum()) == row["correct"], row["spec"]


def test_logit_error_falls_with_every_significand_bit(finished):
    for label in ("sequential", "rtz", "chunk16", "pairwise", "kahan"):
        errors = [rows_of(finished, label, f"e5m{bits}")[0]["logit_err"] for bits in range(10, 0, -1)]
        assert errors == sorted(errors) and errors[-1] > 20 * errors[0]


def test_formats_of_one_width_agree_where_the_range_is_enough(finished):
    for wide, narrow in (("tf32", "e5m10"), ("bf16", "e5m7")):
        for label in ("sequential", "kahan", "rtz"):
            one, other = (rows_of(finished, label, fmt)[0] for fmt in (wide, narrow))
            assert one["significand_bits"] == other["significand_bits"]
            # They differ where e5's subnormals begin, alone: in few of the sums. A figure of this network, no bound.
            assert one["logit_err"] == pytest.approx(other["logit_err"], rel=0.02)


def test_the_finding_names_the_bits_of_each_order(finished):
    assert accuracy.accuracy_finding(finished.rows) == (
        "Significand bits that keep the accuracy within a point of exact: "
        "7 (rtz), 5 (sequential, sr8), 4 (chunk16), 3 (pairwise, kahan)"
    )
    assert accuracy.accuracy_finding([]) == ""


def test_bits_needed_looks_from_the_widest_down():
    def row(bits, value):
        return {"what": "a", "label": "x", "acc_format": f"e5m{bits}", "significand_bits": bits, "accuracy": value}

    rows = [row(2, 0.97), row(3, 0.5), row(4, 0.965), row(8, 0.97)]
    assert accuracy.bits_needed(rows, "x", 0.97) == 4
    assert accuracy.bits_needed(rows[:2], "x", 0.97) is None


def test_table_and_picture_of_any_part_of_the_rows(finished, tmp_path):
    chosen = study.get("digits")
    for rows in (finished.rows, finished.rows[:1], finished.rows[1:3], finished.rows[5:20]):
        chosen.table(rows)
        for name in ("plot.png", "plot.svg"):
            chosen.plot(rows, tmp_path / name)
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG\r\n")
        assert "test accuracy" in (tmp_path / "plot.svg").read_text(encoding="utf-8")


def test_running_it_loads_neither_scikit_learn_nor_scipy(tmp_path):
    code = f"""
import sys
from gemmsim import study
summary = study.run("digits", {str(tmp_path)!r}, limit=2)
assert summary.computed == 2
assert not [name for name in sys.modules if name.split(".")[0] in ("sklearn", "scipy", "pandas")]
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_the_command_exits_0(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "gemmsim", "study", "run", "digits", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "13 of 13 checks pass" in done.stdout
