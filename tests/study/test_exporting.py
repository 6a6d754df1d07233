"""Exported files read back are the rows; test-bench vectors read back give the expected bits again."""

from __future__ import annotations

import csv
import json
import struct

import pytest
import torch
from support.rounding import FLOAT64
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim import formats, study
from gemmsim.cli.app import app
from gemmsim.reference import gemm
from gemmsim.study import bench_vectors, exporting, store
from gemmsim.study.kinds import growth as growth_kind

SPECS = [
    "e5m10",  # float32 operands, a narrow register
    "e4m3 * e5m2 : e5m10 -> bf16",
    "e4m3 : chunked(4, e6m9)",
    "int8 : int(12)",
    "e4m3 : hw(hopper, wgmma, e4m3)",
    ": two_sum(fp64)",
    "fp16 : e4m3",  # overflows to NaN
    ": e5m4/sr8",
    "e4m3 : promote(hw(hopper, wgmma, e4m3), 32)",  # two registers
    "fixed(6,2) : fixed(10,4)",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth_kind, "growth_plot", lambda rows, metric, title, path: path.touch())
        growth = study.kind("growth")(spec=SPECS, K="1,40", M=3, N=2, dist="randn", scale=8)
        study.run(growth, path)
        study.run(study.kind("growth")(spec=":e5m10", K="5", M=2, N=2, **{"in": "e3m2/row"}), path)
    return path


def read(path) -> list[int]:
    """As $readmemh does: hexadecimal words, comments left out."""
    words = [line.partition("//")[0].strip() for line in path.read_text().splitlines()]
    return [int(word, 16) for word in words if word]


def matrix(about, folder, name) -> list[list[float]]:
    """The values of a file, by the codec of single numbers."""
    entry = about["files"][name]
    fmt, (rows, columns) = formats.parse_scalar(entry["format"]), entry["shape"]
    values = [fmt.decode(code) for code in read(folder / entry["file"])]
    assert len(values) == rows * columns
    return [values[columns * row : columns * (row + 1)] for row in range(rows)]


def same(a: float, b: float) -> bool:
    return struct.pack("d", a) == struct.pack("d", b) or (a != a and b != b)


