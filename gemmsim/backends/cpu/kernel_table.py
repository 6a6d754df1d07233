"""The list of CPU kernels and the rules that choose among them, as the compiled library has it (kernel_table.cpp)."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from .shared_library import library

__all__ = ["KernelRule", "kernel_rules", "markdown"]


class KernelRule(NamedTuple):
    """One kernel: the first whose rule holds computes a product."""

    name: str
    file: str  # below cutlass_kernels/cpu
    possible: str  # when its results are right
    pays: str  # when it is faster than the kernels that follow; empty: always
    fallback: str  # the kernel that goes on where speculation fails; its own name if it cannot fail
    details: str  # what reports add to the name: "", "lanes" or "step" (lanes, step and rounding)


@cache
def kernel_rules() -> tuple[KernelRule, ...]:
    """All kernels, in the order in which their rules are asked.

    Raises:
        LibraryError: if the library is missing or unusable.
    """
    rules: list[KernelRule] = []
    while first := library().gemmsim_kernel_rule(len(rules), 0):
        others = [library().gemmsim_kernel_rule(len(rules), column).decode() for column in range(1, 6)]
        rules.append(KernelRule(first.decode(), *others))
    return tuple(rules)


def markdown() -> str:
    """The list as the table of docs/design/cpu_kernels.md."""
    rows = ["| # | kernel | file | possible | pays | fallback |", "|---|---|---|---|---|---|"]
    for i, rule in enumerate(kernel_rules()):
        fallback = "" if rule.fallback == rule.name else rule.fallback
        rows.append(f"| {i} | {rule.name} | `{rule.file}` | {rule.possible} | {rule.pays or 'always'} | {fallback} |")
    return "\n".join(rows) + "\n"
