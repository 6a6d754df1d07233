"""GPU kernels as compiled, no GPU needed: compile time, registers, spills, instructions per result.

``python benchmarks/kernels.py`` prints the table; ``--check`` fails where a kernel got worse than the committed
baseline (any spill, more than 2 % of registers or instructions per result), ``--update`` replaces the baseline (with
``--family``, its rows of these families), ``--out FILE`` writes JSON lines.

With ``--check`` and ``--update`` only those kernels are compiled whose digest is not that of their row in the baseline
(``kernel_digests.py``: text, headers, options, compiler, tools); the others are what the row says. ``--all`` compiles
every one and, with ``--check``, fails where a row with the right digest is not what comes out. Kernels are compiled
afresh, past the cache.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from cute_kernels import FAMILY as CUTE
from cute_kernels import sources as cute_sources
from kernel_digests import kernel_digest

from gemmsim.backends.cuda import KernelSource, compile_kernel, family_sources
from gemmsim.backends.cuda.jit.sass_report import KernelFacts, inspect_kernel, regressions

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
    lines = [f"{'kernel':{width}}  arch     CPU s  regs  spills  stack  instructions  per result  whole loop"]
    for fact, seconds in rows:
        lines.append(
            f"{fact.kernel:{width}}  {fact.arch:8}{seconds:6.2f}{fact.registers:6}{fact.spills:8}{fact.stack:7}"
            f"{fact.instructions:14}{fact.per_result:12.2f}{fact.whole or '':>12}"
        )
    return "\n".join(lines)


@dataclass(frozen=True)
class Baseline:
    """The committed rows. ``digests``: of what each was measured of, by ``KernelFacts.key``."""

    facts: list[KernelFacts]
    digests: dict[str, str]


def read_baseline() -> Baseline:
    rows = json.loads(BASELINE.read_text(encoding="utf-8"))
    digests = [row.pop("digest", "") for row in rows]
    facts = [KernelFacts(**row) for row in rows]
    return Baseline(facts, {fact.key: digest for fact, digest in zip(facts, digests, strict=True)})


def write_baseline(now: Baseline, families: list[str] | None) -> None:
    """``families``: those that ``now`` is of; None for all."""
    BASELINE.parent.mkdir(exist_ok=True)
    facts, digests = now.facts, now.digests
    if families:
        old = read_baseline()
        facts = facts + [fact for fact in old.facts if fact.kernel.partition("<")[0] not in families]
        digests = old.digests | digests
    rows = [asdict(fact) | {"digest": digests[fact.key]} for fact in facts]
    rows.sort(key=lambda row: (row["kernel"], row["arch"]))
    BASELINE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


def unlike_their_digest(facts: list[KernelFacts], digests: dict[str, str], before: Baseline) -> list[str]:
    """Rows whose digest says that nothing changed, and that are something else now: the digest left something out."""
    old = {fact.key: fact for fact in before.facts}
    return [
        f"{fact.key}: {old[fact.key]} in the baseline, {fact} now, with the same digest"
        for fact in facts
        if fact.key in old and before.digests[fact.key] == digests[fact.key] and old[fact.key] != fact
    ]


def report(args: argparse.Namespace, rows: list[tuple[KernelFacts, float]], skipped: int) -> None:
    if rows:
        print(table(rows))
    if skipped:
        print(f"{skipped} kernels not compiled: their digests are those of the baseline", file=sys.stderr)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("".join(json.dumps({**asdict(f), "compile_cpu_s": round(s, 3)}) + "\n" for f, s in rows))


def check(facts: list[KernelFacts], digests: dict[str, str], before: Baseline, partial: bool) -> list[str]:
    """What is worse than ``before``, what its digest hides, and the rows to be written again: a line each."""
    keys = {fact.key for fact in facts}
    worse = regressions(facts, [fact for fact in before.facts if not partial or fact.key in keys])
    worse += unlike_their_digest(facts, digests, before)
    stale = [key for key in sorted(keys) if key in before.digests and before.digests[key] != digests[key]]
    if stale and not worse:
        print(f"{len(stale)} digests are old (the first: {stale[0]}); --update writes them", file=sys.stderr)
    return worse


def sources_of(families: list[str] | None) -> Iterator[KernelSource]:
    """The kernels of ``families``, all if None: those that gemmsim launches, and those with its atoms of CuTe."""
    own = [name for name in families or () if name != CUTE]
    if own or not families:
        yield from family_sources(own)
    if not families or CUTE in families:
        yield from cute_sources()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", action="append", help="only these families (default: all)")
    parser.add_argument("--arch", action="append", help=f"default: {' '.join(ARCHS)}")
    parser.add_argument("--out", type=Path, help="file for the JSON lines")
    parser.add_argument("--check", action="store_true", help="compare with the committed baseline")
    parser.add_argument("--update", action="store_true", help="replace the committed baseline")
    parser.add_argument("--all", action="store_true", help="compile those, too, whose digest is the baseline's")
    args = parser.parse_args()
    if args.update and args.arch:
        parser.error("--update takes all architectures")
    return args


def main() -> int:
    args = parsed()
    sources = [(source, arch) for source in sources_of(args.family) for arch in args.arch or ARCHS]
    jobs = {f"{source} {arch}": (source, arch) for source, arch in sources if source.runs_on(arch)}
    digests = {key: kernel_digest(*job) for key, job in jobs.items()}
    before = read_baseline() if args.check or args.update else Baseline([], {})
    same = set() if args.all else {key for key in jobs if before.digests.get(key) == digests[key]}
    with ThreadPoolExecutor(max_workers=2) as pool:
        rows = list(pool.map(measured, [job for key, job in jobs.items() if key not in same]))
    report(args, rows, len(same))
    facts = [fact for fact, _ in rows] + [fact for fact in before.facts if fact.key in same]
    if args.update:
        write_baseline(Baseline(facts, digests), args.family)
    if args.check:
        worse = check(facts, digests, before, partial=bool(args.family or args.arch))
        print("\n".join(worse) if worse else "as the baseline, or better", file=sys.stderr)
        return 1 if worse else 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
