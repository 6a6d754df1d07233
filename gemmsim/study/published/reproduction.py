"""What a reproduction is, and the table of them by name."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from ..base import Study
from ..checks import Expectation
from ..kinds.registry import load as load_kind

__all__ = ["REPRODUCTIONS", "Reproduction", "load", "within"]

#: name -> "module:CONSTANT", so that listing them loads none.
REPRODUCTIONS: dict[str, str] = {
    "digits": "gemmsim.study.published.networks:DIGITS",
    "lba_digits": "gemmsim.study.published.networks:LBA_DIGITS",
    "a2q_overflow": "gemmsim.study.published.integers:A2Q_OVERFLOW",
    "bf16_slices": "gemmsim.study.published.slices:BF16_SLICES",
    "ootomo_tf32x3": "gemmsim.study.published.slices:OOTOMO_TF32X3",
    "ozaki_int8": "gemmsim.study.published.slices:OZAKI_INT8",
    "batch_invariance": "gemmsim.study.published.invariance:BATCH_INVARIANCE",
    "srmac_rbits": "gemmsim.study.published.random_bits:SRMAC_RBITS",
    "swamping": "gemmsim.study.published.sums:SWAMPING",
    "deepseek_v3_fp8": "gemmsim.study.published.tensor_cores:DEEPSEEK_V3_FP8",
    "vllm_router_k6144": "gemmsim.study.published.tensor_cores:VLLM_ROUTER_K6144",
    "wang2018_fig3": "gemmsim.study.published.sums:WANG2018_FIG3",
    "higham_mary_growth": "gemmsim.study.published.sums:HIGHAM_MARY_GROWTH",
}


@dataclass(frozen=True)
class Reproduction:
    """A named study without code of its own.

    Args:
        title: one line.
        kind: name of its kind.
        parts: for each set of parameters, names and values as the command line takes them.
        expectations: what the rows must show.
    """

    title: str
    kind: str
    parts: tuple[dict[str, Any], ...]
    expectations: tuple[Expectation, ...]

    def study(self, name: str) -> Study:
        """The study under this name."""
        kind = load_kind(self.kind)
        parts = tuple(kind.parameters.of(part) for part in self.parts)
        return kind(*parts, name=name, title=self.title, expectations=self.expectations)


def load(name: str) -> Study:
    """The reproduction of this name; KeyError for an unknown one."""
    module, _, constant = REPRODUCTIONS[name].partition(":")
    found = getattr(importlib.import_module(module), constant)
    assert isinstance(found, Reproduction)
    return found.study(name)


def within(value: float, share: float) -> tuple[float, float]:
    """The interval of ``value`` plus or minus a share of it."""
    reach = abs(value) * share
    return value - reach, value + reach
