"""Where the GPU check cannot run it says so before it starts: exit code 2, what was asked, what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.gpu_kit import BENCHMARKS, check, environment


def run(**settings):
    driver = settings.pop("version", None)
    env = environment(**settings) | ({"STANDIN_DRIVER": driver} if driver else {})
    return subprocess.run([sys.executable, str(BENCHMARKS / "gpu_machine.py")], env=env, capture_output=True, text=True)


def test_a_machine_that_is_ready():
    done = run()
    assert done.returncode == 0 and "stand-in for an NVIDIA H200, PyTorch 2." in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cuda": ""}, "a build without CUDA; allowed: a build for CUDA 13"),
        ({"cuda": "12.8"}, "built for CUDA 12.8; allowed: a build for CUDA 13"),
        ({"version": "12040"}, "an NVIDIA driver for CUDA 12.4; allowed: a driver for CUDA 13, 580 or newer"),
        ({"driver": False}, "no NVIDIA driver (libcuda.so.1"),
        ({"gpu": False}, "a driver, but no GPU that PyTorch can use"),
        ({"capability": [7, 5]}, "of compute capability 7.5; allowed: 8.0 (A100) and newer"),
    ],
    ids=str,
)
def test_a_machine_that_is_not(settings, words):
    done = run(**settings)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and words in done.stderr, done.stderr
    assert "\n  " in done.stderr, "what to do"


def test_python_without_torch():
    code = "import sys; sys.modules['torch'] = None; sys.argv = ['x']; import gpu_machine; sys.exit(gpu_machine.main())"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.returncode == 2 and "has no PyTorch that can be imported" in done.stderr and "PYTHON=" in done.stderr


def test_the_check_says_the_same(tmp_path):
    done = check(tmp_path / "out", cuda="")
    assert done.returncode == 2 and "a build without CUDA" in done.stderr
    assert not (tmp_path / "out" / "results.jsonl").exists()


def test_the_clock_is_what_nvidia_smi_said_meanwhile(kit, tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho $@ > $0.args\nfor c in 1000 1500 '[N/A]' 1980; do echo $c; done; sleep 30\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    machine = kit("gpu_machine")
    import time

    begin = time.monotonic()
    with machine.Clock("GPU-1") as clock:
        while len(clock._clocks) < 3 and time.monotonic() < begin + 300:
            time.sleep(0.01)
        assert clock.between(begin, time.monotonic()) == 1500 and clock.between(begin - 2, begin - 1) is None
    assert "--id=GPU-1 --loop-ms=50" in (tmp_path / "nvidia-smi.args").read_text()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with machine.Clock("GPU-1") as clock:
        assert clock.between(begin, time.monotonic()) is None
