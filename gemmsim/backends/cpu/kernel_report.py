"""Describes in words the kernels that computed a product."""

from __future__ import annotations

from functools import lru_cache

from ..product import Ran
from .kernel_table import kernel_rules
from .shared_library import isa

__all__ = ["Kernels", "ran"]

# A kernel's code in Report::packed() of cutlass_kernels/cpu/api.h: kernel, carrier, step and rounding.
_MOST, _BITS, _ROUNDINGS, _STEP_COUNT = 4, 14, 16, 4
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
)
_PROOFS = (
    (1, "no overflow possible: no clamp"),
    (2, "no underflow possible: no subnormal step"),
    (4, "steps exact in the carrier: no round to odd"),
)


def _words(code: int) -> str:
    code, kind = divmod(code, _ROUNDINGS)
    code, step = divmod(code, _STEP_COUNT)
    kernel, carrier = divmod(code, 2)
    rule = kernel_rules()[kernel - 1]
    if not rule.details:
        return rule.name
    steps = f", {_STEPS[step]}, {_KINDS[kind]}" if rule.details == "step" else ""
    return f"{rule.name}: {_CARRIERS[carrier]}{steps}"


class Kernels:
    """The kernels that computed a product's tiles, and what the choice of kernels proved about the data."""

    __slots__ = ("_code",)

    def __init__(self, code: int) -> None:
        self._code = code  # Report::packed() of cutlass_kernels/cpu/api.h

    @property
    def names(self) -> list[str]:
        """The names of all kernels that computed part of the result."""
        codes = [self._code >> 4 + _BITS * i & (1 << _BITS) - 1 for i in range(_MOST)]
        more = ["others"] if self._code >> 4 + _BITS * _MOST & 1 else []
        return [_words(code) for code in codes if code] + more

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
