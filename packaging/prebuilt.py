"""Finds a wheel that spares `make` the compilation: one for this machine, compiled from the C++ sources of this tree.

    python3 packaging/prebuilt.py FOLDER OUT

Takes the CPU library out of the first such wheel in FOLDER, writes it into OUT and prints its path; one line to stderr
says so. Prints no path where the library has to be compiled. Needs nothing but Python.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from source_digest import RECORDED_AS, source_digest
from wheel_archive import LIBRARY, dist_info, platforms, read_files

__all__ = ["fits", "prebuilt", "reason_to_compile"]

ROOT = Path(__file__).resolve().parents[1]


def glibc() -> tuple[int, int] | None:
    """Return the version of this machine's C library; None if it is another one than glibc."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):
        return None
    found = re.fullmatch(r"glibc (\d+)\.(\d+)\S*", text)
    return (int(found[1]), int(found[2])) if found else None


def fits(tag: str, machine: str, libc: tuple[int, int] | None) -> bool:
    """Whether a wheel with this platform tag works on a Linux machine with this processor and glibc."""
    found = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", tag)
    return found is not None and libc is not None and machine == found[3] and libc >= (int(found[1]), int(found[2]))


def reason_to_compile(wheel: Path, digest: str) -> str | None:
    """Return why the library of ``wheel`` cannot be used for sources with this digest; None if it can."""
    try:
        files = read_files(wheel)
        recorded = files[f"{dist_info(files)}/{RECORDED_AS}"].decode().strip()
        files[LIBRARY]
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        return f"it cannot be read ({error})"
    except KeyError as error:
        return f"it has no {error.args[0]}"
    return None if recorded == digest else "it was compiled from other C++ sources"


def prebuilt(folder: Path, out: Path, environment: dict[str, str]) -> Path | None:
    """Write the library of a wheel in ``folder`` into ``out`` and return its path; None if it has to be compiled."""
    named = [name for name in ("CXX", "CXXFLAGS") if environment.get(name)]
    if named or environment.get("GEMMSIM_ISAS", "all") not in ("all", "native"):
        return None  # a compiler, its flags or single instruction sets are asked for
    machine, libc = platform.machine(), glibc()
    for wheel in sorted(folder.glob("gemmsim-*.whl")):
        if not any(fits(tag, machine, libc) for tag in platforms(wheel)):
            continue
        reason = reason_to_compile(wheel, source_digest(ROOT))
        if reason is not None:
            print(f"{wheel} is not used: {reason}.", file=sys.stderr)
            continue
        out.mkdir(parents=True, exist_ok=True)
        library = out / Path(LIBRARY).name
        library.write_bytes(read_files(wheel)[LIBRARY])
        print(f"The CPU library comes from {wheel}; nothing is compiled (WHEELS= compiles it).", file=sys.stderr)
        return library.resolve()
    return None


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    library = prebuilt(Path(arguments[0]), Path(arguments[1]), dict(os.environ))
    if library is not None:
        print(library)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
