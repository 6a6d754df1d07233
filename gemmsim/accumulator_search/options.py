"""What a search can be told beyond its model, inputs, target, ladder and order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gemmsim.emulation import Rule

from .errors import refusal

__all__ = ["SearchOptions"]

METHODS = ("auto", "whole", "captured")
REFERENCES = ("native", "widest")
#: Share of the samples that is held back.
SHARE = 0.25


@dataclass(frozen=True, eq=False)
class SearchOptions:
    """Options of ``gemmsim.search``.

    Args:
        held_back: inputs for the final figure, in the form of ``inputs``; or the fraction of the samples of ``inputs``
            that takes no part in the search, 0 to below 1. None: a quarter, chosen by ``seed``.
        modules, kinds: patterns over module paths and kinds of products, as in ``gemmsim.emulation.Rule``, one or
            several. Other products stay PyTorch's own.
        reference: what errors are relative to: "native", the model as it is given; "widest", the widest setting of the
            ladder, so that the error does not include the operand formats of the order.
        method: how the error of each layer and accumulator is found. "whole": the whole model is run for each, with
            only that layer narrowed. "captured": each layer is run separately on the inputs that it has in the model,
            and two runs of the whole model give its sensitivity. "auto": "whole" if that takes up to 5e10
            multiply-adds.
        runs: the most runs of the whole model that verification and repair take; None: 400, or 40 after "captured".
        seed: of the split, of the random settings and of random bits; 0 to 2**64 - 1.

    Raises:
        SearchError: for words and numbers outside these.

    Example:
        >>> gs.SearchOptions(modules="encoder.*", kinds=("linear", "conv2d"), held_back=0.5).kind_patterns
        ('linear', 'conv2d')
    """

    held_back: Any = None
    modules: str | Sequence[str] = "*"
    kinds: str | Sequence[str] = "*"
    reference: str = "native"
    method: str = "auto"
    runs: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("reference", REFERENCES), ("method", METHODS)):
            if getattr(self, name) not in allowed:
                raise refusal(f"{name}={getattr(self, name)!r}", ", ".join(map(repr, allowed)), "Name one of these.")
        if self.runs is not None and (isinstance(self.runs, bool) or not isinstance(self.runs, int) or self.runs < 1):
            raise refusal(f"runs={self.runs!r}", "None, or an integer from 1", "Leave it out.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**64:
            raise refusal(f"seed={self.seed!r}", "an integer from 0 to 2**64 - 1", "Leave it out for 0.")
        share = self.share
        if share is not None and not (math.isfinite(share) and 0 <= share < 1):
            raise refusal(f"held_back={self.held_back!r}", "inputs, or a fraction from 0 to below 1", "Try 0.25.")
        for pattern in (*self.module_patterns, *self.kind_patterns):
            if not isinstance(pattern, str):
                raise refusal(f"pattern {pattern!r}", "a shell pattern, or re: and a regular expression", "Try '*'.")
        for pattern in self.module_patterns:
            Rule(pattern)
        for pattern in self.kind_patterns:
            Rule("*", pattern)

    @property
    def share(self) -> float | None:
        """The fraction of the samples that is held back; None where ``held_back`` is inputs."""
        if self.held_back is None:
            return SHARE
        is_number = isinstance(self.held_back, (int, float)) and not isinstance(self.held_back, bool)
        return float(self.held_back) if is_number else None

    @property
    def module_patterns(self) -> tuple[str, ...]:
        """``modules`` as a tuple."""
        return (self.modules,) if isinstance(self.modules, str) else tuple(self.modules)

    @property
    def kind_patterns(self) -> tuple[str, ...]:
        """``kinds`` as a tuple."""
        return (self.kinds,) if isinstance(self.kinds, str) else tuple(self.kinds)
