"""The GPU check on a stand-in for a GPU: its processes, as a machine would run them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from support import ROOT

BENCHMARKS = ROOT / "benchmarks"
STANDIN = ROOT / "tests" / "standin"
_kept: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def driver_folder() -> Path:
    """A folder with a libcuda that says which CUDA it is for (``STANDIN_DRIVER``, 13000)."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is needed to make a driver")
    _kept.append(tempfile.TemporaryDirectory(prefix="gemmsim_driver_"))
    folder = Path(_kept[-1].name)
    subprocess.run(
        [compiler, "-shared", "-fPIC", str(STANDIN / "libcuda.c"), "-o", str(folder / "libcuda.so.1")], check=True
    )
    return folder


def environment(driver: bool = True, tests: str = "", **standin: Any) -> dict[str, str]:
    """Of a process with a stand-in for a GPU. ``tests``: an expression for pytest -k."""
    path = [str(STANDIN), str(BENCHMARKS), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    found["GEMMSIM_STANDIN"] = json.dumps({"compile": False, **standin})
    found.pop("PYTEST_CURRENT_TEST", None)
    found.pop("PYTEST_XDIST_WORKER", None)
    found["PYTEST_ADDOPTS"] = f'-k "{tests}"' if tests else ""
    found["LD_LIBRARY_PATH"] = str(driver_folder()) if driver else ""
    return found


def check(out: Path, *options: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """``gpu_check.py`` to its end."""
    return subprocess.run(
        command(out, *options), env=environment(**settings), capture_output=True, text=True, timeout=1800
    )


def command(out: Path, *options: str) -> list[str]:
    """The command line of ``gpu_check.py``, with more time than any machine needs."""
    time = ["--minutes", "600", "--patience", "20"]
    return [sys.executable, str(BENCHMARKS / "gpu_check.py"), "--out", str(out), *time, *options]
