"""Instruction sets of the machine that runs the tests."""

from __future__ import annotations

from gemmsim.backends import cpu


def isas() -> list[str]:
    """Instruction sets this machine has."""
    found = []
    for name in cpu.ISAS:
        try:
            cpu.set_isa(name)
        except cpu.LibraryError:
            continue
        found.append(name)
    cpu.set_isa(found[0])
    return found
