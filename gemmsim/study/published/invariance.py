"""Which products do not depend on how they are batched, permuted or split."""

from __future__ import annotations

from ..checks import Expectation
from .reproduction import Reproduction

__all__ = ["BATCH_INVARIANCE"]

_FIXED = "the order of each sum is part of the spec, whatever rows stand beside it"
_HE = "He and Thinking Machines Lab, Defeating Nondeterminism in LLM Inference, 2025"
_HE_SAYS = "80 unique completions of 1,000 at temperature 0; one with kernels that do not depend on the batch"
_EXACT = "exact and wrapping sums are associative"
_ORDER = "another order rounds other partial sums; that two of 16 orders give 1,024 equal floats has no chance"

BATCH_INVARIANCE = Reproduction(
    title="The same product, batched, permuted and split: which accumulators keep their bits",
    kind="order",
    parts=(
        {
            "spec": ["sequential = fp32", "exact = exact(fp32)"],
            "library": "torch.mm,numpy",
            "over": "batch,permutation",
        },
        {"spec": ["int_wrap = int(16)"], "over": "batch,permutation", "dist": "integers(-100,100)"},
        {"spec": ["splitk = fp32"], "over": "splits"},
    ),
    expectations=(
        *(
            Expectation(
                (("label", label), ("over", "batch")), "distinct", 1, 1, "known effect", f"{_HE}; {_FIXED}", _HE_SAYS,
                derived=True,
            )
            for label in ("sequential", "exact", "int_wrap")
        ),
        *(
            Expectation(
                (("label", label), ("over", "permutation")), "distinct", 1, 1, "computed here", _EXACT, derived=True,
            )
            for label in ("exact", "int_wrap")
        ),
        Expectation(
            (("label", "sequential"), ("over", "permutation")), "distinct", 16, 16, "computed here", _ORDER,
            derived=True,
        ),
        Expectation((("label", "splitk"), ("over", "splits")), "distinct", 4, 4, "computed here", _ORDER, derived=True),
    ),
)  # fmt: skip
