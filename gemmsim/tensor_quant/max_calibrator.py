"""The largest magnitude seen."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import AmaxShapeError, CalibrationDataError, CalibrationError, message

__all__ = ["MaxCalibrator", "kept_dims", "largest_magnitude"]


def kept_dims(axis: int | tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Dimensions counted from 0 that keep an amax for each index.

    Raises:
        AmaxShapeError: for a dimension the tensor has not.
    """
    axes = () if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    for d in axes:
        if not -rank <= d < rank:
            asked = f"axis {d} of a tensor of {rank} dimensions"
            raise AmaxShapeError(message(asked, "one of its dimensions", "Give another axis."))
    return tuple(sorted({d % rank for d in axes}))


def largest_magnitude(x: Tensor, axis: int | tuple[int, ...] | None) -> Tensor:
    """max |x| over all dimensions but ``axis``, kept as size one; without an axis a tensor of no dimensions."""
    x = x.detach()
    if axis is None:
        return x.abs().max() if x.numel() else x.new_zeros(())  # exporters have no amax() of all dimensions
    kept = kept_dims(axis, x.dim())
    dims = [d for d in range(x.dim()) if d not in kept]
    return x.abs().amax(dims, keepdim=True) if dims else x.abs()


class MaxCalibrator:
    """Running maximum of |x| over batches, for each index of ``axis``; it does not depend on how the data is divided.

    Args:
        num_bits, unsigned: kept for the quantiser; they have no effect here.
        axis: dimension or dimensions with an amax for each index.
        track_amax: keep each batch's result in ``amaxs``.

    Source: ModelOpt, ``MaxCalibrator``.

    Example:
        >>> calibrator = gs.tensor_quant.MaxCalibrator(axis=0)
        >>> calibrator.collect(torch.tensor([[1.0, -3.0], [0.5, 0.2]]))
        >>> calibrator.compute_amax()
        tensor([[3.0000],
                [0.5000]])
    """

    def __init__(
        self,
        num_bits: int | tuple[int, int] = 8,
        axis: int | tuple[int, ...] | None = None,
        unsigned: bool = False,
        track_amax: bool = False,
    ) -> None:
        self.num_bits, self.axis, self.unsigned = num_bits, axis, unsigned
        self._track = track_amax
        self._amax: Tensor | None = None
        self.amaxs: list[Tensor] = []

    def collect(self, x: Tensor) -> None:
        """Add a batch.

        Raises:
            CalibrationDataError (AssertionError): for NaN or infinity in it; then nothing is added.
            AmaxShapeError (RuntimeError): "amax shape changed!", if ``axis`` has another size than before.

        Example:
            >>> calibrator = gs.tensor_quant.MaxCalibrator()
            >>> calibrator.collect(torch.tensor([1.0, -3.0])), calibrator.collect(torch.tensor([2.0]))
            (None, None)
            >>> calibrator.compute_amax()
            tensor(3.)
        """
        if x.numel() == 0:
            return
        self._take(largest_magnitude(x, self.axis))

    def _take(self, amax: Tensor) -> None:
        if not bool(amax.isfinite().all()):
            asked = "calibration: NaN or infinity in the data"
            raise CalibrationDataError(message(asked, "finite data", "Look for where the model makes it."))
        if self._amax is not None and self._amax.shape != amax.shape:
            asked = f"calibration: amax shape changed! {tuple(self._amax.shape)} to {tuple(amax.shape)}"
            raise AmaxShapeError(message(asked, "the same shape in every batch", "Use axis=None, or reset()."))
        if self._track:
            self.amaxs.append(amax.cpu())
        self._amax = amax.clone() if self._amax is None else torch.maximum(self._amax, amax)

    def merge(self, other: MaxCalibrator) -> None:
        """Add what another calibrator of the same axis has collected, as if this one had collected it.

        Raises:
            CalibrationError: for a calibrator of another axis.

        Example:
            >>> one, two = gs.tensor_quant.MaxCalibrator(), gs.tensor_quant.MaxCalibrator()
            >>> one.collect(torch.tensor([1.0])), two.collect(torch.tensor([-3.0])), one.merge(two)
            (None, None, None)
            >>> one.compute_amax()
            tensor(3.)
        """
        if other.axis != self.axis:
            raise CalibrationError(
                message(f"merge of axis {other.axis} into {self.axis}", "equal axes", "Make both so.")
            )
        if other._amax is not None:
            tracked, self._track = self._track, False
            self._take(other._amax)
            self._track = tracked
            self.amaxs += other.amaxs

    def compute_amax(self) -> Tensor | None:
        """Return the maximum; None if nothing was collected.

        Example:
            >>> gs.tensor_quant.MaxCalibrator().compute_amax() is None
            True
        """
        return self._amax

    def reset(self) -> None:
        """Discard everything that was collected.

        Example:
            >>> calibrator = gs.tensor_quant.MaxCalibrator()
            >>> calibrator.collect(torch.ones(2)), calibrator.reset(), calibrator.compute_amax()
            (None, None, None)
        """
        self._amax, self.amaxs = None, []

    def __repr__(self) -> str:
        return f"MaxCalibrator(axis={self.axis}, amax={'none' if self._amax is None else tuple(self._amax.shape)})"
