"""What the publications of training recipes state in words, and what small trainings have to say about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .cells import Row
from .recipe_parts import FULL

__all__ = ["CLAIMS", "NOT_SHOWN", "Claim", "Judgement", "above", "judged"]

NOT_SHOWN = "not shown at this size"
#: Student's t with n degrees of freedom that 95 % lie below; with more than these: the last.
_T = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
_WORDS = {
    "zero": "fraction of zeros",
    "saturated": "fraction out of range",
    "bias": "magnitude of the bias",
    "error": "error",
}


@dataclass(frozen=True)
class Claim:
    """A published statement about a recipe, whole or without a part, relative to another.

    Args:
        recipe: its name.
        without: the part that is taken away; ``FULL`` for none.
        against: what it is compared with, "bf16" or ``FULL``, the whole recipe.
        within: the loss is at most this share above; None: the loss, or the column, is above.
        published: the statement in short.
        place: publication and section.
        column: what is compared of a product, such as "dgrad_bias", by magnitude; "" for the loss.
        networks: in which it is judged.
        printed: whether the publication prints ``within``; otherwise the number is this project's.
    """

    recipe: str
    without: str
    against: str
    within: float | None
    published: str
    place: str
    column: str = ""
    networks: tuple[str, ...] = ("gpt",)
    printed: bool = False

    def words(self) -> str:
        """What is judged."""
        name = self.recipe if self.without == FULL else f"{self.recipe} without {self.without}"
        other = "bf16's" if self.against == "bf16" else "the whole recipe's"
        if self.column:
            role, _, what = self.column.partition("_")
            return f"{name}: {_WORDS[what]} of {role} above {other}"
        return f"{name}: loss {'above' if self.within is None else f'within {100 * self.within:g} % of'} {other}"


@dataclass(frozen=True)
class Judgement:
    """What became of a claim in one network.

    ``verdict`` is "pass", "fail" or ``NOT_SHOWN``; ``mean`` and ``error`` are those of the differences of the seeds:
    relative ones of losses, absolute ones of other columns; infinite where a training diverged.
    """

    claim: Claim
    network: str
    verdict: str
    mean: float
    error: float
    seeds: int


_FP8 = "arXiv:2209.05433, abstract"
_V3 = "arXiv:2412.19437, 3.3"
_MXFP8 = "arXiv:2506.08027, abstract"
_NVFP4 = "arXiv:2509.25149, section 4"
_MXFP4 = "arXiv:2502.20586, abstract"
_BOTH = ("gpt", "conv")


def _needed(recipe: str, without: str, published: str, place: str, column: str = "") -> Claim:
    """Without the part the loss, or ``column`` of the products, is higher than with it. What holds for products is
    judged in both networks; what is stated of language models, in the GPT."""
    return Claim(recipe, without, FULL, None, published, place, column, _BOTH if column else ("gpt",))


CLAIMS = (
    Claim("hopper_fp8_current", FULL, "bf16", 0.005, "matches 16-bit training", _FP8, networks=_BOTH),
    _needed("hopper_fp8_current", "scales", "scales keep tensors in range", "arXiv:2209.05433", "dgrad_zero"),
    _needed("hopper_fp8_current", "promotion", "promotion makes sums more accurate", f"{_V3}.2", "wgrad_error"),
    Claim("deepseek_v3", FULL, "bf16", 0.0025, "below 0.25 %", f"{_V3} and appendix B", printed=True),
    _needed("deepseek_v3", "blocks", "fine-grained scales reduce quantisation errors", f"{_V3}.2", "fprop_error"),
    Claim("mxfp8_pretraining", FULL, "bf16", 0.005, "matches bf16", _MXFP8),
    _needed("mxfp8_pretraining", "round-up", "scales as in OCP 1.0 can diverge", f"{_MXFP8} of version 1"),
    _needed("mxfp8_pretraining", "e4m3-gradients", "e4m3 for all tensors", _MXFP8, "dgrad_error"),
    Claim("nvfp4_pretraining", FULL, "bf16", 0.015, "loss comparable with FP8's", "arXiv:2509.25149, abstract"),
    _needed("nvfp4_pretraining", "hadamard", "transforms are needed", _NVFP4),
    _needed("nvfp4_pretraining", "stochastic", "stochastic rounding of gradients is needed", _NVFP4),
    _needed("nvfp4_pretraining", "square-weights", "16 x 16 blocks of weights are needed", _NVFP4),
    _needed("nvfp4_pretraining", "bf16-layers", "layers in bf16 are needed", _NVFP4),
    _needed("nvfp4_pretraining", "stochastic", "stochastic rounding avoids bias", _NVFP4, "dgrad_bias"),
    Claim("mxfp4_hadamard", FULL, "bf16", 0.01, "minimal degradation over bf16", _MXFP4),
    Claim("mxfp4_hadamard", "all-three", "bf16", None, "plain MXFP4 degrades the model", _MXFP4),
    _needed("mxfp4_hadamard", "hadamard", "without transforms variance harms convergence", _MXFP4),
    _needed("mxfp4_hadamard", "stochastic", "unbiased gradients give better updates", _MXFP4),
    _needed("mxfp4_hadamard", "hadamard", "transforms bound the variance", _MXFP4, "wgrad_error"),
    _needed("mxfp4_hadamard", "stochastic", "gradients are unbiased", _MXFP4, "dgrad_bias"),
    _needed(
        "mxfp4_hadamard",
        "gain",
        "the factor 3/4 keeps everything in range",
        "arXiv:2502.20586, algorithm 1",
        "dgrad_saturated",
    ),
)


def above(rows: Sequence[Row], against: Sequence[Row], metric: str) -> list[float]:
    """By which share the loss of each row is above that of the row of ``against`` with the same network and seed;
    infinite where it diverged. Rows without such a partner are left out."""
    found = []
    for mine, other in _pairs(rows, against, metric):
        found.append(math.inf if mine is None else (mine - other) / other)
    return found


def judged(rows: Sequence[Row], metric: str) -> list[Judgement]:
    """A judgement for each claim in each of its networks that ``rows`` have trainings of.

    The differences of the seeds have a mean m and a standard error s. With t such that 95 % of Student's distribution
    lie below it, m - t s and m + t s bound the true mean, one-sided, at 95 %. "above" passes where m - t s > 0, and
    fails where m + t s < 0; "within b" passes where m + t s <= b, and fails where m - t s > b. Everything else, and one
    seed alone, is not shown.
    """
    found = []
    for network in dict.fromkeys(row["network"] for row in rows):
        here = [row for row in rows if row["network"] == network]
        for claim in (claim for claim in CLAIMS if network in claim.networks):
            mine = _of(here, claim.recipe, claim.without)
            others = _of(here, "bf16" if claim.against == "bf16" else claim.recipe, FULL)
            differences = _more(mine, others, claim.column) if claim.column else above(mine, others, metric)
            if differences:
                found.append(_judged(claim, network, differences))
    return found


def _of(rows: Sequence[Row], recipe: str, without: str) -> list[Row]:
    return [row for row in rows if (row["recipe"], row["without"]) == (recipe, without)]


def _pairs(rows: Sequence[Row], against: Sequence[Row], column: str) -> list[tuple[float | None, float]]:
    """The numbers of rows and of their partners, of those whose partner has one."""
    partners = {(row["network"], row["seed"]): row.get(column) for row in against}
    found = ((row.get(column), partners.get((row["network"], row["seed"]))) for row in rows)
    return [(mine, other) for mine, other in found if other is not None]


def _more(rows: Sequence[Row], against: Sequence[Row], column: str) -> list[float]:
    """Differences of magnitudes; infinite where the row has none, because a product was not finite."""
    return [math.inf if mine is None else abs(mine) - abs(other) for mine, other in _pairs(rows, against, column)]


def _judged(claim: Claim, network: str, differences: Sequence[float]) -> Judgement:
    n = len(differences)
    mean = sum(differences) / n
    if n < 2 or math.isinf(mean):
        all_diverged = n >= 2 and all(math.isinf(one) for one in differences)
        verdict = NOT_SHOWN if not all_diverged else "pass" if claim.within is None else "fail"
        return Judgement(claim, network, verdict, mean, math.nan, n)
    error = math.sqrt(sum((one - mean) ** 2 for one in differences) / (n - 1) / n)
    low, high = mean - _T[min(n - 1, len(_T)) - 1] * error, mean + _T[min(n - 1, len(_T)) - 1] * error
    if claim.within is None:
        verdict = "pass" if low > 0 else "fail" if high < 0 else NOT_SHOWN
    else:
        verdict = "pass" if high <= claim.within else "fail" if low > claim.within else NOT_SHOWN
    return Judgement(claim, network, verdict, mean, error, n)
