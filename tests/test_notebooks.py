"""Each notebook of docs/notebooks runs from top to bottom and prints what is stored in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import ROOT
from support.fork import run_forked

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

#: Runs the cells in one namespace and prints a JSON list with what each of them printed.
RUNNER = """
import contextlib, io, json, sys
import matplotlib
matplotlib.use("agg")
names, printed = {"__name__": "__main__"}, []
for cell in CELLS:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(cell, "<cell>", "exec"), names)
    printed.append(out.getvalue())
sys.stdout.write(json.dumps(printed))
"""


def code_cells(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def stored_text(cell: dict) -> str:
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


def test_there_are_three():
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_print_what_is_stored(path, tmp_path):
    cells = code_cells(path)
    done = run_forked(f"CELLS = {[''.join(cell['source']) for cell in cells]!r}\n{RUNNER}", cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [stored_text(cell) for cell in cells]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_has_a_picture(path):
    assert path.stat().st_size < 200_000
    outputs = [output for cell in code_cells(path) for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
