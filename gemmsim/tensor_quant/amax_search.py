"""Searches for amax in a histogram of magnitudes."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import CalibrationDataError, message
from .grids import element_name, integer_name
from .operators import fake_op

__all__ = ["entropy_amax", "mse_amax", "percentile_amax"]


def percentile_amax(counts: Tensor, edges: Tensor, percentile: float) -> Tensor:
    """Left end of the first bin whose share of the data, with all bins before it, reaches the percentile.

    Raises:
        CalibrationDataError: for a percentile outside 0 to 100.
    """
    if not 0 <= percentile <= 100:
        raise CalibrationDataError(message(f"percentile={percentile}", "0 to 100", "99.99 is usual."))
    share = counts.double().cumsum(0) / counts.sum().double()
    index = int(torch.searchsorted(share, torch.tensor(percentile / 100, dtype=torch.float64)))
    return edges[min(index, len(counts) - 1)].clone()


def _grid_name(num_bits: int | tuple[int, int], unsigned: bool) -> str:
    if isinstance(num_bits, int):
        return integer_name("calibration", num_bits, unsigned, True)
    return element_name("calibration", num_bits)


def _candidates(length: int, start: int, stride: int) -> range:
    if start < 0 or stride < 1:
        asked = f"start_bin={start}, stride={stride}"
        raise CalibrationDataError(
            message(asked, "start_bin of 0 or more, stride of 1 or more", "128 and 1 are usual.")
        )
    return range(min(start, length - 1), length, stride)


def mse_amax(
    counts: Tensor, edges: Tensor, num_bits: int | tuple[int, int], unsigned: bool, stride: int, start_bin: int
) -> Tensor:
    """Bin centre that as amax gives the least sum of count * (Q(centre) - centre)^2; the first of equals."""
    centres = ((edges[1:] + edges[:-1]) / 2).to(torch.float32)
    name = _grid_name(num_bits, unsigned)
    filled = counts > 0
    values, weight = centres[filled], counts[filled].double()
    candidates = centres[torch.tensor(_candidates(len(centres), start_bin, stride))]
    losses = []
    for amax in candidates.split(max(1, (1 << 20) // max(len(values), 1))):
        rounded = fake_op(values.expand(len(amax), -1), amax[:, None], name)
        losses.append(((rounded.double() - values.double()).square() * weight).sum(1))
    return candidates[torch.cat(losses).argmin()].clone()


def entropy_amax(
    counts: Tensor, edges: Tensor, num_bits: int | tuple[int, int], unsigned: bool, stride: int, start_bin: int
) -> Tensor:
    """End of the bin at which cutting and merging the histogram diverges least from it; the last of equals.

    Raises:
        CalibrationDataError: for float formats, and negative counts.
    """
    if not isinstance(num_bits, int):
        asked = f"entropy with num_bits={num_bits}"
        raise CalibrationDataError(message(asked, "integers, whose levels are evenly spaced", "Use mse for floats."))
    bins = counts.double()
    if bool((bins < 0).any()):
        raise CalibrationDataError(message("a histogram with negative counts", "counts", "Collect it again."))
    bins[0] = bins[1]
    levels = 2 ** (num_bits - 1 + int(unsigned))
    _candidates(len(bins), start_bin, stride)  # its checks
    ends = torch.tensor([*range(min(max(start_bin, 1), len(bins)), len(bins) + 1, stride)])
    divergences = torch.cat([_divergences(bins, part, levels) for part in ends.split(1 << 12)])
    return edges[ends[divergences == divergences.min()][-1]].to(torch.float32).clone()


def _divergences(bins: Tensor, ends: Tensor, levels: int) -> Tensor:
    """KL(P || Q) for each end: P is bins[:end] with all later ones in its last bin, Q is bins[:end] evened out.

    Evened out: cut into ``levels`` groups, each group's mass spread over its non-empty bins. Both normalised. All of it
    comes from running sums, so that an end costs as many steps as there are levels.
    """
    total = bins.sum()
    mass = _running(bins)
    entropy = _running(torch.xlogy(bins, bins))
    cuts = -(-(torch.arange(levels + 1) * ends[:, None]) // levels)
    group = mass[cuts].diff()
    members = _running((bins > 0).double())[cuts].diff()
    inside = mass[ends]
    level = group / members.clamp(min=1) / inside[:, None]  # the value of Q in each group
    last = bins[ends - 1]
    tail = total - inside
    own = (entropy[ends] - torch.xlogy(last, last) + torch.xlogy(last + tail, last + tail)) / total - total.log()
    at_last = torch.where(last > 0, level[:, -1], 0.0)
    cross = (torch.xlogy(group, level).sum(1) + torch.xlogy(tail, at_last)) / total
    return torch.where(inside > 0, own - cross, torch.inf)


def _running(x: Tensor) -> Tensor:
    return torch.cat([x.new_zeros(1), x.cumsum(0)])
