"""What a library asks of the system's C and C++ libraries, against what a manylinux tag promises."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

__all__ = ["LIMITS", "SYSTEM_LIBRARIES", "absolute_paths", "check", "needed", "versions"]

#: The newest version of each kind that auditwheel's policy manylinux_2_28 allows (the libraries of GCC 8).
LIMITS = {
    "GLIBC": (2, 28),
    "GLIBCXX": (3, 4, 24),
    "CXXABI": (1, 3, 11),
    "GCC": (7, 0, 0),
    # libgomp is not in the wheel: PyTorch brings one, of GCC 8 or later.
    "GOMP": (4, 5),
    "OMP": (4, 5),
}
#: Libraries that manylinux allows and this library may ask for, and libgomp.
SYSTEM_LIBRARIES = {
    *("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "libgcc_s.so.1", "libstdc++.so.6"),
    *("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libgomp.so.1"),
}


def _readelf(option: str, library: Path) -> str:
    command = ["readelf", "--wide", option, str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def versions(library: Path) -> dict[str, tuple[int, ...]]:
    """Return the newest version that ``library`` asks for, by kind: ``{"GLIBC": (2, 16), ...}``."""
    newest: dict[str, tuple[int, ...]] = {}
    for kind, text in re.findall(r"Name: ([A-Z]+)_([0-9.]+)\s", _readelf("--version-info", library)):
        version = tuple(map(int, text.split(".")))
        newest[kind] = max(version, newest.get(kind, ()))
    return newest


def needed(library: Path) -> set[str]:
    """Return the names of the libraries that the loader has to find for ``library``."""
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", _readelf("--dynamic", library)))


def absolute_paths(library: Path, folders: list[Path]) -> list[str]:
    """Return those of ``folders`` whose path is somewhere in the bytes of ``library``."""
    data = library.read_bytes()
    return [str(folder) for folder in folders if str(folder).encode() in data]


def check(library: Path) -> dict[str, tuple[int, ...]]:
    """Return ``versions(library)`` if a wheel with this library may be called manylinux_2_28.

    Raises:
        ValueError: if the library asks for more than that, with each reason.
    """
    found = versions(library)
    reasons = [
        f"{kind}_{'.'.join(map(str, version))} is newer than {'.'.join(map(str, LIMITS.get(kind, ('none',))))}"
        for kind, version in sorted(found.items())
        if version > LIMITS.get(kind, ())
    ]
    reasons += [f"{name} is not allowed" for name in sorted(needed(library) - SYSTEM_LIBRARIES)]
    if reasons:
        raise ValueError(f"{library.name} does not fit manylinux_2_28: {'; '.join(reasons)}")
    return found
