"""Reads wheels, and writes them so that equal files give equal bytes."""

from __future__ import annotations

import base64
import hashlib
import time
import zipfile
from pathlib import Path

__all__ = ["LIBRARY", "dist_info", "platforms", "read_files", "sha256", "write_wheel"]

#: The CPU library's name in a wheel for Linux.
LIBRARY = "gemmsim/lib/libgemmsim_cpu.so"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def platforms(wheel: Path) -> list[str]:
    """Return the platform tags in the name of a wheel, for example ``manylinux_2_24_x86_64``."""
    return wheel.stem.split("-")[-1].split(".")


def read_files(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel by name, without folders."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def dist_info(files: dict[str, bytes]) -> str:
    """Return the name of a wheel's dist-info folder.

    Raises:
        ValueError: if the files are not those of one wheel.
    """
    folders = {name.split("/")[0] for name in files if name.split("/")[0].endswith(".dist-info")}
    if len(folders) != 1:
        raise ValueError(f"a wheel has one dist-info folder, not {sorted(folders)}")
    return folders.pop()


def _record(files: dict[str, bytes], own_name: str) -> bytes:
    lines = []
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{own_name},,\n"]).encode()


def _entry(name: str, epoch: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, time.gmtime(epoch)[:6])
    info.create_system = 3  # Unix, wherever the wheel is written
    info.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def write_wheel(path: Path, files: dict[str, bytes], epoch: int) -> None:
    """Write ``files`` as a wheel with a new RECORD: sorted, the metadata last, all of them with the time ``epoch``."""
    folder = dist_info(files)
    record = f"{folder}/RECORD"
    content = {name: data for name, data in files.items() if name != record}
    order = sorted(content, key=lambda name: (name.startswith(f"{folder}/"), name))
    with zipfile.ZipFile(path, "w") as archive:
        for name in order:
            archive.writestr(_entry(name, epoch), content[name], compresslevel=9)
        archive.writestr(_entry(record, epoch), _record(content, record), compresslevel=9)
