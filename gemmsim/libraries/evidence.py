"""How sure a plan is: three words, the strongest first."""

from __future__ import annotations

__all__ = ["INFERRED", "LEVELS", "MEANINGS", "SILICON", "UNVERIFIED", "weakest"]

SILICON = "silicon"
INFERRED = "inferred"
UNVERIFIED = "unverified"
LEVELS = (SILICON, INFERRED, UNVERIFIED)
MEANINGS = {
    SILICON: "calls of this family on this GPU and library were compared with the rule bit for bit",
    INFERRED: "each part was compared with a chip, but this combination was not",
    UNVERIFIED: "a rule of naming or symmetry that was not observed on a chip",
}


def weakest(*levels: str) -> str:
    """The weakest of the levels."""
    return max(levels, key=LEVELS.index)
