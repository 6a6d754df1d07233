"""All benchmarks, a process each: ``python -m benchmarks [--quick] [--out FOLDER]`` writes a JSON-lines file each."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMES = (
    "gemm",
    "quantize",
    "accumulators",
    "extensions",
    "mx",
    "mx_matmul",
    "conv",
    "rows",
    "linear",
    "tensor_quant",
    "launch",
    "studies",
    "emulation",
    "emulation_capture",
    "libraries",
    "search",
    "recipes",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=str(HERE / "results"), help="folder for the JSON lines")
    parser.add_argument("--quick", action="store_true", help="small problems: does it run at all")
    args = parser.parse_args()
    status = 0
    for name in NAMES:
        command = [sys.executable, str(HERE / f"{name}.py"), "--out", str(Path(args.out) / f"{name}.jsonl")]
        status |= subprocess.run(command + (["--quick"] if args.quick else [])).returncode
    return status


if __name__ == "__main__":
    raise SystemExit(main())
