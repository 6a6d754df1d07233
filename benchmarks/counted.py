"""Instructions that the CPU library executes, counted by valgrind: AVX2's or the baseline's, as it has no AVX-512.

A count is exact and the same each time, on any machine and whatever else runs there. Valgrind starts a Python process
of its own (``counted``); what it computes is not looked at, since valgrind neither sets the processor's flags nor
rounds a fused multiply-add in its mode.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["counted", "is_counting", "start"]

#: Set in the process that valgrind runs: where it writes.
WRITES_TO = "GEMMSIM_COUNTED"
LIBRARY = "libgemmsim_cpu"


def is_counting() -> bool:
    """Whether this process is one that ``start`` began."""
    return WRITES_TO in os.environ


def start(script: str, folder: Path, *arguments: str) -> None:
    """Runs a script of this folder under callgrind, AVX2 forced, whose ``counted`` then counts.

    Raises SystemExit where valgrind is missing.
    """
    if shutil.which("valgrind") is None or shutil.which("callgrind_control") is None:
        raise SystemExit("counting needs valgrind (Debian, Ubuntu: apt-get install valgrind)")
    out = folder / "callgrind.out"
    command = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", "--compress-strings=no"]
    command += ["--compress-pos=no", f"--callgrind-out-file={out}", sys.executable, script, *arguments]
    env = os.environ | {WRITES_TO: str(out), "GEMMSIM_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2"}
    subprocess.run(command, check=True, env=env)


def counted(run: Callable[[], object]) -> int:
    """Instructions of the library during a call of ``run``, which has been called before.

    Raises RuntimeError where the library executed none.
    """
    out = Path(os.environ[WRITES_TO])
    for old in out.parent.glob(out.name + ".*"):
        old.unlink()
    _control("--instr=on")
    _control("--zero")
    run()
    _control("--dump")
    _control("--instr=off")
    total = sum(_of_library(dump) for dump in out.parent.glob(out.name + ".*"))
    if not total:
        raise RuntimeError(f"valgrind counted nothing in {LIBRARY}; allowed: calls that run in it, on this thread")
    return total


def _control(request: str) -> None:
    subprocess.run(["callgrind_control", request, str(os.getpid())], check=True, stdout=subprocess.DEVNULL)


def _of_library(dump: Path) -> int:
    """The sum of a file's own costs in functions of the library; a line after ``calls=`` repeats another function's."""
    total, inside, skipped = 0, False, False
    for line in dump.read_text().splitlines():
        if line.startswith("ob="):
            inside = LIBRARY in line
        elif line.startswith("calls="):
            skipped = True
        elif re.match(r"[\d+*-]", line):
            if inside and not skipped:
                total += int(line.split()[-1])
            skipped = False
    return total
