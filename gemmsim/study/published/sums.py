"""Long sums in narrow registers: Wang et al. 2018; Higham and Mary's bounds."""

from __future__ import annotations

import math

from ..checks import Expectation
from .reproduction import Reproduction, within

__all__ = ["HIGHAM_MARY_GROWTH", "SWAMPING", "WANG2018_FIG3"]

_WANG = "the experiment of Wang et al., NeurIPS 2018, figure 3"
_WANG_SAYS = "additions in 16 bits for 32 by chunk-based accumulation and stochastic rounding, accuracy maintained"
_STUCK = "half a unit at 4096 is 4 in 1-6-9, the largest term 1 + sqrt(3): the sum stops at 4096"
_ONE_SUM = "64 sums; a single one has a deviation of 0.023"

WANG2018_FIG3 = Reproduction(
    title="Long sums in 16 bits: chunks of 64 and stochastic rounding avoid the stagnation of plain sums",
    kind="growth",
    parts=(
        {
            "spec": [
                "chunk1 = sequential(e6m9)",
                "chunk64 = chunked(64, e6m9)",
                "sr = sequential(e6m9/sr16)",
                "sr8 = sequential(e6m9/sr8)",
                "sr4 = sequential(e6m9/sr4)",
            ],
            "K": "8192,16384,65536",
            "dist": "uniform(1,1)*ones",
            "M": 64,
            "N": 1,
            "metric": "ratio",
        },
    ),
    expectations=(
        *(
            Expectation(
                (("label", "chunk1"), ("K", k)), "ratio", *within(4096 / k, 0.015), source="known effect",
                place=f"{_WANG}; {_STUCK}", derived=True,
            )
            for k in (8192, 16384, 65536)
        ),
        Expectation(
            (("label", "chunk64"),), "ratio", 0.995, 1.005, source="known effect",
            place=f"{_WANG}; the interval was measured here, {_ONE_SUM}", published=_WANG_SAYS,
        ),
        Expectation(
            (("label", "sr"), ("K", 65536)), "ratio", 0.985, 1.015, source="known effect",
            place=f"{_WANG}; the interval was measured here, {_ONE_SUM}", published=_WANG_SAYS,
        ),
        Expectation(
            (("label", "chunk64"), ("K", 8192)), "rel_fro", 1.9e-3, 3.3e-3, source="computed here",
            place="ten samples of 64 sums gave 2.28e-3 to 2.88e-3; chunks of 128 give 1.76e-3, one bit less 4.9e-3",
        ),
        Expectation(
            (("label", "sr"), ("K", 8192)), "rel_fro", 1.4e-2, 3.0e-2, source="computed here",
            place="ten samples of 64 sums gave 1.89e-2 to 2.49e-2; one bit less gives 3.5e-2",
        ),
        Expectation(
            (("label", "sr8"), ("K", 65536)), "ratio", 0.90, 0.94, source="computed here",
            place=f"8 random bits, {_ONE_SUM}",
        ),
        Expectation(
            (("label", "sr4"), ("K", 65536)), "ratio", 0.24, 0.28, source="computed here",
            place="4 random bits stall, too",
        ),
    ),
)  # fmt: skip

_BOUNDS = "Higham, Accuracy and Stability, 2nd ed., 4.2; Blanchard, Higham, Mary 2020; first-order bound"
_KAHAN = "Higham, Accuracy and Stability, 2nd ed., 4.3; first-order bound 2u, without the term of second order"
_CHM = "Connolly, Higham, Mary, SIAM J. Sci. Comput. 43 (2021), A566, abstract"
_CHM_NU = "the constant nu in a rounding error bound; with stochastic rounding, a multiple of sqrt(n)u takes its place"
_GRID = tuple(2**k for k in range(7, 13))

