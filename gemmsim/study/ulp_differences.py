"""How far apart two results of the same product are, with the side on which they differ."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim.formats import FloatFormat

from .cells import Scalar
from .errors import StudyError

__all__ = ["CLASSES", "EDGES", "differences", "unit_of"]

#: Upper ends of the classes of distances, in units in the last place; the last one has none.
EDGES = (1, 4, 16, 64, 256, 1024, 2**12, 2**16, 2**20, math.inf)


def _name(edge: float) -> str:
    return "more" if math.isinf(edge) else f"{edge:.0f}"


#: Columns of the classes, from far below to far above: A is smaller in magnitude below, larger above.
CLASSES = (
    *(f"ulp_below_{_name(edge)}" for edge in reversed(EDGES)),
    "ulp_0",
    *(f"ulp_above_{_name(edge)}" for edge in EDGES),
)

_NAN = ("nan", "nan_against")


def unit_of(*specs: gs.GemmSpec) -> FloatFormat:
    """The format whose units count: the one with fewer significant bits of those in which the specs end.

    Raises:
        StudyError: a spec that does not end in a floating-point format.
    """
    ends = [(spec.out or spec.accumulator.add_cast).format for spec in specs]
    for spec, end in zip(specs, ends, strict=True):
        if not isinstance(end, FloatFormat):
            raise StudyError(f"{spec} ends in {end}; allowed: specs that end in a floating-point format.")
    return min((end for end in ends if isinstance(end, FloatFormat)), key=lambda end: end.p)


def differences(a: Tensor, b: Tensor, truth: Tensor, unit: FloatFormat) -> dict[str, Scalar]:
    """Result ``a`` against ``b``, elements in units in the last place of ``unit`` at the larger magnitude.

    ========================  =====================================================================================
    equal                     share of elements of equal bits; all NaN count as one
    ulp_0                     share of elements of equal value
    ulp_above_n, ulp_below_n  share of elements at a distance of up to n units and more than the class before, in the
                              direction of the true value's sign: above, a is larger; "more": beyond the last
    sign_bias                 share above less share below: -1 where a is always the smaller one, 0 for no side
    bias_ulp                  mean of (a - b) sign(truth) in units, of elements that are finite in both
    ulp_mean, ulp_max         mean and largest distance of those
    nonfinite                 share of elements that are infinite or NaN in a or b and not equal; beyond the last class
    nan, nan_against          share of elements that are NaN in a, and in b
    ========================  =====================================================================================

    Of no elements every column is None.
    """
    if not a.numel():
        return dict.fromkeys(("equal", *CLASSES, "sign_bias", "bias_ulp", "ulp_mean", "ulp_max", "nonfinite", *_NAN))
    x, y, t = (values.double().flatten() for values in (a, b, truth))
    same = (x == y) | (x.isnan() & y.isnan())
    equal = same & ((torch.signbit(x) == torch.signbit(y)) | (x != 0))
    finite = (x.isfinite() & y.isfinite()) | same
    distance = torch.where(same, 0.0, (x - y).abs() / _spacing(x, y, unit))
    distance = torch.where(finite, distance, torch.inf)
    side = torch.where(same, 0.0, (x - y).sign() * torch.where(t < 0, -1.0, 1.0)).nan_to_num(0.0)
    shares: dict[str, Scalar] = {}
    below = 0.0
    for edge in EDGES:
        inside = (distance > below) & ((distance <= edge) if not math.isinf(edge) else torch.ones_like(same))
        # A NaN lies on no side: it counts below, as the smaller one.
        shares[f"ulp_above_{_name(edge)}"] = _share(inside & (side > 0))
        shares[f"ulp_below_{_name(edge)}"] = _share(inside & (side <= 0))
        below = edge
    both = finite & distance.isfinite()
    signed = (side * distance)[both]
    return {
        "equal": _share(equal),
        **{name: _share(same) if name == "ulp_0" else shares[name] for name in CLASSES},
        "sign_bias": _share(side > 0) - _share(side < 0),
        "bias_ulp": float(signed.mean()) if signed.numel() else None,
        "ulp_mean": float(distance[both].mean()) if signed.numel() else None,
        "ulp_max": float(distance[both].max()) if signed.numel() else None,
        "nonfinite": _share(~finite),
        **{name: _share(values.isnan()) for name, values in zip(_NAN, (x, y), strict=True)},
    }


def _share(chosen: Tensor) -> float:
    return float(chosen.double().mean())


def _spacing(x: Tensor, y: Tensor, unit: FloatFormat) -> Tensor:
    """Distance of neighbours in ``unit`` at the larger magnitude; that of its subnormals below the normal numbers."""
    larger = torch.maximum(x.abs(), y.abs())
    exponent = torch.frexp(larger)[1].double() - 1
    lowest = float(max(unit.emin, -1022))
    return torch.exp2(torch.where(larger == 0, lowest, exponent).clamp(min=lowest) - (unit.p - 1))
