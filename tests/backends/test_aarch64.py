"""The CPU library for 64-bit Arm gives the bits of this machine's: calls that other tests judge are recorded while they
run, and made again by the cross-compiled library under qemu-user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import LONG, ROOT
from support.calls import FUNCTIONS

from gemmsim.backends.cpu.kernel_report import Kernels

#: Programs, and the packages of Debian that have them (tests/cpp/install_aarch64.sh).
TOOLS = {
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
    "cmake": "cmake",
    "make": "make",
}
SYSROOT = Path("/usr/aarch64-linux-gnu")
#: A short run does not let the compiler optimise: half the time, the same bits.
BUILD, FLAGS = (ROOT / "build" / "aarch64", "-O3") if LONG else (ROOT / "build" / "aarch64_short", "-O0")
#: Tests whose calls are recorded: products of every kind, casts, blocks, rows.
RECORDED = """
backends/cpu/test_gemm.py backends/cpu/test_orders.py backends/cpu/test_palette.py backends/cpu/test_registers.py
backends/cpu/test_instructions.py backends/cpu/test_speculative.py backends/cpu/test_flush.py backends/cpu/test_irregular_format.py
backends/cpu/test_grids.py backends/cpu/test_quantize.py backends/cpu/test_block_float.py backends/cpu/test_binned.py
backends/cpu/test_scaled_blocks.py backends/cpu/test_init.py backends/cpu/test_zero_signs.py backends/cpu/test_speculation.py
backends/cpu/test_exact_runs.py backends/cpu/test_dots.py backends/cpu/test_planner.py backends/cpu/test_modes.py
mx/test_convert.py mx/test_matmul.py tensor_quant/test_casts.py ops/rowwise/test_rows.py ops/rowwise/test_functions.py
ops/rowwise/test_narrow.py ops/product/test_lookup.py ops/conv/test_values.py
""".split()
#: Left out of these files: what takes long and calls nothing that the others do not.
LEFT_OUT = "not compile and not every_16_bit and not thread"
#: Kernels of tiles that calls must have reached, beside others.
REACHED = {
    f"{carrier}, {step}, {kind}"
    for carrier in ("float32 lanes", "float64 lanes")
    for step in ("fma", "fma to odd", "mul, add", "mul, add to odd")
    for kind in ("round", "round+subnormals", "any mode", "stochastic", "directed")
} - {
    f"{carrier}, mul, add{odd}, round" for carrier in ("float32 lanes", "float64 lanes") for odd in ("", " to odd")
}  # few data


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def build() -> tuple[Path, Path]:
    """The library and the program that makes calls, both for aarch64; only what changed is compiled again."""
    run("bash", "tests/cpp/build_aarch64.sh", BUILD, FLAGS)
    return BUILD / "cutlass_kernels" / "cpu" / "libgemmsim_cpu.so", BUILD / "replay"


def record(path: Path) -> None:
    files = [ROOT / "tests" / name for name in RECORDED]
    one_in, share = ("1", "0.03") if LONG else ("4", "0.15")
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "record_calls", "-k", LEFT_OUT]
    options += ["--calls-tests", one_in, "--calls-share", share, "--hypothesis-seed=0"]
    command = [sys.executable, "-m", "pytest", *options, "--calls", path, *files]
    # One thread: more wait for each other by spinning.
    run(*command, PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "tests")]), OMP_NUM_THREADS="1")


def test_calls_have_the_same_bits_on_aarch64(tmp_path):
    missing = sorted(package for tool, package in TOOLS.items() if shutil.which(tool) is None)
    if missing or not SYSROOT.is_dir():
        pytest.skip(f"not here: {', '.join(missing) or SYSROOT} (bash tests/cpp/install_aarch64.sh)")
    library, replay = build()
    calls = tmp_path / "calls"
    record(calls)
    output = run("qemu-aarch64", "-L", SYSROOT, replay, library, calls)
    calls.unlink()
    lines = output.splitlines()
    assert lines[-1].endswith("calls have the recorded bits on neon"), output
    counted = dict(line.split(": ") for line in lines[:-2])
    assert set(counted) == set(FUNCTIONS) and min(map(int, counted.values())) >= 20, counted
    reached = {name.split(": ")[-1] for code in lines[-2].split()[1:] for name in Kernels(int(code) << 4).names}
    assert REACHED <= reached, sorted(REACHED - reached)
