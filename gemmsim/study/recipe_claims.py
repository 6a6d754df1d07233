"""What the publications of training recipes state in words, and what small trainings have to say about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .cells import Row
from .recipe_parts import FULL

__all__ = ["CLAIMS", "Claim", "Judgement", "above", "judged"]

NOT_SHOWN = "not shown at this size"
#: Student's t with n degrees of freedom that 95 % lie below; with more than these: the last.
_T = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)


@dataclass(frozen=True)
class Claim:
    """A published statement about the loss of a recipe, whole or without a part, relative to another.

    Args:
        recipe: its name.
        without: the part that is taken away; ``FULL`` for none.
        against: what it is compared with, "bf16" or ``FULL``, the whole recipe.
        within: the loss is at most this share above; None: it is above.
        published: the statement in short.
        place: publication and section.
        printed: whether the publication prints ``within``; otherwise the number is this project's.
    """

    recipe: str
    without: str
    against: str
    within: float | None
    published: str
    place: str
    printed: bool = False

    def words(self) -> str:
        """What is judged."""
        name = self.recipe if self.without == FULL else f"{self.recipe} without {self.without}"
        other = "bf16" if self.against == "bf16" else "the whole recipe"
        return f"{name}: above {other}" if self.within is None else f"{name}: within {100 * self.within:g} % of {other}"


@dataclass(frozen=True)
class Judgement:
    """``verdict`` of a claim in one network: "pass", "fail", or that it is not shown. ``mean`` and ``error`` are those of
    the relative differences of losses, one for each seed; infinite where a training diverged."""

    claim: Claim
    network: str
    verdict: str
    mean: float
    error: float
    seeds: int


_FP8 = "arXiv:2209.05433, abstract"
_V3 = "arXiv:2412.19437, 3.3 and appendix B"
_MXFP8 = "arXiv:2506.08027"
_NVFP4 = "arXiv:2509.25149, section 4"
_MXFP4 = "arXiv:2502.20586, abstract"

CLAIMS = (
    Claim("hopper_fp8_current", FULL, "bf16", 0.005, "FP8 matches the quality of 16-bit training", _FP8),
    Claim("hopper_fp8_current", "scales", FULL, None, "tensors need scales to be represented", _FP8),
    Claim("deepseek_v3", FULL, "bf16", 0.0025, "relative loss error below 0.25 %", _V3, printed=True),
    Claim("mxfp8_pretraining", FULL, "bf16", 0.005, "MXFP8 in e4m3 matches bf16", f"{_MXFP8}, abstract"),
    Claim("mxfp8_pretraining", "round-up", FULL, None, "scales as in OCP 1.0 can diverge", f"{_MXFP8}v1, abstract"),
    Claim("nvfp4_pretraining", FULL, "bf16", 0.015, "loss comparable with FP8", f"{_NVFP4}, abstract"),
    Claim("nvfp4_pretraining", "hadamard", FULL, None, "each part is needed: transforms", _NVFP4),
    Claim("nvfp4_pretraining", "stochastic", FULL, None, "each part is needed: stochastic gradients", _NVFP4),
    Claim("nvfp4_pretraining", "square-weights", FULL, None, "each part is needed: 16 x 16 blocks", _NVFP4),
    Claim("nvfp4_pretraining", "bf16-layers", FULL, None, "each part is needed: layers in bf16", _NVFP4),
    Claim("mxfp4_hadamard", FULL, "bf16", 0.01, "minimal degradation over bf16", _MXFP4),
    Claim("mxfp4_hadamard", "all-three", "bf16", None, "plain MXFP4 degrades the model", _MXFP4),
    Claim("mxfp4_hadamard", "hadamard", FULL, None, "without transforms variance harms convergence", _MXFP4),
    Claim("mxfp4_hadamard", "stochastic", FULL, None, "unbiased gradients give better updates", _MXFP4),
)


def above(rows: Sequence[Row], against: Sequence[Row], metric: str) -> list[float]:
    """By which share the loss of each row is above that of the row of ``against`` with the same network and seed;
    infinite where it diverged. Rows without such a partner are left out."""
    partners = {(row["network"], row["seed"]): row.get(metric) for row in against}
    found = []
    for row in rows:
        other = partners.get((row["network"], row["seed"]))
        if other is None:
            continue
        mine = row.get(metric)
        found.append(math.inf if mine is None else (mine - other) / other)
    return found


def judged(rows: Sequence[Row], metric: str) -> list[Judgement]:
    """A judgement for each claim in each network that ``rows`` have trainings of.

    The differences of the seeds have a mean m and a standard error s. With t such that 95 % of Student's distribution
    lie below it, m - t s and m + t s bound the true mean, one-sided, at 95 %. "above" passes where m - t s > 0, and
    fails where m + t s < 0; "within b" passes where m + t s <= b, and fails where m - t s > b. Everything else, and one
    seed alone, is not shown.
    """
    found = []
    for network in dict.fromkeys(row["network"] for row in rows):
        here = [row for row in rows if row["network"] == network]
        for claim in CLAIMS:
            differences = above(_of(here, claim.recipe, claim.without), _against(here, claim), metric)
            if differences:
                found.append(_judged(claim, network, differences))
    return found


def _of(rows: Sequence[Row], recipe: str, without: str) -> list[Row]:
    return [row for row in rows if (row["recipe"], row["without"]) == (recipe, without)]


def _against(rows: Sequence[Row], claim: Claim) -> list[Row]:
    return _of(rows, "bf16" if claim.against == "bf16" else claim.recipe, FULL)


def _judged(claim: Claim, network: str, differences: Sequence[float]) -> Judgement:
    n = len(differences)
    mean = sum(differences) / n
    if n < 2 or math.isinf(mean):
        diverged = n >= 2 and all(math.isinf(one) for one in differences)
        verdict = NOT_SHOWN if not diverged else "pass" if claim.within is None else "fail"
        return Judgement(claim, network, verdict, mean, math.nan, n)
    error = math.sqrt(sum((one - mean) ** 2 for one in differences) / (n - 1) / n)
    reach = _T[min(n - 1, len(_T)) - 1] * error
    bound = claim.within or 0.0
    clearly_above, clearly_below = mean - reach > bound, mean + reach <= bound
    if claim.within is None:
        verdict = "pass" if clearly_above else "fail" if mean + reach < 0 else NOT_SHOWN
    else:
        verdict = "fail" if clearly_above else "pass" if clearly_below else NOT_SHOWN
    return Judgement(claim, network, verdict, mean, error, n)
