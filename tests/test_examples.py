"""The examples run, in their smoke mode: metrics, a checkpoint and a picture come out; a second call only reads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support import ROOT

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
    command = [
        sys.executable,
        str(ROOT / "examples" / f"{example}.py"),
        "--smoke",
        "--out",
        str(tmp_path),
        "--only",
        run,
    ]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    outputs = []
    for _ in range(2 if example == "digits_lenet" else 1):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        outputs.append(done)
    (folder,) = (tmp_path / name).iterdir()
    (row,) = train.read_metrics(folder)
    assert 0 < row["loss"] < 5 and (folder / "checkpoint.pt").exists()
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "epoch 1/1" in outputs[0].stderr
    for again in outputs[1:]:
        assert "epoch 1/1" not in again.stderr and again.stdout == outputs[0].stdout
