"""A trained network in narrow registers: floating point by order of summation, and with chosen exponents."""

from __future__ import annotations

import math

from ..checks import Expectation
from .reproduction import Reproduction, within

__all__ = ["DIGITS", "LBA_DIGITS"]

_NETWORK = "shipped network, 599 test images"
_IMAGE = 1 / 599
#: Test accuracy and relative error of the logits in e5m2.
_E5M2 = {
    "sequential": (0.9149, 0.4658),
    "rtz": (0.2287, 0.9821),
    "chunk16": (0.9616, 0.1889),
    "pairwise": (0.9683, 0.1211),
    "kahan": (0.9666, 0.0675),
}
_TRAININGS = (
    "; six trainings (python -m gemmsim.study.networks.make --retrain 6) gave 0.229 to 0.514, for the others 0.915 to "
    "0.942, 0.953 to 0.975, 0.957 to 0.975, 0.965 to 0.975: the truncating figure is the network's, not the format's"
)


def _order(less: str, more: str, least: float) -> Expectation:
    """In e5m2 ``more`` is at least that much more accurate than ``less``."""
    return Expectation(
        (("label", more), ("acc_format", "e5m2")), "accuracy", least, math.inf, "computed here",
        "truncation errs to one side; shorter and compensated sums err less",
        against=(("label", less), ("acc_format", "e5m2")), difference=True,
    )  # fmt: skip


DIGITS = Reproduction(
    title="A 64-256-10 network on handwritten digits, by accumulator format and order of summation",
    kind="accuracy",
    parts=({"formats": "fp32,tf32,e5m10,e5m9,e5m8,bf16,e5m7,e5m6,e5m5,e5m4,e5m3,e5m2,e5m1", "seeds": 3},),
    expectations=(
        *(
            Expectation(
                (("label", label), ("acc_format", "e5m2")), "accuracy", accuracy - 0.002, accuracy + 0.002,
                "computed here", f"{_NETWORK}, one image is 0.0017{_TRAININGS if label == 'rtz' else ''}",
            )
            for label, (accuracy, _) in _E5M2.items()
        ),
        *(
            Expectation(
                (("label", label), ("acc_format", "e5m2")), "logit_err", *within(error, 0.02), "computed here",
                f"{_NETWORK}; distinguishes what the accuracy does not",
            )
            for label, (_, error) in _E5M2.items()
        ),
        _order("rtz", "sequential", _IMAGE / 2),
        _order("sequential", "chunk16", _IMAGE / 2),
        _order("chunk16", "kahan", 0.0),
    ),
)  # fmt: skip

_LBA = "Blumenfeld, Hubara, Soudry, ICLR 2024"
#: Relative error of the logits by bias of the sum's exponent.
_LBA_ERROR = {7: 0.0554, 9: 0.0570, 11: 0.0576}

LBA_DIGITS = Reproduction(
    title="12-bit sums (M7E4, truncating, chunks of 16): the accuracy hardly depends on the exponent bias",
    kind="accuracy",
    parts=(
        {
            "spec": [
                f"bias{bias} = chunked(16, sequential(e4m7b{bias}/rtz/sat/ftz, mul=e4m7b{bias + 2}/rtz/sat/ftz))"
                for bias in (5, 7, 9, 11, 13)
            ],
            "metric": "logit_err",
        },
    ),
    expectations=(
        *(
            Expectation(
                (("label", f"bias{bias}"),), "accuracy", -0.005, 0.005, "known effect",
                f"{_LBA}, abstract; {_NETWORK}: within half a point of exact",
                published="12-bits accumulators, with no significant degradation in accuracy",
                against=(("what", "truth"),), difference=True,
            )
            for bias in _LBA_ERROR
        ),
        *(
            Expectation(
                (("label", f"bias{bias}"),), "logit_err", *within(error, 0.03), "computed here",
                f"{_NETWORK}; products have the bias plus 2, the paper's rule for chunks of 16",
            )
            for bias, error in _LBA_ERROR.items()
        ),
    ),
)  # fmt: skip
