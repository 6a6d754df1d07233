"""Runs the library of a wheel for 64-bit Arm under qemu-user and compares its results with this machine's, bit for bit.

    python packaging/check_aarch64.py wheelhouse/gemmsim-*_aarch64.whl

Runs in an environment with an installed gemmsim and pytest. It makes the calls that tests/backends/test_aarch64.py
records. Needs Debian's packages g++-aarch64-linux-gnu and qemu-user (tests/cpp/install_aarch64.sh).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wheel_archive import LIBRARY, read_files

ROOT = Path(__file__).resolve().parents[1]
SYSROOT = Path("/usr/aarch64-linux-gnu")


def check(wheel: Path, folder: Path, calls: Path | None = None) -> str:
    """Return the last line of the program that makes the calls.

    Raises:
        AssertionError: if a program fails or a result differs.
    """
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    test = importlib.import_module("backends.test_aarch64")
    library, replay = folder / "libgemmsim_cpu.so", folder / "replay"
    library.write_bytes(read_files(wheel)[LIBRARY])
    test.run("aarch64-linux-gnu-g++", "-std=c++17", "-O1", "-o", replay, "tests/cpp/replay.cpp", "-ldl")
    if calls is None:
        calls = folder / "calls"
        test.record(calls)
    lines = test.run("qemu-aarch64", "-L", SYSROOT, replay, library, calls).splitlines()
    assert lines[-1].endswith("calls have the recorded bits on neon"), lines
    return str(lines[-1])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--calls", type=Path, help="calls that were recorded before (tests/record_calls.py)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gemmsim_check_") as folder:
        try:
            print(f"{options.wheel.name}: {check(options.wheel, Path(folder), options.calls)}")
        except AssertionError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
