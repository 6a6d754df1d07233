"""The examples run, in their smoke mode: metrics, a checkpoint and a picture come out; a second call only reads."""

from __future__ import annotations

import pytest
from support import ROOT
from support.fork import run_forked

from gemmsim import train

EXAMPLES = {
    "digits_lenet": ("lenet", "e6m3 accumulator, stochastic"),
    "digits_resnet20": ("resnet20", "FP8, e6m4 accumulator"),
    "gpt": ("gpt", "FP8, e6m7 accumulator, fp16 softmax and norms"),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs(example, tmp_path):
    for package in ("matplotlib", "sklearn"):
        pytest.importorskip(package)
    name, run = EXAMPLES[example]
    script = ROOT / "examples" / f"{example}.py"
    command = [str(script), "--smoke", "--out", str(tmp_path), "--only", run]
    code = (
        f"import runpy, sys, torch\ntorch.set_num_threads(1)\nsys.argv, sys.path[0] = {command!r}, {str(script.parent)!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    outputs = []
    for _ in range(2 if example == "digits_lenet" else 1):
        done = run_forked(code, timeout=300)
        assert done.returncode == 0, done.stderr
        outputs.append(done)
    (folder,) = (tmp_path / name).iterdir()
    (row,) = train.read_metrics(folder)
    assert 0 < row["loss"] < 5 and (folder / "checkpoint.pt").exists()
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "epoch 1/1" in outputs[0].stderr
    for again in outputs[1:]:
        assert "epoch 1/1" not in again.stderr and again.stdout == outputs[0].stdout
