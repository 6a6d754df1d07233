"""What an ``MXTensor`` raises for an operator it has not, and warns of for blocks along another dimension."""

from __future__ import annotations

from torch import nn

__all__ = ["BlockDimWarning", "MXConfigError", "MXFileError", "MXOperatorError", "missing_weight", "refuse_no_weight"]


class MXOperatorError(RuntimeError):
    """Raised for an operator that block-format tensors do not support, and for operands that it does not take.

    Example:
        >>> gs.mx.to_mx(torch.ones(2, 32), "mxfp8_e4m3").exp()
        Traceback (most recent call last):
            ...
        gemmsim.mx.errors.MXOperatorError: aten.exp.default on an MXTensor of mxfp8_e4m3; allowed: ...
    """


def no_memory(t: object, what: str) -> MXOperatorError:
    """The error of a method that reads numbers where a tensor of codes has none."""
    return MXOperatorError(
        f"{what} of {t!r}; allowed: plain tensors, which store their numbers.\n"
        f"  Use t.dequantize() for these, or t.codes and t.scales."
    )


class BlockDimWarning(UserWarning):
    """The warning for a product whose reduction dimension is not the one along which an operand's blocks lie.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as found:
        ...     warnings.simplefilter("always")
        ...     a, b = (gs.mx.to_mx(torch.ones(32, 32), "mxfp8_e4m3") for _ in "ab")
        ...     product = a @ b  # the blocks of b must lie along dim 0
        >>> found[0].category.__name__
        'BlockDimWarning'
    """


class MXFileError(ValueError):
    """Raised where the names or metadata of stored tensors do not fit together.

    Example:
        >>> gs.mx.unflatten_tensors({"w": torch.ones(2)}, {"gemmsim.mx": "x"})
        Traceback (most recent call last):
            ...
        gemmsim.mx.errors.MXFileError: mx.unflatten_tensors: JSONDecodeError for Expecting value: line 1 ...
    """


class MXConfigError(TypeError):
    """Raised for a configuration of a wrong type, and for a model or layer that cannot take one.

    Example:
        >>> gs.mx.quantize_(torch.nn.Linear(32, 32), "mxfp4")
        Traceback (most recent call last):
            ...
        gemmsim.mx.errors.MXConfigError: mx.quantize_: config is a str; allowed: MXLinearConfig for ...
    """


def missing_weight(module: nn.Module) -> str:
    """Why a layer, whose weight nothing computes, has none to take over; empty if it has one."""
    return "" if module._parameters.get("weight") is not None else "without a weight"


def refuse_no_weight(owner: str, module: nn.Module) -> None:
    """``MXConfigError`` for a layer without a weight."""
    if why := missing_weight(module):
        asked = f"{owner} of a {type(module).__name__} {why}"
        raise MXConfigError(f"{asked}; allowed: layers whose weight is a parameter.\n  Give it one first.")
