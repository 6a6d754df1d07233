"""The errors of probing a function."""

from __future__ import annotations

from gemmsim.formats.errors import message

__all__ = ["ContradictoryAnswers", "ProbeError", "probe_error"]


class ProbeError(ValueError):
    """A function that cannot be probed as a matrix product, with the evidence, or arguments that mean nothing.

    The function raises, returns another shape or kind, changes with time, or is not a sum of products.

    Example:
        >>> gs.identify(lambda a, b: a + b, 4, 4, 8)
        Traceback (most recent call last):
            ...
        gemmsim.probe.errors.ProbeError: <lambda> raised for operands 4x8 and 8x4 of torch.float32: ...
    """


class ContradictoryAnswers(Exception):
    """Answers of a function that no tree of additions gives; ``reveal`` and ``identify`` say so."""


def probe_error(asked: str, allowed: str, do: str) -> ProbeError:
    """``ProbeError`` that says what was asked or found, what is allowed and what to do."""
    return ProbeError(message(asked, allowed, do))
