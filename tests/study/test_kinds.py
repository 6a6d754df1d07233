"""The kinds on small grids: rows that can be known beforehand, pictures and tables of any part of them, bad input."""

from __future__ import annotations

import pytest
import torch
from support.rounding import FLOAT64

import gemmsim as gs
from gemmsim import study
from gemmsim.study import execution
from gemmsim.study.distributions import draw
from gemmsim.study.errors import StudyError
from gemmsim.study.records import TIME_COLUMNS
from gemmsim.study.registry import REPRODUCTIONS


def test_growth_rows_are_the_product_of_its_lists_and_reproduce_themselves(tmp_path):
    growth = study.kind("growth")(spec=["e5m10", "s = e6m9/sr8"], K="16,32", dist="randn,rand01", M=4, N=3, seeds=2)
    rows = study.run(growth, tmp_path).rows
    assert len(rows) == 2 * 2 * 2 * 2 and len({row["cell"] for row in rows}) == 16
    for row in rows:
        spec = gs.GemmSpec.from_json(row["spec_json"])
        assert str(spec) == row["spec"]
        a, b = draw(row["dist"], row["M"], row["K"], row["N"], row["seed"])
        error = gs.qmatmul(a, b, spec, seed=row["seed"]).double() - a.double() @ b.double()
        assert float(error.abs().mean()) == pytest.approx(row["mean_abs"], rel=FLOAT64)
    for column in "study kind cell label spec seed elapsed_s finished_at library torch device K M N dist".split():
        assert rows[0][column] not in (None, ""), column


