"""d-Matrix's histogram observer: the range with the least square error of the observed values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .observers import PER_TENSOR, DMXObserverBase, checked, unseen
from .single import Format, refuse

__all__ = ["HistogramObserver"]

#: Share of the values by which an end of the range is moved at a time.
_SHARE = 1e-5


class HistogramObserver(DMXObserverBase):
    """A histogram of all observed tensors; it finds the range whose grid has about the least square error.

    Args:
        bins: of equal width over the observed range.
        upsample_rate: accepted and ignored: a histogram is divided exactly into the bins of a wider range, its values
            spread evenly over each bin.
        dtype, ch_axis, eps: as for ``DMXObserverBase``.
        qscheme: ``torch.per_tensor_affine`` or ``per_tensor_symmetric``.

    Raises:
        NotImplementedError: for a scheme for each channel. ValueError: for fewer than two bins.

    Example:
        >>> observer = gs.compat.dmx.HistogramObserver(qscheme=torch.per_tensor_symmetric)
        >>> observed = observer(torch.linspace(-1, 1, 1001))
        >>> observer.calculate_qparams()
        (tensor([0.0079]), tensor([0]))
    """

    histogram: Tensor
    min_val: Tensor
    max_val: Tensor

    def __init__(
        self,
        bins: int = 2048,
        upsample_rate: int = 128,
        dtype: Format | str | torch.dtype = "XP[8,0](CSN)",
        qscheme: torch.qscheme = torch.per_tensor_affine,
        ch_axis: int = -1,
        eps: float = torch.finfo(torch.float32).eps,
    ) -> None:
        if qscheme not in PER_TENSOR:
            allowed = "torch.per_tensor_symmetric or torch.per_tensor_affine"
            raise NotImplementedError(
                f"HistogramObserver: qscheme={qscheme}; allowed: {allowed}.\n  MinMaxObserver has schemes by channel."
            )
        if not isinstance(bins, int) or bins < 2:
            raise refuse(f"HistogramObserver: bins={bins!r}", "2 or more", "Leave it out for 2048.")
        super().__init__(dtype, qscheme, ch_axis, eps)
        self.bins, self.upsample_rate = bins, upsample_rate
        self.register_buffer("histogram", torch.zeros(bins, dtype=torch.float64), persistent=False)
        self.register_buffer("min_val", torch.tensor(float("inf")), persistent=False)
        self.register_buffer("max_val", torch.tensor(float("-inf")), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Count the values of ``x`` in the histogram, and return ``x``; the range grows with them.

        Raises:
            CalibrationDataError (ValueError): for NaN and infinities.
        """
        if x.numel() == 0:
            return x
        v = checked("HistogramObserver", x)
        ends = [torch.minimum(self.min_val.to(v.device), v.min()), torch.maximum(self.max_val.to(v.device), v.max())]
        low, high = (float(end) for end in ends)
        old = self.histogram.cpu().numpy()
        counts = _cut(old, float(self.min_val), float(self.max_val), low, high) if old.any() else old
        counts = counts + _count(v, self.bins, low, high)
        self.histogram = torch.from_numpy(counts).to(v.device)
        self.min_val, self.max_val = ends
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point of the range of about the least square error.

        Both ends move inwards until the error of the grid of 2**precision values between them grows. Each step moves
        the end that passes more bins for the same fraction of values.

        Raises:
            ValueError: for a format that has no scale.
        """
        if not bool(self.histogram.any()):
            return unseen(self)
        low, high = self._best_range()
        return self._qparams(low.reshape(1), high.reshape(1))

    def _best_range(self) -> tuple[Tensor, Tensor]:
        if self.quant_min is None or self.min_val == self.max_val:
            return self.min_val, self.max_val
        counts = self.histogram.cpu().numpy()
        steps = 2**self.dtype.precision  # type: ignore[attr-defined]
        first, last = _least_error(counts, steps)
        width = (self.max_val - self.min_val) / self.bins
        return self.min_val + width * first, self.min_val + width * (last + 1)

    def extra_repr(self) -> str:
        """The ends of the integers and of the observed range."""
        return f"{super().extra_repr()}, min_val={float(self.min_val)}, max_val={float(self.max_val)}"


def _count(v: Tensor, bins: int, low: float, high: float) -> Any:
    """Values of each bin; all in the first where the range is one number."""
    if low == high:
        counts = np.zeros(bins)
        counts[0] = v.numel()
        return counts
    return torch.histc(v.reshape(-1), bins, low, high).double().cpu().numpy()


def _cut(counts: Any, low: float, high: float, new_low: float, new_high: float) -> Any:
    """The counts of [low, high] in as many bins of [new_low, new_high], each bin's values spread evenly over it."""
    bins = len(counts)
    edges = np.linspace(new_low, new_high, bins + 1)
    if low == high:
        found = np.zeros(bins)
        found[min(int(np.searchsorted(edges, low, side="right")) - 1, bins - 1) if new_low < new_high else 0] = (
            counts.sum()
        )
        return found
    below = np.concatenate([[0.0], np.cumsum(counts)])
    return np.diff(np.interp(edges, np.linspace(low, high, bins + 1), below))


def _least_error(counts: Any, steps: int) -> tuple[int, int]:
    """First and last bin of the range, in units of a bin: see ``calculate_qparams``."""
    shares = np.cumsum(counts) / counts.sum()
    first, last, left_out, kept = 0, len(counts) - 1, 0.0, 1.0
    least = float("inf")
    while left_out < kept:
        left = min(max(int(np.searchsorted(shares, left_out + _SHARE, side="left")), first), last)
        right = max(min(int(np.searchsorted(shares, kept - _SHARE, side="right")) - 1, last), first)
        before = first, last
        if left - first > last - right:
            first, left_out = left, left_out + _SHARE
        else:
            last, kept = right, kept - _SHARE
        if (first, last) == before:
            continue
        error = _square_error(counts, first, last, steps)
        if error > least:
            return before
        least = error
    return first, last


def _square_error(counts: Any, first: int, last: int, steps: int) -> float:
    """Sum of square distances to the middles of ``steps`` equal parts of the range, each bin's values spread evenly.

    A bin from a to b counts per unit of length: the parts of it in its first and in its last step, and the whole steps
    between. Values outside belong to the outermost steps.
    """
    step = (last - first + 1) / steps
    begin = np.arange(len(counts)) - float(first)
    end = begin + 1
    low, high = (np.clip(np.floor(edge / step), 0, steps - 1) for edge in (begin, end))
    half = step / 2
    cubes = (half**3 - (begin - (low + 0.5) * step) ** 3) + (high - low - 1) * (2 * half**3)
    cubes = cubes + ((end - (high + 0.5) * step) ** 3 + half**3)
    return float((counts * cubes).sum() / 3)
