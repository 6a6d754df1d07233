"""Writes the folder that a machine with a GPU and no internet needs.

``make gpu-bundle PYTHON_VERSION=3.12 ARCH=sm_90a`` makes it with these contents:

    benchmarks/gpu_run.sh       what is called there
    benchmarks, tests           as in the source tree
    wheels.tar.xz               pinned packages and gemmsim itself, without PyTorch and what it brings
    kernels.tar.xz              compiled kernels: of the tests, the random products, the timings
    kernels.jsonl.xz            their texts and what needs them, for a machine whose compiler is another version
    draws.jsonl.xz, times.json  the random products; how long each test takes
    bundle.json                 what it was made from and for

Which kernels are needed is found by running all parts of the check on a stand-in for a GPU (tests/standin). It takes
minutes of every core. The folder is written whole or not at all; kernels that were compiled before are not compiled
again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from gpu_bits import draw, write_draws
from gpu_check import PARTS, gpu_tests
from gpu_install import DESCRIPTION, KERNELS, ROOT, WHEELS
from gpu_kernels import Needed, compile_ahead, read_record, write_list
from gpu_machine import code_of, said_by
from gpu_results import Results
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from gemmsim.backends.cuda import ArchitectureError, KernelCache, check_arch
from gemmsim.backends.cuda.jit.toolchain import toolchain

MOST_BYTES = 60 << 20
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
#: Packages that the check needs in the version that gemmsim pins: the kernels' headers and what calls the compiler.
PINNED = ("cuda-core", "cuda-bindings", "cuda-pathfinder", "nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cutlass")
#: Packages that may be there already, in any version; and what they need.
OTHERS = ("numpy", "typer", "rich", "pytest", "pytest-xdist", "hypothesis")
#: Platforms of wheels for Linux with glibc 2.28, from the newest: pip matches names exactly.
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(28, 16, -1)] + ["manylinux2014_x86_64"]
_TREE = ("benchmarks", "tests", "pyproject.toml", "LICENSE")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "results", "baselines", "*.npz", "*.pyc", "*.so")


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    ``select``: an expression for pytest -k. ``parts``: of the check, whose kernels are found. ``there``: packages that
    the machine has and the bundle need not bring.
    """

    python: str
    arch: str
    out: Path
    draws: int
    select: str
    parts: tuple[str, ...]
    there: tuple[str, ...]
    pip: tuple[str, ...]


def say(text: str) -> None:
    print(text, flush=True)


def constraints(python: str) -> dict[str, str]:
    """The pinned version of each package, for a version of Python."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        one = Requirement(text) if text else None
        if one is not None and (one.marker is None or one.marker.evaluate(_marks(python))):
            found[canonicalize_name(one.name)] = str(one.specifier).removeprefix("==")
    return found


def _marks(python: str) -> dict[str, str]:
    return {
        "python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux", "os_name": "posix",
        "platform_system": "Linux", "platform_machine": "x86_64", "implementation_name": "cpython",
        "platform_python_implementation": "CPython", "extra": "",
    }  # fmt: skip


def closure(names: tuple[str, ...], python: str) -> list[str]:
    """The packages and all that they need under that Python."""
    found: dict[str, None] = {}
    todo = list(names)
    while todo:
        name = canonicalize_name(todo.pop(0))
        if name in found:
            continue
        found[name] = None
        for text in _requires(name):
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate(_marks(python)):
                todo.append(one.name)
    return list(found)


def _requires(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:  # an older Python needs it and this one does not; typing_extensions at most
        return ["typing_extensions"]


def download_wheels(plan: Plan, folder: Path) -> list[dict[str, Any]]:
    """The wheels, pip's own among them, and what the bundle says of each."""
    pins = constraints(plan.python)
    others = [name for name in closure(OTHERS, plan.python) if name not in (*PINNED, *plan.there)]
    wanted = [f"{name}=={pins[name]}" for name in (*PINNED, *others)] + ["pip"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(folder),
    ]
    command += ["--implementation", "cp", "--python-version", plan.python, *plan.pip]
    command += [word for platform in _PLATFORMS for word in ("--platform", platform)]
    subprocess.run([*command, *wanted], check=True)
    own = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        *plan.pip,
        str(ROOT),
    ]
    subprocess.run(own, check=True)
    always = {*PINNED, "gemmsim"}
    found = []
    for path in sorted(folder.glob("*.whl")):
        name, version, *_ = parse_wheel_filename(path.name)
        if name != "pip":
            found.append({"file": path.name, "name": name, "version": str(version), "always": name in always})
        _store(path)
    return found


