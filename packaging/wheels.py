"""Builds what a release uploads, without containers: `make wheels` (docs/contributing/wheels.md).

It makes the sdist, and from the sdist one wheel for Linux on x86-64 and one for 64-bit Arm; next to each wheel its bill
of materials, and SHA256SUMS. Two builds of one commit give the same bytes. Runs in the environment of requirements.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import symbol_versions
from sbom import Build, bill_of_materials
from source_digest import RECORDED_AS, source_digest
from wheel_archive import LIBRARY, dist_info, read_files, sha256, write_wheel

ROOT = Path(__file__).resolve().parents[1]
#: Build tools whose versions the bill of materials names.
TOOLS = ("auditwheel", "cmake", "ninja", "scikit_build_core")
#: Variables that would change what is compiled.
UNWANTED = ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CMAKE_ARGS", "GEMMSIM_PREBUILT", "MAKEFLAGS", "MAKELEVEL")


class BuildError(Exception):
    """A distribution cannot be built here; the message says why, and what to do."""


@dataclass(frozen=True)
class Target:
    """A platform that a wheel is for: its compiler, and what else the build needs."""

    machine: str
    compiler: str
    package: str
    toolchain: str | None = None

    def linker(self) -> str:
        """Return the linker that the compiler calls."""
        return run([self.compiler, "-print-prog-name=ld"]).strip()

    def options(self, source: Path) -> dict[str, str]:
        """Return settings of scikit-build-core for a build of ``source``; no path of this machine gets into code."""
        header = ROOT / "packaging" / "old_libraries.h"
        flags = f'-include "{header}" -ffile-prefix-map="{source}"=. -ffile-prefix-map="{ROOT}"=.'
        chosen = {"cmake.define.CMAKE_CXX_FLAGS": flags, "cmake.define.CMAKE_CXX_COMPILER": self.compiler}
        if self.toolchain is not None:
            chosen["cmake.define.CMAKE_TOOLCHAIN_FILE"] = str(source / self.toolchain)
        return chosen


TARGETS = {
    "x86_64": Target("x86_64", "g++", "g++"),
    "aarch64": Target(
        "aarch64",
        "aarch64-linux-gnu-g++",
        "g++-aarch64-linux-gnu",
        "cutlass_kernels/cmake/aarch64-linux-gnu.cmake",
    ),
}


def run(command: Sequence[object], cwd: Path = ROOT, **environment: str) -> str:
    """Run a command and return what it printed.

    Raises:
        BuildError: if it fails, with its last lines.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(words)[:300]} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def time_of_build() -> int:
    """Return SOURCE_DATE_EPOCH, or the time of the last commit.

    Raises:
        BuildError: if neither is known.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        return int(text or run(["git", "log", "-1", "--format=%ct"]))
    except (BuildError, ValueError, OSError):
        raise BuildError("The time of the build is unknown: set SOURCE_DATE_EPOCH to seconds since 1970.") from None


def check_tree() -> None:
    """Refuse a working tree with files that no commit has.

    Raises:
        BuildError: with the first of those files.
    """
    changed = run(["git", "status", "--porcelain"]).splitlines()
    if changed:
        names = ", ".join(line[3:] for line in changed[:5])
        raise BuildError(
            f"{len(changed)} files differ from the last commit ({names}): commit them, or use --uncommitted."
        )


def call_backend(hook: str, source: Path, out: Path, options: dict[str, str], **environment: str) -> Path:
    """Run a hook of the build backend (PEP 517) in ``source`` and return the file that it made in ``out``."""
    code = (
        "import json, sys; from scikit_build_core import build; "
        "print('\\nmade', getattr(build, sys.argv[1])(sys.argv[2], json.loads(sys.argv[3])))"
    )
    printed = run([sys.executable, "-c", code, hook, out, json.dumps(options)], source, **environment)
    return out / printed.rsplit("made ", 1)[1].strip()


def build_sdist(out: Path) -> Path:
    """Build the sdist of this tree into ``out``."""
    return call_backend("build_sdist", ROOT, out, {})


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist and return the folder of its sources."""
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)
    return folder / sdist.name.removesuffix(".tar.gz")


def compile_wheel(source: Path, target: Target, folder: Path) -> Path:
    """Compile one wheel, whose tag says linux and nothing about the C library yet.

    Raises:
        BuildError: if the compiler is missing, or fails.
    """
    if shutil.which(target.compiler) is None:
        raise BuildError(f"{target.compiler} is not installed (Debian, Ubuntu: apt-get install {target.package}).")
    options = {**target.options(source), "build-dir": str(folder / f"build_{target.machine}")}
    platform = f"linux-{target.machine}"
    return call_backend("build_wheel", source, folder, options, _PYTHON_HOST_PLATFORM=platform, GEMMSIM_ISAS="all")


