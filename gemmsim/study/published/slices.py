"""Wide products from narrow ones: TF32 with error correction, int8 slices, bf16 slices."""

from __future__ import annotations

import math

from ..checks import Expectation
from .reproduction import Reproduction, within

__all__ = ["BF16_SLICES", "OOTOMO_TF32X3", "OZAKI_INT8"]

_OOTOMO = "Ootomo, Yokota, IJHPCA 36 (2022), arXiv:2203.03341"
_IMMU = "Ootomo, Ozaki, Yokota, DGEMM on Integer Matrix Multiplication Unit, arXiv:2306.11975, abstract"
_IMMU_SAYS = "double-precision products by integer Tensor Cores while maintaining the FP64 accuracy"
_HENRY = "Henry, Tang, Heinecke, ARITH 2019, arXiv:1904.06376, abstract"
_HENRY_SAYS = "decomposing FP32 numbers in several BF16 numbers can preserve accuracy compared to FP32 computations"
_OOTOMO_SEEN = (
    ("inside", 256, 9.0e-7),
    ("inside", 16384, 5.1e-5),
    ("outside", 256, 1.26e-7),
    ("outside", 16384, 8.1e-7),
)
_BF16_SEEN = {"x1": 2.46e-3, "x3": 4.13e-6, "x6": 3.16e-8, "x9": 3.14e-8, "x6_hopper": 9.9e-7, "x9_hopper": 9.9e-7}

OOTOMO_TF32X3 = Reproduction(
    title="float32 from three TF32 products: the error depends on where the sum is rounded",
    kind="sliced",
    parts=(
        {
            "scheme": ["inside = tf32x3(inside)", "outside = tf32x3(outside)"],
            "spec": ["fp32 = fp32"],
            "K": "2^8:2^14:x2",
            "dist": "rand11",
        },
    ),
    expectations=(
        *(
            Expectation(
                (("label", label), ("K", k)), "rel_fro", *within(value, 0.15), "computed here",
                "16 x 16 outputs, U[-1,1)",
            )
            for label, k, value in _OOTOMO_SEEN
        ),
        Expectation(
            (("label", "inside"), ("K", 16384)), "rel_fro", 45, 80, "computed here",
            "a truncating accumulator errs to one side: the error grows like K, 64 times from K = 256",
            against=(("label", "inside"), ("K", 256)),
            derived=True,
        ),
        Expectation(
            (("label", "outside"),), "rel_fro", 0.0, 1.0, "known effect",
            f"{_OOTOMO}, abstract and section on avoiding RZ in the accumulation",
            "avoiding the rounding inside Tensor Cores (RZ)",
            against=(("label", "fp32"),), match=("K",),
        ),
        Expectation(
            (("label", "inside"),), "rel_fro", 1.0, math.inf, "known effect",
            f"{_OOTOMO}; the same products, the same slices: the accumulator alone causes the error", derived=True,
            against=(("label", "fp32"),),
            match=("K",),
        ),
    ),
)  # fmt: skip

OZAKI_INT8 = Reproduction(
    title="float64 from int8 products: error by the number of slices and the range of exponents",
    kind="sliced",
    parts=(
        {
            "scheme": [f"slices{n} = ozaki_int8({n})" for n in range(2, 10)],
            "spec": ["fp64 = fp64"],
            "dtype": "fp64",
            "metric": "max_err_over_s",
        },
        {
            "scheme": ["slices8 = ozaki_int8(8)"],
            "spec": [],
            "dist": "wide(0.5),wide(1),wide(2),wide(4)",
            "dtype": "fp64",
            "metric": "max_err_over_s",
        },
    ),
    expectations=(
        *(
            Expectation(
                (("label", f"slices{n + 1}"), ("dist", "randn")), "max_err_over_s", 2.0**-7.2, 2.0**-6.0,
                "computed here",
                "a slice more holds 7 bits more, of which the sum of one more diagonal takes a part: 6.6 +- 0.6",
                against=(("label", f"slices{n}"), ("dist", "randn")),
                derived=True,
            )
            for n in range(2, 8)
        ),
        *(
            Expectation(
                (("label", f"slices{n}"), ("dist", "randn")), "max_err_over_s", low, high, "known effect",
                f"{_IMMU}; K = 1024; 8 slices are 36 products", _IMMU_SAYS,
                against=(("label", "fp64"), ("dist", "randn")),
            )
            for n, low, high in ((8, 0.0, 1.0), (7, 1.0, math.inf))
        ),
        *(
            Expectation(
                (("label", "slices8"), ("dist", f"wide({phi})")), "max_err_over_s", value / 3, value * 3,
                "computed here", "one sample; for phi = 4, samples differ by a factor of 10: the tails are heavy",
            )
            for phi, value in ((0.5, 2.8e-16), (1, 7.1e-15), (2, 3.2e-13), (4, 2.2e-10))
        ),
    ),
)  # fmt: skip

BF16_SLICES = Reproduction(
    title="float32 from bf16 products: one, three, six and nine of them, in exact and in truncating accumulators",
    kind="sliced",
    parts=(
        {
            "scheme": [
                "x1 = bf16(1)",
                "x3 = bf16(2)",
                "x6 = bf16(3, products=6)",
                "x9 = bf16(3)",
                "x6_hopper = bf16(3, products=6, spec=:hw(hopper, wgmma, bf16))",
                "x9_hopper = bf16(3, products=9, spec=:hw(hopper, wgmma, bf16))",
            ],
            "spec": ["fp32 = fp32"],
        },
    ),
    expectations=(
        *(
            Expectation(
                (("label", label),), "rel_fro", *within(value, 0.12), "computed here",
                "16 x 16 outputs, N(0,1), K = 1024",
            )
            for label, value in _BF16_SEEN.items()
        ),
        Expectation(
            (("label", "x9"),), "rel_fro", 0.0, 2.0**-24, "known effect",
            f"{_HENRY}; three slices hold a float32; one rounding of a sum near its size remains", _HENRY_SAYS,
            derived=True,
        ),
        *(
            Expectation(
                (("label", f"{label}_hopper"),), "rel_fro", 10.0, math.inf, "computed here",
                "more products cannot correct a truncating accumulator", against=(("label", label),),
                derived=True,
            )
            for label in ("x6", "x9")
        ),
    ),
)  # fmt: skip
