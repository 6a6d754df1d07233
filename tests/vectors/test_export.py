"""Exported files read back: words, descriptions, directed cases, and what is refused."""

from __future__ import annotations

import json
import re

import pytest
import torch

import gemmsim as gs
from gemmsim import formats
from gemmsim.reference import gemm
from gemmsim.vectors import VectorsError, directed_cases, exporting


def read(path) -> list[int]:
    """As $readmemh does."""
    lines = [line.partition("//")[0].strip() for line in path.read_text().splitlines()]
    return [int(word, 16) for word in lines if word]


def values(folder, name):
    """The numbers of a file by the codec of single numbers, and its description."""
    entry = json.loads((folder / "spec.json").read_text())["files"][name]
    fmt = formats.parse_scalar(entry["format"])
    return [fmt.decode(word) for word in read(folder / entry["file"])], entry


def matrix(folder, name):
    found, entry = values(folder, name)
    rows, columns = entry["shape"]
    return [found[columns * row : columns * (row + 1)] for row in range(rows)]


SPECS = [
    "e4m3 : e5m4",
    "int8 : int(14)",
    "int4*uint8 : chunked(4, int(14, saturate), fixed(15,0))",
    ": fp32",
    "fp16 : e4m3",
]


@pytest.mark.parametrize("spec", SPECS)
def test_files_read_back_are_the_product(tmp_path, spec):
    torch.manual_seed(1)
    a, b = torch.randn(3, 10) * 9, torch.randn(10, 2) * 9
    folders = gs.export_vectors(a, b, spec, tmp_path / "out", steps=True, directed=True)
    assert folders[0] == tmp_path / "out" and {path.parent.name for path in folders[1:]} == {"directed"}
    for folder in folders:
        about = json.loads((folder / "spec.json").read_text())
        x, y, expected = (matrix(folder, name) for name in ("a", "b", "expected"))
        again = gemm(x, y, gs.GemmSpec.from_json(about["spec_json"]))
        assert [[repr(v) for v in row] for row in again] == [[repr(v) for v in row] for row in expected]
        words = json.loads((folder / "words.json").read_text())
        assert words.keys() == about["files"].keys()
        for name, numbers in words.items():
            assert numbers == read(folder / f"{name}.hex")
        last = "totals_1" if "totals_1" in words else "steps"
        found, entry = values(folder, last)
        m, n, count = entry["shape"]
        ends = [found[(i * n + j) * count + count - 1] for i in range(m) for j in range(n)]
        assert list(map(repr, ends)) == [repr(v) for row in expected for v in row]
    assert "a.hex" in (tmp_path / "out" / "README.txt").read_text()


def test_operands_without_a_cast_are_in_their_dtypes_format(tmp_path):
    for x, fmt in (
        (torch.tensor([[1, -2]], dtype=torch.int8), "fixed(8,0)"),
        (torch.tensor([[1, 2]], dtype=torch.uint8), "ufixed(8,0)"),
        (torch.tensor([[1, -2]]), "fixed(32,0)"),
        ([[1, -2]], "fixed(32,0)"),
        (torch.tensor([[1, 2]]).to(torch.uint16), "ufixed(16,0)"),
        (torch.tensor([[1.0, -2.0]]).half(), "e5m10"),
        (torch.tensor([[1.0, -2.0]]).bfloat16(), "e8m7"),
        (torch.tensor([[1.0, -2.0]]), "e8m23"),
        (torch.tensor([[1.0, -2.0]]).double().numpy(), "e11m52"),
    ):
        gs.export_vectors(x, [[1], [1]], ":int(20)", tmp_path)
        found, entry = values(tmp_path, "a")
        assert entry["format"] == fmt and found[0] == 1 and abs(found[1]) == 2
        assert values(tmp_path, "expected")[1]["format"] == "fixed(20,0)"


def test_a_cast_that_changes_operands_is_counted(tmp_path):
    gs.export_vectors([[300, 1, 2]], [[1], [1], [1.5]], "int8 : int(20)", tmp_path)
    files = json.loads((tmp_path / "spec.json").read_text())["files"]
    assert (files["a"]["changed_by_cast"], files["b"]["changed_by_cast"]) == (1, 1)
    assert read(tmp_path / "a.hex")[0] == 127
    gs.export_vectors(torch.ones(1, 3), torch.ones(3, 1), "hw(h100, wgmma, e4m3)", tmp_path)
    assert values(tmp_path, "a")[1]["format"] == "e4m3"  # the instruction's own cast


