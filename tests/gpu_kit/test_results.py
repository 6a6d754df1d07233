"""The results file: nothing that was found is lost, whoever ends, and files of other revisions are read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.gpu_kit import BENCHMARKS, environment

MACHINE = {"gpu": "H200", "torch": "2.11.0", "driver": "580"}


@pytest.fixture
def results(kit):
    return kit("gpu_results")


def test_findings_are_read_back_and_the_last_one_counts(results, tmp_path):
    one = results.Results(tmp_path)
    assert not one.begin(MACHINE, "abc") and not one.has("timings", "a")
    one.add("timings", "a", {"x": 1}, seconds=0.5)
    one.add("timings", "b", ok=False, error="E" * 5000)
    one.add("timings", "a", {"x": 2})
    one.state("timings", "done", "words")
    again = results.Results(tmp_path)
    assert again.begin(MACHINE, "abc") and again.run.is_done("timings")
    found = again.run.part("timings")
    assert found["a"].value == {"x": 2} and not found["b"].ok and 900 < len(found["b"].error) < 2000


@pytest.mark.parametrize("change", [{"gpu": "H100"}, {"torch": "2.12.0"}, {"driver": "590"}])
def test_another_machine_or_code_begins_a_run_of_its_own(results, tmp_path, change):
    one = results.Results(tmp_path)
    one.begin(MACHINE, "abc")
    one.add("tests", "a", 1)
    other = results.Results(tmp_path)
    assert not other.begin({**MACHINE, **change}, "abc") and not other.has("tests", "a")
    third = results.Results(tmp_path)
    assert not third.begin({**MACHINE, **change}, "abd") and third.begin({**MACHINE, **change}, "abd")
    assert not third.begin({**MACHINE, **change}, "abd", fresh=True)
    assert [len(run.findings) for run in results.read_runs(tmp_path / results.FILE)] == [1, 0, 0, 0]


def test_a_line_that_was_cut_short_is_left_out_and_the_next_one_is_whole(results, tmp_path):
    one = results.Results(tmp_path)
    one.begin(MACHINE, "abc")
    one.add("tests", "a", 1)
    whole = one.path.read_bytes()
    for cut in range(1, 40):
        one.path.write_bytes(whole[:-cut])
        again = results.Results(tmp_path)
        again.add("tests", "b", 2)
        runs = results.read_runs(one.path)
        assert len(runs) == 1 and runs[0].part("tests")["b"].value == 2
        assert ("a" in runs[0].part("tests")) == (cut == 1), "without its newline the line is whole"


def test_files_of_older_and_newer_revisions_are_read(results, tmp_path):
    lines = [
        {"kind": "weather", "of": "no run"},
        {"kind": "finding", "part": "tests", "key": "before any run", "ok": True},
        {"kind": "run", "schema": 7, "machine": {"gpu": "X1", "moons": 2}, "code": "c", "colour": "blue"},
        {"kind": "finding", "part": "timings", "key": "products/:fp32", "ok": True, "value": {"tmacs": 3}, "new": [1]},
        {"kind": "finding", "part": "timings", "key": "old"},
        {"kind": "finding", "key": "without a part", "ok": True},
        {"kind": "state", "part": "timings", "state": "done"},
        {"kind": "hologram", "part": "timings"},
    ]
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\nno json\n[1, 2]\n\x00\n", encoding="utf-8")
    (run,) = results.read_runs(path)
    assert run.machine["gpu"] == "X1" and run.is_done("timings")
    assert run.part("timings")["products/:fp32"].value == {"tmacs": 3} and not run.part("timings")["old"].ok
    assert len(run.findings) == 2
    assert results.read_runs(tmp_path / "missing") == []


_WRITER = """
import sys
from pathlib import Path
from gpu_results import Results
one = Results(Path(sys.argv[1]))
for i in range(int(sys.argv[3])):
    one.add("tests", f"{sys.argv[2]} {i}", {"n": i, "text": "x" * 300})
"""


def _writer(folder: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    return subprocess.Popen([sys.executable, "-c", _WRITER, str(folder), name, str(count)], env=env)


def test_many_processes_write_to_one_file(results, tmp_path):
    results.Results(tmp_path).begin(MACHINE, "abc")
    running = [_writer(tmp_path, f"p{i}", 300) for i in range(4)]
    assert [process.wait(600) for process in running] == [0] * 4
    assert len(results.read_runs(tmp_path / results.FILE)[0].part("tests")) == 1200


def test_a_writer_that_is_killed_loses_one_finding_at_most(results, tmp_path):
    results.Results(tmp_path).begin(MACHINE, "abc")
    process = _writer(tmp_path, "p", 10**6)
    path = tmp_path / results.FILE
    until = time.monotonic() + 300
    while path.stat().st_size < 100_000 and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    keys = list(results.read_runs(path)[0].part("tests"))
    assert keys == [f"p {i}" for i in range(len(keys))] and len(keys) > 200


def test_what_is_measured_twice_raises_or_is_late(results, tmp_path):
    one = results.Results(tmp_path)
    one.begin(MACHINE, "abc")
    calls = []
    one.measure("timings", "a", lambda: calls.append(1) or 5)
    one.measure("timings", "a", lambda: calls.append(1) or 6)
    lost = []
    one.after_failure = lambda: lost.append(1)
    one.measure("timings", "b", lambda: 1 / 0)
    with one.guard("timings", "c"):
        raise RuntimeError("first\nsecond\n3\n4\n5")
    one.end = time.monotonic() - 1
    one.measure("timings", "d", lambda: 1)
    found = one.run.part("timings")
    assert calls == [1] and lost == [1, 1] and found["a"].value == 5 and "d" not in found
    assert found["b"].error == "ZeroDivisionError: division by zero"
    assert found["c"].error == "RuntimeError: first second 3 4"


def test_what_hangs_is_a_failure_and_ends_its_process(results, tmp_path):
    results.Results(tmp_path).begin(MACHINE, "abc")
    code = (
        "import sys, time; from pathlib import Path; from gpu_results import Results\n"
        "one = Results(Path(sys.argv[1]))\n"
        "one.measure('timings', 'a', lambda: time.sleep(60), limit=0.3)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment(), timeout=600)
    assert done.returncode == 86
    assert results.read_runs(tmp_path / results.FILE)[0].part("timings")["a"].error == "not done after 0 s"
