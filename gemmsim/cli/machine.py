"""The operating system and the processor, for ``gemmsim env``."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

__all__ = ["processor", "system"]


def system() -> dict[str, str]:
    """The operating system, its C library and the kernel."""
    found = {"system": f"{platform.system()} {platform.release()} {platform.machine()}"}
    try:
        found["distribution"] = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        pass  # only Linux has the file, and not everywhere
    library = " ".join(part for part in platform.libc_ver() if part)
    return {**found, "c library": library} if library else found


def processor() -> dict[str, str]:
    """The processor's name, and how many of its cores this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": _name(), "cores": f"{os.cpu_count()}, of which this process may use {allowed}"}


def _name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named[1].strip() if named else platform.processor() or f"unknown ({platform.machine()})"
