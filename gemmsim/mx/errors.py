"""What an ``MXTensor`` raises for an operator it has not, and warns of for blocks along another dimension."""

from __future__ import annotations

from torch import nn

__all__ = ["BlockDimWarning", "MXConfigError", "MXFileError", "MXOperatorError", "missing_weight", "refuse_no_weight"]


class MXOperatorError(RuntimeError):
    """An operator that block-format tensors do not have, or operands that it does not take."""


def no_memory(t: object, what: str) -> MXOperatorError:
    """The error of a method that reads numbers where a tensor of codes has none."""
    return MXOperatorError(
        f"{what} of {t!r}; allowed: plain tensors, which store their numbers.\n"
        f"  Use t.dequantize() for these, or t.codes and t.scales."
    )


class BlockDimWarning(UserWarning):
    """A product whose contraction runs across the blocks of an operand instead of along them."""


class MXFileError(ValueError):
    """Names or notes of stored tensors that do not go together."""


class MXConfigError(TypeError):
    """A configuration of another type than the ones a function takes, or no layer that it could be for."""


def missing_weight(module: nn.Module) -> str:
    """Why a layer, whose weight nothing computes, has none to take over; empty if it has one."""
    return "" if module._parameters.get("weight") is not None else "without a weight"


def refuse_no_weight(owner: str, module: nn.Module) -> None:
    """``MXConfigError`` for a layer without a weight."""
    if why := missing_weight(module):
        asked = f"{owner} of a {type(module).__name__} {why}"
        raise MXConfigError(f"{asked}; allowed: layers whose weight is a parameter.\n  Give it one first.")
