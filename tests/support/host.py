"""Kernels' text as shared libraries of this machine, by g++: built once, for every test process and every later run.

They lie in ``build/host``, in a folder for each state of the headers and the compiler, under the digest of their text.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gemmsim.backends.cuda.jit.toolchain import header_root
from support import LONG, ROOT

HOST = ROOT / "tests" / "backends" / "cuda" / "host"
SHIM = HOST / "shim.h"
#: For code that need not be fast: of a unit's 6.7 seconds with -O1 these take 3.9. A long run has -O1, so that both see
#: every kernel. -ffp-contract=off: a*b + c is two operations unless the code says fma, as in the device options.
FLAGS = ("-std=c++20", "-O0", "-march=native", "-ffp-contract=off", "-fPIC", "-shared", "-w")
#: Folders of libraries that are kept: those of the last states of the headers.
_KEPT = 3


def _flags() -> tuple[str, ...]:
    return tuple("-O1" if LONG and flag == "-O0" else flag for flag in FLAGS)


def _state(compiler: str) -> str:
    """Digest of what libraries depend on besides their text: headers, compiler, and processor (-march=native)."""
    digest = hashlib.sha256(repr(_flags()).encode())
    asked = [compiler, "-march=native", "-Q", "--help=target", "--version"]
    digest.update(subprocess.run(asked, capture_output=True, check=True).stdout)
    for root in (header_root(), HOST):
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            name = path.relative_to(root).as_posix()
            if not name.startswith("cpu/"):  # the CPU library's, which no kernel includes
                digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def _folder(compiler: str) -> Path:
    folder = ROOT / "build" / "host" / _state(compiler)
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    states = sorted((path for path in folder.parent.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for old in states[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def host_library(text: str, what: str, *, beside: Path | None = None, link: tuple[str, ...] = ()) -> ctypes.CDLL:
    """``text``, which the shim is included before, compiled and loaded. ``beside``: headers that come before ours."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is needed to run kernels on the host")
    key = hashlib.sha256(repr((text, str(beside and beside.relative_to(ROOT)), link)).encode()).hexdigest()[:24]
    library = _folder(compiler) / f"{key}.so"
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be at it: one compiles, the other waits
        if not library.exists():
            _compile(compiler, text, what, library, beside, link)
    return ctypes.CDLL(str(library))


def _compile(compiler: str, text: str, what: str, library: Path, beside: Path | None, link: tuple[str, ...]) -> None:
    code, made = library.with_suffix(".cpp"), library.with_suffix(".part")
    code.write_text(text, encoding="utf-8")
    root = header_root()
    include = ["-include", str(SHIM), *([f"-I{beside}"] if beside else []), f"-I{root / 'include'}", f"-I{root}"]
    command = [compiler, *_flags(), *include, str(code), "-o", str(made), *link]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{what} does not compile for the host:\n{done.stderr[:6000]}"
    made.replace(library)
