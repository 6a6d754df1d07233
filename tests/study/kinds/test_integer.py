"""Integer registers: counts and bounds against sums made one by one with Python's integers."""

from __future__ import annotations

import itertools

import pytest
import torch
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim import study
from gemmsim.cli.app import app
from gemmsim.formats import FormatError
from gemmsim.study.errors import StudyError
from gemmsim.study.kinds.integer import widths
from gemmsim.study.kinds.integer_operands import integers, worst_sums


def by_hand(a, b, P, overflow):
    """(result, times the register left its range) of each output, one addition after the other."""
    low, high = -(2 ** (P - 1)), 2 ** (P - 1) - 1
    found = {}
    for i, j in itertools.product(range(a.shape[0]), range(b.shape[1])):
        total, left = 0, 0
        for k in range(a.shape[1]):
            total += int(a[i, k]) * int(b[k, j])
            if not low <= total <= high:
                left += 1
                total = (total - low) % 2**P + low if overflow == "wrap" else max(low, min(high, total))
        found[i, j] = total, left
    return found


@pytest.mark.parametrize("operands", ["int4*int4", "uint4*int3", "int8*int2"])
def test_rows_are_those_of_sums_made_by_hand(operands, tmp_path):
    kind = study.kind("integer")(operands=operands, P="4:9:+1", K="12", M=5, N=4, dist="randn")
    rows = study.run(kind, tmp_path).rows
    assert len(rows) == 2 * 6
    worker = study.Worker(kind, tmp_path)
    inputs = worker.study.inputs(kind.cells()[0], worker.context)
    a, b = inputs.product.a, inputs.product.b
    assert inputs.product.truth.equal(a.double() @ b.double())
    for row in rows:
        hand = by_hand(a, b, row["P"], row["overflow"])
        outputs = [(int(inputs.product.truth[i, j]), *hand[i, j]) for i, j in hand]
        assert row["overflow_rate"] == sum(left > 0 for _, _, left in outputs) / 20
        assert row["overflows_mean"] == sum(left for _, _, left in outputs) / 20
        assert row["equal_share"] == sum(result == truth for truth, result, _ in outputs) / 20
        noise = sum((result - truth) ** 2 for truth, result, _ in outputs)
        assert row["rel_fro"] == pytest.approx(
            (noise / sum(t * t for t, _, _ in outputs)) ** 0.5, rel=4 * 2.0**-53
        )  # exact sums, two roots
        assert (row["sqnr_db"] is None) == (noise == 0)


@pytest.mark.parametrize("fmt", ["int2", "uint2", "int3", "uint1"])
def test_the_worst_sums_are_the_worst_of_all_inputs(fmt):
    b = torch.tensor([[3.0, -1.0, 0.0], [-2.0, -4.0, 0.0], [1.0, 0.0, 0.0]])
    parsed = gs.formats.parse_scalar(fmt)
    every = torch.tensor(list(itertools.product(range(int(parsed.min), int(parsed.max) + 1), repeat=3)))
    sums = every @ b.to(torch.int64)
    assert worst_sums(b, fmt).tolist() == [sums.amin(0).tolist(), sums.amax(0).tolist()]


@pytest.mark.parametrize("operands", ["int8*int8", "uint8*int4", "int4*int8", "uint4*uint4"])
def test_what_cannot_overflow_does_not_and_one_bit_less_does(operands, tmp_path):
    kind = study.kind("integer")(operands=operands, P="20", overflow="wrap", K="33", M=3, N=5)
    (row,) = study.run(kind, tmp_path).rows
    worker = study.Worker(kind, tmp_path)
    inputs = worker.study.inputs(kind.cells()[0], worker.context)
    b = inputs.product.b
    fmt = gs.formats.parse_scalar(operands.partition("*")[0])
    low, high = float(fmt.min), float(fmt.max)
    # For each column the input that gives its largest sum, and the one that gives its smallest.
    worst = torch.cat([torch.where(b.mT > 0, high, low), torch.where(b.mT > 0, low, high)])
    assert row["worst_case_bits"] <= row["certified_bits"]
    bits = row["worst_case_bits"]
    assert int(gs.count_overflows(worst, b, f": int({bits})").sum()) == 0
    assert int(gs.count_overflows(worst, b, f": int({bits - 1})").sum()) > 0
    assert row["certified_bits"] == gs.acc.min_accumulator_bits(b, operands.partition("*")[0], k_dim=0)


def test_certified_rows_have_no_overflow_and_exact_results(tmp_path):
    kind = study.kind("integer")(operands="int4*int4,uint4*int4", P="6:14:+1", K="16,64", dist="randn,rand01", M=8, N=8)
    rows = study.run(kind, tmp_path).rows
    certified = [row for row in rows if row["certified"]]
    assert certified and any(row["overflow_rate"] for row in rows)
    for row in certified:
        assert (row["overflow_rate"], row["equal_share"], row["sqnr_db"], row["worst_case_rate"]) == (0, 1, None, 0)
        assert row["rel_fro"] == 0
    for row in rows:
        assert row["certified"] == (row["P"] >= row["certified_bits"])
        assert (row["worst_case_rate"] == 0) == (row["P"] >= row["worst_case_bits"])
        assert row["overflow_rate"] == 0 or row["worst_case_rate"] > 0


