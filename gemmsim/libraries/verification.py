"""What the library of this machine computes beside what plans say, family by family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .call import FP8, Call
from .configuration import Config
from .errors import LibraryError, UnknownPlan, library_error
from .plan import Plan

__all__ = ["Verified", "verify"]

#: Elements of operands and result of the largest product that is run.
_LARGEST = 1 << 26


class Verified(NamedTuple):
    """The counts of one family of kernels: products and outputs, and how many of them are equal.

    ``equal`` products have every bit equal; ``refused`` calls had no plan or were refused.

    ``different``: the calls whose bits differ, with the number of different outputs.

    Example:
        >>> one = gs.libraries.Verified("nvjet", 20, 20, 81920, 81920, refused=0, different=())
        >>> one.equal == one.products
        True
    """

    family: str
    equal: int
    products: int
    outputs_equal: int
    outputs: int
    refused: int
    different: tuple[str, ...]


class _Count:
    def __init__(self) -> None:
        self.equal = self.products = self.outputs_equal = self.outputs = self.refused = 0
        self.different: list[str] = []


def verify(
    library: Any, rows: Iterable[tuple[Call, Config]], per_family: int = 20, seed: int = 0
) -> tuple[Verified, ...]:
    """Runs recorded configurations on the library and compares the bits with those of their plans.

    For every family it runs up to ``per_family`` products, small ones first, and alternates the kinds of configurations
    (stage, scheme, option, split or not). Operands are normal numbers, each times its own power of two.

    Args:
        library: ``here()``, or an object with its ``plan`` and ``run``.
        rows: calls with configurations, such as a ``Table``.
        per_family: products of a family.
        seed: of the operands.

    Raises:
        LibraryError: for a count below 1.

    Example:
        >>> lib, call = gs.libraries.cublaslt("h100"), gs.libraries.Call(64, 64, 512, "fp16", "fp16", "fp16", False)
        >>> own = {"plan": lib.plan, "run": lambda a, b, config, **how: lib.matmul(a, b, config=config)}
        >>> gs.libraries.verify(type("Own", (), own), [(call, gs.libraries.Config(66, STAGES_ID=35))])  # its own plans
        (Verified(family='nvjet', equal=1, products=1, outputs_equal=4096, outputs=4096, refused=0, different=()),)
    """
    if type(per_family) is not int or per_family < 1:
        raise library_error(f"per_family={per_family!r}", "an integer of 1 or more", "Leave it out for 20.")
    counts: dict[str, _Count] = {}
    for call, config, plan in _chosen(library, rows, per_family, counts):
        count = counts[plan.family]
        try:
            got, want = _products(library, call, config, plan, seed)
        except LibraryError:
            count.refused += 1
            continue
        different = int((got != want).sum())
        count.products += 1
        count.outputs += got.numel()
        count.outputs_equal += got.numel() - different
        count.equal += not different
        if different:
            count.different.append(f"{call} with {config}: {different} of {got.numel()}")
    return tuple(
        Verified(family, one.equal, one.products, one.outputs_equal, one.outputs, one.refused, tuple(one.different))
        for family, one in sorted(counts.items())
    )


def _chosen(
    library: Any, rows: Iterable[tuple[Call, Config]], per_family: int, counts: dict[str, _Count]
) -> Iterator[tuple[Call, Config, Plan]]:
    """The products to run: of each family the kinds in turn, small ones first. What has no plan is counted."""
    kinds: dict[str, dict[tuple[Any, ...], list[tuple[Call, Config, Plan]]]] = {}
    for call, config in sorted(rows, key=lambda row: row[0].M * row[0].N * row[0].K):
        if call.M * call.K + call.K * call.N + call.M * call.N > _LARGEST:
            continue
        try:
            plan = library.plan(*call[:6], config=config, fast_accumulation=call.fast)
        except UnknownPlan:
            counts.setdefault("no plan", _Count()).refused += 1
            continue
        counts.setdefault(plan.family, _Count())
        kind = (*(config[index] for index in (0, 3, 5, 6)), config.slices > 1, call.a, call.b, call.out, call.fast)
        of_kind = kinds.setdefault(plan.family, {}).setdefault(kind, [])
        if len(of_kind) < per_family:
            of_kind.append((call, config, plan))
    for family in kinds.values():
        in_turn = (one[index] for index in range(per_family) for one in family.values() if index < len(one))
        yield from (row for row, _ in zip(in_turn, range(per_family), strict=False))


def _products(library: Any, call: Call, config: Config, plan: Plan, seed: int) -> tuple[Any, Any]:
    """The bits of a product by the library and by the plan, as integers on the host."""
    import torch

    from ..ops import qmatmul
    from .product import dtype_of

    g = torch.Generator().manual_seed(seed)

    def numbers(rows: int, columns: int, name: str) -> torch.Tensor:
        powers = torch.exp2(torch.randint(-4, 5, (rows, columns), generator=g).float())
        return (torch.randn(rows, columns, generator=g) * powers).to(dtype_of(name))

    a, b = numbers(call.M, call.K, call.a), numbers(call.N, call.K, call.b).t()
    if call.a not in FP8:
        b = b.contiguous()
    device = getattr(library, "device", "cpu")
    out = dtype_of(call.out)
    got = library.run(a.to(device), b.to(device), config, out=out, fast_accumulation=call.fast).cpu()
    want = qmatmul(a.float(), b.float(), plan.spec).to(got.dtype)
    raw = {4: torch.int32, 2: torch.int16, 1: torch.int8}[got.element_size()]
    return got.contiguous().view(raw), want.contiguous().view(raw)