#: Largest backward error at K = 4096 in u: 9 to 25 draws gave these ranges.
_LARGEST = {
    "sequential": (160, 230),
    "rtz": (840, 920),
    "sr": (45, 100),
    "chunk64": (4, 11),
    "pairwise": (1.9, 3.4),
    "kahan": (0.9, 1.1),
}
#: Relative error there, with the share by which it may differ: at least four deviations of six draws.
_RELATIVE = {
    "sequential": (7.27e-2, 0.05),
    "rtz": (0.414, 0.02),
    "sr": (9.43e-3, 0.08),
    "chunk64": (8.96e-4, 0.05),
    "pairwise": (3.53e-4, 0.18),
    "kahan": (2.26e-4, 0.15),
}
#: The bounds themselves, for the same sums.
_ALLOWED = {"rtz": 2 * 4096, "chunk64": 64 + 64, "pairwise": 12, "kahan": 2}

HIGHAM_MARY_GROWTH = Reproduction(
    title="Backward error of sums of positive numbers in 11 bits, by order of summation",
    kind="growth",
    parts=(
        {
            "spec": [
                "sequential = e8m10",
                "rtz = e8m10/rtz",
                "sr = e8m10/sr",
                "chunk64 = chunked(64, e8m10)",
                "pairwise = pairwise(e8m10)",
                "kahan = kahan(e8m10)",
            ],
            "K": ",".join(map(str, _GRID)),
            "dist": "rand01",
            "M": 48,
            "N": 48,
            "metric": "bwd_err_u_max",
        },
    ),
    expectations=(
        *(
            Expectation(
                (("label", label), ("K", 4096)), "bwd_err_u_max", low, high, source="computed here",
                place="U[0,1), 48 x 48 outputs, ranges of 9 to 25 samples",
            )
            for label, (low, high) in _LARGEST.items()
        ),
        *(
            Expectation(
                (("label", label), ("K", 4096)), "rel_fro", *within(error, share), source="computed here",
                place="U[0,1), 48 x 48 outputs, six samples; four deviations or more",
            )
            for label, (error, share) in _RELATIVE.items()
        ),
        *(
            Expectation(
                (("label", label), ("K", 4096)), "bwd_err_u_max", 0.0, bound, source="known effect",
                place=_KAHAN if label == "kahan" else _BOUNDS, derived=True,
            )
            for label, bound in _ALLOWED.items()
        ),
        Expectation(
            (("label", "sequential"), ("K", 4096)), "bwd_err_u_max", 0.0, 4096, source="paper",
            place=f"{_CHM}; {_BOUNDS}", published=_CHM_NU,
        ),
        *(
            Expectation(
                (("label", "sequential"), ("K", k)), "bwd_err_u_max", math.sqrt(k), math.inf,
                source="known effect",
                place=f"{_CHM}; at these lengths the sum stagnates, and the error passes sqrt(n)u",
                published="stagnation in sums, whereby small addends are obliterated by round to nearest",
            )
            for k in (2048, 4096)
        ),
        *(
            Expectation(
                (("label", "sr"), ("K", k)), "bwd_err_u_max", 0.0, 2 * math.sqrt(k), source="known effect",
                place=f"{_CHM}; that the multiple is below 2 was measured here",
                published="unconditionally bounded by a multiple of sqrt(n)u to first order",
            )
            for k in _GRID
        ),
    ),
)  # fmt: skip


SWAMPING = Reproduction(
    title="Additions without effect in 1-6-9, by position in the sum",
    kind="swamping",
    parts=({"spec": ["sequential = e6m9", "chunk64 = chunked(64, e6m9)"], "K": 8192, "parts": 4, "M": 64},),
    expectations=(
        *(
            Expectation(
                (("label", "sequential"), ("over", f"{first}:{first + 2048}")), "swamped", share - 0.03, share + 0.03,
                "computed here", "64 sums of terms uniform with mean 1 and deviation 1",
            )
            for first, share in ((0, 0.36), (2048, 0.80), (4096, 0.96))
        ),
        Expectation(
            (("label", "sequential"), ("over", "6144:8192")), "swamped", 0.99, 1.0, "known effect",
            f"{_WANG}; {_STUCK}",
            derived=True,
        ),
        Expectation(
            (("label", "chunk64"),), "swamped", 0.0, 0.1, "known effect",
            f"{_WANG}; 64 sums of terms uniform with mean 1 and deviation 1", published=_WANG_SAYS,
        ),
    ),
)  # fmt: skip