def test_operands_become_integers_of_the_whole_range():
    x = torch.tensor([[-3.0, 1.5, 0.0, -0.0]])
    assert integers(x, "int4").tolist() == [[-7.0, 4.0, 0.0, 0.0]]
    assert integers(x, "uint4").tolist() == [[15.0, 8.0, 0.0, 0.0]]
    assert integers(torch.zeros(2, 2), "int8").tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert integers(torch.zeros(0, 3), "int8").shape == (0, 3)


def test_the_network_with_integers_of_eight_bits_answers_like_the_one_without(tmp_path):
    kind = study.kind("integer")(task="digits", P="14,32", operands="int8*int8", metric="accuracy")
    rows = study.run(kind, tmp_path).rows
    wide = [row for row in rows if row["P"] == 32]
    assert len(rows) == 4 and len(wide) == 2
    for row in wide:
        assert row["accuracy"] > 0.96 and row["logit_err"] == 0 and row["equal_share"] == 1
    narrow = {row["overflow"]: row for row in rows if row["P"] == 14}
    assert narrow["wrap"]["accuracy"] < narrow["saturate"]["accuracy"] < wide[0]["accuracy"]
    assert narrow["wrap"]["overflow_rate_layer1"] == narrow["saturate"]["overflow_rate_layer1"] > 0.5
    with pytest.raises(StudyError, match="weights have both signs"):
        study.run(study.kind("integer")(task="digits", P=20, operands="uint8*uint8"), tmp_path / "unsigned")


def test_the_register_of_the_network_is_that_of_the_product(tmp_path):
    """One row again, from the network's own weights with public operations alone."""
    from gemmsim.study.networks import digits

    kind = study.kind("integer")(task="digits", P=16, overflow="saturate", operands="int7*int8", metric="accuracy")
    (row,) = study.run(kind, tmp_path).rows
    data, network = digits.load_data(), digits.shipped_network()
    hidden = float(torch.relu(data.train_images @ network.w1.mT + network.b1).max())
    x = data.test_images.double()
    for weight, bias, factor in ((network.w1, network.b1, 63.0), (network.w2, network.b2, 63 / hidden)):
        unit = float(weight.abs().max()) / 127
        left, right = (x * factor).round().clamp(-64, 63).float(), (weight * (127 / weight.abs().max())).round()
        x = gs.qmatmul(left, right.mT, ": int(16, saturate)").double() * (unit / factor) + bias.double()
        logits, x = x, torch.relu(x)
    assert row["correct"] == int((logits.argmax(1) == data.test_labels).sum())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"operands": "e4m3*int8"}, "allowed: integers"),
        ({"operands": "fixed(8,4)"}, "allowed: integers|fixed"),
        ({"operands": "int17"}, "up to 16 bits"),
        ({"operands": []}, "lists no formats"),
        ({"overflow": "warp"}, "'wrap'"),
        ({"task": "digit"}, "'digits'"),
        ({"P": "0"}, "allowed: 1 to 53"),
        ({"P": "54"}, "allowed: 1 to 53"),
        ({"metric": "accuracy"}, "--task digits"),
    ],
)
def test_bad_input(given, said):
    with pytest.raises((StudyError, FormatError), match=said):
        study.kind("integer")(**given)


def test_widths_are_read_and_shown():
    assert [str(entry) for entry in widths("int8, int7 * int4 ,int8*int8", "operands")] == ["int8*int8", "int7*int4"]
    kind = study.kind("integer")(operands="int4*int8,uint8", P="8:10:+1")
    words = kind.arguments()
    again = study.kind("integer")(**{words[i][2:]: words[i + 1] for i in range(0, len(words), 2)})
    assert again.parts == kind.parts


def test_pictures_tables_and_findings_of_any_part_of_the_rows(tmp_path):
    kind = study.kind("integer")(operands="int4,int8*int4", P="6:9:+1", K="8,16", M=4, N=4)
    rows = study.run(kind, tmp_path).rows
    for part in (rows, rows[:1], rows[3:6]):
        kind.table(part)
        kind.plot(part, tmp_path / "part.svg")
        assert "bits of the accumulator" in (tmp_path / "part.svg").read_text(encoding="utf-8")
        assert "for any input" in kind.finding(part)
    other = study.kind("integer")(P="6:9:+1", metric="sqnr_db", K=8, M=4, N=4)
    other.plot(study.run(other, tmp_path / "sqnr").rows, tmp_path / "sqnr.png")


def test_the_command_tells_cells_and_cost_and_computes_nothing(tmp_path):
    words = ["study", "run", "integer", "--P", "12:16:+2", "--M", "8", "--N", "8", "--out", str(tmp_path / "x")]
    told = CliRunner().invoke(app, [*words, "--dry-run"])
    assert told.exit_code == 0 and "6 of 6 cells to do" in told.stdout and not (tmp_path / "x").exists()
    assert "196,608 multiply-adds" in told.stdout, "6 cells of 2 x 8 x 256 x 8"
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "6 cells computed" in done.stdout
    (tmp_path / "x" / "plot.png").unlink()
    drawn = CliRunner().invoke(app, ["study", "plot", "integer", "--out", str(tmp_path / "x")])
    assert drawn.exit_code == 0 and (tmp_path / "x" / "plot.png").stat().st_size > 0, "with the folder's parameters"
