"""Call sites whose arithmetic a library chooses: the plan is made when shapes and dtypes of a product are known."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.lazy_dynamo import assume_constant_result
from gemmsim.ops.product.affine_plan import AffinePlan

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
    batch = 1
    if linear:
        m = a.shape[:-1].numel()
    elif a.dim() > 2 or b.dim() > 2:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]).numel()
    how = (a.dtype, b.dtype, out, linear, register, fast)
    name = f"|{at.kind}" if at.name is None else at.name
    if torch.compiler.is_compiling():
        # A plan is of one shape: a range makes constants of the sizes that compiled code has as symbols.
        sizes = (range(batch).stop, range(m).stop, range(n).stop, range(k).stop)
        return at._replace(plan=_plan(name, plan.number, *sizes, *how), name=_name(name, plan.number, *sizes, *how))
    if torch._C._functorch.peek_interpreter_stack() is not None:
        batch *= max(_examples(a), _examples(b))
    found = _found(name, plan.number, int(batch), int(m), int(n), int(k), *how)
    return at._replace(plan=found[0], name=found[1])


def _examples(t: Tensor) -> int:
    """How many examples ``torch.vmap`` has in a tensor."""
    count, functorch = 1, torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(t):
        inner = functorch.get_unwrapped(t)
        if functorch.is_batchedtensor(t):
            count *= inner.shape[functorch.maybe_get_bdim(t)]
        t = inner
    return count


@assume_constant_result
def _plan(*given: Any) -> Any:
    with errors_as_they_are():
        return _found(*given)[0]


@assume_constant_result
def _name(*given: Any) -> str:
    return _found(*given)[1]


#: Arguments of ``_found`` -> its result, of products all of whose gradients are known.
_KNOWN: dict[Any, tuple[AffinePlan, str]] = {}
_MOST_KNOWN = 65536


def _found(*given: Any) -> tuple[AffinePlan, str]:
    """The plan, and the name of the call site with what observers say: of a name, a number and a ``ProductCall``."""
    known = _KNOWN.get(given)
    if known is not None:
        return known
    name, number, *call = given
    made = planned(number, ProductCall(*call))
    text = SEPARATOR.join((name, *made.words))
    if made.unknown == (None, None, None):
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[given] = made.plan, text
        return made.plan, text
    path, _, kind = name.rpartition("|")
    path = path or path_running()
    return made.refusing(kind + (f" of module {path!r}" if path else "")), text


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
    """Refuses a call with ``what``, which was not compared with a GPU, unless the rule goes on with what is unknown.

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
