"""``gemmsim kernels``: compiling GPU kernels ahead of time, and the folder they are kept in. No GPU is needed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from rich.progress import Progress
from rich.table import Table

from gemmsim.backends.cuda import (
    FAMILIES,
    CudaError,
    KernelSource,
    check_arch,
    family_sources,
    kernel_cache,
    toolchain,
)

from .console import console, say, show


def compile_kernels(families: list[str], everything: bool, archs: list[str]) -> None:
    """Compiles the listed kernels of ``families`` for every architecture of ``archs``; what is on disk stays.

    CudaError for an unknown family or architecture, missing packages, a kernel that does not compile, or a folder that
    kernels cannot be kept in.
    """
    if not families and not everything:
        known = "\n".join(f"  {family.name:8} {family.summary}" for family in FAMILIES.values())
        raise CudaError(f"kernels compile: no family named; allowed: --all, or families:\n{known}")
    if families and everything:
        raise CudaError("kernels compile: --all and families; allowed: one of them.\n  Leave the families out.")
    archs = [check_arch(arch) for arch in dict.fromkeys(archs)]
    toolchain()
    jobs = [(source, arch) for arch in archs for source in family_sources(families) if source.runs_on(arch)]
    cache, made, start = kernel_cache(), 0, time.perf_counter()
    for source, arch in _with_progress(jobs):
        made += cache.get(source, arch).seconds > 0
        if not cache.holds(source, arch):  # compiled for nothing, and so would the others be
            asked = f"kernels compile: {source} for {arch} could not be saved in {cache.folder}"
            raise CudaError(f"{asked}; allowed: a writable folder.\n  Set GEMMSIM_CACHE_DIR to one.")
    spent = time.perf_counter() - start
    names, there = ", ".join(archs), len(jobs) - made
    say(f"{len(jobs)} kernels for {names}: {made} compiled in {spent:.1f} s, {there} already present")
    say(f"saved in {cache.folder}")


def _with_progress(jobs: list[tuple[KernelSource, str]]) -> Iterator[tuple[KernelSource, str]]:
    """The jobs, with a bar that says which one runs where output is a terminal."""
    out = console()
    if not out.is_terminal:
        yield from jobs
        return
    with Progress(console=out, transient=True) as progress:
        task = progress.add_task("compiling", total=len(jobs))
        for source, arch in jobs:
            progress.update(task, description=f"{source} for {arch}")
            yield source, arch
            progress.advance(task)


def list_kernels() -> None:
    """Prints each kernel on disk: what it is, for which architecture, how large, and whether it is of this version."""
    rows = list(kernel_cache().entries())
    if not rows:
        say(f"no kernels in {kernel_cache().folder}")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("kernel", "arch", "kB", "compiled in", ""):
        table.add_column(heading, justify="right" if heading in ("kB", "compiled in") else "left")
    current = _current_digest()
    ordered = sorted(rows, key=lambda row: (row[1].family, row[1].name, row[1].arch))
    for _, info, size in ordered:
        stale = "" if current in (None, info.digest) else "other version"
        table.add_row(f"{info.family}<{info.name}>", info.arch, f"{size / 1000:.0f}", f"{info.seconds:.2f} s", stale)
    show(table, natural=True)
    say(f"{_count(rows)} in {kernel_cache().folder}")


def _count(rows: Iterable[object]) -> str:
    n = len(list(rows))
    return f"{n} kernel{'' if n == 1 else 's'}"


def _current_digest() -> str | None:
    """Digest of the installed headers and packages; None where they are not installed."""
    try:
        return toolchain().digest.hex()
    except CudaError:
        return None


def clear_kernels() -> None:
    """Removes every compiled kernel and every kept source."""
    cache = kernel_cache()
    removed = cache.clear()
    say(f"{removed} file{'' if removed == 1 else 's'} removed from {cache.folder}")


def print_path() -> None:
    """Prints the folder, whether or not it exists."""
    say(str(kernel_cache().folder))
