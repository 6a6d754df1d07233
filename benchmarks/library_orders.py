"""The order of a sum, asked of the sum itself: a large term and its negative show what was added before they met."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

__all__ = ["met_after", "pairs_of"]

#: By format: a power of two, and one beside which even thousands of the other are lost.
_LARGE_AND_SMALL = {"fp16": (2.0**15, 2.0**-20), "bf16": (2.0**30, 1.0)}


def pairs_of(K: int, most: int = 4096) -> list[tuple[int, int]]:
    """All pairs of terms where these are at most ``most``, else the first term with each and neighbours."""
    if K * (K - 1) // 2 <= most:
        return [(i, j) for i in range(K) for j in range(i + 1, K)]
    return [*((0, j) for j in range(1, K)), *((j, j + 1) for j in range(1, K - 1))]


def met_after(
    product: Callable[[Tensor, Tensor], Tensor],
    shape: tuple[int, int, int],
    fmt: str,
    pairs: Iterable[tuple[int, int]],
) -> list[list[int]]:
    """[i, j, n]: n of the K terms had been added by the time that terms i and j met; the two are the last of them.

    ``product`` multiplies (M, K) by (K, N) in ``fmt``, float32 here; of a row (of a column, where there are more of
    them) term i is large, j its negative and each other one small. What is left at the end are the small terms that
    came later. In 16-bit outputs counts of more than 2048 (bfloat16: 256) later terms are rounded.
    """
    M, N, K = shape
    large, small = _LARGE_AND_SMALL[fmt]
    found: list[list[int]] = []
    todo, many = list(pairs), max(M, N)
    for first in range(0, len(todo), many):
        some = todo[first : first + many]
        probes = torch.full((many, K), small)
        for row, (i, j) in enumerate(some):
            probes[row, i], probes[row, j] = large, -large
        got = product(probes, torch.ones(K, N))[:, 0] if M >= N else product(torch.ones(M, K), probes.t())[0]
        later = got[: len(some)].float().cpu() / small
        found += [[i, j, K - round(rest)] for (i, j), rest in zip(some, later.tolist(), strict=True)]
    return found
