"""The kinds chunk and hardware: rows against plain products, bad input."""

from __future__ import annotations

import pytest
import torch
from support.rounding import FLOAT64
from support.studies import seen

import gemmsim as gs
from gemmsim import study
from gemmsim.hardware import HardwareError
from gemmsim.study.distributions import draw
from gemmsim.study.errors import StudyError
from gemmsim.study.operands import placement
from gemmsim.study.ulp_differences import CLASSES, differences, unit_of


def test_chunks_of_every_length(tmp_path):
    kind = study.kind("chunk")(spec=["c = chunked({n}, e5m4)"], n="1,4,16,64,256", K="64,256", dist="rand01", M=4, N=4)
    rows = study.run(kind, tmp_path).rows
    assert [(row["K"], row["n"]) for row in rows] == [
        *((64, n) for n in (1, 4, 16, 64)),
        *((256, n) for n in (1, 4, 16, 64, 256)),
    ]
    for row in rows:
        assert row["label"] == "c" and row["spec"] == str(gs.GemmSpec.of(f"chunked({row['n']}, e5m4)"))
        a, b = draw("rand01", 4, row["K"], 4, 0)
        error = gs.qmatmul(a, b, row["spec"]).double() - a.double() @ b.double()
        assert float(error.abs().mean()) == pytest.approx(row["mean_abs"], rel=FLOAT64)
    least = {k: min((row["mean_abs"], row["n"]) for row in rows if row["K"] == k)[1] for k in (64, 256)}
    assert all(least[k] in (4, 16, 64) for k in least), "neither one run nor no chunks"
    assert (
        f"n = {min((row['bwd_err_u_mean'], row['n']) for row in rows if row['K'] == 256)[1]} (K = 256"
        in kind.finding(rows)
    )
    seen(kind, rows, tmp_path)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"spec": ["chunked(64, e5m4)"]}, "no {n}; allowed: such as"),
        ({"spec": ["a = chunked({n}, e5m4)", "a = chunked({n}, e5m5)"]}, "Rename one"),
        ({"spec": []}, "no accumulator"),
        ({"spec": ["chunked({n}, e5m99)"]}, "e5m99"),
        ({"n": "0"}, "n = 0; allowed"),
        ({"n": "128", "K": 64}, "Add shorter chunks"),
    ],
)
def test_what_is_no_chunk(given, says):
    with pytest.raises((StudyError, gs.SpecError, gs.formats.FormatError), match=says):
        study.kind("chunk")(**given).cells()


def test_distances_are_those_of_compare(tmp_path):
    kind = study.kind("hardware")(archs=["h100/wgmma", "ampere", "c = fp32"], K="64,256", dist="randn,rand01", M=8, N=8)
    rows = study.run(kind, tmp_path).rows
    assert len(rows) == 3 * 2 * 2 and rows[0]["label"] == "h100/wgmma against ampere"
    for row in rows:
        place = placement(row["in"], "in")
        a, b = draw(row["dist"], 8, row["K"], 8, 0)
        found = gs.compare(row["spec"], row["against"], place(a, 1), place(b, 0), trace=False)
        assert row["equal"] == found.share and row["ulp_max"] == found.largest
        assert row["ulp_0"] == dict(found.ulps).get(0.0, 0) / 64
        assert sum(row[name] for name in CLASSES) == 1
    truncating = next(
        row for row in rows if row["label"] == "ampere against c" and row["dist"] == "rand01" and row["K"] == 256
    )
    assert truncating["sign_bias"] < -0.9 and truncating["bias_ulp"] < 0, "truncation makes sums smaller"
    seen(kind, rows, tmp_path)


def test_the_same_chip_gives_the_same_bits(tmp_path):
    kind = study.kind("hardware")(archs=["a = hopper/wgmma", "b = blackwell/tcgen05"], K="64", dist="randn", M=4, N=4)
    rows = study.run(kind, tmp_path).rows
    assert [row["equal"] for row in rows] == [1.0] and kind.finding(rows) == "The same bits in all 1 comparisons"


def test_sides_and_specials():
    unit = unit_of(gs.GemmSpec.of("fp32"))
    ulp, nan, inf = 2.0**-23, float("nan"), float("inf")
    a = torch.tensor([1.0, 1 + ulp, -1 - ulp, 1.0, 0.0, -0.0, nan, nan, inf, inf, 1 + 8 * ulp])
    b = torch.tensor([1.0, 1.0, -1.0, 1 + 3 * ulp, 0.0, 0.0, nan, 1.0, inf, 1.0, 1.0])
    found = differences(a, b, torch.where(a < 0, -1.0, 1.0), unit)
    n = len(a)
    assert found["equal"] == 4 / n and found["ulp_0"] == 5 / n, "-0 and +0 are equal, but not their bits"
    assert found["ulp_above_1"] == 2 / n and found["ulp_below_4"] == 1 / n and found["ulp_above_16"] == 1 / n
    assert found["ulp_below_more"] == 1 / n and found["ulp_above_more"] == 1 / n, "NaN below, infinity above"
    assert found["nonfinite"] == 2 / n and found["ulp_max"] == 8
    assert found["nan"] == 2 / n and found["nan_against"] == 1 / n
    assert sum(round(found[name] * n) for name in CLASSES) == n
    empty = differences(torch.zeros(0), torch.zeros(0), torch.zeros(0), unit)
    assert set(empty) == set(found) and all(value is None for value in empty.values())
    with pytest.raises(StudyError, match="ends in"):
        unit_of(gs.GemmSpec.of("int(32)"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"archs": ["hopper/wgmma"]}, "two or more"),
        ({"archs": []}, "lists nothing"),
        ({"archs": ["hoper/wgmma", "ampere/mma"]}, "Did you mean 'hopper'"),
        ({"archs": ["hopper/mfma", "ampere/mma"]}, "allowed: wgmma, mma"),
        ({"archs": ["x = hopper/wgmma", "x = ampere/mma"]}, "Rename one"),
        ({"archs": ["hopper/wgmma/e2m1", "ampere/mma"]}, "e2m1"),
        ({"archs": ["ampere/mma", "hopper/wgmma"], "dtype": "e4m3"}, "e4m3"),
        ({"archs": ["int(32)", "hopper/wgmma"]}, "floating-point"),
        ({"dtype": ""}, "no format"),
    ],
)
def test_what_is_no_pair_of_chips(given, says):
    with pytest.raises((StudyError, HardwareError, gs.SpecError, gs.formats.FormatError), match=says):
        study.kind("hardware")(**given).cells()


@pytest.mark.filterwarnings("ignore::gemmsim.FormatsWarning")
def test_outputs_that_are_nan_in_one_are_counted_and_said(tmp_path):
    kind = study.kind("hardware")(
        archs=["h100/wgmma", "mi300/mfma/e4m3fnuz"], dtype="e4m3/row", K=64, dist="randn,rand01", M=4, N=4
    )
    rows = study.run(kind, tmp_path).rows
    for row in rows:
        assert (row["nan"], row["nan_against"], row["nonfinite"], row["ulp_max"]) == (0.0, 1.0, 1.0, None)
    assert kind.finding(rows).endswith("; 100.0% of the outputs are NaN in the second")
    seen(kind, rows, tmp_path)
