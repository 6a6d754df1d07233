"""The page and the plot of GPU results: nothing measured, everything, and files of other revisions."""

from __future__ import annotations

import json

import pytest
from support import ROOT

MACHINE = {"gpu": "NVIDIA H200", "capability": "9.0", "multiprocessors": 132, "torch": "2.11.0", "max_sm_mhz": 1980}


@pytest.fixture
def report(kit):
    return kit("gpu_report")


@pytest.fixture
def folder(kit, tmp_path):
    """A folder with a finding of every kind."""
    results, timings, probes = kit("gpu_results"), kit("gpu_timings"), kit("probes")
    one = results.Results(tmp_path / "run")
    one.begin(MACHINE, "abc")
    for family in ("cast", "gemm"):
        one.add("smoke", family, "gemm<x>")
    one.state("sanitizer", "done", "compute-sanitizer found nothing")
    one.add("tests", "tests/gpu/a.py::one", {"outcome": "passed"})
    one.add("tests", "tests/gpu/a.py::two", {"outcome": "skipped", "why": "memory"})
    one.add("tests", "tests/gpu/a.py::three[a|b]", ok=False, error="call: 3 elements differ; kernels gemm<bad>")
    for seed, value in enumerate(["equal", "equal", "refused"]):
        one.add("random", str(seed), value)
    one.add("verdicts", ":hw(hopper, wgmma, bf16)", {"equal": True, "words": "all bits", "digest": "0"})
    one.add("verdicts", ":hw(hopper, wgmma, e4m3)", {"equal": False, "words": "in 3 of 9 outputs", "digest": "0"})
    one.add("tensor cores", "mainloop/:hw(hopper, wgmma, bf16)", {"equal": True, "words": "all bits", "digest": "0"})
    one.add("libraries", "the library", {"library": "cublaslt('h100', version='13.1.1', workspace=33554432)"})
    for key, terms in (("lost/fp16/1x8x8648, 9", [8, 8]), ("lost/fp16/1x8x8649, 9", [9, 9])):
        one.add("libraries", key, {"shape": [1, 8, 8648], "splits": 9, "lost": terms, "planned": 8})
    one.add("libraries", "lost/fp16/1x8x8650, 9", {"refused": "LibraryError: status 7"})
    one.add("libraries", "unmeasured/bias, bf16", {"outputs": 9, "equal": {"before": 9, "after": 4}, "telling": 5})
    counts = {"equal": 2, "products": 3, "outputs_equal": 95, "outputs": 96}
    one.add("libraries", "verdict", {"nvjet": counts, "no plan, or refused": {"products": 1}})
    for name in probes.named():
        one.add("probes", name, {"answer": "as expected", "value": "0x0 = 0.0"})
    for table, names in timings.expected().items():
        parts = {"tensor cores": ("tensor cores", "block formats"), "collective": ("tensor cores", "collective")}
        part, table = parts.get(table, ("timings", table))
        for name in names:
            figures = {"seconds": 0.01, "clock_mhz": 1900.0, "tmacs": 5.0, "share": 0.7, "of_copy": 0.9, "asked": 0.85}
            one.add(
                part,
                f"{table}/{name}",
                {**figures, "of_torch": 2.0, "of_cublas_bf16": 0.5, "of_cublas": 0.9, "limit_tmacs": 7.0},
            )
    one.add("timings", "native/copy", {"seconds": 0.0005})
    return tmp_path / "run"


def test_nothing_was_measured(report):
    page = report.page([])
    assert "Everything: not measured yet." in page and page.count("not measured yet") > 90
    assert "| `e4m3 : e5m10` | not measured yet |" in page


def test_everything_was(report, folder, tmp_path):
    assert report.main([str(folder), "--page", str(tmp_path / "p.md"), "--plot", str(tmp_path / "p.png")]) == 0
    page = (tmp_path / "p.md").read_text()
    assert "not measured yet" not in page and "## NVIDIA H200" in page and "![Shares of limits](p.png)" in page
    for line in (
        "| smoke: one kernel of each family | 2 | 0 |  |",
        "| smoke under compute-sanitizer | compute-sanitizer found nothing |  |  |",
        "| tests | 1 | 1 | 1 |",
        "| random products, CPU and GPU | 2 | 0 | 1 |",
        "* `tests/gpu/a.py::three[a|b]`: call: 3 elements differ; kernels gemm<bad>",
        "| `:hw(hopper, wgmma, e4m3)` | DIFFERENT | in 3 of 9 outputs |",
        "| `e4m3 : e5m10` | 5.00 | 7.00 | 0.70 | 0.85 |  |  | 1900 |",
        "| nvjet | 3 | 2 | 96 | 95 |",
        "| no plan, or refused | 1 |  |  |  |",
        "Library: `cublaslt('h100', version='13.1.1', workspace=33554432)`.",
        "Sums of ones by split kernels: 1 of 2 lose as many terms as planned (2 any).",
        "| bias, bf16 | `before` | 9 of 9 |",
        "| `FP[1\\|4\\|3,7](_N)` | 0.90 | 0.85 | 10.000 |",
    ):
        assert line in page, line
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_a_failure_and_a_name_of_a_newer_revision(report, kit, tmp_path):
    one = kit("gpu_results").Results(tmp_path)
    one.begin(MACHINE, "abc")
    one.add("timings", "products/:fp32", ok=False, error="RuntimeError: CUDA out of memory")
    one.add("timings", "products/:fp7", {"seconds": 1.0, "tmacs": 4.0})
    with one.path.open("a") as file:
        file.write(json.dumps({"kind": "finding", "part": "weather", "key": "sun", "ok": True, "value": {}}) + "\n")
    page = report.page(report.load([tmp_path]))
    assert "| `:fp32` | RuntimeError: CUDA out of memory |" in page and "| `:fp7` | 4.00 |" in page
    assert "| `:bf16`" not in page or "not measured yet" in page


def test_a_folder_without_results(report, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        report.main([str(tmp_path), "--page", str(tmp_path / "p.md")])
    assert "no run of the GPU check in" in capsys.readouterr().err
    assert not (tmp_path / "p.md").exists()


def test_the_page_in_the_docs_is_that_of_the_results_that_are_kept(report):
    runs = report.load(report.kept())
    picture = report.PLOT.name if any(list(report._bars(run)) for run in runs) else None
    text = "`python benchmarks/gpu_report.py` writes it"
    assert report.PAGE.read_text(encoding="utf-8") == report.page(runs, picture), text
    assert (ROOT / "docs" / "reference" / "gpu_results.png").exists() == (picture is not None)
