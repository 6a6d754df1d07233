"""Checks that need values: they run with the kernels, where tensors have some."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .errors import AmaxError, AmaxShapeError, SignError, message

__all__ = ["check_amax", "check_range", "check_scale_fits", "check_sign", "common_shape", "negative_inputs"]


#: What float32 rounds to infinity.
_INFINITE = 2.0**128 - 2.0**103


def common_shape(owner: str, x: Tensor, *others: Tensor | None) -> torch.Size:
    """Shape that ``x`` and the others broadcast to; ``AmaxShapeError`` if they do not."""
    shape = x.shape
    for other in others:
        if other is None:
            continue
        try:
            shape = torch.broadcast_shapes(shape, other.shape)
        except RuntimeError:
            raise AmaxShapeError(
                message(
                    f"{owner}: amax (or range, bias) of shape {tuple(other.shape)} with inputs {tuple(x.shape)}",
                    "shapes that broadcast, such as (), (C, 1, 1) or the inputs' own",
                    "Keep reduced dimensions as size one: x.abs().amax(dims, keepdim=True).",
                )
            ) from None
    return shape


def check_amax(owner: str, amax: Tensor, propagate: bool) -> None:
    """``AmaxError`` for a negative amax, and unless ``propagate`` for NaN or infinity."""
    if amax.numel() == 0:
        return
    if amax.numel() == 1:
        low = high = float(amax)
    else:
        low, high = (float(t) for t in amax.aminmax())
    if low < 0:  # aminmax gives NaN where there is one
        raise AmaxError(
            message(f"{owner}: Negative values in amax (least: {low})", "amax of 0 or more", "Use its magnitude.")
        )
    if math.isnan(low) and bool((amax < 0).any()):
        raise AmaxError(message(f"{owner}: Negative values in amax", "amax of 0 or more", "Use its magnitude."))
    if not propagate and not high < _INFINITE:
        held = "NaN" if math.isnan(high) else "infinity" if math.isinf(high) else f"{high:g}, in float32 infinity"
        raise AmaxError(
            message(
                f"{owner}: amax holds {held}",
                "finite amax, or nonfinite_amax='propagate' for results of NaN",
                "Look for NaN or infinity in what amax was taken from.",
            )
        )


def check_range(owner: str, low: Tensor, high: Tensor, num_bits: int) -> None:
    """``AmaxError`` unless low < high, both finite, and the step between is a float32 number above 0."""
    ends = low.to(torch.float32), high.to(torch.float32)
    step = (ends[1] - ends[0]) / (2.0**num_bits - 1)
    if not bool(((ends[0] < ends[1]) & ends[0].isfinite() & step.isfinite() & (step > 0)).all()):
        asked = f"{owner}: min_range {_show(low)}, max_range {_show(high)}"
        allowed = f"min < max, finite, (max - min) / {2**num_bits - 1} above 0 and finite in float32"
        raise AmaxError(message(asked, allowed, "Change the range."))


def _show(t: Tensor) -> str:
    return str(float(t)) if t.numel() == 1 else f"of shape {tuple(t.shape)}"


def negative_inputs(owner: str) -> SignError:
    """The error for negative inputs of an unsigned grid."""
    return SignError(
        message(
            f"{owner}: Negative values encountered in unsigned quantization.",
            "inputs of 0 or more (or NaN) with unsigned=True",
            "Use unsigned=False, or clamp the inputs at 0.",
        )
    )


def check_sign(owner: str, x: Tensor) -> None:
    """``SignError`` if an element is below zero. -0 and NaN are not."""
    if bool((x < 0).any()):
        raise negative_inputs(owner)


def check_scale_fits(owner: str, scale: Tensor) -> None:
    """``AmaxError`` if float16 cannot hold the scale."""
    if scale.numel() and float(scale.max()) > 65504:
        raise AmaxError(
            message(
                f"{owner}: scale is too large for FP16 ({float(scale.max()):g})",
                "scales up to 65504 with float16 inputs",
                "Use float32 inputs, or a larger amax.",
            )
        )