def test_further_files_and_what_an_earlier_call_left(tmp_path):
    sums = gs.qmatmul(torch.ones(2, 4), torch.ones(4, 2), ":int(20)")
    gs.export_vectors(torch.ones(2, 4), torch.ones(4, 2), "int8 : int(20)", tmp_path, steps=True, directed=True)
    (tmp_path / "mine.txt").write_text("kept")
    gs.export_vectors(
        torch.ones(2, 4), torch.ones(4, 2), "int8 : int(20)", tmp_path, also={"halved": (sums / 2 - 4, "int8")}
    )
    assert read(tmp_path / "halved.hex") == [0xFE] * 4
    assert not (tmp_path / "steps.hex").exists() and not list(tmp_path.glob("directed/*/*"))
    assert (tmp_path / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize(
    ("a", "b", "spec", "options", "error", "says"),
    [
        ([[1.0]], [[1.0]], "mxfp8_e4m3 : fp32", {}, VectorsError, "share scales"),
        ([[1.0]], [[1.0]], "e4m3/sr : fp32", {}, VectorsError, "rounded at random"),
        ([[1.0]], [[1.0]], "e4m3 : kahan(bf16)", {"steps": True}, gs.SpecError, "one accumulator per step"),
        (torch.ones(2, 3), torch.ones(2, 3), "e4m3 : fp32", {}, gs.ShapeError, "Transpose one"),
        (torch.ones(2, 2, 3), torch.ones(3, 1), "e4m3 : fp32", {}, gs.ShapeError, "Choose one product of a batch"),
        (torch.ones(0, 3), torch.ones(3, 1), "e4m3 : fp32", {}, VectorsError, "at least one row"),
        (torch.ones(1, 0), torch.ones(0, 1), "e4m3 : fp32", {}, VectorsError, "at least one row"),
        ([["x"]], [[1]], "e4m3 : fp32", {}, gs.DTypeError, "nested list of numbers"),
        (torch.ones(1, 1, dtype=torch.complex64), [[1]], ":fp32", {}, gs.DTypeError, "complex64"),
        ([[2**60]], [[1]], "int8 : int(20)", {}, gs.DTypeError, "2.53"),
        ([[2**40]], [[1]], ":int(53)", {}, VectorsError, "a as codes of fixed.32,0."),
        ([[0.5]], [[1.0]], ":int(8)", {}, VectorsError, "(?s)not integers in int.8..*int8 : int.8."),
        (
            [[float("nan")]],
            [[1.0]],
            "int8 : int(8)",
            {},
            VectorsError,
            "nan is not one of its values; allowed: numbers",
        ),
        ([[float("nan")]], [[1.0]], "e4m3 : fixed(9, 1)", {"steps": True}, VectorsError, "NaN|nan"),
        ([[1.0]], [[1.0]], "e4m3 : fp33", {}, gs.SpecError, "fp33"),
        ([[1.0]], [[1.0]], "e4m3 : fp32", {"also": {"a": (torch.ones(1), "int8")}}, VectorsError, "a unique name"),
        ([[1.0]], [[1.0]], "e4m3 : fp32", {"also": {"x": (torch.ones(1) / 2, "int8")}}, VectorsError, "x as codes"),
        (torch.ones(1, 2**24), torch.ones(2**24, 1), "e4m3 : fp32", {}, VectorsError, "33,554,433 words"),
        (torch.ones(200, 300), torch.ones(300, 300), "e4m3 : fp32", {"steps": True}, VectorsError, "with steps"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_anything_is_written(tmp_path, a, b, spec, options, error, says):
    with pytest.raises(error, match=says):
        gs.export_vectors(a, b, spec, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_files_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(VectorsError, match="cannot write"):
        gs.export_vectors([[1.0]], [[1.0]], "e4m3 : fp32", tmp_path / "file")

    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "write_text", full)
    with pytest.raises(VectorsError, match="No space left"):
        gs.export_vectors([[1.0]], [[1.0]], "e4m3 : fp32", tmp_path / "new")


def case(spec, name, terms=16):
    return next(one for one in directed_cases(spec, terms) if one.name == name)


def test_extremes_meet_in_every_pair():
    found = case("int8*uint4 : int(20)", "extremes")
    assert found.a[:, 0].tolist() == [127, -128, 1, -1, 0] and found.b[0].tolist() == [15, 0, 1]
    assert (found.a == found.a[:, :1]).all() and found.a.shape == (5, 16)
    assert case("e2m1 : fp32", "extremes").a[:, 0].tolist() == [6, -6, 0.5, -0.5, 0]


@pytest.mark.parametrize("operands", ["int8", "uint8 * int8", "int8 * uint8", "e4m3"])
def test_alternating_products_change_their_sign(operands):
    found = case(f"{operands} : fp32", "alternating")
    products = (found.a[:, :, None] * found.b).sign().transpose(1, 2)[..., :15]  # the falling one ends with zeros
    full = (products[..., 1:] * products[..., :-1] == -1).all(-1)
    assert full.any() and products.abs().sum(-1).bool().all()
    turning = found.b.T if operands == "uint8 * int8" else found.a
    assert len(turning) == 3 and (turning[:2, 1:].sign() * turning[:2, :-1].sign() == -1).all()
    assert "no product is negative" not in found.about
    assert ("columns of b: 127.0 and -128.0 in turn" in found.about) == (operands == "uint8 * int8")


def test_alternating_operands_of_unsigned_formats_say_that_no_product_is_negative():
    found = case("uint8 * uint4 : int(20)", "alternating")
    assert "rows of a: 255.0 and 0.0 in turn" in found.about and "no product is negative" in found.about
    assert (found.a[:, :, None] * found.b >= 0).all()


@pytest.mark.parametrize(
    "spec", ["int8 : int(18)", "int4 : int(9, saturate)", "fixed(6,2) : fixed(9, 1, rounding=rne)"]
)
@pytest.mark.parametrize("terms", [16, 41])
def test_the_accumulator_overflows_at_the_step_that_is_stated(spec, terms):
    found = case(spec, "overflow", terms)
    said = [
        part.split(" at step ")[1].split() for part in found.about.split("overflows ")[1].split(", row")[0].split("; ")
    ]
    assert len(said) == len(found.a) >= 4 and {int(words[0]) for words in said} >= {terms - 1}
    for row, words in zip(found.a, said, strict=True):
        step, column = int(words[0]), int(words[3])
        counts = [
            int(gs.count_overflows(row[None, :k], found.b[:k, column : column + 1], spec)) for k in range(1, terms + 1)
        ]
        assert counts[step] == 1 and not any(counts[:step])


def test_every_level_of_a_tree_overflows():
    for widths, outer, first in (([15, 17], 20, 1), ([16, 16], 20, 2), ([16, 17], 17, 4)):
        spec = f"int8 : adder_tree({widths}, {outer})"
        found = case(spec, "overflow", 16)
        assert f"above at term {first} (" in found.about and found.about.endswith("(terms count from 0)")
        for row in found.a:
            exact, got = row[None] @ found.b, gs.qmatmul(row[None], found.b, spec)
            assert (exact != got).any()


@pytest.mark.parametrize(
    ("accumulator", "name", "every"),
    [
        ("adder_tree([17, 18], 18)", "totals_2", 4),
        ("adder_tree([16, 16], 20)", "totals_1", 2),
        ("adder_tree([15, 17], 20)", "steps", 2),
        ("chunked(4, int(16, saturate), fixed(20,0))", "steps", 1),
    ],
)
def test_a_term_of_a_tree_is_told_from_the_step_that_overflows(tmp_path, accumulator, name, every):
    spec = f"int8 : {accumulator}"
    gs.vectors.export_directed(spec, 30, tmp_path, steps=True)
    folder = tmp_path / "overflow"
    about = json.loads((folder / "spec.json").read_text())
    said = re.findall(r"(above|below) at term (\d+) \((?:term|terms) (\d+)(?: to (\d+))? of (\w+)\) in", about["case"])
    assert len(said) == about["M"] >= 2 and {one[4] for one in said} == {name}
    found, entry = values(folder, name)
    fmt = formats.parse_scalar(entry["format"])
    words = torch.tensor(found, dtype=torch.float64).reshape(about["M"], about["N"], -1)
    for row, (end, term, first, last, _) in enumerate(said):
        assert int(first) <= int(term) <= int(last or first) and int(first) % every == 0
        column, limit = (0, fmt.max) if end == "above" else (1, fmt.min)
        reached = torch.nonzero(words[row, column] == float(limit))[:, 0]
        assert reached[0] == int(first) // every


def test_floats_overflow_at_the_step_that_is_stated():
    found = case("e4m3 : e5m10", "overflow", 8)
    rows = [gs.trace(row.tolist(), found.b[:, 0].tolist(), "e4m3 : e5m10") for row in found.a[:3]]
    for row, step in zip(rows, (0, 3, 7), strict=True):
        sums = [one.value for one in row.steps if one.kind == "add"]
        assert abs(sums[step]) == float("inf") and all(s == 0 for s in sums[:step])


@pytest.mark.parametrize(
    "spec",
    ["e4m3 : e5m4", "e2m1 : e3m2/rtz", "fixed(6,2) : fixed(10,3)", "fixed(6,3) : fixed(12, 4, rounding=rne)", ": bf16"],
)
def test_ties_are_half_way_between_neighbours(spec):
    found = case(spec, "ties")
    assert found.a is not None and len(found.a) >= 4
    for row in range(len(found.a)):
        story = gs.trace(found.a, found.b, spec, at=[row, 0])
        rounded = [step for step in story.steps if step.kind in ("add", "product") and step.is_rounded]
        assert len(rounded) == 1
        (step,) = rounded
        fmt = formats.parse_cast(step.cast).format
        exact = torch.tensor([float(step.exact)], dtype=torch.float64)
        down, up = (gs.quantize(exact, formats.Cast(fmt, way)) for way in (formats.Rounding.RD, formats.Rounding.RU))
        assert float(exact) == step.exact and float(exact - down) == float(up - exact) > 0


def test_cases_that_a_spec_has_not_say_why():
    assert case("int8 : int(20)", "ties").a is None and "not rounded" in case("int8 : int(20)", "ties").about
    assert "overflows the accumulator" in case("int8 : int(40)", "overflow").about
    assert "not counted" in case("e4m3 : hw(h100, wgmma, e4m3)", "overflow").about
    assert "not one accumulator" in case("e4m3 : pairwise(bf16)", "ties").about
    assert "chunks have one term" in case("e4m3 : chunked(1, bf16)", "ties").about
    for wrong in (0, -1, True, 2.5):
        with pytest.raises(VectorsError, match="an integer from 1"):
            directed_cases("e4m3 : fp32", wrong)
    with pytest.raises(VectorsError, match="share scales"):
        directed_cases("mxfp8_e4m3 : fp32", 4)


def test_readme_describes_the_accumulators_of_a_tree(tmp_path):
    spec = "uint8 * int8 : adder_tree([16, 17], 18)"
    gs.export_vectors(torch.ones(1, 8), torch.ones(8, 1), spec, tmp_path, steps=True)
    text = (tmp_path / "README.txt").read_text()
    assert "totals_1.hex   of chunked, promote and adder_tree" in text and "In an adder_tree" in text
    assert "steps.hex      fixed(16,0), a word for every 2 terms, starts again after 2 terms" in text
    assert "totals_1.hex   fixed(17,0), a word for every 2 terms, starts again after 4 terms" in text
    assert "totals_2.hex   fixed(18,0), a word for every 4 terms, never starts again" in text
    gs.export_vectors(torch.ones(1, 8), torch.ones(8, 1), spec, tmp_path)
    assert "The accumulators of" not in (tmp_path / "README.txt").read_text()


@pytest.mark.parametrize(("accumulator", "explained"), [("adder_tree([16, 17], 18)", True), ("int(18)", False)])
def test_readme_tells_terms_from_steps_where_they_differ(tmp_path, accumulator, explained):
    gs.vectors.export_directed(f"int8 : {accumulator}", 32, tmp_path)
    assert ("A term is an index along K" in (tmp_path / "README.txt").read_text()) == explained


@pytest.mark.parametrize("x", [[[448.0, -2.0]], [[0.0, 0.0]], [[3.0, float("nan")]], [[float("inf"), -7.0]]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_scaled_operands_are_float64_at_every_factor(x, dtype):
    given = torch.tensor(x, dtype=dtype)
    found, factor = gs.vectors.scaled_to(given, "e4m3 : fp32", 0)
    assert found.dtype == torch.float64 and torch.equal(found.nan_to_num(9), (given.double() * factor).nan_to_num(9))
    finite = found[found.isfinite()].abs()
    assert float(finite.max()) in (0.0, 448.0) and (factor == 1) == (x[0][0] in (448.0, 0.0))


def test_integers_and_operands_without_a_cast_are_not_scaled_and_keep_their_dtype():
    for given, spec in ((torch.tensor([[3, -2]]), "e4m3 : fp32"), (torch.tensor([[3.0, -2.0]]), ": fp32")):
        found, factor = gs.vectors.scaled_to(given, spec, 0)
        assert found is given and factor == 1.0
