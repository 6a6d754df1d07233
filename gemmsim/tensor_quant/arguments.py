"""Arguments of the functions: both vintages of ModelOpt's positional order, numbers as tensors, ``out``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from gemmsim.ops.checks import check_device, check_float
from gemmsim.ops.errors import DTypeError, GradError
from gemmsim.ops.overlap import check_out

from .checks import common_shape
from .errors import AmaxError, message

__all__ = ["as_amax", "both_vintages", "check_nonfinite", "prepared", "required", "write_out"]

_LARGEST = torch.finfo(torch.float32).max

F = TypeVar("F", bound=Callable[..., Any])


def both_vintages(*old: str, before: int = 2, kinds: tuple[type, ...] = (int, bool)) -> Callable[[F], F]:
    """Let a function with ``bias`` after ``before`` parameters, the last of them ``amax``, be called without it.

    A positional argument in its place that is of ``kinds`` means the order ``old`` of older versions, which had no
    bias there; None or a tensor is the bias.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            rest = args[before:]
            if rest and isinstance(rest[0], kinds):
                if len(rest) > len(old):
                    raise TypeError(f"{function.__name__} takes at most {len(old)} arguments after amax without a bias")
                return function(*args[:before], **dict(zip(old, rest, strict=False)), **kwargs)
            if len(args) < before:  # by name, or left out: the function says what that means
                kwargs.setdefault("amax", None)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate


def as_amax(amax: Tensor | float, like: Tensor) -> Tensor:
    """``amax`` as a tensor on the device of ``like``; numbers are taken in float32.

    Raises:
        DTypeError: for what is no tensor, number or list of numbers.
    """
    if isinstance(amax, Tensor):
        return amax.detach()
    if isinstance(amax, (int, float)):
        value = float(amax)
        if abs(value) > _LARGEST:  # torch.full refuses what float32 has not
            value = math.copysign(math.inf, value)
        return torch.full((), value, dtype=torch.float32, device=like.device)
    try:
        return torch.as_tensor(amax, dtype=torch.float32, device=like.device)
    except (TypeError, ValueError, RuntimeError) as error:
        asked = f"amax or bias {amax!r} of type {type(amax).__name__}"
        raise DTypeError(message(asked, "a tensor, a number or a list of numbers", "Give it as a tensor.")) from error


def required(owner: str, amax: Tensor | float | None) -> None:
    """``AmaxError`` for a missing amax."""
    if amax is None:
        asked = f"{owner}: amax=None"
        raise AmaxError(message(asked, "a number or a tensor", "Take it from data: inputs.abs().max()."))


def prepared(
    owner: str, inputs: Tensor, amax: Tensor | float | None, bias: Tensor | float | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Inputs of the common shape, amax and bias as tensors.

    Raises:
        DTypeError, DeviceError, AmaxShapeError: for what does not fit.
    """
    check_float(owner, "inputs", inputs)
    scale = None if amax is None else as_amax(amax, inputs)
    offset = bias if bias is None or isinstance(bias, Tensor) else as_amax(bias, inputs)
    for name, t in (("amax", scale), ("bias", offset)):
        if t is not None:
            check_float(owner, name, t)
            if t.dim() == 0 and t.device != inputs.device and t.device.type == "cpu":
                t = t.to(inputs.device)
                scale, offset = (t, offset) if name == "amax" else (scale, t)
    check_device(owner, inputs, scale, offset, "inputs amax bias")
    shape = common_shape(owner, inputs, scale, offset)
    return (inputs if shape == inputs.shape else inputs.expand(shape)), scale, offset


def check_nonfinite(owner: str, nonfinite_amax: str) -> bool:
    """Whether an amax of NaN or infinity is let through.

    Raises:
        AmaxError: for another word than "raise" and "propagate".
    """
    if nonfinite_amax not in ("raise", "propagate"):
        asked = f"{owner}: nonfinite_amax={nonfinite_amax!r}"
        raise AmaxError(message(asked, "'raise' or 'propagate'", "Leave it out to raise."))
    return nonfinite_amax == "propagate"


def write_out(owner: str, x: Tensor, out: Tensor) -> None:
    """Checks of a call that writes into ``out``.

    Raises:
        DTypeError, ShapeError, OverlapError: for an ``out`` that does not fit.
        GradError: where a gradient would be asked for.
    """
    check_float(owner, "out", out)
    if torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
        allowed = "tensors without grad with out=, or a call under torch.no_grad()"
        raise GradError(message(f"{owner}: out= of a tensor that requires grad", allowed, "Leave out= away."))
    if not torch.compiler.is_compiling():
        check_out(owner, x, out)
