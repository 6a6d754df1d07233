"""Products of tensors of any rank, or of codes for them, and their results: what operators do around a route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import route
from gemmsim.backends.convert import cast_into
from gemmsim.backends.epilogue import Finish
from gemmsim.backends.epilogue_passes import followed
from gemmsim.backends.product import Product, Ran
from gemmsim.formats import Cast

from ..checks import check_float, check_integers
from ..errors import ShapeError, message
from ..seeds import Site
from .shapes import matmul_shape

__all__ = ["NOTHING", "expanded", "general_matmul", "multiplied"]

NOTHING = "nothing to compute: the result has no elements"


def general_matmul(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    seed: int,
    dtype: torch.dtype,
    c: Tensor | None,
    select: Tensor | None,
    named: GemmSpec | None = None,
    finish: Finish | None = None,
    row: int = 0,
) -> tuple[Tensor, object]:
    """``matmul`` of operands of any rank from two, and what ran; ``named``: the spec of casts made already.

    Raises:
        DTypeError: for ``select`` that does not hold integers; errors of ``matmul``.
    """
    out = torch.empty(matmul_shape("qmatmul", a, b), dtype=dtype, device=a.device)
    return out, multiplied(Product(a, b, spec, out, seed, c, select, finish, named, row=row))


def multiplied(product: Product) -> object:
    """What ran to compute ``product``, whose ``c`` and ``select`` broadcast to its result.

    Raises:
        DTypeError: for ``select`` that does not hold integers; ShapeError: for what does not broadcast.
    """
    out = product.out
    if product.c is not None:
        product.c = _expand("c", product.c, out.shape)
    if product.select is not None:
        check_integers("qmatmul", "select", product.select)
        product.select = _expand("select", product.select, out.shape)
    if not out.numel():
        return NOTHING
    last = product.spec.out
    return _among_rows(product, last) if product.row and last is not None and last.is_stochastic else route.run(product)


def _among_rows(product: Product, last: Cast) -> Ran:
    """What ran; the elements of the result are those from ``product.row`` on for the random bits of its last cast."""
    out, spec = product.out, replace(product.spec, out=None)

    def write(result: Tensor) -> Ran:
        raw = torch.empty(out.shape, dtype=torch.float64, device=out.device)
        ran = route.run(product.changed(spec=spec, out=raw, finish=None))
        cast_into(raw, last, result, product.seed, Site.OUTPUT, product.row * out.shape[-1])
        return ran

    return followed(write, product.finish, out, cast_into)


def expanded(owner: str, c: Tensor, shape: Sequence[int]) -> Tensor:
    """The addend ``c`` in the shape of the product.

    Raises:
        DTypeError: for ``c`` that is no float tensor; ShapeError: for one that does not broadcast.
    """
    check_float(owner, "c", c)
    return _expand("c", c, shape, owner)


def _expand(name: str, t: Tensor, shape: Sequence[int], owner: str = "qmatmul") -> Tensor:
    try:
        return t.expand(tuple(shape))
    except RuntimeError:
        asked = f"{owner}: {name} has shape {tuple(t.shape)}, the product {tuple(shape)}"
        raise ShapeError(message(asked, f"a {name} that broadcasts to the product", f"Reshape {name}.")) from None
