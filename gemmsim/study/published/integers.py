"""Integer registers that are a bit too narrow: Colbert et al. 2023."""

from __future__ import annotations

import math

from ..checks import Expectation
from .reproduction import Reproduction

__all__ = ["A2Q_OVERFLOW"]

_A2Q = "Colbert, Pappalardo, Petri-Koenig, ICCV 2023"
_HERE = "shipped network, 599 test images"
_LEAST = f"no sum of {_HERE} overflows, and some do with one bit less: P = 18 is the least"
_BOUND_SAYS = "no overflow for any N-bit input while the sum of abs(w) times 2^(N - signed) is at most 2^(P-1) - 1"
_OPERANDS = "int7*int8"


def _one(label: str, P: int, overflow: str) -> dict[str, object]:
    shared = {"task": "digits", "operands": _OPERANDS, "metric": "accuracy"}
    return {**shared, "label": label, "P": P, "overflow": overflow}


A2Q_OVERFLOW = Reproduction(
    title="One bit too few in an integer accumulator: saturation costs little accuracy, wrap-around much",
    kind="integer",
    parts=(
        {"task": "digits", "operands": _OPERANDS, "metric": "accuracy", "P": "13:22:+1", "overflow": "wrap,saturate"},
        _one("enough_wrap", 18, "wrap"),
        _one("less_saturate", 17, "saturate"),
        _one("less_wrap", 17, "wrap"),
        _one("certified_wrap", 21, "wrap"),
        _one("uncertified_wrap", 20, "wrap"),
    ),
    expectations=(
        Expectation((("label", "enough_wrap"),), "overflow_rate", 0.0, 0.0, "computed here", _LEAST),
        Expectation((("label", "less_wrap"),), "overflow_rate", 1e-9, 1.0, "computed here", _LEAST),
        Expectation(
            (("label", "enough_wrap"),), "logit_err", 0.0, 0.0, "computed here",
            "without overflow an accumulator gives the exact sums, wrapping or not",
            derived=True,
        ),
        Expectation(
            (("label", "less_saturate"),), "accuracy", -0.01, 0.01, "computed here",
            f"{_HERE}: within a point of exact", against=(("label", "enough_wrap"),), difference=True,
        ),
        Expectation(
            (("label", "less_wrap"),), "accuracy", 0.55, 0.80, "computed here",
            f"{_HERE}: 0.696 here, 0.68 to 0.73 with other widths of the operands",
        ),
        Expectation(
            (("label", "certified_wrap"),), "certified_bits", 21, 21, "computed here",
            f"{_A2Q}; the weights alone give 21 for any input, three more than these images need",
            derived=True,
        ),
        Expectation(
            (("label", "certified_wrap"),), "worst_case_rate", 0.0, 0.0, "paper",
            f"{_A2Q}; the largest sum that any input gives, found from the weights, stays inside",
            published=_BOUND_SAYS,
        ),
        Expectation(
            (("label", "uncertified_wrap"),), "worst_case_rate", 1e-9, math.inf, "computed here",
            "with one bit less than certified some input overflows: the certificate is the least, too",
            derived=True,
        ),
    ),
)  # fmt: skip