def repair(wheel: Path, target: Target, folder: Path) -> Path:
    """Let auditwheel check the wheel and name it by the oldest C library that it works with."""
    words = ["--exclude", "libgomp.so.1", "-w", folder, wheel]
    run([sys.executable, "-m", "auditwheel", "repair", *words])
    made = list(folder.glob("*.whl"))
    if len(made) != 1 or "manylinux" not in made[0].name:
        raise BuildError(f"auditwheel made {[path.name for path in made]} of {wheel.name}.")
    return made[0]


def tools_of(target: Target) -> dict[str, str]:
    """Return names and versions of what compiles and packs a wheel."""
    found = {name: metadata.version(name) for name in TOOLS}
    found["python"] = ".".join(map(str, sys.version_info[:3]))
    for name, words in {"compiler": [target.compiler, "--version"], "linker": [target.linker(), "--version"]}.items():
        found[name] = run(words).splitlines()[0]
    return found


def finish(wheel: Path, target: Target, out: Path, epoch: int) -> Path:
    """Check a repaired wheel, add the digest of its sources and its bill of materials, and write it into ``out``.

    Raises:
        BuildError: if the library asks for newer C libraries than the tag promises.
    """
    files = read_files(wheel)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libgemmsim_cpu.so"
        library.write_bytes(files[LIBRARY])
        try:
            newest = symbol_versions.check(library)
        except ValueError as error:
            raise BuildError(str(error)) from None
        paths = symbol_versions.absolute_paths(library, [ROOT, wheel.parent.parent])
        if paths:
            raise BuildError(f"the library of {wheel.name} contains paths of this machine: {paths}")
        needed = frozenset(symbol_versions.needed(library))
    info = dist_info(files)
    about = message_from_bytes(files[f"{info}/METADATA"])
    asked = tuple(line for line in about.get_all("Requires-Dist", []) if "extra ==" not in line)
    sources = source_digest(ROOT)
    build = Build(
        version=about["Version"],
        wheel=wheel.name,
        library=sha256(files[LIBRARY]),
        sources=sources,
        needed=needed,
        requirements=asked,
        tools=tools_of(target),
        epoch=epoch,
    )
    bill = bill_of_materials(build)
    files[f"{info}/{RECORDED_AS}"] = f"{sources}\n".encode()
    files[f"{info}/sboms/gemmsim.cdx.json"] = bill
    write_wheel(out / wheel.name, files, epoch)
    (out / f"{wheel.name}.cdx.json").write_bytes(bill)
    asks = ", ".join(f"{kind}_{'.'.join(map(str, version))}" for kind, version in sorted(newest.items()))
    print(f"{wheel.name}: asks for at most {asks}", flush=True)
    return out / wheel.name


def build_wheel(source: Path, target: Target, out: Path, epoch: int) -> Path:
    """Compile, repair and finish the wheel of one platform."""
    with tempfile.TemporaryDirectory(prefix="gemmsim_wheel_") as folder:
        repaired = Path(folder) / "repaired"
        repaired.mkdir()
        compiled = compile_wheel(source, target, Path(folder))
        return finish(repair(compiled, target, repaired), target, out, epoch)


def write_sums(out: Path) -> None:
    """Write SHA256SUMS of everything in ``out``, as ``sha256sum --check`` reads it."""
    files = sorted(path for path in out.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    lines = [f"{sha256(path.read_bytes())}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def build(names: Sequence[str], out: Path) -> None:
    """Build the sdist and the wheels of the named platforms into ``out``, which is emptied of other distributions."""
    epoch = time_of_build()
    os.environ.update(SOURCE_DATE_EPOCH=str(epoch), LC_ALL="C", PYTHONHASHSEED="0")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for name in UNWANTED:
        os.environ.pop(name, None)
    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob("gemmsim-*"), *out.glob("SHA256SUMS")]:
        old.unlink()
    sdist = build_sdist(out)
    print(sdist.name, flush=True)
    with tempfile.TemporaryDirectory(prefix="gemmsim_sources_") as folder:
        source = unpack(sdist, Path(folder))
        for name in names:
            build_wheel(source, TARGETS[name], out, epoch)
    write_sums(out)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("platforms", nargs="*", default=list(TARGETS), metavar="platform", help=" or ".join(TARGETS))
    parser.add_argument("--out", type=Path, default=ROOT / "wheelhouse", help="folder for what is built")
    parser.add_argument("--uncommitted", action="store_true", help="build files that differ from the last commit, too")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.platforms) - set(TARGETS))
    if unknown:
        parser.error(f"unknown platforms: {', '.join(unknown)} (known: {', '.join(TARGETS)})")
    try:
        if not options.uncommitted:
            check_tree()
        build(options.platforms, options.out.resolve())
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
