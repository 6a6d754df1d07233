"""Integer registers on operands of one's own: two files, or what gemmsim.capture wrote; and their test-bench vectors."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim import study
from gemmsim.cli.app import app
from gemmsim.study.errors import StudyError
from gemmsim.study.kinds.integer_operands import integers


@pytest.fixture
def whole(tmp_path):
    """Two files of integers: a (5, 33) of 8 bits, b (33, 4) of 4."""
    g = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", g.integers(-128, 128, (5, 33)).astype(np.int8))
    np.save(tmp_path / "b.npy", g.integers(-8, 8, (33, 4)).astype(np.int8))
    return {"a": str(tmp_path / "a.npy"), "b": str(tmp_path / "b.npy")}


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("captured") / "operands.safetensors"
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 16), nn.ReLU(), nn.Linear(16, 10))
    gs.capture(model, to=path).run(torch.randn(12, 1, 8, 8))
    return path


def columns(rows, *names):
    return list(dict.fromkeys(tuple(row[name] for name in names) for row in rows))


def test_integers_of_files_are_taken_as_they_are(whole, tmp_path):
    kind = study.kind("integer")(**whole, operands="int8*int4", P="10:17:+1")
    rows = study.run(kind, tmp_path / "out").rows
    a, b = (torch.from_numpy(np.load(whole[name])).long() for name in "ab")
    exact = a @ b
    partial = (a[:, :, None] * b[None]).cumsum(1)
    assert columns(rows, "task", "M", "K", "N", "a", "b") == [("files", 5, 33, 4, "a.npy", "b.npy")]
    for row in rows:
        low, high = -(2 ** (row["P"] - 1)), 2 ** (row["P"] - 1) - 1
        result = gs.qmatmul(a.float(), b.float(), row["spec"]).long()
        assert row["equal_share"] == float((result == exact).double().mean())
        if row["overflow"] == "wrap":  # the first time is the same, whatever comes after
            assert row["overflow_rate"] >= float(((partial < low) | (partial > high)).any(1).double().mean()) - 1e-12
    assert rows[0]["certified_bits"] == gs.acc.min_accumulator_bits(b, "int8", k_dim=0)
    assert kind.finding(rows).startswith("Accumulators that do not overflow: int8*int4, K = 33: ")


def test_floats_are_scaled_and_rounded_and_integers_on_demand_are_not(tmp_path):
    torch.manual_seed(1)
    a, b = torch.randn(3, 20), torch.randn(20, 2)
    torch.save({"x": a, "w": b.mT.contiguous()}, tmp_path / "t.pt")
    given = {"a": f"{tmp_path}/t.pt:x", "b": f"{tmp_path}/t.pt:w", "transpose": "b", "P": "20"}
    kind = study.kind("integer")(**given, operands="uint8*int5")
    worker = study.Worker(kind, tmp_path / "out")
    product = worker.study.inputs(kind.cells()[0], worker.context).product
    assert product.a.equal(integers(a, "uint8")) and product.b.equal(integers(b, "int5"))
    with pytest.raises(StudyError, match="t.pt:x has numbers that are not integers; allowed with --scaled none"):
        study.run(study.kind("integer")(**given, scaled="none"), tmp_path / "none")
    torch.save({"x": (a * 9).round(), "w": (b.mT * 9).round()}, tmp_path / "t.pt")
    kind = study.kind("integer")(**given, scaled="none")
    worker = study.Worker(kind, tmp_path / "out2")
    assert worker.study.inputs(kind.cells()[0], worker.context).product.a.equal((a * 9).round())


def test_captured_products_are_rows_of_their_own(captured, tmp_path):
    given = {"captured": str(captured), "P": "16,20", "overflow": "wrap", "most": 6}
    kind = study.kind("integer")(**given)
    rows = study.run(kind, tmp_path / "out").rows
    assert columns(rows, "layer", "role", "M", "K", "N") == [("2", "fprop", 6, 72, 6), ("4", "fprop", 6, 16, 6)]
    chosen = study.kind("integer")(**given, layers="4", role="fprop,wgrad,dgrad")
    assert columns([dict(cell.columns) for cell in chosen.cells()], "layer", "role") == [
        ("4", "fprop"), ("4", "dgrad"), ("4", "wgrad")
    ]  # fmt: skip
    worker = study.Worker(kind, tmp_path / "out")
    product = worker.study.inputs(kind.cells()[0], worker.context).product
    saved = study.kind("layers")(captured=str(captured), most=6)  # floats of the same product
    assert product.a.shape == (6, 72) and product.a.abs().max() == 127
    assert [dict(cell.columns)["layer"] for cell in saved.cells()][0] == "2"
    table = (tmp_path / "out" / "table.txt").read_text()
    assert "layer" in table and "int8*int8, 2 fprop" in " ".join(table.split())
    finding = kind.finding(rows)
    assert "int8*int8, 2 fprop, K = 72: " in finding and "int8*int8, 4 fprop, K = 16: " in finding
    assert (tmp_path / "out" / "plot.svg").is_file()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": "x.npy"}, "files: give two tensors"),
        ({"task": "files"}, "files: give two tensors"),
        ({"a": "x.npy", "b": "y.npy", "captured": "z.safetensors"}, "files: give two tensors"),
        ({"a": "x.npy", "b": "y.npy", "task": "digits"}, "task = 'digits' takes no files"),
        ({"captured": "z.safetensors", "metric": "accuracy"}, "is of a network"),
        ({"a": "x.npy", "b": "y.npy", "role": "forward"}, "role has 'forward'"),
    ],
)
def test_what_does_not_belong_together_is_refused(given, message):
    with pytest.raises(StudyError, match=message):
        study.kind("integer")(**given)


def test_wrong_files_are_told(whole, captured, tmp_path):
    def run(**given):
        study.run(study.kind("integer")(P="16", **given), tmp_path / "wrong")

    with pytest.raises(StudyError, match="a.npy holds -1[0-9]* to 1[0-9]*; allowed by int4: -8 to 7"):
        run(**whole, operands="int4*int4")
    with pytest.raises(StudyError, match="do not multiply; allowed: M x K"):
        run(**{**whole, "transpose": "a"})
    with pytest.raises(StudyError, match="no layer matches 'nothing'"):
        run(captured=str(captured), layers="nothing")
    with pytest.raises(StudyError, match="holds no products"):
        from safetensors.torch import save_file

        save_file({"x": torch.ones(2, 2)}, tmp_path / "x.safetensors")
        run(captured=str(tmp_path / "x.safetensors"))
    np.save(tmp_path / "nan.npy", np.full((4, 33), np.nan))
    with pytest.raises(StudyError, match="nan.npy has NaN or infinite numbers"):
        run(a=str(tmp_path / "nan.npy"), b=whole["b"])


def words(path):
    return [int(line, 16) for line in path.read_text().splitlines() if not line.startswith("//")]


def test_vectors_of_given_integers(whole, tmp_path):
    kind = study.kind("integer")(**whole, operands="int8*int4", P="10,12", overflow="saturate")
    study.run(kind, tmp_path / "out")
    a, b = (torch.from_numpy(np.load(whole[name])).long() for name in "ab")
    out = study.export(tmp_path / "out", "hex")
    assert len([path for path in out.iterdir() if path.is_dir()]) == 2
    for row in study.load_rows(tmp_path / "out"):
        folder = out / row["cell"]
        about = json.loads((folder / "spec.json").read_text())
        assert about["operands"] == {"a": "a.npy", "b": "b.npy", "transpose": "none", "scaled": "largest"}
        assert words(folder / "a.hex") == (a & 0xFF).flatten().tolist()
        assert words(folder / "b.hex") == (b & 0xF).flatten().tolist()
        bits = row["P"]
        assert about["files"]["expected"]["format"] == f"fixed({bits},0)"
        for at, word in enumerate(words(folder / "expected.hex")):
            total = 0
            for k in range(33):
                total = min(max(total + int(a[at // 4, k] * b[k, at % 4]), -(2 ** (bits - 1))), 2 ** (bits - 1) - 1)
            assert word == total & (2**bits - 1)


def test_vectors_of_a_captured_layer_and_of_files_under_any_accumulator(captured, whole, tmp_path):
    layer = study.kind("layers")(captured=str(captured), layers="4", spec=["e4m3 : e5m10"], most=5)
    study.run(layer, tmp_path / "layer")
    (row,) = study.load_rows(tmp_path / "layer")
    folder = study.export(tmp_path / "layer", "hex") / row["cell"]
    about = json.loads((folder / "spec.json").read_text())
    assert (about["operands"]["layer"], about["operands"]["role"]) == ("4", "fprop") and about["M"] == 5
    fmt = gs.formats.parse_scalar("e4m3")
    a, b = (torch.tensor([fmt.decode(code) for code in words(folder / f"{name}.hex")]) for name in "ab")
    got = gs.qmatmul(a.reshape(5, 16), b.reshape(16, 5), "e4m3 : e5m10")
    half = gs.formats.parse_scalar("fp16")
    assert got.flatten().tolist() == [half.decode(code) for code in words(folder / "expected.hex")]
    for name in "ab":  # floats of one's own, without a format: the codes of their dtype
        np.save(whole[name], np.load(whole[name]).astype(np.float32) / 3)
    study.run(study.kind("gemm")(**whole, spec=["fp32"]), tmp_path / "gemm")
    (row,) = study.load_rows(tmp_path / "gemm")
    folder = study.export(tmp_path / "gemm", "hex") / row["cell"]
    assert words(folder / "a.hex") == np.load(whole["a"]).view(np.uint32).flatten().tolist()
    np.save(whole["a"], np.zeros((5, 33), np.float32))
    with pytest.raises(StudyError, match="was computed from other operands than there are now"):
        study.export(tmp_path / "gemm", "hex")


def test_a_network_is_no_single_product(tmp_path):
    kind = study.kind("integer")(task="digits", P="18", overflow="wrap")
    study.run(kind, tmp_path / "out")
    with pytest.raises(StudyError, match="no cell is one product"):
        study.export(tmp_path / "out", "hex")


def test_the_command_takes_files(whole, tmp_path):
    out = tmp_path / "run"
    command = [
        "study",
        "run",
        "integer",
        "--a",
        whole["a"],
        "--b",
        whole["b"],
        "--operands",
        "int8*int4",
        "--P",
        "12,16",
    ]
    result = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert len(study.load_rows(out)) == 4
    exported = CliRunner().invoke(app, ["study", "export", str(out), "--to", "hex"])
    assert exported.exit_code == 0 and (out / "hex" / "README.txt").is_file()
    again = CliRunner().invoke(app, [*command, "--out", str(out)])  # nothing is computed twice
    assert "0 cells computed, 4 reused" in " ".join(again.output.split())
