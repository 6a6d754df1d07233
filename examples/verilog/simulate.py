"""Simulates the array of mac_array.sv on vectors that gemmsim exported, with Icarus Verilog.

    gemmsim vectors "int8 : int(18)" --a a.npy --b b.npy --out vectors --steps --directed
    python examples/verilog/simulate.py vectors vectors/directed/*

The exit code is 0 if every accumulator has the exported bits after every step, else 1. Debian and Ubuntu have
Icarus Verilog (iverilog, vvp).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = [HERE / "mac.sv", HERE / "mac_array.sv", HERE / "mac_array_tb.sv"]


def parameters(folder: Path) -> dict[str, int]:
    """Parameters of the modules, from spec.json.

    Raises:
        SystemExit: for vectors of another array: other formats, another register, no steps.
    """
    about = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
    files, accumulator = about["files"], about["spec_json"]["accumulator"]
    if accumulator["name"] != "int" or accumulator["shift"] or not accumulator["signed"]:
        raise SystemExit(
            f"error: {folder}: {about['spec']}; this array has int(P) and int(P, saturate), signed, without shift"
        )
    if "steps" not in files:
        raise SystemExit(f"error: {folder} has no steps; export them with steps=True, or gemmsim vectors --steps")
    found = {name: about[name] for name in "MKN"}
    for side in "ab":
        kind = re.fullmatch(r"(u?)fixed\((\d+),0\)", files[side]["format"])
        if kind is None:
            raise SystemExit(f"error: {folder}: operands in {files[side]['format']}; this array has integers")
        found[f"{side.upper()}_BITS"], found[f"{side.upper()}_SIGNED"] = int(kind[2]), int(not kind[1])
    return {**found, "P": accumulator["P"], "SATURATE": int(accumulator["overflow"] == "saturate")}


def simulate(folder: Path) -> subprocess.CompletedProcess[str]:
    """Compiles and runs the test bench on one folder."""
    given = [f"-Pmac_array_tb.{name}={value}" for name, value in parameters(folder).items()]
    with tempfile.TemporaryDirectory() as build:
        program = Path(build) / "array.vvp"
        compiled = ["iverilog", "-g2012", "-Wall", *given, "-s", "mac_array_tb", "-o", str(program), *map(str, SOURCES)]
        subprocess.run(compiled, check=True)
        return subprocess.run(
            ["vvp", "-n", str(program), f"+FOLDER={folder}"], capture_output=True, text=True, check=False
        )


def main(folders: list[Path]) -> int:
    """Simulates each; the exit code."""
    if missing := [name for name in ("iverilog", "vvp") if shutil.which(name) is None]:
        raise SystemExit(f"error: needs {' and '.join(missing)}; in Debian and Ubuntu: apt-get install iverilog")
    failed = 0
    for folder in folders:
        done = simulate(folder)
        print(f"{folder}: {done.stdout.strip()}{done.stderr.strip()}")
        failed += done.returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]]))
