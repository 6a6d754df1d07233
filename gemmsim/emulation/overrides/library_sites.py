"""Call sites whose arithmetic a library chooses: the plan is made when shapes and dtypes of a product are known."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.lazy_dynamo import assume_constant_result

from ..dynamo_support import errors_as_they_are
from ..library_plans import SEPARATOR, LibraryFormats, ProductCall, of_number, planned, unplanned
from ..module_paths import path_running
from .table import Site

__all__ = ["by_library", "check_may_be_unknown", "folded", "settled", "settled_as_chain"]


def by_library(at: Site) -> bool:
    """Whether a library chooses the arithmetic of this call site, product by product."""
    return isinstance(at.plan, LibraryFormats)


def settled(
    at: Site,
    a: Tensor,
    b: Tensor,
    out: torch.dtype,
    *,
    linear: bool = False,
    register: bool = False,
    fast: bool = False,
) -> Site:
    """``at`` with the plan of the product ``a @ b`` (with ``linear`` of ``a @ b.mT``); itself where no library chooses.

    ``register``, ``fast``: as in ``ProductCall``.

    Raises:
        UnknownPlan, LibraryError: as ``planned``.
    """
    plan: Any = at.plan
    if not isinstance(plan, LibraryFormats):
        return at
    m, k = (1 if a.dim() == 1 else a.shape[-2]), a.shape[-1]
    n = b.shape[-2] if linear else 1 if b.dim() == 1 else b.shape[-1]
    outer = a.shape[:-2].numel() if linear else torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]).numel()
    batch, m = (1, m * outer) if linear else (outer, m)
    # A plan is of one shape: a range makes constants of the sizes that compiled code has as symbols.
    sizes = (range(batch).stop, range(m).stop, range(n).stop, range(k).stop)
    how = (plan.number, *sizes, a.dtype, b.dtype, out, linear, register, fast)
    name = f"|{at.kind}" if at.name is None else at.name
    return at._replace(plan=_plan(name, *how), name=_name(name, *how))


@assume_constant_result
def _plan(name: str, number: int, *call: Any) -> Any:
    with errors_as_they_are():
        found = planned(number, ProductCall(*call))
    if found.unknown == (None, None, None):
        return found.plan
    path, _, kind = name.rpartition("|")
    path = path or path_running()
    return found.refusing(kind + (f" of module {path!r}" if path else ""))


@assume_constant_result
def _name(name: str, number: int, *call: Any) -> str:
    return SEPARATOR.join((name, *planned(number, ProductCall(*call)).words))


def settled_as_chain(at: Site, dtype: torch.dtype) -> Site:
    """``at`` with the plan of a call that is no single product to a library; itself where no library chooses.

    Raises:
        UnknownPlan: unless the rule goes on with one chain.
    """
    plan: Any = at.plan
    if not isinstance(plan, LibraryFormats):
        return at
    name = f"|{at.kind}" if at.name is None else at.name
    words = SEPARATOR + SEPARATOR.join(["chain, unverified, assumed"] * 3)
    return at._replace(plan=_chain_plan(plan.number, at.kind, dtype), name=name + words)


@assume_constant_result
def _chain_plan(number: int, kind: str, dtype: torch.dtype) -> Any:
    with errors_as_they_are():
        return unplanned(of_number(number), kind, dtype)


def check_may_be_unknown(at: Site, what: str) -> None:
    """Refuses a call with ``what``, which nobody has compared with a GPU, unless the rule goes on where that is so.

    Raises:
        UnknownPlan: unless the rule goes on.
    """
    settled_as_chain(at._replace(kind=f"{at.kind} with {what}"), torch.float32)


def folded(a: Tensor, b: Tensor) -> bool:
    """Whether PyTorch multiplies a batch ``a`` by a matrix or vector ``b`` as one matrix of all rows."""
    if a.dim() < 3 or b.dim() > 2:
        return False
    if b.requires_grad or a.numel() == 0:
        return True
    pairs = zip(a.shape[1:-1], a.stride()[:-2], a.stride()[1:-1], strict=True)
    return all(outer == size * inner for size, outer, inner in pairs)
