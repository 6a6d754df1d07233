"""Checks names of GPU architectures in the form of the compiler: ``sm_80``, ``sm_90a``, ``sm_120f``."""

from __future__ import annotations

import re

from ..errors import ArchitectureError, message

__all__ = ["ARCHITECTURES", "OLDEST", "arch_of_capability", "check_arch"]

#: Compute capabilities for which NVRTC 13.0 compiles and the kernels are written. The ``a`` variants exist from 9.0 on,
#: the family variants ``f`` from 10.0 on.
ARCHITECTURES = (80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)
OLDEST = "sm_80"

_NAME = re.compile(r"sm_(?P<number>[0-9]{2,3})(?P<variant>[af]?)")


def _allowed() -> str:
    return f"{OLDEST} (the oldest) and " + ", ".join(
        f"sm_{n}" + ("[a]" if n == 90 else "[a|f]" if n >= 100 else "") for n in ARCHITECTURES[1:]
    )


def check_arch(arch: str) -> str:
    """Return ``arch`` if kernels can be compiled for it.

    Raises:
        ArchitectureError: for any other text; the message names the oldest supported one.

    Example:
        >>> from gemmsim.backends import cuda
        >>> cuda.check_arch("sm_90a")
        'sm_90a'
    """
    match = _NAME.fullmatch(arch)
    if match is not None and int(match["number"]) in ARCHITECTURES:
        first = {"": 0, "a": 90, "f": 100}[match["variant"]]
        if int(match["number"]) >= first:
            return arch
    raise ArchitectureError(message(f"GPU architecture {arch!r}", _allowed(), "An H100 or H200 is sm_90a."))


def arch_of_capability(major: int, minor: int) -> str:
    """Return the architecture to compile for on a device of this compute capability.

    It is the exact architecture, including the instructions that only it has.

    Raises:
        ArchitectureError: for devices older than the oldest supported one, or newer than the compiler.
    """
    number = 10 * major + minor
    if number not in ARCHITECTURES:
        asked = f"a GPU of compute capability {major}.{minor} (sm_{number})"
        do = "Use CPU tensors." if number < 80 else "Install a newer gemmsim, or use CPU tensors."
        raise ArchitectureError(message(asked, _allowed(), do))
    return f"sm_{number}a" if number >= 90 else f"sm_{number}"