def _store(path: Path) -> None:
    """The wheel without compression: the archive of all of them is compressed, and better so."""
    partial = path.with_suffix(".partial")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            new.writestr(zipfile.ZipInfo(entry.filename, (2020, 1, 1, 0, 0, 0)), old.read(entry))
    partial.replace(path)


def _standin(record: Path, answers: bool, arch: str) -> dict[str, str]:
    """Environment of a process on a stand-in for a GPU of ``arch``, which notes what is launched."""
    meant = {"compile": False, "answers": answers, "record": str(record), "memory_gib": 140.0 if not answers else 8.0}
    meant["capability"] = divmod(int("".join(filter(str.isdigit, arch))), 10)
    path = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "standin"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "GEMMSIM_STANDIN": json.dumps(meant), "PYTHONPATH": os.pathsep.join(path)}


def find_kernels(plan: Plan, folder: Path) -> tuple[list[Needed], dict[str, float]]:
    """The kernels that every part of the check launches; seconds of each test and random product ("random: 7")."""
    record, results = folder / "record", Results(folder / "results")
    results.begin({"gpu": "stand-in"}, "bundle")
    runs: list[tuple[str, list[str], bool]] = [
        (part, _part_command(part, results, folder), part not in ("timings", "tensor cores"))
        for part in ("smoke", *(part for part in PARTS if part != "tests"))
        if part in plan.parts
    ]
    if "tests" in plan.parts:
        workers = ["-n", str(os.cpu_count() or 1)]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "gpu",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "gpu_pytest",
            *workers,
        ]
        runs.append(("tests", command + (["-k", plan.select] if plan.select else []) + gpu_tests(), True))
    for part, command, answers in runs:
        say(f"which kernels {part} launch{'es' if not part.endswith('s') else ''} ...")
        more = {"GEMMSIM_GPU_RESULTS": str(results.folder), "GEMMSIM_STANDIN_WHERE": part}
        log = (folder / "log").open("ab")
        code = subprocess.run(
            command,
            env={**_standin(record, answers, plan.arch), **more},
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
        ).returncode
        if code != 0:
            raise RuntimeError(f"{part} fails on the stand-in:\n{(folder / 'log').read_text(encoding='utf-8')[-3000:]}")
    found = Results(results.folder).run
    times = {key: one.seconds or 0.0 for key, one in found.part("tests").items()}
    times |= {f"random: {key}": one.seconds or 0.0 for key, one in found.part("random").items()}
    return read_record(record), times


