"""The multiple of a first amax under which the squared error over batches is least."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .arguments import as_amax, required
from .checks import check_amax
from .errors import CalibrationDataError, CalibrationError, message
from .max_calibrator import kept_dims

__all__ = ["MseCalibrator"]


class MseCalibrator:
    """Squared errors of quantising with ``num_steps`` multiples of ``amax``, summed over batches for each index.

    Args:
        amax: first estimate, such as the result of a ``MaxCalibrator``; one number serves every index.
        axis: dimension or dimensions with an amax for each index.
        num_steps, start_multiplier, stop_multiplier: the multiples, evenly spaced, both ends included.
        quant_func: (x, amax) -> quantised x; ``fake_tensor_quant`` of 8 bits by default.
        error_func: (quantised x, x) -> error of each element; the squared difference by default.

    The sums are float64, so they hardly depend on how the data is divided into batches; the chosen multiple may, in a
    tie.
    Source: ModelOpt 0.40, ``MseCalibrator``.

    Raises:
        CalibrationError: for ``num_steps`` below 1.
        AmaxError: for an amax that is missing, negative, NaN or infinite.

    Example:
        >>> calibrator = gs.tensor_quant.MseCalibrator(1.0, num_steps=16)  # multiples 0.25, 0.5, ..., 4
        >>> calibrator.collect(torch.tensor([0.1, 0.7, 2.0]))
        >>> calibrator.compute_amax()
        tensor(2.)
    """

    def __init__(
        self,
        amax: Tensor | float,
        axis: int | tuple[int, ...] | None = None,
        num_steps: int = 10,
        start_multiplier: float = 0.25,
        stop_multiplier: float = 4.0,
        quant_func: Callable[[Tensor, Tensor], Tensor] | None = None,
        error_func: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        if num_steps < 1:
            raise CalibrationError(message(f"MseCalibrator: num_steps={num_steps}", "1 or more", "10 is usual."))
        required("MseCalibrator", amax)
        first = as_amax(amax, amax if isinstance(amax, Tensor) else torch.empty(0))
        check_amax("MseCalibrator", first, False)
        self.axis, self._first = axis, first.clone()
        self._multipliers = torch.linspace(start_multiplier, stop_multiplier, num_steps, device=first.device)
        self._quantise = quant_func or _int8
        self._error = error_func or _squared
        self._losses: list[Tensor] | None = None

    def collect(self, x: Tensor) -> None:
        """Add a batch's errors.

        Raises:
            CalibrationDataError (AssertionError): for NaN or infinity in it.

        Example:
            >>> gs.tensor_quant.MseCalibrator(1.0).collect(torch.tensor([torch.inf]))
            Traceback (most recent call last):
                ...
            gemmsim.tensor_quant.errors.CalibrationDataError: calibration: NaN or infinity in the data; ...
        """
        if x.numel() == 0:
            return
        kept = kept_dims(self.axis, x.dim())
        dims = [d for d in range(x.dim()) if d not in kept]
        x = x.detach()
        if not bool(x.isfinite().all()):
            asked = "calibration: NaN or infinity in the data"
            raise CalibrationDataError(message(asked, "finite data", "Look for where the model makes it."))
        losses = []
        for m in self._multipliers:
            error = self._error(self._quantise(x, self._first * m), x).double()
            losses.append(error.sum(dims, keepdim=True) if dims else error)
        old = self._losses
        self._losses = losses if old is None else [a + b for a, b in zip(old, losses, strict=True)]

    def merge(self, other: MseCalibrator) -> None:
        """Add the errors that a calibrator with the same first amax and multiples has collected.

        Raises:
            CalibrationError: for a calibrator of another first amax, axis or multiples.

        Example:
            >>> one, two = (gs.tensor_quant.MseCalibrator(1.0, num_steps=16) for _ in range(2))
            >>> one.collect(torch.tensor([0.1])), two.collect(torch.tensor([0.7, 2.0])), one.merge(two)
            (None, None, None)
            >>> one.compute_amax()
            tensor(2.)
        """
        same = torch.equal(self._first, other._first) and torch.equal(self._multipliers, other._multipliers)
        if not same or self.axis != other.axis:
            asked = "merge of another first amax, axis or multiples"
            raise CalibrationError(message(asked, "equal ones", "Start both from one amax."))
        if other._losses is not None:
            mine = self._losses
            self._losses = other._losses if mine is None else [a + b for a, b in zip(mine, other._losses, strict=True)]

    def compute_amax(self) -> Tensor | None:
        """Return the first amax times its best multiple, the first of equals; None if nothing was collected.

        Example:
            >>> gs.tensor_quant.MseCalibrator(1.0).compute_amax() is None
            True
        """
        if self._losses is None:
            return None
        best = torch.stack(self._losses).argmin(0)
        if self._first.numel() == 1:
            amax = self._multipliers[best] * self._first.reshape(())
            return amax.reshape(self._first.shape) if best.numel() == 1 else amax
        return (self._multipliers[best] * self._first.reshape(best.shape)).reshape(self._first.shape)

    def reset(self) -> None:
        """Discard the errors.

        Example:
            >>> calibrator = gs.tensor_quant.MseCalibrator(1.0)
            >>> calibrator.collect(torch.ones(2)), calibrator.reset(), calibrator.compute_amax()
            (None, None, None)
        """
        self._losses = None


def _int8(x: Tensor, amax: Tensor) -> Tensor:
    from .integer import fake_quant_impl

    return fake_quant_impl(x, amax)


def _squared(quantised: Tensor, x: Tensor) -> Tensor:
    return (quantised.double() - x.double()).square()
