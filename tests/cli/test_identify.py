"""``gemmsim identify``."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim.cli.app import app
from gemmsim.cli.identify import read_function, read_numbers


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_kernels.py").write_text(
        "import gemmsim as gs\n\n\nclass K:\n    @staticmethod\n    def runs(a, b):\n"
        '        return gs.qmatmul(a, b, ":chunked(8, fp16)")\n\n\ndef biased(a, b):\n    return a @ b + 1\n\n\nnumber = 3\n'
    )
    return "my_kernels:K.runs"


def run(*words, code=0):
    result = CliRunner().invoke(app, ["identify", *words])
    assert result.exit_code == code, result.output
    return result


def test_a_function_of_the_folder(mine, tmp_path):
    said = run(mine, "--shape", "4x32x4").stdout
    assert "spec: :chunked(8, fp16)" in said and "equal in 2048 of 2048 outputs" in said
    found = json.loads(run(mine, "--shape", "4x32x4", "--json", "--svg", "tree.svg").stdout)
    assert found["verified"] and found["order"] == "0:8 (8:16)*3"
    assert (tmp_path / "tree.svg").read_text().startswith("<svg")


def test_compare_says_where_they_part_and_exits_with_1(mine):
    said = run(mine, "--shape", "4x32x4", "--compare", ":fp16", code=1).stdout
    assert "compared with :e5m10: differs" in said and "spec: :chunked(8, fp16)" in said
    run(mine, "--shape", "4x32x4", "--compare", ":chunked(8, fp16)")


def test_over_sizes(mine):
    said = run(mine, "--shape", "4x32x4", "--over-K", "16:32:x2", "--over-M", "1:2").stdout
    assert "rule: M 1 to 2, K 16 to 32: :chunked(8, fp16)" in said
    found = json.loads(run(mine, "--over-M", "1", "--shape", "4x32x4", "--json").stdout)
    assert len(found["answers"]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["torch.nothing"], "no function 'torch.nothing'"),
        (["nowhere:f"], "ModuleNotFoundError"),
        (["mm"], "a module and a function in it"),
        (["my_kernels:number"], "it is a int"),
        (["my_kernels:biased"], "zeros give 1"),
        (["torch.mm", "--dtype", "fp17"], "--dtype 'fp17'"),
        (["torch.mm", "--shape", "64x64"], "allowed: MxKxN"),
        (["torch.mm", "--over-K", "0:3"], "--over-K '0:3'"),
        (["torch.mm", "--over-K", "3:5:x1"], "--over-K"),
        (["torch.mm", "--over-M", "1:100000"], "at most 1000 numbers"),
        (["torch.mm", "--over-M", "1:2", "--compare", ":fp32"], "--compare with a range of sizes"),
    ],
)
def test_mistakes_are_one_message(mine, words, said):
    result = run(*words, code=2)
    assert said in result.output and "Traceback" not in result.output


def test_ranges():
    assert read_numbers("1:3", "-") == [1, 2, 3] and read_numbers("64:512:x2,700", "-") == [64, 128, 256, 512, 700]
    assert read_numbers("8:20:+6", "-") == read_numbers("8:20:6", "-") == [8, 14, 20]
    assert read_function("numpy.matmul").__name__ == "matmul" and read_function("gemmsim:qmatmul") is gs.qmatmul
