"""What registers of tensor cores do to long sums: DeepSeek-V3's FP8 on Hopper, a router in bf16.

The instructions are those of ``gemmsim.hardware``: a published software model of the chips (arXiv:2511.10909), not
measurements on silicon.
"""

from __future__ import annotations

import math

from ..checks import Expectation
from .reproduction import Reproduction, within

__all__ = ["DEEPSEEK_V3_FP8", "VLLM_ROUTER_K6144"]

_HOPPER = "hw(hopper, wgmma, e4m3)"
_LENGTHS = (1024, 4096, 16384)
_POSITIVE = "U[0,1) rows scaled to 448 in e4m3, 64 x 64 outputs; three samples agree to 1 %"
_REPORT = "DeepSeek-V3 technical report, section 3.3.2"
_REPORT_UNIT = "DeepSeek-V3 technical report, section 3.5.2"
_TWO_PERCENT = "'nearly 2 %' largest relative error at K = 4096 for 'two random matrices', distribution not given"
#: Both checks are one-sided: no distribution here gives 2 %.
_LESS = (
    "one-sided: normal data give 0.6 %, below 2 %, in max_rel_large, that is in outputs of above-average size "
    "(max_rel is 1494 %, because one sum is near 0)"
)
_MORE = "one-sided: data in [0, 1) give 7.9 %, above 2 %, in max_rel"
#: What section 3.5.2 says: 32 products, 14 bits of each (the leading one and 13 below it), a register of as many.
_FOURTEEN = "fused(32, 13, e8m13/rtz)"
_FOURTEEN_SAYS = "'the highest 14 bits of each mantissa product', truncated, of 32 products; registers of 14 bits"

#: Relative error of one register for all of K, which grows with K.
_GROWING = {1024: 1.5e-2, 4096: 7.5e-2, 16384: 2.5e-1}
#: With a promotion to fp32 after so many terms, which does not.
_PROMOTED = {32: 3.7e-5, 64: 1.13e-4, 128: 5.55e-4, 256: 1.92e-3, 512: 5.8e-3}

DEEPSEEK_V3_FP8 = Reproduction(
    title="FP8 on Hopper keeps 13 fraction bits: promotion to fp32 every 128 terms stops the growth of its error",
    kind="growth",
    parts=(
        {
            "spec": [
                f"hopper = {_HOPPER}",
                *(f"promote{n} = promote({_HOPPER}, {n}, fp32)" for n in _PROMOTED),
                f"bits14 = {_FOURTEEN}",
                "f25 = fused(32, 25, fp32/rtz)",
                "fp32 = fp32",
            ],
            "K": ",".join(map(str, _LENGTHS)),
            "dist": "rand01",
            "in": "e4m3/row",
            "M": 64,
            "N": 64,
            "metric": "rel_fro",
        },
        {
            "spec": [f"hopper = {_HOPPER}"],
            "K": "4096",
            "dist": "randn",
            "in": "e4m3/row",
            "M": 64,
            "N": 64,
            "metric": "rel_fro",
        },
    ),
    expectations=(
        *(
            Expectation(
                (("label", "hopper"), ("K", k), ("dist", "rand01")), "rel_fro", *within(error, 0.05),
                source="computed here", place=_POSITIVE,
            )
            for k, error in _GROWING.items()
        ),
        *(
            Expectation(
                (("label", f"promote{n}"),), "rel_fro", *within(error, 0.06),
                source="known effect" if n == 128 else "computed here",
                place=f"{f'{_REPORT}; ' if n == 128 else ''}{_POSITIVE}; equal for every K, because each run of {n} "
                "terms starts from 0",
                published="an interval of 128 elements, 4 WGMMAs" if n == 128 else "",
            )
            for n, error in _PROMOTED.items()
        ),
        Expectation(
            (("label", "hopper"), ("K", 4096), ("dist", "randn")), "rel_fro", 1.15e-3, 1.55e-3,
            source="computed here", place="normal data, 64 x 64 outputs; four samples gave 1.31e-3 to 1.38e-3",
        ),
        Expectation(
            (("label", "hopper"), ("K", 4096), ("dist", "randn")), "max_rel_large", 4e-3, 1e-2,
            source="computed here", place="normal data, outputs above average size; four samples gave 5.9e-3 to 7.5e-3",
        ),
        Expectation(
            (("label", "hopper"), ("K", 4096), ("dist", "randn")), "max_rel_large", 0.0, 0.02, source="paper",
            place=f"{_REPORT}; {_LESS}", published=_TWO_PERCENT,
        ),
        Expectation(
            (("label", "hopper"), ("K", 4096), ("dist", "rand01")), "max_rel", 0.02, math.inf, source="paper",
            place=f"{_REPORT}; {_MORE}", published=_TWO_PERCENT,
        ),
        Expectation(
            (("label", "hopper"), ("dist", "rand01")), "rel_fro", 1.0, 1.0, source="paper",
            place=f"{_REPORT_UNIT}; checks gemmsim's model of the chip against the report's statement, not the chip",
            published=_FOURTEEN_SAYS, against=(("label", "bits14"), ("dist", "rand01")), match=("K",),
        ),
        Expectation(
            (("label", "hopper"), ("K", 4096), ("dist", "rand01")), "max_rel", *within(7.9e-2, 0.05),
            source="computed here", place=_POSITIVE,
        ),
        Expectation(
            (("label", "f25"), ("K", 4096)), "rel_fro", *within(1.12e-6, 0.10), source="computed here",
            place=f"the same steps with 25 bits kept and fp32 toward zero, as on Blackwell; {_POSITIVE}",
        ),
        Expectation(
            (("label", "fp32"), ("K", 4096)), "rel_fro", *within(1.8e-7, 0.10), source="computed here",
            place=f"sequential, to nearest; {_POSITIVE}",
        ),
    ),
)  # fmt: skip

