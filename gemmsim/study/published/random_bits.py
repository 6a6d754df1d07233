"""How many random bits stochastic rounding needs: FP8 operands, 12-bit sums."""

from __future__ import annotations

from ..checks import Expectation
from .reproduction import Reproduction

__all__ = ["SRMAC_RBITS"]

_BEN_ALI = "Ben Ali, Filip, Sentieys, DATE 2024, arXiv:2404.14010, abstract"
_BEN_ALI_SAYS = "FP8 multiplier inputs and FP12 accumulations, near baseline accuracy"
_SEEN = "96 x 32 outputs, U[0,1) rounded to e5m2, K = 2048"
#: Bias in units of S u, by random bits; its standard error is 0.07 to 0.12.
_BIAS = {1: -55.3, 2: -47.6, 3: -34.8, 4: -25.6, 6: -7.3, 8: -1.4}

SRMAC_RBITS = Reproduction(
    title="Stochastic rounding of 12-bit sums (e6m5): the bias by the number of random bits",
    kind="sr",
    parts=({"format": "e6m5", "r": "1:13:+1", "K": 2048, "dist": "rand01", "M": 96, "N": 32, "in": "e5m2/none"},),
    expectations=(
        *(
            Expectation(
                (("label", f"r{r}"),), "bias_u", bias - 0.6, bias + 0.6, "computed here",
                f"{_SEEN}; the interval is five standard errors or more",
            )
            for r, bias in _BIAS.items()
        ),
        *(
            Expectation(
                (("label", f"r{r}"),), "ratio", 1 + bias / 64 - 0.01, 1 + bias / 64 + 0.01, "computed here",
                "all terms are positive, so this is 1 plus the bias times u = 2^-6",
                derived=True,
            )
            for r, bias in _BIAS.items()
        ),
        *(
            Expectation(
                (("label", f"r{r}"),), "abs_bias_ratio", 0.0, 4.0, "known effect",
                f"{_BEN_ALI}; {_SEEN}: no bias that four standard errors would show", published=_BEN_ALI_SAYS,
            )
            for r in range(10, 14)
        ),
        Expectation(
            (), "bias_of_bound", -1.0, 1.0, "computed here",
            "each rounding loses less than 2^-r of a unit in the last place of its sum: 2^(1-r) K in units of S u",
            derived=True,
        ),
    ),
)  # fmt: skip
