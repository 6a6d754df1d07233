"""Everything that only a GPU can show, in one command: ``make gpu-check``, or ``python benchmarks/gpu_check.py``.

Tests marked ``gpu`` (CPU and GPU bit for bit), random products on both for a while, the thirteen probes of the chip's
own arithmetic, and timings against the limits. Writes gpu_check.json and gpu_check.md into ``--out`` after every part;
the exit code is 1 if any bit differs or a part failed, 2 if it cannot start. Each part is a process with a share of
``--minutes``: one that fails, hangs or takes the GPU down leaves the others alone, and keeps what it had found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from gpu_findings import WORKERS, Findings, write_whole

import gemmsim as gs
from gemmsim.backends import cuda
from gemmsim.backends.cuda.launch import device_arch

HERE = Path(__file__).parent
ROOT = HERE.parent

#: Parts in order, and the share of the time each has.
PARTS = {
    "probes": 0.05,
    "instructions": 0.1,
    "tests": 0.4,
    "random": 0.12,
    "timings": 0.25,
    "tensor cores": 0.08,  # last: hangs and faults are likeliest there
}


def said_by(*command: str) -> str:
    """What a command prints; "" where there is none of that name."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def machine() -> dict[str, Any]:
    """What the figures depend on. ``CudaError`` where kernels cannot be compiled for this GPU."""
    properties = torch.cuda.get_device_properties(0)
    versions = cuda.toolchain().versions
    device_arch(0)
    smi = said_by("nvidia-smi", "--query-gpu=driver_version,clocks.max.sm", "--format=csv,noheader", "--id=0")
    return {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "driver_and_clock": smi or "unknown",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "packages": ", ".join(f"{name} {number}" for name, number in versions),
        "gemmsim": gs.__version__,
        "revision": said_by("git", "rev-parse", "--short", "HEAD") or "unknown",
    }


def gpu_tests() -> list[str]:
    """The files with tests marked ``gpu``: others need packages that a machine with a GPU may lack."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if "mark.gpu" in path.read_text(encoding="utf-8")]


def run_tests(findings: Findings) -> None:
    """pytest -m gpu; with pytest-xdist in several processes, which compile at once. The log is beside the findings."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "gpu",
        "-v",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
    ]
    command += ["-n", str(WORKERS)] if find_spec("xdist") is not None else []
    command += ["-o", "faulthandler_timeout=60", *gpu_tests()]
    log = findings.path.with_suffix(".log")
    with log.open("w", encoding="utf-8") as out:
        code = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT).returncode
    findings.update(tests_found(log.read_text(encoding="utf-8", errors="replace")), code=code)
    findings["ok"] = code == 0 and findings["passed"] > 0
    findings["summary"] = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1]


def tests_found(log: str) -> dict[str, Any]:
    """What pytest's log says so far: counts, the tests that failed, why others were skipped, the end of the text."""
    words = [re.search(r"\b(PASSED|FAILED|SKIPPED|ERROR)\b", line) for line in log.splitlines() if "::" in line]
    seen = [word[1] for word in words if word]
    reports = log.partition("short test summary info")[2].splitlines()
    return {
        "passed": seen.count("PASSED"),
        "failures": [line for line in reports if line.startswith(("FAILED", "ERROR"))][:100],
        "skips": [line for line in reports if line.startswith("SKIPPED")][:100],
        "output": log[-8000:],
    }


def markdown(report: dict[str, Any]) -> str:
    """The report as a page, of whatever parts there are."""
    part = {name: report.get(name, {}) for name in PARTS}
    lines = ["# GPU check", "", *(f"* {key}: {value}" for key, value in report["machine"].items())]
    lines += ["", "| part | outcome | seconds |", "|---|---|---|"]
    lines += [f"| {name} | {outcome(found)} | {found.get('seconds', '')} |" for name, found in part.items()]
    tests, products = part["tests"], part["random"]
    lines += ["", f"* tests: {tests.get('summary', '')}; {tests.get('passed', 0)} passed"]
    lines += [f"    {line}" for line in tests.get("failures", [])]
    different = products.get("different", [])
    lines.append(
        f"* random products: {products.get('products', 0)}, different: {len(different)}, "
        f"refused by both: {products.get('refused', 0)}"
    )
    lines += [f"    {row}" for row in different]
    lines += ["", "## What silicon answered", "", *(f"    {line}" for line in part["probes"].get("answers", []))]
    for row in part["instructions"].get("verdicts", []):
        lines.append(f"    {'equal' if row['equal'] else 'DIFFERENT'}: {row['spec']}: {row['words']}")
    lines += ["", "## Timings, measured", "", *tables(part["timings"], part["tensor cores"])]
    errors = [
        f"* {name}: {key}: {text}" for name, found in part.items() for key, text in found.get("errors", {}).items()
    ]
    return "\n".join([*lines, "", "## What is missing", "", *(errors or ["* nothing"])]) + "\n"


def outcome(found: dict[str, Any]) -> str:
    """A word for a part."""
    if not found:
        return "not run"
    return "ok" if found["ok"] else "NOT OK"


