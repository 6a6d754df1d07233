"""``gemmsim explain``: a spec in words."""

from __future__ import annotations

import gemmsim as gs

from .console import say


def explain(spec: str) -> None:
    """Prints what ``spec`` means, step by step, and who computes it."""
    say(gs.explain(spec))