_THREAD = "vLLM pull request 47970, real router weights of GLM-5.2, one token; chip not named"
_DRAWS = "N(0,1) x N(0,1)/sqrt(K) in bf16, 64 x 32 outputs; eight samples"
_ROUNDED = (("label", "rounded"),)

VLLM_ROUTER_K6144 = Reproduction(
    title="A router's logits at K = 6144 in bf16: Hopper's truncation makes them smaller, rounding does not",
    kind="growth",
    parts=(
        {
            "spec": ["hopper = hw(hopper, wgmma, bf16)", "rounded = fused(16, exact, fp32)"],
            "K": "6144",
            "dist": "randn*fan_in",
            "in": "bf16/none",
            "M": 64,
            "N": 32,
            "metric": "mean_abs",
        },
    ),
    expectations=(
        Expectation(
            (("label", "hopper"),), "mean_abs", *within(5.10e-6, 0.08), source="paper",
            place=f"{_THREAD}; {_DRAWS} gave 5.06e-6 to 5.26e-6",
            published="BF16 against FP64: mean absolute error 5.10e-6",
        ),
        Expectation(
            (("label", "hopper"),), "bias", -4.95e-6, -4.15e-6, source="computed here",
            place=f"{_DRAWS} gave -4.67e-6 to -4.37e-6, four standard errors are 0.4e-6; negative: truncation makes "
            "every sum smaller",
        ),
        Expectation(
            (("label", "hopper"),), "abs_bias_ratio", 20, math.inf, source="computed here",
            place="errors of truncation have one sign: the bias is far from 0 in standard errors",
            derived=True,
        ),
        Expectation(
            _ROUNDED, "mean_abs", *within(2.47e-7, 0.10), source="known effect",
            place="the same 16-term steps, each sum exact and rounded once to nearest; "
            f"{_DRAWS} gave 2.40e-7 to 2.54e-7; {_THREAD}",
            published="an FP32 product without tensor cores against FP64: 2.84e-7",
        ),
        Expectation(
            _ROUNDED, "abs_bias_ratio", 0, 4, source="computed here",
            place="to nearest, errors have no preferred sign; at most four standard errors",
            derived=True,
        ),
        Expectation(
            (("label", "hopper"),), "mean_abs", 15, math.inf, source="known effect",
            place=f"{_THREAD}; {_DRAWS} gave 20 to 22", published="5.10e-6 against 2.84e-7: 18", against=_ROUNDED,
        ),
    ),
)  # fmt: skip