def tables(timed: dict[str, Any], cores: dict[str, Any]) -> list[str]:
    """The lines of the timings' tables."""
    lines = [
        "| spec, 4096^3 | TMAC/s | slot limit (computed) | share | asked | of torch.mm fp32 |",
        "|---|---|---|---|---|---|",
    ]
    for spec, row in timed.get("products", {}).items():
        keys = ("tmacs", "limit", "share", "asked", "of_torch_fp32")
        figures = " | ".join("" if row.get(key) is None else f"{row[key]:.2f}" for key in keys)
        lines.append(f"| `{spec}` | {figures} |")
    titles = {
        "casts_of_copy": "cast, share of device copy",
        "block_formats_of_copy": "block format, share of device copy",
        "rows_of_torch": "rows of 1024, e5m10 steps, speed over PyTorch in float32",
        "host": "host",
        "of_cublas": "product on tensor cores, 8192^3, speed over cuBLAS in bfloat16",
    }
    for key, title in titles.items():
        rows = {**timed.get(key, {}), **cores.get(key, {})}
        lines += ["", f"| {title} | |", "|---|---|", *(_row(name, figure) for name, figure in rows.items())]
    return lines


def _row(name: str, figure: float) -> str:
    safe = name.replace("|", "\\|")  # a bar in a name would end the cell
    return f"| `{safe}` | {figure:.3f} |"


def run_part(name: str, seconds: float, path: Path, driver_and_clock: str) -> None:
    """One part, in the process that it has for itself."""
    import gpu_bits
    import gpu_timings

    works = {
        "probes": gpu_bits.probes,
        "instructions": gpu_bits.instructions,
        "random": gpu_bits.random_products,
        "tests": run_tests,
        "timings": lambda findings: gpu_timings.timings(findings, driver_and_clock),
        "tensor cores": gpu_timings.tensor_cores,
    }
    findings = Findings(path, seconds)
    try:
        works[name](findings)
    except Exception as error:
        traceback.print_exc()
        findings["ok"] = False
        findings["errors"][name] = f"{type(error).__name__}: {error}"[:2000]
    findings.save()


def part(name: str, command: list[str], path: Path, limit: float) -> dict[str, Any]:
    """What ``command`` left in the file ``path``; it and all it started are ended after ``limit`` seconds."""
    print(f"{name} ...", flush=True)
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    trouble = None
    try:
        if process.wait(limit) != 0:
            trouble = f"ended with code {process.returncode}"
    except subprocess.TimeoutExpired:
        trouble = f"ended after {limit:.0f} s"
    finally:  # Ctrl-C included: what hangs on the GPU would disturb the next part
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.poll()
    found: dict[str, Any] = (
        json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"ok": False, "errors": {}}
    )
    log = path.with_suffix(".log")
    if trouble is not None:
        found["ok"] = False
        found["errors"]["process"] = trouble
        if log.is_file():
            found.update(tests_found(log.read_text(encoding="utf-8", errors="replace")), summary=trouble)
    found["seconds"] = round(time.monotonic() - start, 1)
    print(f"{name}: {outcome(found)} ({found['seconds']} s)", flush=True)
    return found


def command_of(name: str, seconds: float, path: Path, driver_and_clock: str) -> list[str]:
    """The command of one part."""
    own = [sys.executable, str(Path(__file__).resolve()), "--part", name, "--seconds", f"{seconds:.1f}"]
    return [*own, "--into", str(path), "--clock", driver_and_clock]


def check(out: Path, total: float, info: dict[str, Any]) -> dict[str, Any]:
    """All parts within ``total`` seconds; both files are written again after each."""
    end = time.monotonic() + total
    report: dict[str, Any] = {"machine": info}
    with tempfile.TemporaryDirectory(prefix="gpu_check_") as folder:
        for name, share in PARTS.items():
            path, seconds = Path(folder) / f"{name.replace(' ', '_')}.json", share * total
            limit = min(1.25 * seconds + 10, end - time.monotonic())  # a process takes seconds to start
            if limit < 1:
                report[name] = {"ok": False, "errors": {"process": "no time was left"}}
            else:
                report[name] = part(name, command_of(name, seconds, path, info["driver_and_clock"]), path, limit)
            write_whole(out / "gpu_check.json", json.dumps(report, indent=1))
            write_whole(out / "gpu_check.md", markdown(report))
    return report


def main(argv: list[str] | None = None) -> int:
    """0 if every part ran and all bits agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for gpu_check.json and gpu_check.md")
    parser.add_argument("--minutes", type=float, default=8.0, help="time for all parts together")
    parser.add_argument("--part", choices=PARTS, help="one part only, as each is run by the whole check")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for --part")
    parser.add_argument("--into", type=Path, default=Path("gpu_part.json"), help="file for what --part finds")
    parser.add_argument("--clock", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error("no GPU that torch can use; allowed: a machine with an NVIDIA GPU and driver")
    if options.part is not None:
        run_part(options.part, options.seconds, options.into, options.clock)
        return 0
    try:
        info = machine()
    except cuda.CudaError as error:
        parser.error(str(error))
    if find_spec("pytest") is None or find_spec("hypothesis") is None:
        parser.error(
            "the tests without pytest and hypothesis; allowed: both installed.\n  pip install pytest hypothesis"
        )
    report = check(options.out, options.minutes * 60, info)
    print(markdown(report))
    return int(not all(report[name]["ok"] for name in PARTS))


if __name__ == "__main__":
    sys.exit(main())
