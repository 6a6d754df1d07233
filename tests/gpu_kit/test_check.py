"""The whole GPU check against a stand-in for driver and device: complete, killed, with kernels that are wrong or fail.

Which kernels exist and how they are launched is real, results are the CPU backend's; tests and products are few.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.gpu_kit import check, command, environment

pytestmark = pytest.mark.cuda

#: Three tests of one kernel family each.
FEW = "test_overflows_of_scaled_sums or test_mixed_devices or test_addends_and_palettes"
#: Of one of their kernels, and of no other.
MEMBER = "kahan(e5m2)"
PARTS = ("tests", "random")


@pytest.fixture
def read(kit):
    """The last run of a folder."""
    return lambda folder: kit("gpu_results").read_runs(folder / "results.jsonl")[-1]


@pytest.fixture
def draws(kit, tmp_path):
    """A file of six random products."""
    bits = kit("gpu_bits")
    bits.write_draws(tmp_path / "draws.xz", [bits.draw(index) for index in range(6)])
    return str(tmp_path / "draws.xz")


def kernels_of(part):
    return [one.error for one in part.values() if not one.ok]


def test_complete_and_once(read, draws, tmp_path):
    out = tmp_path / "out"
    done = check(out, "--only", "probes", "verdicts", *PARTS, "--draws", draws, tests=FEW)
    assert done.returncode == 0, done.stdout + done.stderr
    run = read(out)
    counts = {name: len(run.part(name)) for name in ("undecided", "smoke", "random", "probes")}
    assert counts == {"undecided": 8, "smoke": 12, "random": 6, "probes": 16}
    assert all(one.ok for one in run.findings.values()) and len(run.part("verdicts")) >= 15
    outcomes = [one.value["outcome"] for one in run.part("tests").values()]
    assert outcomes.count("passed") >= 3 and all(run.is_done(name) for name in (*PARTS, "smoke", "verdicts"))
    units = str(run.part("smoke")["gemm_instruction"].value)
    assert "wgmma.m64" in units and "mma.m16" in units
    assert run.machine["gpu"] == "stand-in for an NVIDIA H200" and run.machine["arch"] == "sm_90a"
    before = (out / "results.jsonl").read_bytes()
    again = check(out, "--only", *PARTS, "--draws", draws, tests=FEW)
    assert again.returncode == 0 and (out / "results.jsonl").read_bytes() == before, "nothing is done twice"
    assert {path.name for path in out.iterdir()} == {".lock", "results.jsonl", "run.log", "summary.txt"}


def test_a_kernel_with_wrong_bits_is_named(read, draws, tmp_path):
    out = tmp_path / "out"
    done = check(out, "--only", *PARTS, "--draws", draws, tests=FEW, wrong=MEMBER)
    errors = kernels_of(read(out).part("tests"))
    assert done.returncode == 1 and len(errors) == 1 and "kernels gemm<" in errors[0] and MEMBER in errors[0]
    assert all(one.ok for one in read(out).part("random").values())


@pytest.mark.long
def test_wrong_bits_in_smoke_stop_the_run_but_for_who_asks_for_it(read, draws, tmp_path):
    out = tmp_path / "out"
    done = check(out, "--only", "random", "--draws", draws, wrong="gemm<")
    assert done.returncode == 2 and "smoke failed: gemm: AssertionError" in done.stderr
    assert "results differ from the CPU's: gemm<" in done.stderr and "--despite-smoke" in done.stderr
    done = check(out, "--only", "random", "--draws", draws, "--despite-smoke", wrong="gemm<")
    found = kernels_of(read(out).part("random"))
    assert done.returncode == 1 and len(found) >= 4 and all("kernels gemm<" in error for error in found)


@pytest.mark.long
def test_a_kernel_that_fails_to_launch_stops_smoke_and_fails_its_test_alone(read, tmp_path):
    done = check(tmp_path / "a", fails="rows<")
    assert done.returncode == 2 and "smoke failed: rows: DriverError" in done.stderr and "rows<" in done.stderr
    out = tmp_path / "b"
    done = check(out, "--only", "tests", tests=FEW, fails=MEMBER)
    errors = kernels_of(read(out).part("tests"))
    assert done.returncode == 1 and len(errors) == 1 and "could not launch gemm<" in errors[0]


@pytest.mark.long
def test_a_kernel_that_takes_the_gpu_away_takes_one_test_with_it(read, draws, tmp_path):
    out = tmp_path / "out"
    done = check(out, "--only", *PARTS, "--draws", draws, tests=FEW, faults=MEMBER)
    run = read(out)
    errors = kernels_of(run.part("tests"))
    assert done.returncode == 1 and len(errors) == 1, errors
    assert "illegal memory access" in errors[0] and MEMBER in errors[0]
    assert len(run.part("tests")) == len(read_tests(run)) and len(read_tests(run)) >= 3
    assert all(one.ok for one in run.part("random").values()) and len(run.part("random")) == 6


def read_tests(run):
    return [name for name in run.part("tests") if "::" in name]


def begun(out: Path, part: str, findings: int) -> bool:
    """Whether ``part`` has begun and has so many findings."""
    try:
        text = (out / "results.jsonl").read_text()
    except FileNotFoundError:
        return False
    return text.count(f'"kind": "finding", "part": "{part}"') >= findings and (
        part == "smoke" or f'"kind": "state", "part": "{part}", "state": "started"' in text
    )


#: Where it is killed: the part, how many findings it has then, the kernel at which it waits for that.
POINTS = [("smoke", 5, "gemm<"), ("tests", 1, MEMBER), ("random", 2, "interleaved(4, e5m2/sat)")]


@pytest.mark.parametrize(
    ("part", "findings", "slow"),
    [pytest.param(*point, id=point[0], marks=[] if point[0] == "tests" else pytest.mark.long) for point in POINTS],
)
def test_killed_and_called_again(read, draws, tmp_path, part, findings, slow):
    out = tmp_path / "out"
    options = ["--only", *PARTS, "--draws", draws]
    os.environ.pop("GEMMSIM_GPU_RUN", None)
    env = environment(tests=FEW, slow_kernel=slow, slow=900.0)
    process = subprocess.Popen(command(out, *options), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 800
    while not begun(out, part, findings) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL if part != "tests" else signal.SIGTERM)
    code = process.wait(300)
    assert code == (143 if part == "tests" else -signal.SIGKILL), "it was not killed in its work"
    while left_over(out) and time.monotonic() < until:  # children end with their parent
        time.sleep(0.02)
    assert not left_over(out)
    before = read(out)
    done = check(out, *options, tests=FEW)
    assert done.returncode == 0, done.stdout + done.stderr
    after = read(out)
    assert len(before.findings) >= findings and after.name == before.name, "the same run goes on"
    assert all(after.findings[key] == found for key, found in before.findings.items()), "nothing was lost or done again"
    assert len(after.part("random")) == 6 and len(after.part("smoke")) == 12 and len(read_tests(after)) >= 3


def left_over(out: Path) -> list[str]:
    """Processes of a run that are still there."""
    wanted, found = f"GEMMSIM_GPU_RUN={out.resolve()}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_one_run_at_a_time(kit, tmp_path):
    process = kit("gpu_process")
    with process.locked(tmp_path / "out"):
        done = check(tmp_path / "out")
    assert done.returncode == 2 and "another run writes to" in done.stderr


def test_time_that_is_over_is_said(read, tmp_path):
    done = check(tmp_path / "out", "--only", "tests", "--minutes", "0.001", "--despite-smoke")
    assert done.returncode in (1, 3) and "tests: not run" in done.stdout


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        pytest.param('while [ "$1" != "$PYTHON_OF_TEST" ]; do shift; done; exec "$@"', 0,
                     "compute-sanitizer found nothing", id="fine", marks=pytest.mark.long),
        pytest.param('while [ "$1" != "$PYTHON_OF_TEST" ]; do shift; done; "$@"; echo "Invalid __global__ write of size 4";'
                     " exit 99", 2, "sanitizer failed: exit code 99", id="finds"),
        pytest.param('echo "Error: Device not supported"; exit 1', 0, "compute-sanitizer did not run (exit code 1)",
                     id="refuses", marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_smoke_under_compute_sanitizer(read, tmp_path, monkeypatch, script, code, words):
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHON_OF_TEST", sys.executable)
    done = check(tmp_path / "out", "--only", "probes")
    assert done.returncode == code and words in done.stdout + done.stderr, done.stdout + done.stderr
    if code == 2:
        assert "Invalid __global__ write" in done.stderr
    assert len(read(tmp_path / "out").part("smoke")) == 12


@pytest.mark.long
def test_a_process_that_dies_and_tests_of_which_none_passed_are_failures(read, tmp_path, monkeypatch):
    out = tmp_path / "out"
    done = check(out, "--only", "tests", tests="test_more_than_two_to_the_31_elements")
    assert done.returncode == 1 and read(out).part("tests")["all of them"].error == "no test passed"
    assert [one.value["why"] for one in read(out).part("tests").values() if one.ok] == [
        "Skipped: needs 12 GiB of GPU memory"
    ]
    done = check(out, "--only", "tests", "--fresh", tests="test_mixed ) syntax")
    process = read(out).part("tests")["the process"]
    assert done.returncode == 1 and "exit code 4" in process.error and "syntax" in process.error
