"""The errors of probing a function."""

from __future__ import annotations

from gemmsim.formats.errors import message

__all__ = ["ContradictoryAnswers", "ProbeError", "probe_error"]


class ProbeError(ValueError):
    """A function that cannot be probed as a matrix product, with the evidence: it raises, returns another shape or
    kind, changes with time, or is no sum of products. Also arguments that mean nothing."""


class ContradictoryAnswers(Exception):
    """Answers of a function that no tree of additions gives; ``reveal`` and ``identify`` say so."""


def probe_error(asked: str, allowed: str, do: str) -> ProbeError:
    """``ProbeError`` that says what was asked or found, what is allowed and what to do."""
    return ProbeError(message(asked, allowed, do))