def test_rows_do_not_depend_on_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "SMALL_CELL", 0)

    def rows(threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            growth = study.kind("growth")(spec=["e5m10/sr", "kahan(bf16)"], K="64", M=16, N=16)
            found = study.run(growth, tmp_path / str(threads)).rows
        finally:
            torch.set_num_threads(before)
        return [{name: value for name, value in row.items() if name not in TIME_COLUMNS} for row in found]

    assert rows(1) == rows(2)


def test_additions_are_counted_where_asked(tmp_path):
    given = {
        "spec": ["e5m10", "pairwise(bf16)", "exact = exact(fp32)"],
        "K": "256,1024",
        "dist": "rand01",
        "M": 4,
        "N": 4,
    }
    kind = study.kind("growth")(**given, events="yes", metric="swamped")
    rows = study.run(kind, tmp_path).rows
    for row in rows:
        a, b = draw("rand01", 4, row["K"], 4, row["seed"])
        if row["label"] == "exact":
            assert row["swamped"] is row["inexact"] is row["underflow"] is row["overflow"] is None
            continue
        shares = gs.count_events(a, b, row["spec"]).shares()
        assert {name: row[name] for name in shares} == shares
    assert kind.finding(rows).startswith("Share at K = 1,024 of additions that left the register as it was")
    plain = study.kind("growth")(**given)
    assert not {cell.key for cell in plain.cells()} & {row["cell"] for row in rows}, (
        "rows without counts are other cells"
    )
    assert "swamped" not in study.run(plain, tmp_path / "plain").rows[0]
    with pytest.raises(StudyError, match="add --events yes"):
        study.kind("growth")(**given, metric="inexact")


def test_equal_operands_are_made_once(tmp_path, monkeypatch):
    kind = study.kind("growth")
    made = []
    monkeypatch.setattr(
        kind, "inputs", lambda self, cell, context, real=kind.inputs: made.append(cell) or real(self, cell, context)
    )
    study.run(kind(spec=["e5m10", "bf16", "fp32"], K="16,32", dist="randn", M=4, N=4), tmp_path)
    assert len(made) == 2


def test_random_bits_lose_what_lies_below_them(tmp_path):
    kind = study.kind("sr")(r="1,4,16", K=256, M=32, N=8, format="e6m5")
    summary = study.run(kind, tmp_path)
    bias = {row["r"]: row["bias_u"] for row in summary.rows}
    assert bias[1] < bias[4] < bias[16] and abs(bias[16]) < 1
    assert all(-1 <= row["bias_of_bound"] <= 1 for row in summary.rows if row["r"] < 16)
    with pytest.raises(StudyError, match="{} for a format"):
        study.kind("sr")(order="chunked(4, e5m2)")
    with pytest.raises(StudyError, match="r = 33"):
        study.kind("sr")(r="33")


def test_which_results_depend_on_the_order(tmp_path):
    kind = study.kind("order")(
        spec=["sequential = e5m10", "exact = exact(e5m10)", "random = e5m10/sr8"],
        library="torch.mm",
        K=64,
        M=8,
        N=4,
        permutations=4,
        batches="1,3,8",
    )
    found = {(row["label"], row["over"]): row for row in study.run(kind, tmp_path).rows}
    assert len(found) == 11, "libraries have no splits"
    assert found["random", "batch"]["distinct"] == 1, "a row's random bits are those of its place in the batch"
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
        "order": {"K": 16, "permutations": 2, "spec": ["fp32"]},
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


@pytest.mark.parametrize("name", sorted(REPRODUCTIONS))
def test_reproductions_pass(name, tmp_path):
    summary = study.run(name, tmp_path)
    assert summary.ok, [f"{v.expectation.words()}: {v.found()}" for v in summary.verdicts if not v.ok]
    assert summary.verdicts and all(verdict.ok for verdict in summary.verdicts)
    assert all(row["macs_per_s"] > 0 for row in summary.rows)


def test_slices_are_compared_with_plain_products(tmp_path):
    kind = study.kind("sliced")(
        scheme=["x1 = bf16(1)", "x9 = bf16(3, register=:hw(hopper, wgmma, bf16))", "i8 = ozaki_int8(4, out=fp32)"],
        spec=["fp32"], K="64,128", M=4, N=4,
    )  # fmt: skip
    rows = study.run(kind, tmp_path).rows
    assert [(row["label"], row["products"]) for row in rows[:4]] == [("x1", 1), ("x9", 9), ("i8", 10), ("fp32", 1)]
    error = {(row["label"], row["K"]): row["rel_fro"] for row in rows}
    assert error["x1", 64] > 100 * error["x9", 64] and error["i8", 128] < error["x1", 128]
    assert rows[0]["spec"] is None and rows[0]["scheme"] == "bf16(1)" and rows[0]["truth"] == ":exact(fp64)"
    for part in (rows, rows[:1], [row for row in rows if row["K"] == 64], rows[3:4]):
        kind.table(part)
        kind.plot(part, tmp_path / "part.png")
        assert isinstance(kind.finding(part), str)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("bf17(3)", "unknown scheme 'bf17'.*Did you mean 'bf16'"),
        ("bf16", "unknown scheme"),
        ("bf16(3, prodcts=6)", "prodcts"),
        ("bf16(4)", "1, 2 or 3 slices"),
        ("tf32x3(beside)", "inside"),
    ],
)
def test_what_is_no_scheme(given, says):
    with pytest.raises((StudyError, gs.SpecError), match=says):
        study.kind("sliced")(scheme=[given])


def test_swamped_shares_add_up_to_those_of_the_whole_sum(tmp_path):
    kind = study.kind("swamping")(spec=["e6m9", "c = chunked(16, e6m9)"], K=512, parts=4, M=8, N=2, dist="rand01")
    rows = study.run(kind, tmp_path).rows
    a, b = draw("rand01", 8, 512, 2, 0)
    for label, text in (("e6m9", "e6m9"), ("c", "chunked(16, e6m9)")):
        whole = gs.count_events(a, b, text)
        parts = [row for row in rows if row["label"] == label]
        assert sum(row["additions"] for row in parts) == whole.additions * 16
        assert sum(round(row["swamped"] * row["additions"]) for row in parts) == int(whole.swamped.sum())
    kind.plot(rows, tmp_path / "part.svg")
    kind.table(rows)
    assert kind.finding(rows).startswith("Additions without effect")
    with pytest.raises(StudyError, match="does not divide"):
        study.kind("swamping")(K=100, parts=3).cells()
    with pytest.raises(StudyError, match="are not added sequentially"):
        study.kind("swamping")(spec=["pairwise(e5m10)"]).cells()
    with pytest.raises(StudyError, match="chunks of 64"):
        study.kind("swamping")(spec=["chunked(64, e5m10)"], K=96, parts=2).cells()


def test_dir_of_the_package_lists_its_public_names():
    assert dir(study) == sorted(study.__all__)
