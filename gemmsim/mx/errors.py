"""What an ``MXTensor`` raises for an operator it has not, and warns of for blocks along another dimension."""

from __future__ import annotations

__all__ = ["BlockDimWarning", "MXConfigError", "MXFileError", "MXOperatorError"]


class MXOperatorError(RuntimeError):
    """An operator that block-format tensors do not have, or operands that it does not take."""


def no_memory(t: object, what: str) -> MXOperatorError:
    """The error of a method that reads numbers where a tensor of codes has none."""
    return MXOperatorError(
        f"{what} of {t!r}; allowed: plain tensors, which have their numbers in memory.\n"
        f"  Use t.dequantize() for these, or t.codes and t.scales."
    )


class BlockDimWarning(UserWarning):
    """A product whose contraction runs across the blocks of an operand instead of along them."""


class MXFileError(ValueError):
    """Names or notes of stored tensors that do not go together."""


class MXConfigError(TypeError):
    """A configuration of another type than the ones a function takes."""
