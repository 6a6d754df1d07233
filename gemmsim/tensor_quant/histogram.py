"""Histograms of magnitudes, and the amax that a percentile, the squared error or the entropy asks for."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .amax_search import entropy_amax, mse_amax, percentile_amax
from .errors import CalibrationDataError, CalibrationError, ElementFormatError, message

__all__ = ["HistogramCalibrator"]

_METHODS = ("percentile", "mse", "entropy")
#: More bins of the first batch's width would fill the memory; float32 could not tell their edges apart either.
_MOST_BINS = 1 << 24


class HistogramCalibrator:
    """Histogram of |x| over batches.

    Args:
        num_bits, unsigned: those of the quantiser that amax is for; the searches use them.
        axis: must be None; a histogram for each index is not available.
        num_bins: number of bins into which the first batch's range is divided.
        grow_method: what happens to later, larger values. None (ModelOpt): bins of the first batch's width are added,
            so the result depends on which batch is first. "double": the width is the least power of two that covers
            the range with 2 num_bins bins; when the range grows, neighbouring bins are joined. The result then does
            not depend on how the data is ordered and divided, and ``merge`` is exact.
        skip_zeros: leave zeros out.
        torch_hist: has no effect: counts are exact integers either way.

    Source: ModelOpt, ``HistogramCalibrator``.

    Raises:
        ElementFormatError (NotImplementedError): for an axis.
        CalibrationError: for another grow_method, fewer than 2 bins.

    Example:
        >>> calibrator = gs.tensor_quant.HistogramCalibrator(num_bins=10)
        >>> calibrator.collect(torch.arange(101.0))  # 0 to 100, a value each
        >>> calibrator.compute_amax("percentile", percentile=50)
        tensor(50.)
    """

    def __init__(
        self,
        num_bits: int | tuple[int, int] = 8,
        axis: int | tuple[int, ...] | None = None,
        unsigned: bool = False,
        num_bins: int = 2048,
        grow_method: str | None = None,
        skip_zeros: bool = False,
        torch_hist: bool = True,
    ) -> None:
        if isinstance(num_bins, bool) or int(num_bins) != num_bins or num_bins < 2:
            asked = f"HistogramCalibrator: num_bins={num_bins!r}"
            raise CalibrationError(message(asked, "2 or more", "2048 is usual."))
        if axis is not None:
            asked = f"HistogramCalibrator: axis={axis}"
            raise ElementFormatError(message(asked, "one histogram for the tensor", "Use MaxCalibrator per axis."))
        if grow_method not in (None, "double"):
            asked = f"HistogramCalibrator: grow_method={grow_method!r}"
            raise CalibrationError(message(asked, "None or 'double'", "Choose one."))
        self.num_bits, self.axis, self.unsigned = num_bits, axis, unsigned
        self.num_bins, self.grow_method, self.skip_zeros = int(num_bins), grow_method, skip_zeros
        self.reset()

    def reset(self) -> None:
        """Discard everything that was collected.

        Example:
            >>> calibrator = gs.tensor_quant.HistogramCalibrator()
            >>> calibrator.collect(torch.ones(2)), calibrator.reset(), calibrator.calib_hist
            (None, None, None)
        """
        self._counts: Tensor | None = None  # int64
        self._edges: Tensor | None = None  # float32, one more
        self._exponent: int | None = None  # of the width, where it is a power of two
        self._device: torch.device | None = None  # of the data; counts are kept on the CPU

    @property
    def calib_hist(self) -> Tensor | None:
        """The counts of the bins; None if nothing was collected.

        Example:
            >>> calibrator = gs.tensor_quant.HistogramCalibrator(num_bins=4)
            >>> calibrator.collect(torch.tensor([0.1, 0.2, 0.9, 4.0])), calibrator.calib_hist
            (None, tensor([3, 0, 0, 1]))
        """
        return self._counts

    @property
    def calib_bin_edges(self) -> Tensor | None:
        """The edges of the bins, one more than there are counts.

        Example:
            >>> calibrator = gs.tensor_quant.HistogramCalibrator(num_bins=4)
            >>> calibrator.collect(torch.tensor([0.1, 0.2, 0.9, 4.0])), calibrator.calib_bin_edges
            (None, tensor([0., 1., 2., 3., 4.]))
        """
        return self._edges

    def collect(self, x: Tensor) -> None:
        """Add a batch.

        Raises:
            CalibrationDataError (AssertionError): for NaN or infinity in it.
            CalibrationError (RuntimeError): for values that need 2^24 bins of the first batch's width.

        Example:
            >>> calibrator = gs.tensor_quant.HistogramCalibrator(num_bins=2)
            >>> calibrator.collect(torch.tensor([1.0, 2.0])), calibrator.collect(torch.tensor([-5.0]))
            (None, None)
            >>> len(calibrator.calib_hist)  # the larger value needed bins of the same width
            5
        """
        values = x.detach().abs().flatten().to(torch.float32)
        if self.skip_zeros:
            values = values[values != 0]
        if values.numel() == 0:
            return
        self._device = x.device
        top = float(values.max())
        if not math.isfinite(top) or bool(values.isnan().any()):
            asked = "calibration: NaN or infinity in the data"
            raise CalibrationDataError(message(asked, "finite data", "Look for where the model makes it."))
        if self.grow_method == "double":
            self._collect_doubling(values, top)
        else:
            self._collect_adding(values, top)

    def _collect_adding(self, values: Tensor, top: float) -> None:
        """ModelOpt's rule: the first batch's bins, and as many of the same width as later ones need."""
        if self._edges is None or self._counts is None:
            self._edges = torch.linspace(0, top if top > 0 else 1.0, self.num_bins + 1, dtype=torch.float32)
            self._counts = torch.zeros(self.num_bins, dtype=torch.int64)
        elif top > float(self._edges[-1]):
            width = float(self._edges[1] - self._edges[0])
            if top / width >= _MOST_BINS:
                asked = f"HistogramCalibrator: {top / width:.3g} bins, a value of {top:g} in bins {width:g} wide"
                do = "Start with a batch of the usual range, or use grow_method='double'."
                raise CalibrationError(message(asked, f"fewer than {_MOST_BINS}", do))
            edges = torch.arange(0, top + width, width, dtype=torch.float32)
            grown = torch.zeros(len(edges) - 1, dtype=torch.int64)
            grown[: len(self._counts)] = self._counts
            self._edges, self._counts = edges, grown
        self._counts += _count(values, self._edges)

    def _collect_doubling(self, values: Tensor, top: float) -> None:
        self._grow(_width_exponent(top, self.num_bins))
        assert self._counts is not None and self._exponent is not None
        index = torch.floor(values.double() * 2.0**-self._exponent).long()
        self._counts = (
            self._counts + torch.bincount(index.clamp(max=len(self._counts) - 1), minlength=len(self._counts)).cpu()
        )

    def _grow(self, exponent: int) -> None:
        """Bins of at least this width, as many as 2 num_bins; narrower ones join in pairs."""
        if self._exponent is None or self._counts is None:
            self._exponent = exponent
            self._counts = torch.zeros(2 * self.num_bins, dtype=torch.int64)
        while self._exponent < exponent:
            joined = self._counts.view(-1, 2).sum(1)
            self._counts = torch.cat([joined, torch.zeros_like(joined)])
            self._exponent += 1
        self._edges = (torch.arange(2 * self.num_bins + 1, dtype=torch.float64) * 2.0**self._exponent).float()

    def merge(self, other: HistogramCalibrator) -> None:
        """Add what another calibrator has collected.

        The result is exact with grow_method="double". With ModelOpt's rule, both must have bins of the same width,
        which they have if both started from the same largest value.

        Raises:
            CalibrationError: for calibrators with bins that do not fit together.

        Example:
            >>> one, two = (gs.tensor_quant.HistogramCalibrator(grow_method="double") for _ in range(2))
            >>> one.collect(torch.tensor([1.0])), two.collect(torch.tensor([3.0, 4.0])), one.merge(two)
            (None, None, None)
            >>> one.calib_hist.sum()
            tensor(3)
        """
        if other._counts is None or other._edges is None:
            return
        self._device = other._device if self._device is None else self._device
        if (other.grow_method, other.num_bins) != (self.grow_method, self.num_bins):
            asked = f"merge of grow_method={other.grow_method}, {other.num_bins} bins"
            raise CalibrationError(message(asked, f"{self.grow_method}, {self.num_bins} bins", "Make both alike."))
        if self._counts is None or self._edges is None:
            self._counts, self._edges, self._exponent = other._counts.clone(), other._edges.clone(), other._exponent
            return
        if self._exponent is not None and other._exponent is not None:
            mine = HistogramCalibrator(num_bins=self.num_bins, grow_method="double")
            mine._counts, mine._exponent = other._counts.clone(), other._exponent
            wide = max(self._exponent, other._exponent)
            self._grow(wide)
            mine._grow(wide)
            self._counts += mine._counts
            return
        self._merge_equal_widths(other)

    def _merge_equal_widths(self, other: HistogramCalibrator) -> None:
        assert self._counts is not None and self._edges is not None
        assert other._counts is not None and other._edges is not None
        if float(self._edges[1]) != float(other._edges[1]):
            asked = f"merge of bins {float(other._edges[1]):g} wide into bins {float(self._edges[1]):g} wide"
            raise CalibrationError(message(asked, "equal widths", "Use grow_method='double' in both."))
        long, short = (self, other) if len(self._counts) >= len(other._counts) else (other, self)
        assert long._counts is not None and short._counts is not None
        total = long._counts.clone()
        total[: len(short._counts)] += short._counts
        self._counts, self._edges = total, long._edges

    def compute_amax(
        self, method: str, *, stride: int = 1, start_bin: int = 128, percentile: float = 99.99
    ) -> Tensor | None:
        """Return amax by ``method`` as a 0-D float32 tensor on the device of the data; None if nothing was collected.

        * "percentile": left edge of the first bin up to which at least ``percentile`` percent of the data lies.
        * "mse": centre of the bin, from ``start_bin`` in steps of ``stride``, for which quantising all centres has
          the least mean of count times squared error (the first of equals).
        * "entropy": edge of the bin for which the truncated histogram, merged into the quantiser's levels, diverges
          least (Kullback-Leibler) from the one with its tail in its last bin (the last of equals).

        Raises:
            CalibrationError (RuntimeError, TypeError here): for another method.
            CalibrationDataError (ValueError): for a percentile outside 0..100, negative counts.

        Example:
            >>> calibrator = gs.tensor_quant.HistogramCalibrator(num_bits=4)
            >>> calibrator.collect(torch.cat([torch.linspace(0, 1, 1000), torch.tensor([10.0])]))  # one outlier
            >>> [round(calibrator.compute_amax(method).item(), 2) for method in ("percentile", "mse", "entropy")]
            [10.0, 3.23, 1.0]
        """
        if method not in _METHODS:
            raise MethodError(message(f"compute_amax: method={method!r}", ", ".join(_METHODS), "Choose one."))
        if self._counts is None or self._edges is None:
            return None
        counts, edges = self._covered()
        if method == "percentile":
            found = percentile_amax(counts, edges, percentile)
        elif method == "mse":
            found = mse_amax(counts, edges, self.num_bits, self.unsigned, stride, start_bin)
        else:
            found = entropy_amax(counts, edges, self.num_bits, self.unsigned, stride, start_bin)
        return found.to(self._device)

    def _covered(self) -> tuple[Tensor, Tensor]:
        """The histogram up to the data's largest value: bins that double cover more, in which no amax is sought."""
        assert self._counts is not None and self._edges is not None
        filled = int((self._counts > 0).nonzero().max()) + 1
        length = max(filled, self.num_bins) if self.grow_method == "double" else len(self._counts)
        return self._counts[:length], self._edges[: length + 1]

    def __repr__(self) -> str:
        return f"HistogramCalibrator(bins={0 if self._counts is None else len(self._counts)})"


class MethodError(CalibrationError, TypeError):
    """A way to compute amax that there is not."""


def _width_exponent(top: float, bins: int) -> int:
    """Exponent of the least power of two of which 2 ``bins`` cover 0..top, the end included."""
    if top == 0:
        return -149
    exponent = math.frexp(top)[1] - (2 * bins).bit_length()
    while math.floor(top * 2.0**-exponent) >= 2 * bins:
        exponent += 1
    return max(exponent, -149)


def _count(values: Tensor, edges: Tensor) -> Tensor:
    """How many values lie in each bin, as ``torch.histc`` divides them; in pieces whose counts float32 holds."""
    total = torch.zeros(len(edges) - 1, dtype=torch.int64)
    for piece in values.split(1 << 23):
        total += torch.histc(piece.cpu(), bins=len(edges) - 1, min=0, max=float(edges[-1])).long()
    return total
