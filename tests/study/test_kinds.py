"""The kinds on small grids: rows that can be known beforehand, pictures and tables of any part of them, bad input."""

from __future__ import annotations

import pytest
import torch

import gemmsim as gs
from gemmsim import study
from gemmsim.study.distributions import draw
from gemmsim.study.errors import StudyError
from gemmsim.study.records import TIME_COLUMNS


def test_growth_rows_are_the_product_of_its_lists_and_reproduce_themselves(tmp_path):
    growth = study.kind("growth")(acc=["e5m10", "s = e6m9/sr8"], K="16,32", dist="randn,rand01", M=4, N=3, seeds=2)
    rows = study.run(growth, tmp_path).rows
    assert len(rows) == 2 * 2 * 2 * 2 and len({row["cell"] for row in rows}) == 16
    for row in rows:
        spec = gs.GemmSpec.from_json(row["spec_json"])
        assert str(spec) == row["spec"]
        a, b = draw(row["dist"], row["M"], row["K"], row["N"], row["seed"])
        error = gs.qmatmul(a, b, spec, seed=row["seed"]).double() - a.double() @ b.double()
        assert float(error.abs().mean()) == pytest.approx(row["mean_abs"], rel=1e-6)
    for column in "study kind cell label spec seed elapsed_s finished_at library torch device K M N dist".split():
        assert rows[0][column] not in (None, ""), column


def test_rows_do_not_depend_on_threads(tmp_path):
    def rows(threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            growth = study.kind("growth")(acc=["e5m10/sr", "kahan(bf16)"], K="64", M=16, N=16)
            found = study.run(growth, tmp_path / str(threads)).rows
        finally:
            torch.set_num_threads(before)
        return [{name: value for name, value in row.items() if name not in TIME_COLUMNS} for row in found]

    assert rows(1) == rows(2)


def test_equal_operands_are_made_once(tmp_path, monkeypatch):
    kind = study.kind("growth")
    made = []
    monkeypatch.setattr(
        kind, "inputs", lambda self, cell, context, real=kind.inputs: made.append(cell) or real(self, cell, context)
    )
    study.run(kind(acc=["e5m10", "bf16", "fp32"], K="16,32", dist="randn", M=4, N=4), tmp_path)
    assert len(made) == 2


def test_random_bits_lose_what_lies_below_them(tmp_path):
    kind = study.kind("sr")(r="1,4,16", K=256, M=32, N=8, format="e6m5")
    summary = study.run(kind, tmp_path)
    bias = {row["r"]: row["bias_u"] for row in summary.rows}
    assert bias[1] < bias[4] < bias[16] and abs(bias[16]) < 1
    assert all(-1 <= row["bias_of_bound"] <= 1 for row in summary.rows if row["r"] < 16)
    with pytest.raises(StudyError, match="{} for the register"):
        study.kind("sr")(order="chunked(4, e5m2)")
    with pytest.raises(StudyError, match="r = 33"):
        study.kind("sr")(r="33")


def test_which_results_depend_on_the_order(tmp_path):
    kind = study.kind("order")(
        acc=["sequential = e5m10", "exact = exact(e5m10)"],
        library="torch.mm",
        K=64,
        M=8,
        N=4,
        permutations=4,
        batches="1,3,8",
    )
    found = {(row["label"], row["over"]): row for row in study.run(kind, tmp_path).rows}
    assert len(found) == 8, "libraries have no splits"
    assert found["exact", "batch"]["distinct"] == found["exact", "permutation"]["distinct"] == 1
    assert found["sequential", "batch"]["distinct"] == 1
    assert found["sequential", "permutation"]["distinct"] == 4 and found["sequential", "splits"]["distinct"] > 1
    assert found["torch.mm", "batch"]["spec"] is None and found["sequential", "permutation"]["spread_ulp"] > 0
    for given in ({"over": "batches"}, {"library": "cublas"}):
        with pytest.raises(StudyError, match="allowed"):
            study.kind("order")(**given)


@pytest.mark.parametrize("name", ["growth", "sr", "order"])
def test_tables_and_pictures_of_any_part_of_the_rows(name, tmp_path):
    small = {
        "growth": {"K": "16,32", "dist": "randn"},
        "sr": {"r": "1,2", "K": 16},
        "order": {"K": 16, "permutations": 2, "acc": ["fp32"]},
    }[name]
    kind = study.kind(name)(M=2, N=2, **small)
    rows = study.run(kind, tmp_path).rows
    for part in (rows, rows[:1], rows[1:2]):
        kind.table(part)
        assert isinstance(kind.finding(part), str)
        kind.plot(part, tmp_path / "part.png")
        kind.plot(part, tmp_path / "part.svg")
        assert (tmp_path / "part.png").read_bytes().startswith(b"\x89PNG") and "<svg" in (
            tmp_path / "part.svg"
        ).read_text()


@pytest.mark.parametrize("name", ["batch_invariance", "higham_mary_growth", "srmac_rbits", "wang2018_fig3"])
def test_reproductions_pass(name, tmp_path):
    summary = study.run(name, tmp_path)
    assert summary.ok, [f"{v.expectation.words()}: {v.found()}" for v in summary.verdicts if not v.ok]
    assert summary.verdicts and all(verdict.ok for verdict in summary.verdicts)
