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
    """Collect a bias for a tensor; the dimensions ``axis`` share a bias, which means that they are reduced.

    Args:
        method: "mean", the mean over batches of the batches' means, or "max_min", (max + min) / 2 of all data.
        axis: dimension or dimensions that share a bias; None means all.

    "max_min" does not depend on how the data is divided into batches. "mean" does not for batches of equal size,
    except for rounding.
    Source: ModelOpt 0.40, ``BiasCalibrator``.

    Raises:
        CalibrationError: for another method.

    Example:
        >>> calibrator = gs.tensor_quant.BiasCalibrator("max_min", axis=0)
        >>> calibrator.collect(torch.tensor([[1.0, 10.0], [3.0, 14.0]]))
        >>> calibrator.compute_bias()
        tensor([[ 2., 12.]])
    """

    def __init__(self, method: str = "mean", axis: int | tuple[int, ...] | None = None) -> None:
        if method not in ("mean", "max_min"):
            raise CalibrationError(message(f"BiasCalibrator: method={method!r}", "'mean', 'max_min'", "Choose one."))
        self.method, self.axis = method, axis
        self.reset()

    def reset(self) -> None:
        """Discard everything that was collected.

        Example:
            >>> calibrator = gs.tensor_quant.BiasCalibrator()
            >>> calibrator.collect(torch.ones(2)), calibrator.reset(), calibrator.compute_bias()
            (None, None, None)
        """
        self._sum: Tensor | None = None
        self._low: Tensor | None = None
        self._high: Tensor | None = None
        self._batches = 0

    def collect(self, x: Tensor) -> None:
        """Add a batch.

        Raises:
            CalibrationDataError: for NaN or infinity in it.
            AmaxShapeError: if the dimensions that are not reduced have other sizes than before.

        Example:
            >>> calibrator = gs.tensor_quant.BiasCalibrator("mean")
            >>> calibrator.collect(torch.tensor([1.0, 3.0])), calibrator.collect(torch.tensor([4.0, 4.0]))
            (None, None)
            >>> calibrator.compute_bias()
            tensor([3.])
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
        """Add what another calibrator of the same method and axis has collected.

        Raises:
            CalibrationError: for a calibrator of another method or axis.

        Example:
            >>> one, two = gs.tensor_quant.BiasCalibrator("max_min"), gs.tensor_quant.BiasCalibrator("max_min")
            >>> one.collect(torch.tensor([1.0])), two.collect(torch.tensor([4.0])), one.merge(two)
            (None, None, None)
            >>> one.compute_bias()
            tensor([2.5000])
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
        """Return the bias in float32, with reduced dimensions of size one; None if nothing was collected.

        Example:
            >>> gs.tensor_quant.BiasCalibrator().compute_bias() is None
            True
        """
        if self._batches == 0:
            return None
        if self.method == "mean":
            assert self._sum is not None
            return (self._sum / self._batches).float()
        assert self._low is not None and self._high is not None
        return ((self._low.double() + self._high.double()) / 2).float()
