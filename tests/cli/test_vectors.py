"""gemmsim vectors: files, captured products and directed cases, and what is said of mistakes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim.cli.app import app


def vectors(*words):
    return CliRunner().invoke(app, ["vectors", *map(str, words)])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("operands")
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-128, 128, shape, generator=g, dtype=torch.int8) for shape in ((3, 6), (6, 4)))
    np.save(folder / "a.npy", a.numpy())
    save_file({"b": b, "weight": b.T.contiguous(), "real": torch.randn(6, 4, generator=g)}, folder / "b.safetensors")
    with gs.capture(to=folder / "o.safetensors"):
        torch.randn(5, 6, generator=g) @ torch.randn(6, 4, generator=g)
    return folder, a, b


def words(path):
    return [int(line, 16) for line in path.read_text().splitlines() if not line.startswith("//")]


def test_files_give_the_words_of_the_function(files, tmp_path):
    folder, a, b = files
    done = vectors(
        "int8 : int(17)", "--a", folder / "a.npy", "--b", f"{folder / 'b.safetensors'}:b", "--steps", "--directed",
        "--out", tmp_path / "shell",
    )  # fmt: skip
    assert done.exit_code == 0 and "expected.hex 12 x 17 bits" in done.stdout, done.output
    there = gs.export_vectors(a, b, "int8 : int(17)", tmp_path / "api", steps=True, directed=True)
    for path in there:
        for file in path.glob("*.*"):
            assert file.read_text() == (tmp_path / "shell" / file.relative_to(tmp_path / "api")).read_text()
    turned = vectors(
        "int8 : int(17)", "--a", folder / "a.npy", "--b", f"{folder / 'b.safetensors'}:weight", "--transpose", "b",
        "--out", tmp_path / "turned",
    )  # fmt: skip
    assert turned.exit_code == 0
    assert words(tmp_path / "turned/expected.hex") == words(tmp_path / "shell/expected.hex")


def test_a_captured_product_scaled_to_integers(files, tmp_path):
    folder = files[0]
    done = vectors(
        "--spec", "int8 : int(20)", "--captured", folder / "o.safetensors", "--scaled", "tensor", "--most", 2,
        "--out", tmp_path, "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    (entry,) = json.loads(done.stdout)["folders"]
    assert (entry["M"], entry["K"], entry["N"]) == (2, 6, 2) and entry["files"]["a"] == [12, 8]
    found = gs.vectors.captured_product(folder / "o.safetensors")
    left = gs.quantize(found.a.double() * (127 / float(found.a.abs().max())), "int8")[[0, 4]]
    assert words(tmp_path / "a.hex") == [int(x) & 255 for x in left.flatten()]
    plain = vectors("int8 : int(20)", "--captured", f"{folder / 'o.safetensors'}:-", "--out", tmp_path)
    assert plain.exit_code == 0 and "30 of 30 numbers of a are not in fixed(8,0)" in plain.stderr


def test_directed_cases_alone(tmp_path):
    done = vectors("int8 : int(18)", "--directed", "--terms", 10, "--steps", "--out", tmp_path)
    assert done.exit_code == 0 and "ties: none" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        "README.txt",
        "extremes",
        "alternating",
        "overflow",
        "recover",
    }
    assert len(words(tmp_path / "extremes/steps.hex")) == 250
    assert "above at step 9" in json.loads((tmp_path / "overflow/spec.json").read_text())["case"]
    again = vectors("int8 : int(40)", "--directed", "--terms", 10, "--out", tmp_path)
    assert again.exit_code == 0 and not list((tmp_path / "overflow").iterdir())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "no operands; allowed: --a FILE --b FILE"),
        (["--a", "A"], "no operands"),
        (["--terms", "4"], "--terms without --directed"),
        (["--terms", "4", "--directed", "--a", "A", "--b", "B:b"], "--terms together with operands"),
        (["--terms", "0", "--directed"], "an integer from 1"),
        (["--a", "A", "--b", "B:b", "--captured", "O"], "--captured together with --a"),
        (["--a", "A", "--b", "B:c"], "holds no 'c'"),
        (["--a", "A", "--b", "B:weight"], "Transpose one with .mT"),
        (["--a", "A", "--b", "none.npy"], "there is no file"),
        (["--captured", "O:0/aten.mm"], "no product '0/aten.mm'"),
        (["--captured", "none.safetensors"], "there is no file"),
        (["--a", "A", "--b", "B:b", "--scaled", "row"], "--scaled row; allowed: none or tensor"),
        (["--a", "A", "--b", "B:b", "--transpose", "c"], "--transpose c; allowed: a, b or ab"),
        (["--a", "A", "--b", "B:b", "--most", "-1"], "--most -1"),
    ],
)
def test_mistakes_are_one_message(files, tmp_path, given, says):
    folder = files[0]
    places = {"A": "a.npy", "B": "b.safetensors", "O": "o.safetensors"}
    changed = [
        str(folder / places[word.partition(":")[0]]) + (":" + word.partition(":")[2] if ":" in word else "")
        if word.partition(":")[0] in places
        else word
        for word in given
    ]
    done = vectors("int8 : int(18)", *changed, "--out", tmp_path / "out")
    assert done.exit_code == 2 and says in done.stderr and not (tmp_path / "out").exists(), done.output
