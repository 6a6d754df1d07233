"""The bias that centres data before it is quantised."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import AmaxShapeError, CalibrationDataError, CalibrationError, message

__all__ = ["BiasCalibrator", "centre"]


def centre(x: Tensor, method: str, dims: tuple[int, ...]) -> Tensor:
    """The bias of one tensor in float32, without a gradient: mean over ``dims``, or the middle of the ends there."""
    v = x.detach().double()
    found = v.mean(dims, keepdim=True) if method == "mean" else (v.amin(dims, keepdim=True) + v.amax(dims, True)) / 2
    return found.float()


class BiasCalibrator:
    """A bias over the dimensions ``axis``, which are the ones reduced.

    Args:
        method: "mean", the mean over batches of the batches' means, or "max_min", (max + min) / 2 of all data.
        axis: dimension or dimensions that share a bias; None is all.
    "max_min" is the same for any split into batches, "mean" for batches of equal size but for rounding.
    Source: ModelOpt 0.40, ``BiasCalibrator``.

    Raises:
        CalibrationError: for another method.
    """

    def __init__(self, method: str = "mean", axis: int | tuple[int, ...] | None = None) -> None:
        if method not in ("mean", "max_min"):
            raise CalibrationError(message(f"BiasCalibrator: method={method!r}", "'mean', 'max_min'", "Choose one."))
        self.method, self.axis = method, axis
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._sum: Tensor | None = None
        self._low: Tensor | None = None
        self._high: Tensor | None = None
        self._batches = 0

    def collect(self, x: Tensor) -> None:
        """Take a batch in.

        Raises:
            CalibrationDataError: for NaN or infinity in it.
            AmaxShapeError: for other sizes of the dimensions that are not reduced.
        """
        if x.numel() == 0:
            return
        x = x.detach()
        if not bool(x.isfinite().all()):
            asked = "calibration: NaN or infinity in the data"
            raise CalibrationDataError(message(asked, "finite data", "Look for where the model makes it."))
        axes = range(x.dim()) if self.axis is None else (self.axis,) if isinstance(self.axis, int) else self.axis
        dims = tuple(axes)
        held = self._sum if self._sum is not None else self._low
        shape = tuple(1 if d in {n % x.dim() for n in dims} else size for d, size in enumerate(x.shape))
        if held is not None and tuple(held.shape) != shape:
            asked = f"calibration: bias shape changed! {tuple(held.shape)} to {shape}"
            raise AmaxShapeError(message(asked, "the same shape in every batch", "Let the batch share a bias too."))
        if self.method == "mean":
            mean = x.double().mean(dims, keepdim=True)
            self._sum = mean if self._sum is None else self._sum + mean
        else:
            low, high = x.amin(dims, keepdim=True), x.amax(dims, keepdim=True)
            self._low = low if self._low is None else torch.minimum(self._low, low)
            self._high = high if self._high is None else torch.maximum(self._high, high)
        self._batches += 1

    def merge(self, other: BiasCalibrator) -> None:
        """Take in what another calibrator of the same method and axis has collected.

        Raises:
            CalibrationError: for a calibrator of another method or axis.
        """
        if (self.method, self.axis) != (other.method, other.axis):
            asked = f"merge of {other.method}, axis {other.axis}"
            raise CalibrationError(message(asked, f"{self.method}, axis {self.axis}", "Make both alike."))
        if other._sum is not None:
            self._sum = other._sum if self._sum is None else self._sum + other._sum
        if other._low is not None and other._high is not None:
            self._low = other._low if self._low is None else torch.minimum(self._low, other._low)
            self._high = other._high if self._high is None else torch.maximum(self._high, other._high)
        self._batches += other._batches

    def compute_bias(self) -> Tensor | None:
        """The bias in float32, reduced dimensions kept as size one; None when nothing was collected."""
        if self._batches == 0:
            return None
        if self.method == "mean":
            assert self._sum is not None
            return (self._sum / self._batches).float()
        assert self._low is not None and self._high is not None
        return ((self._low.double() + self._high.double()) / 2).float()
