"""Describes in words the kernels that computed a product."""

from __future__ import annotations

from functools import lru_cache

from ..product import Ran
from .ctypes_structs import KINDS, STEPS
from .shared_library import isa

__all__ = ["Kernels", "ran"]

_CARRIERS = ("float32 lanes", "float64 lanes")
_STEPS = ("fma", "fma to odd", "mul, add", "mul, add to odd")
_KINDS = (
    "native",
    "round",
    "round+subnormals",
    "round+saturate",
    "round+overflow",
    "round+flush",
    "any mode",
    "stochastic",
    "directed",
    "directed+overflow",
    "scalar exact",
    "own kernel",
)
_PROOFS = (
    (1, "no overflow possible: no clamp"),
    (2, "no underflow possible: no subnormal step"),
    (4, "steps exact in the carrier: no round to odd"),
)


class Kernels:
    """The kernels that computed a product's tiles, and what the choice of kernels proved about the data."""

    __slots__ = ("_code",)

    def __init__(self, code: int) -> None:
        self._code = code  # Report::packed() of cutlass_kernels/cpu/api.h

    @property
    def names(self) -> list[str]:
        """The names of all kernels that computed part of the result."""
        found = []
        rest = self._code >> 4
        while rest:
            index, rest = (rest & 127) - 1, rest >> 7
            if index == 2 * STEPS * KINDS:
                found.append("binary16 lanes, fma, native")
                continue
            kind, step, carrier = index % KINDS, index // KINDS % STEPS, index // (KINDS * STEPS)
            how = "" if kind >= KINDS - 2 else f", {_STEPS[step]}"
            found.append(f"{_CARRIERS[carrier]}{how}, {_KINDS[kind]}")
        return found

    @property
    def proofs(self) -> list[str]:
        """The proofs for the whole product that allowed kernels to omit steps."""
        return [text for bit, text in _PROOFS if self._code >> 4 and self._code & bit]

    def __str__(self) -> str:
        parts = ["; ".join(self.names) or "nothing to compute", *self.proofs]
        return f"cpu/{isa()}: " + "; ".join(parts)

    def __repr__(self) -> str:
        return f"<{self}>"


@lru_cache(maxsize=4096)
def ran(code: int) -> Ran:
    """Return the record of a product that these kernels computed. Few of them occur, so they are kept."""
    return Ran("cpu", Kernels(code))
