"""Kernels made before they are needed: the list of a bundle, and the compiler that runs ahead of everything else.

``python gpu_kernels.py LIST --arch sm_90a`` compiles what the folder of compiled kernels does not have yet, in the
order of the list, in one thread less than there are cores. LIST is JSON lines, compressed: a kernel's name, facts and
text, and what needs it.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gpu_process import SMOKE_READY

from gemmsim.backends.cuda import CudaError, KernelSource, kernel_cache

__all__ = ["Needed", "compile_ahead", "read_list", "read_record", "write_list"]

#: Threads that compile.
WORKERS = max(1, (os.cpu_count() or 2) - 1)
_FACTS = tuple(field.name for field in fields(KernelSource))
#: In which order what is done needs its kernels.
PARTS = ("smoke", "verdicts", "libraries", "tests", "random", "timings", "tensor cores")


@dataclass(frozen=True)
class Needed:
    """A kernel, what needs it ("smoke", "random", or a test's name), seconds to compile it."""

    source: KernelSource
    uses: tuple[str, ...]
    seconds: float = 0.0

    @property
    def order(self) -> tuple[int, float]:
        """What is needed first comes first; of what one part needs, what takes longest."""
        parts = ["tests" if "::" in use else use.partition(":")[0] for use in self.uses]
        return (min((PARTS.index(part) for part in parts if part in PARTS), default=len(PARTS)), -self.seconds)


def _source(facts: dict[str, Any]) -> KernelSource:
    known = {name: facts[name] for name in _FACTS if name in facts}
    return KernelSource(**{**known, "archs": tuple(known.get("archs", ()))})


def read_record(folder: Path) -> list[Needed]:
    """What a stand-in for a GPU noted (tests/standin): each kernel with all that launched it."""
    sources: dict[str, KernelSource] = {}
    uses: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if "kernel" in line:
                sources[line["kernel"]] = _source(line)
            else:
                uses.setdefault(line["uses"], []).append(line["where"])
    return [Needed(source, tuple(sorted(set(uses.get(digest, []))))) for digest, source in sources.items()]


def write_list(path: Path, kernels: Iterable[Needed]) -> None:
    """``kernels`` as the file ``path``, in the order in which they are needed."""
    lines = []
    for one in sorted(kernels, key=lambda one: (one.order, str(one.source))):
        facts = {name: getattr(one.source, name) for name in _FACTS}
        lines.append(json.dumps({**facts, "uses": one.uses, "seconds": round(one.seconds, 2)}) + "\n")
    path.write_bytes(lzma.compress("".join(lines).encode(), preset=6))


def read_list(path: Path) -> list[Needed]:
    """The kernels of a list, in its order."""
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    found = [json.loads(line) for line in lines]
    return [Needed(_source(line), tuple(line["uses"]), float(line["seconds"])) for line in found]


def compile_ahead(kernels: Iterable[Needed], arch: str, workers: int = WORKERS) -> Iterator[tuple[Needed, str]]:
    """Each kernel when it is in the folder of compiled ones: its seconds, 0 if it was there, and the error if any."""
    cache, stop = kernel_cache(), threading.Event()

    def one(needed: Needed) -> tuple[Needed, str]:
        if stop.is_set():
            return needed, "stopped"
        try:
            if cache.holds(needed.source, arch):
                return replace(needed, seconds=0.0), ""
            begin = time.perf_counter()
            cache.get(needed.source, arch)
            return replace(needed, seconds=time.perf_counter() - begin), ""
        except CudaError as error:
            return needed, str(error)

    wanted = [needed for needed in kernels if needed.source.runs_on(arch)]
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield from pool.map(one, wanted)
        finally:
            stop.set()


def main(argv: list[str] | None = None) -> int:
    """0 if every kernel is in the folder now."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("list", type=Path)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--workers", type=int, default=WORKERS)
    options = parser.parse_args(argv)
    kernels, made, failed, begin = read_list(options.list), 0, 0, time.monotonic()
    smoke = sum(needed.order[0] == 0 and needed.source.runs_on(options.arch) for needed in kernels)
    if not smoke:
        print(SMOKE_READY, flush=True)
    for done, (needed, error) in enumerate(compile_ahead(kernels, options.arch, options.workers), 1):
        if done == smoke:
            print(SMOKE_READY, flush=True)
        made += needed.seconds > 0
        failed += bool(error)
        if error:
            print(f"compiling {needed.source}: {error.splitlines()[0]}", flush=True)
    spent = time.monotonic() - begin
    print(
        f"compiled ahead: {made} kernels in {spent:.0f} s, {len(kernels) - made - failed} were there, {failed} failed"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
