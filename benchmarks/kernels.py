"""GPU kernels as compiled, no GPU needed: compile time, registers, spills, instructions per result.

``python benchmarks/kernels.py`` prints the table; ``--check`` fails where a kernel got worse than the committed
baseline (any spill, more than 2 % of registers or instructions per result), ``--update`` replaces the baseline (with
``--family``, its rows of these families),
``--out FILE`` writes JSON lines. Kernels are compiled afresh, past the cache.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from gemmsim.backends.cuda import KernelSource, compile_kernel, family_sources
from gemmsim.backends.cuda.inspect import KernelFacts, inspect_kernel, regressions

BASELINE = Path(__file__).parent / "baselines" / "kernels.json"
ARCHS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")


def measured(job: tuple[KernelSource, str]) -> tuple[KernelFacts, float]:
    """Facts about one kernel and the CPU seconds it took to compile, of the thread that compiled it."""
    start = time.thread_time()
    compiled = compile_kernel(*job)
    seconds = time.thread_time() - start
    return inspect_kernel(compiled), seconds


def table(rows: list[tuple[KernelFacts, float]]) -> str:
    width = max(len(fact.kernel) for fact, _ in rows)
    lines = [f"{'kernel':{width}}  arch     CPU s  regs  spills  stack  instructions  per result"]
    for fact, seconds in rows:
        lines.append(
            f"{fact.kernel:{width}}  {fact.arch:8}{seconds:6.2f}{fact.registers:6}{fact.spills:8}{fact.stack:7}"
            f"{fact.instructions:14}{fact.per_result:12.2f}"
        )
    return "\n".join(lines)


def read_baseline() -> list[KernelFacts]:
    return [KernelFacts(**row) for row in json.loads(BASELINE.read_text(encoding="utf-8"))]


def write_baseline(facts: list[KernelFacts], families: list[str] | None) -> None:
    """``families``: those that ``facts`` are of; None for all."""
    BASELINE.parent.mkdir(exist_ok=True)
    if families:
        facts = facts + [fact for fact in read_baseline() if fact.kernel.partition("<")[0] not in families]
    rows = sorted((asdict(fact) for fact in facts), key=lambda row: (row["kernel"], row["arch"]))
    BASELINE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", action="append", help="only these families (default: all)")
    parser.add_argument("--arch", action="append", help=f"default: {' '.join(ARCHS)}")
    parser.add_argument("--out", type=Path, help="file for the JSON lines")
    parser.add_argument("--check", action="store_true", help="compare with the committed baseline")
    parser.add_argument("--update", action="store_true", help="replace the committed baseline")
    args = parser.parse_args()
    partial = bool(args.family or args.arch)
    if args.update and args.arch:
        parser.error("--update takes all architectures")
    every = [(source, arch) for source in family_sources(args.family or ()) for arch in args.arch or ARCHS]
    jobs = [(source, arch) for source, arch in every if source.runs_on(arch)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        rows = list(pool.map(measured, jobs))
    print(table(rows))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("".join(json.dumps({**asdict(f), "compile_cpu_s": round(s, 3)}) + "\n" for f, s in rows))
    facts = [fact for fact, _ in rows]
    if args.update:
        write_baseline(facts, args.family)
    if args.check:
        keys = {fact.key for fact in facts}
        before = [fact for fact in read_baseline() if not partial or fact.key in keys]
        worse = regressions(facts, before)
        print("\n".join(worse) if worse else "as the baseline, or better", file=sys.stderr)
        return 1 if worse else 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