def test_vectors_read_back_give_the_expected_bits_again(folder, tmp_path):
    out = study.export(folder, "hex", tmp_path / "hex")
    rows = study.load_rows(folder)
    assert {path.name for path in out.iterdir()} == {"README.txt", *(row["cell"] for row in rows)} and len(rows) == 22
    used = set()
    for row in rows:
        about = json.loads((out / row["cell"] / "spec.json").read_text())
        a, b, expected = (matrix(about, out / row["cell"], name) for name in ("a", "b", "expected"))
        spec = gs.GemmSpec.from_json(about["spec_json"])
        assert str(spec) == about["spec"] == row["spec"]
        again = gemm(a, b, spec, seed=about["seed"])
        assert all(
            same(x, y) for got, want in zip(again, expected, strict=True) for x, y in zip(got, want, strict=True)
        )
        used.add(tuple(about["files"][name]["format"] for name in ("a", "b", "expected")))
        for name in ("a", "b", "expected"):
            digits = {len(line) for line in (out / row["cell"] / f"{name}.hex").read_text().splitlines()[1:]}
            assert digits == {-(-about["files"][name]["bits"] // 4)}
    assert used == {
        ("e8m23", "e8m23", "e5m10"),
        ("e4m3", "e5m2", "e8m7"),
        ("e4m3", "e4m3", "e6m9"),
        ("fixed(8,0)", "fixed(8,0)", "fixed(12,0)"),
        ("e4m3", "e4m3", "e8m23"),
        ("e8m23", "e8m23", "e11m52"),
        ("e5m10", "e5m10", "e4m3"),
        ("e8m23", "e8m23", "e5m4"),
        ("fixed(6,2)", "fixed(6,2)", "fixed(10,4)"),
        ("e3m2", "e3m2", "e5m10"),
    }


def test_vectors_are_of_the_operands_that_were_measured(folder):
    """The mean error that stands in the row comes out again."""
    for row in study.load_rows(folder):
        made = bench_vectors.vectors(row)
        a, b, y = (m.format.decode(m.codes).double() for m in (made.a, made.b, made.expected))
        # Operands as given and a register that the row's float32 result holds: nothing stands between the two.
        if made.a.format is formats.FP32 and made.expected.format != formats.FP64:
            assert float((y - a @ b).abs().mean()) == pytest.approx(row["mean_abs"], rel=FLOAT64), row["spec"]


def test_negative_words_are_twos_complement(tmp_path):
    words = gs.vectors.Words("x", formats.parse_scalar("fixed(12,0)"), torch.tensor([-1, 5, -2048]), "i")
    assert words.hex_text() == "// x: 3, fixed(12,0), 12 bits per word, word i\nfff\n005\n800\n"
    wide = gs.vectors.Words("x", formats.FP64, torch.tensor([-(2**63)]), "i")
    assert wide.hex_text("note").splitlines() == ["// x: 1, e11m52, 64 bits per word, word i; note", "8000000000000000"]


def test_cells_can_be_chosen(folder, tmp_path):
    key = study.load_rows(folder)[0]["cell"]
    assert {p.name for p in study.export(folder, "hex", tmp_path, cells=[key, key]).iterdir()} == {"README.txt", key}
    with pytest.raises(study.StudyError, match="no finished cell 'abc'"):
        study.export(folder, "hex", tmp_path, cells=["abc"])


def row(**columns):
    known = {"cell": "k", "K": 2, "M": 2, "N": 2, "dist": "randn", "in": "", "seed": 0, "spec": ":e5m10"}
    return {name: value for name, value in {**known, **columns}.items() if value is not None}


def test_what_has_no_vectors_is_refused(tmp_path):
    for wrong, said in (
        (row(dist=None), "it has no dist"),
        (row(over="batch"), "it varies batch"),
        (row(spec="mxfp8_e4m3 : fp32"), "share scales"),
        (row(spec="e4m3/sr : fp32"), "rounded at random"),
        (row(K=2**24), "16,777,216"),
    ):
        with pytest.raises(study.StudyError, match=said):
            bench_vectors.write_vectors([wrong], tmp_path, chosen=True)
    with pytest.raises(study.StudyError, match="no cell is one product"):
        bench_vectors.write_vectors([row(dist=None), row(over="batch")], tmp_path, chosen=False)
    assert not list(tmp_path.glob("k/*.hex"))


def test_csv_has_every_row(folder, tmp_path):
    path = study.export(folder, "csv", tmp_path / "new" / "t.csv")
    rows = study.load_rows(folder)
    with path.open() as handle:
        for read_back, row in zip(csv.DictReader(handle), rows, strict=True):
            assert {k: store.as_text(v) for k, v in row.items()} == {k: v for k, v in read_back.items() if k in row}


def test_parquet_has_every_row_with_types(folder, tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(study.export(folder, "parquet", tmp_path / "t.parquet"))
    rows = study.load_rows(folder)
    assert table.num_rows == len(rows) and {str(table.schema.field(name).type) for name in ("K", "seed")} == {"int64"}
    for got, want in zip(table.to_pylist(), rows, strict=True):
        for name, value in want.items():
            assert got[name] == (json.dumps(value, separators=(",", ":")) if isinstance(value, dict) else value), name


def test_columns_of_parquet_are_typed_by_what_is_in_them():
    pyarrow = pytest.importorskip("pyarrow")
    for values, kind, wanted in (
        ([1, None, 3], "int64", [1, None, 3]),
        ([1, 2.5], "double", [1.0, 2.5]),
        ([2**70, 1], "double", [2.0**70, 1.0]),
        ([True, None], "bool", [True, None]),
        ([True, 2], "string", ["True", "2"]),
        (["a", 1, None], "string", ["a", "1", None]),
        ([{"a": [1]}, None], "string", ['{"a":[1]}', None]),
        ([None, None], "string", [None, None]),
    ):
        column = exporting._column(pyarrow, values)
        assert (str(column.type), column.to_pylist()) == (kind, wanted)


def test_the_command(folder, tmp_path, monkeypatch):
    def export(*words):
        return CliRunner().invoke(app, ["study", "export", str(folder), *map(str, words)])

    assert export("--to", "csv", "--out", tmp_path / "t.csv").stdout.strip() == str(tmp_path / "t.csv")
    wrong = export("--to", "cvs")
    assert wrong.exit_code == 2 and "allowed: csv, parquet, hex. Did you mean 'csv'?" in wrong.stderr
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    missing = export("--to", "parquet")
    assert missing.exit_code == 2 and "gemmsim[table]" in missing.stderr
    key = study.load_rows(folder)[0]["cell"]
    assert export("--to", "hex", "--out", tmp_path / "h", "--cell", key).exit_code == 0
    assert (tmp_path / "h" / key / "a.hex").is_file()
