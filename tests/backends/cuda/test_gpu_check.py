"""``benchmarks/gpu_check.py`` without a GPU: parts that hang or die keep what they had found, and their neighbours."""

from __future__ import annotations

import importlib
import json
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from support import ROOT

MACHINE = {"gpu": "none", "driver_and_clock": "580.1, 1980 MHz"}
#: A part that saves what it finds, and then does what ``{then}`` says.
PART = """
import os, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, {folder!r})
from gpu_findings import Findings
findings = Findings(Path({path!r}), 60)
findings.measure("products", "e4m3 : e5m10", lambda: {{"tmacs": 2.0, "limit": None}})
findings.measure("products", "bad", lambda: 1 / 0)
{then}
"""


@pytest.fixture
def gpu_check(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    names = ("gpu_check", "gpu_bits", "gpu_findings", "gpu_timings")
    yield importlib.import_module("gpu_check")
    for name in names:
        sys.modules.pop(name, None)


def test_a_part_that_hangs_or_dies_leaves_the_others_and_its_own_findings(gpu_check, monkeypatch, tmp_path):
    child = tmp_path / "child"
    hang = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid"
    then = {
        "instructions": f"Path({str(child)!r}).write_text(str({hang})); time.sleep(60)",
        "random": "os.abort()",
        "timings": "sys.exit(0)",
    }

    def command_of(name, seconds, path, clock):
        code = PART.format(folder=str(ROOT / "benchmarks"), path=str(path), then=then.get(name, ""))
        return [sys.executable, "-c", code]

    monkeypatch.setattr(gpu_check, "command_of", command_of)
    monkeypatch.setattr(gpu_check, "PARTS", dict.fromkeys(gpu_check.PARTS, 0.1) | {"instructions": 0.0})
    part, limits = gpu_check.part, {"instructions": 4.0}
    monkeypatch.setattr(gpu_check, "part", lambda *args: part(*args[:3], limits.get(args[0], args[3])))
    written = []
    write = gpu_check.write_whole
    monkeypatch.setattr(gpu_check, "write_whole", lambda path, text: (written.append(path.name), write(path, text)))
    report = gpu_check.check(tmp_path / "out", 300.0, MACHINE)
    assert report["instructions"]["errors"]["process"] == "ended after 4 s"
    assert report["random"]["errors"]["process"] == "ended with code -6"
    for name in gpu_check.PARTS:
        assert report[name]["products"] == {"e4m3 : e5m10": {"tmacs": 2.0, "limit": None}}
        assert report[name]["errors"]["products: bad"].startswith("ZeroDivisionError") and not report[name]["ok"]
    assert json.loads((tmp_path / "out" / "gpu_check.json").read_text()) == report
    assert written == ["gpu_check.json", "gpu_check.md"] * len(gpu_check.PARTS), "after every part"
    page = (tmp_path / "out" / "gpu_check.md").read_text()
    assert "| `e4m3 : e5m10` | 2.00 |" in page and "* random: process: ended with code -6" in page
    time.sleep(0.2)
    state = (SimpleNamespace(text=f"/proc/{child.read_text()}/stat")).text
    try:
        with open(state) as file:
            assert file.read().rpartition(")")[2].split()[0] == "Z", "what a part started is ended with it"
    except FileNotFoundError:
        pass


def test_a_page_of_nothing_and_no_time(gpu_check, tmp_path):
    assert "| tests | not run |" in gpu_check.markdown({"machine": MACHINE})
    assert gpu_check.tables({"casts_of_copy": {"FP[1|4|3,7]": 0.5}}, {})[5] == "| `FP[1\\|4\\|3,7]` | 0.500 |"
    report = gpu_check.check(tmp_path, 0.0, MACHINE)
    assert {found["errors"]["process"] for found in report.values() if "errors" in found} == {"no time was left"}


def test_skipped_tests_are_no_success(gpu_check, monkeypatch, tmp_path):
    """Without a GPU, or a package, pytest skips all of them and ends with code 0."""
    monkeypatch.setattr(gpu_check, "gpu_tests", lambda: ["tests/gpu/test_tensor_cores.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    from gpu_findings import Findings

    findings = Findings(tmp_path / "tests.json", 60)
    gpu_check.run_tests(findings)
    if "passed" in findings["summary"]:
        pytest.skip("there is a GPU")
    assert findings["code"] == 0 and findings["passed"] == 0 and not findings["ok"]
    assert "skipped" in findings["summary"] and findings["skips"]


def test_what_a_log_that_was_cut_says(gpu_check):
    log = "tests/a.py::one[x] PASSED [ 1%]\n[gw0] [  2%] PASSED tests/a.py::two\ntests/a.py::three FAILED [ 3%]\ntests/a.py::f"
    assert gpu_check.tests_found(log)["passed"] == 2
    log += "\n== short test summary info ==\nFAILED tests/a.py::three - bits\nSKIPPED [1] why\n"
    found = gpu_check.tests_found(log)
    assert found["failures"] == ["FAILED tests/a.py::three - bits"] and found["skips"] == ["SKIPPED [1] why"]


def test_only_files_with_gpu_tests_are_read(gpu_check):
    found = gpu_check.gpu_tests()
    assert "tests/gpu/test_same_bits.py" in found and len(found) > 5
    for name in found:  # packages that a machine with a GPU may lack (docs/howto/gpu.md)
        text = (ROOT / name).read_text()
        assert not [
            line for line in text.splitlines() if line.startswith(("import gfloat", "import ml_dtypes", "import gmpy2"))
        ]


def test_random_products_tell_a_refusal_of_one_device_from_one_of_both(gpu_check, monkeypatch, tmp_path):
    import gpu_bits
    from gpu_findings import Findings

    import gemmsim as gs

    assert [gpu_bits.random_product(index, "cpu") for index in range(6)] == [None] * 6
    real, calls = gs.qmatmul, []

    def second_fails(*args, **more):
        calls.append(1)
        if len(calls) % 2 == 0:
            raise RuntimeError("NVRTC")
        return real(*args, **more)

    monkeypatch.setattr(gs, "qmatmul", second_fails)
    found = gpu_bits.random_product(0, "cpu")
    assert found["gpu"] == "RuntimeError: NVRTC" and "cpu" not in found
    monkeypatch.setattr(gs, "qmatmul", lambda *args, **more: 1 / 0)
    assert gpu_bits.random_product(0, "cpu") == "refused"
    findings = Findings(tmp_path / "random.json", -1.0)
    gpu_bits.random_products(findings)
    assert not findings["ok"] and findings["errors"]["products"] == "none was compared"


def test_it_says_what_it_cannot_start_without(gpu_check, capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit, match="2"):
        gpu_check.main([])
    assert "no GPU that torch can use" in capsys.readouterr().err


def test_limits_are_those_of_the_kernels_that_run(gpu_check):
    """Half a slot for two products of one instruction, and only there; TIMED has a row for each figure that is asked."""
    import gpu_timings
    from support_cuda_gemm import _launching, cuda_gemm

    from gemmsim.arithmetic import GemmSpec

    asked = {(slots, share) for _, slots, share in gpu_timings.TIMED if share is not None}
    assert asked == {(3.0, 0.7), (5.0, 0.7), (0.5, 0.5)}
    x = torch.empty(4096, 4096)
    for text, slots, _ in gpu_timings.TIMED:
        if slots is None or "mx" in text:
            continue
        sources = []
        with _launching(lambda source, *rest, into=sources: into.append(source)):
            cuda_gemm.gemm(x, x, GemmSpec.of(text), x)
        assert (".packed = 1" in sources[-1].text) == (slots == 0.5), text
