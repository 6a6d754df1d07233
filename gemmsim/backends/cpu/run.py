"""What a product ran on, in words."""

from __future__ import annotations

from .library import isa
from .records import KINDS, STEPS, Report

__all__ = ["Run"]

_CARRIERS = ("float32 lanes", "float64 lanes")
_STEPS = ("fma", "fma to odd", "mul, add", "mul, add to odd")
_KINDS = ("native", "round", "round+subnormals", "round+saturate", "round+overflow", "any mode", "stochastic", "directed", "directed+overflow", "scalar exact")
_PROOFS = (
    (1, "no overflow possible: no clamp"),
    (2, "no underflow possible: no subnormal step"),
    (4, "steps exact in the carrier: no round to odd"),
)


class Run:
    """Record of one product: which kernels computed its tiles and what the planner had proved about the data."""

    __slots__ = ("_report",)

    def __init__(self, report: Report) -> None:
        self._report = report

    @property
    def kernels(self) -> dict[str, int]:
        """Tiles computed by each kernel."""
        tiles = self._report.tiles
        found = {}
        for carrier in range(2):
            for step in range(STEPS):
                for kind in range(KINDS):
                    count = tiles[carrier][step][kind]
                    if count:
                        step_name = "" if kind == KINDS - 1 else f", {_STEPS[step]}"
                        found[f"{_CARRIERS[carrier]}{step_name}, {_KINDS[kind]}"] = int(count)
        return found

    @property
    def proofs(self) -> list[str]:
        """What was proved for every tile and therefore left out of the kernels."""
        return [text for bit, text in _PROOFS if self.kernels and self._report.proofs & bit]

    def __str__(self) -> str:
        parts = ["; ".join(self.kernels) or "nothing to compute", *self.proofs]
        return f"cpu/{isa()}: " + "; ".join(parts)

    def __repr__(self) -> str:
        return f"<{self}>"
