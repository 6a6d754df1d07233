"""What a library computes for one call, as data."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..arithmetic import GemmSpec
from .call import Call
from .configuration import Config
from .evidence import MEANINGS

__all__ = ["SOURCES", "Plan"]

#: Where a configuration came from, by the word in ``Plan.source``.
SOURCES = {
    "config": "the caller gave the configuration",
    "table": "a recorded table has this call",
    "live": "the library on this machine was asked",
    "bound": "a recorded bound says that such calls are not split",
    "explicit": "the caller gave the number of slices",
    "assumed": "this call is unknown: one chain was assumed, as requested",
    "rule": "the library's source has one rule for every shape",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a library computes for one call.

    Attributes:
        text: the spec, as text.
        family: of kernels: "nvjet", "cutlass", "gemmsn", "gemv", "dot", "tiles"; presets have their own word.
        config: the nine fields, None where there are none.
        evidence: "silicon", "inferred" or "unverified".
        source: the origin of the configuration: a key of ``SOURCES``.
        lost: how many of the last terms of K never enter the sum.
        call: the product.
        library: the library, as text.
        order: the steps in order, in words.
        sources: who measured it and how often it was equal, in words.
        changes: what would change the plan, in words.

    Example:
        >>> lib = gs.libraries.cublaslt("h100", version="13.1")
        >>> plan = lib.plan(64, 64, 8192, "fp16", config="66,,4,,,,35")
        >>> plan.family, plan.evidence, plan.source, plan.lost
        ('nvjet', 'silicon', 'config', 0)
    """

    text: str
    family: str
    config: Config | None
    evidence: str
    source: str
    lost: int
    call: Call
    library: str
    order: tuple[str, ...] = field(repr=False)
    sources: tuple[str, ...] = field(repr=False)
    changes: tuple[str, ...] = field(repr=False)

    @property
    def spec(self) -> GemmSpec:
        """The arithmetic: operand formats, accumulator, and the casts of the result, last of all ``.out``."""
        return GemmSpec.parse(self.text)

    def explain(self) -> str:
        """The plan in words: lost terms first, then the order, the evidence with counts, and what would change it.

        Example:
            >>> plan = gs.libraries.cublaslt("h100").plan(64, 64, 8192, "fp16", config="66,,4,,,,35")
            >>> print(plan.explain().splitlines()[0])
            cublaslt('h100', version='13.1.1', workspace=33554432): 64 x 64 x 8192 in fp16 to fp16: family nvjet
        """
        lines = [self._loss()] if self.lost else []
        lines.append(f"{self.library}: {self.call}: family {self.family}")
        lines += [f"  {step}" for step in self.order]
        lines.append(f"spec: {self.text}")
        lines.append(f"evidence: {self.evidence}: {MEANINGS[self.evidence]}")
        lines += [f"  {line}" for line in self.sources]
        chosen = "" if self.config is None else f" ({self.config})"
        lines.append(f"configuration: {SOURCES[self.source]}{chosen}")
        lines += [f"  {line}" for line in self.changes]
        return "\n".join(lines)

    def _loss(self) -> str:
        terms = "term" if self.lost == 1 else f"{self.lost} terms"
        return (
            f"The last {terms} of {self.call.K} never enter the sum: an error of the library, "
            f"which adds {self.call.K - self.lost}."
        )

    def __str__(self) -> str:
        return f"{self.text}  [{self.family}, {self.evidence}]"
