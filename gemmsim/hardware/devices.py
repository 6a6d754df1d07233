"""Which architecture of the tables a GPU is."""

from __future__ import annotations

__all__ = ["CAPABILITIES", "architecture_of"]

#: Compute capabilities (major * 10 + minor) of each NVIDIA architecture of the tables.
CAPABILITIES: dict[str, tuple[int, ...]] = {
    "volta": (70, 72),
    "turing": (75,),
    "ampere": (80, 86, 87),
    "ada": (89,),
    "hopper": (90,),
    "blackwell": (100, 103),
    "rtx_blackwell": (120, 121),
}


def architecture_of(capability: tuple[int, int]) -> str | None:
    """The architecture with compute capability (major, minor), ``None`` if the tables have none."""
    number = 10 * capability[0] + capability[1]
    return next((arch for arch, numbers in CAPABILITIES.items() if number in numbers), None)
