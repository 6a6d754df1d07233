"""gemmsim next to other packages on the same operands: equal results first, then the time of each, as a ratio.

    make bench-peers                      every package, in an environment of its own, and the page with plots
    python benchmarks/peers/compare.py [PACKAGE ...] [--quick] [--out FILE]

Each package runs in a process of its own, because some change PyTorch when they are imported. One thread, rounds
interleaved, medians. A package that is not installed is reported and left out. The exit code is 1 if a case that must
be equal is not.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases import PEERS, Case

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import Report, measure, ratio

HERE = Path(__file__).parent
OUT = HERE.parent / "results" / "peers.jsonl"
#: Calls of the faster side fill at least this many seconds of a round.
ROUND_SECONDS = 0.05


def as_arrays(result: Any) -> list[np.ndarray]:
    """Results of either side as numpy arrays."""
    if isinstance(result, (tuple, list)):
        return [array for one in result for array in as_arrays(one)]
    if isinstance(result, torch.Tensor):
        return [result.detach().numpy()]
    return [result.to_numpy() if hasattr(result, "to_numpy") else np.asarray(result)]


def equal_fraction(ours: Any, peer: Any) -> float:
    """Fraction of elements that are the same number; NaN equals NaN, and zeros are equal whatever their sign."""
    equal = total = 0
    for left, right in zip(as_arrays(ours), as_arrays(peer), strict=True):
        right = right.reshape(left.shape)
        equal += int(((left == right) | ((left != left) & (right != right))).sum())
        total += left.size
    return equal / total


def repeated(call: Callable[[], Any], times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            call()

    return run


def calls_in_a_round(call: Callable[[], Any]) -> int:
    call()
    start = time.perf_counter()
    call()
    return max(1, round(ROUND_SECONDS / max(time.perf_counter() - start, 1e-7)))


def run_case(case: Case, package: str, report: Report, rounds: int) -> bool:
    """Measures one case; False if its results had to be equal and are not."""
    equal = equal_fraction(case.ours(), case.peer()) if case.exact else None
    calls = {"gemmsim": case.ours, "peer": case.peer, "limit": case.limit()}
    counts = {name: calls_in_a_round(call) for name, call in calls.items()}
    rounds_of = {name: repeated(call, counts[name]) for name, call in calls.items()}
    measured = measure(rounds_of, rounds=rounds, clock=time.process_time)
    found = {name: [second / counts[name] for second in seconds] for name, seconds in measured.items()}
    rates = {name: case.amount / sorted(seconds)[len(seconds) // 2] for name, seconds in found.items()}
    report.add(
        bench="peers", peer=package, version=importlib.metadata.version(package), task=case.task, spec=case.spec,
        call=case.theirs, equal=equal, note=case.note, unit=case.unit, work=case.work, threads=1,
        gemmsim_per_second=rates["gemmsim"], peer_per_second=rates["peer"], limit_per_second=rates["limit"],
        ratio=ratio(found, "peer", "gemmsim"),
    )  # fmt: skip
    return equal is None or equal == 1 or bool(case.note)


def run_package(package: str, quick: bool, rounds: int, out: str) -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    report, status = Report(out), 0
    for case in PEERS[package](quick):
        if not run_case(case, package, report, rounds):
            print(f"error: {package}, {case.task}, {case.spec}: results differ", file=sys.stderr)
            status = 1
    report.close()
    return status


def installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*", default=list(PEERS), help=f"of {', '.join(PEERS)} (default: all)")
    parser.add_argument("--out", default=str(OUT), help="file for the JSON lines")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="small problems: does it run at all")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # this process is one package's
    args = parser.parse_args()
    unknown = set(args.packages) - set(PEERS)
    if unknown:
        parser.error(f"unknown packages {', '.join(sorted(unknown))}; known: {', '.join(PEERS)}")
    if args.here:
        return run_package(args.packages[0], args.quick, args.rounds, args.out)
    lines, status = [], 0
    for package in args.packages:
        if not installed(package):
            print(f"{package} is not installed; left out", file=sys.stderr)
            continue
        part = Path(args.out).with_suffix(f".{package}.part")
        command = [
            sys.executable,
            str(Path(__file__)),
            package,
            "--here",
            "--out",
            str(part),
            "--rounds",
            str(args.rounds),
        ]
        done = subprocess.run(command + ["--quick"] * args.quick, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if part.exists():
            lines += part.read_text().splitlines()
            part.unlink()
        else:
            print(f"error: {package} gave no result (exit code {done.returncode})", file=sys.stderr)
        status |= bool(done.returncode)
    temporary = Path(args.out).with_suffix(".tmp")
    temporary.write_text("".join(f"{line}\n" for line in lines if json.loads(line)))
    temporary.replace(args.out)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