def _part_command(part: str, results: Results, folder: Path) -> list[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu_check.py"), "--part", part, "--seconds", "36000"]
    return [*command, "--out", str(results.folder), "--draws", str(folder / "draws.jsonl.xz")]


def compiled(plan: Plan, kernels: list[Needed], folder: Path) -> list[Needed]:
    """The kernels with the seconds they took; a folder with all of them compiled."""
    os.environ["GEMMSIM_CACHE_DIR"] = str(folder)
    todo, done, begin = [one for one in kernels if one.source.runs_on(plan.arch)], [], time.monotonic()
    ordered = sorted(todo, key=lambda one: one.order)
    for index, (one, error) in enumerate(compile_ahead(ordered, plan.arch, os.cpu_count() or 1)):
        if error:
            raise RuntimeError(f"{one.source} for {plan.arch}: {error}")
        done.append(one)
        if index % 100 == 99 or index + 1 == len(ordered):
            say(f"compiled {index + 1} of {len(ordered)} kernels for {plan.arch}, {time.monotonic() - begin:.0f} s")
    return done


def pack(folder: Path, archive: Path) -> None:
    """``folder`` as a compressed archive that does not depend on when or by whom it was made."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(archive, "w:xz", preset=6) as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                tar.add(path, str(path.relative_to(folder)), filter=plain)


def _only_these(cache: Path, kernels: list[Needed], arch: str, folder: Path) -> None:
    """Copies the entries of ``kernels`` alone: a folder of earlier bundles has more."""
    have, to = KernelCache(cache), KernelCache(folder)
    for one in kernels:
        to.take(have, one.source, arch)


def build(plan: Plan, folder: Path) -> None:
    """Writes everything into ``folder``."""
    with tempfile.TemporaryDirectory(prefix="gpu_bundle_") as name:
        temporary = Path(name)
        draws = [draw(index) for index in range(plan.draws)]
        write_draws(temporary / "draws.jsonl.xz", draws)
        say("wheels ...")
        (temporary / "wheels").mkdir()
        wheels = download_wheels(plan, temporary / "wheels")
        kernels, times = find_kernels(plan, temporary)
        cache = ROOT / "build" / "gpu_kernels"
        kernels = compiled(plan, kernels, cache)
        _only_these(cache, kernels, plan.arch, temporary / "kernels")
        say("packing ...")
        pack(temporary / "wheels", folder / WHEELS)
        pack(temporary / "kernels", folder / KERNELS)
        write_list(folder / "kernels.jsonl.xz", kernels)
        longest = sorted(draws, key=lambda one: -times.get(f"random: {one.seed}", 0.0))
        write_draws(folder / "draws.jsonl.xz", longest)
        (folder / "times.json").write_text(json.dumps(times), encoding="utf-8")
    for part in _TREE:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=_LEFT_OUT)
        else:
            shutil.copy(ROOT / part, folder / part)
    describe(plan, folder, wheels, len(kernels))


def describe(plan: Plan, folder: Path, wheels: list[dict[str, Any]], kernels: int) -> None:
    """bundle.json, the last file: its digest is of all others."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    text = {
        "schema": 1,
        "python": plan.python,
        "arch": plan.arch,
        "revision": said_by("git", "rev-parse", "--short", "HEAD") or "unknown",
        "code": code_of(),
        "digest": digest.hexdigest()[:16],
        "toolchain": dict(toolchain().versions),
        "wheels": wheels,
        "kernels": kernels,
        "draws": plan.draws,
    }
    (folder / DESCRIPTION).write_text(json.dumps(text, indent=1), encoding="utf-8")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(argv: list[str] | None = None) -> int:
    """0 if the bundle is there and small enough."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default="3.12", help="version of Python of the machine, 3.10 to 3.13")
    parser.add_argument("--arch", default="sm_90a", help="architecture of its GPU")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "gpu_bundle", help="folder to write; one that is there is replaced"
    )
    parser.add_argument("--draws", type=int, default=300, help="random products")
    parser.add_argument("--select", default="", help="tests, as pytest -k takes them (all)")
    parser.add_argument("--parts", nargs="*", default=["smoke", *PARTS], help="parts whose kernels are brought (all)")
    parser.add_argument(
        "--there", nargs="*", default=[], help="packages that the machine has, numpy or pytest for example"
    )
    parser.add_argument("--pip", nargs=argparse.REMAINDER, default=[], help="last: options for pip")
    options = parser.parse_args(argv)
    if options.python not in PYTHONS:
        parser.error(f"Python {options.python}; allowed: {', '.join(PYTHONS)}")
    try:
        check_arch(options.arch)
    except ArchitectureError as error:
        parser.error(str(error))
    plan = Plan(
        options.python, options.arch, options.out.resolve(), options.draws, options.select,
        tuple(options.parts), tuple(options.there), tuple(options.pip),
    )  # fmt: skip
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{plan.out.name}-", dir=plan.out.parent))
    try:
        build(plan, partial)
        size = _size(partial)
        if size > MOST_BYTES:
            raise RuntimeError(f"the bundle has {size / 2**20:.1f} MiB; allowed: {MOST_BYTES >> 20}. Leave out draws.")
        if plan.out.exists():
            shutil.rmtree(plan.out)
        partial.rename(plan.out)
        plan.out.chmod(0o755)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    say(f"{plan.out}: {size / 2**20:.1f} MiB. Copy it, and call there: benchmarks/gpu_run.sh --out results --minutes 9")
    return 0


if __name__ == "__main__":
    sys.exit(main())
