"""How far a product is from the truth.

t: truth; y: result; e = y - t; S: sum of |a b|; u: unit roundoff of the register.

Sums of these numbers are made in float64, whose own error (2^-53 K) is far below anything an emulated register shows.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim.formats import FloatFormat

from .cells import Row, Scalar
from .operands import Operands

__all__ = [
    "EVENTS",
    "IN_UNITS",
    "NO_UNIT",
    "SHOWN",
    "errors",
    "event_shares",
    "one_thread",
    "signed_bias",
    "without_units",
]

#: Metrics a picture or table may show, and their words.
SHOWN = {
    "bwd_err_u_mean": "mean backward error |e| / S, in units roundoff u of the register",
    "bwd_err_u_p99": "99th percentile of the backward error |e| / S, in units roundoff u of the register",
    "bwd_err_u_max": "largest backward error |e| / S, in units roundoff u of the register",
    "rel_fro": "relative error, Frobenius norm",
    "max_rel": "largest relative error",
    "mean_abs": "mean absolute error",
    "ratio": "result / true value, mean",
    "max_err_over_s": "largest |e| / S",
}
#: Columns in units roundoff of the register, which registers in fixed point do not have.
IN_UNITS = ("bias_u", "bwd_err_u_mean", "bwd_err_u_p99", "bwd_err_u_max", "bits_lost")
#: Why they are left out there.
NO_UNIT = "an accumulator that is not in floating point has no unit roundoff"
#: Shares of all additions, of ``gemmsim.count_events``, and their words.
EVENTS = {
    "swamped": "additions that left the register as it was although the term was not 0, share",
    "inexact": "additions that rounded, share",
    "underflow": "additions below the smallest normal number that rounded, share",
    "overflow": "additions beyond the largest number, share",
}


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch computes the block in one thread: it splits sums of more than 32,768 numbers by the number of threads."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@one_thread()
def errors(result: Tensor, operands: Operands, unit: float | None, fmt: FloatFormat | None = None) -> dict[str, Scalar]:
    """The error columns of a product.

    ========================  =====================================================================================
    rel_fro                   norm(e) / norm(t), Frobenius
    max_rel                   largest abs(e / t) where t is not 0
    max_rel_large             the same where t is at least of average size, mean of abs(t)
    mean_abs                  mean of abs(e)
    ratio, ratio_se           mean of y / t where t is not 0, and its standard error over rows
    bias, bias_se             mean of e sign(t), and its standard error: outputs of a row share an operand, so rows are
                              the independent draws
    abs_bias_ratio            abs(bias) / bias_se
    bias_u                    mean of e sign(t) / (S u): the bias in units of the register
    bwd_err_u_mean _p99 _max  abs(e) / (S u): backward error in units of the register. The maximum grows with the number
                              of outputs; mean and 99th percentile do not
    bits_lost                 log2 of bwd_err_u_mean, at least 0
    max_err_over_s            largest abs(e) / S
    sqnr_db                   10 log10(sum t^2 / sum e^2)
    ulp_mean, ulp_max         abs(e) in units in the last place of ``fmt`` at t, where fmt is given
    nonfinite                 share of outputs that are infinite or NaN; all other columns leave them out
    ========================  =====================================================================================

    A column that has no value (no outputs, no error to compare) is None. Without ``unit``, of a register that has no
    unit roundoff, those in units of it are None: bias_u, bwd_err_u_*, bits_lost.
    """
    y, t = result.double().flatten(), operands.truth.flatten()
    finite = torch.isfinite(y) & torch.isfinite(t)
    e = torch.where(finite, y - t, torch.zeros_like(t))
    size = operands.size.flatten()
    backward = (e.abs() / (size * (unit or 1.0)))[finite & (size > 0)]
    bias, bias_se = signed_bias(e, t, finite, operands.truth.shape)
    known, sized = finite & (t != 0), finite & (size > 0)
    bias_u, _ = signed_bias(e / (size * (unit or 1.0)), t, sized, operands.truth.shape)
    ratio, ratio_se = _by_rows(y / t, known, operands.truth.shape)
    error, whole = float(e.square().sum()), float(t[finite].square().sum())
    found: dict[str, Scalar] = {
        "rel_fro": _over(math.sqrt(error), math.sqrt(whole)),
        "max_rel": _largest((e / t).abs()[known]),
        "max_rel_large": _largest((e / t).abs()[known & (t.abs() >= t[finite].abs().mean())]),
        "mean_abs": _mean(e.abs()[finite]),
        "ratio": ratio,
        "ratio_se": ratio_se,
        "bias": bias,
        "bias_se": bias_se,
        "abs_bias_ratio": None if bias is None or bias_se is None else _over(abs(bias), bias_se),
        "bias_u": bias_u,
        "bwd_err_u_mean": (mean := _mean(backward)),
        "bwd_err_u_p99": float(torch.quantile(backward[:_MOST], 0.99)) if backward.numel() else None,
        "bwd_err_u_max": _largest(backward),
        "bits_lost": None if mean is None else max(0.0, math.log2(mean)) if mean else 0.0,
        "max_err_over_s": _largest((e.abs() / size)[sized]),
        "sqnr_db": 10 * math.log10(whole / error) if error > 0 and whole > 0 else None,
        **_in_ulps(e[finite], t[finite], fmt),
        "nonfinite": 1 - float(finite.double().mean()) if y.numel() else None,
    }
    return found if unit is not None else found | dict.fromkeys(IN_UNITS)


def without_units(rows: Sequence[Row], metric: str) -> str:
    """Words on the rows in which ``metric`` is left out because their register has no unit roundoff; "" for none."""
    labels = dict.fromkeys(str(row.get("label")) for row in rows if metric in IN_UNITS and row.get("no_unit_roundoff"))
    return f"none of {', '.join(labels)}: {NO_UNIT}" if labels else ""


def event_shares(operands: Operands, spec: gs.GemmSpec, seed: int) -> dict[str, Scalar]:
    """Swamped, inexact, underflow and overflow: shares of all additions of the product of ``operands``.

    None for an accumulator whose additions are not counted: see ``gemmsim.count_events``.
    """
    try:
        return dict(gs.count_events(operands.a, operands.b, spec, seed=seed).shares())
    except gs.UnsupportedSpec:
        return dict.fromkeys(EVENTS)


def _in_ulps(error: Tensor, truth: Tensor, fmt: FloatFormat | None) -> dict[str, Scalar]:
    """Mean and largest error in units in the last place; below the normal range the unit is that of the subnormals."""
    if fmt is None:
        return {"ulp_mean": None, "ulp_max": None}
    exponent = (torch.frexp(truth)[1].to(torch.int64) - 1).clamp(min=fmt.emin)
    ulps = torch.ldexp(error.abs(), fmt.p - 1 - exponent)
    return {"ulp_mean": _mean(ulps), "ulp_max": _largest(ulps)}


#: torch.quantile takes at most this many numbers.
_MOST = 2**24 - 1


def signed_bias(error: Tensor, truth: Tensor, chosen: Tensor, shape: torch.Size) -> tuple[float | None, float | None]:
    """Mean of ``error * sign(truth)`` where ``chosen``, and its standard error with rows as the independent draws."""
    return _by_rows(error * truth.sign(), chosen, shape)


def _by_rows(values: Tensor, chosen: Tensor, shape: torch.Size) -> tuple[float | None, float | None]:
    """Mean of the chosen values, and the standard error of the mean of row means; of single values in a single row."""
    if not bool(chosen.any()):
        return None, None
    mean = float(values[chosen].mean())
    rows = values.reshape(-1, shape[-1]) if shape[-1:] != (0,) else values[None]
    kept = chosen.reshape(rows.shape)
    if rows.shape[0] > 1:
        counts = kept.sum(1)
        draws = torch.where(kept, rows, torch.zeros_like(rows)).sum(1)[counts > 0] / counts[counts > 0]
    else:
        draws = values[chosen]
    if draws.numel() < 2:
        return mean, None
    return mean, float(draws.std() / math.sqrt(draws.numel()))


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if values.numel() else None


def _largest(values: Tensor) -> float | None:
    return float(values.max()) if values.numel() else None


def _over(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None if numerator else 0.0
