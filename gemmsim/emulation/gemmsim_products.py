"""Reads the shapes and specs of this package's own products from the arguments of their operators."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any

from gemmsim.mx import matmul_operator  # noqa: F401  # registers the operator
from gemmsim.ops.conv import operators as conv_operators  # noqa: F401
from gemmsim.ops.conv.arguments import Geometry
from gemmsim.ops.conv.overlap import contributing
from gemmsim.ops.product import operators  # noqa: F401
from gemmsim.ops.seeds import Stream

from .aten_products import Leaf, Shape, Windows, batch_of, reads
from .library_plans import SEPARATOR

__all__ = ["ROLES"]

#: Random stream -> role of its product. Products of other streams name no role.
ROLES = {int(Stream.DGRAD): "dgrad", int(Stream.WGRAD): "wgrad"}
#: Arguments of a convolution that say where its windows lie.
_WINDOWS = ("output_size", "stride", "padding", "dilation")


@reads("matmul", "matmul_with_operands", namespace="gemmsim")
def _matmul(at: Mapping[str, Any]) -> list[Leaf]:
    if at["stream"] == int(Stream.ADDEND_GRAD):  # a sum of rows, written as a product by ones
        return []
    a, b = at["a"], at["b"]
    shape = (batch_of(a, b), int(a.shape[-2]), int(a.shape[-1]), int(b.shape[-1]))
    return [_leaf(at, shape, a, b)]


def _leaf(at: Mapping[str, Any], shape: Any, a: Any, b: Any) -> Leaf:
    """A product whose operator has a stream, a spec and a call site, after whose name a library's plans may stand."""
    role, site = ROLES.get(at["stream"]), at["site"]
    if site is None or SEPARATOR not in site:
        return Leaf(shape, a, b, role, at["spec"], site)
    name, *plans = site.split(SEPARATOR)
    plan = dict(zip(("fprop", "dgrad", "wgrad"), plans, strict=True))[role or "fprop"]
    return Leaf(shape, a, b, role, at["spec"], name, plan=plan)


@reads("mx_mm", namespace="gemmsim")
def _mx(at: Mapping[str, Any]) -> list[Leaf]:
    a, b = at["a"], at["b"]
    shape = (batch_of(a, b), int(a.shape[-2]), int(at["k"]), int(b.shape[-1]))
    return [Leaf(shape, spec=at["spec"])]


@reads("conv", "conv_with_operands", namespace="gemmsim")
def _conv(at: Mapping[str, Any]) -> list[Leaf]:
    x, weight, groups = at["x"], at["weight"], at["groups"]
    taps = prod(weight.shape[2:])
    if at["transposed"] and at["order"] == "zeros":
        places = prod(at["output_size"])
        shape = (groups, x.shape[0] * places, weight.shape[0] // groups * taps, weight.shape[1])
    elif at["transposed"] and at["order"] == "taps":
        channels, filters = weight.shape[0] // groups, weight.shape[1]
        shapes = [(groups, x.shape[0] * n, channels * k, filters) for n, k in _contributing(at)]
        return [_leaf(at, _plain(shape), x, weight) for shape in shapes]
    elif at["transposed"]:
        places = prod(x.shape[2:])
        shape = (groups, x.shape[0] * places, weight.shape[0] // groups, weight.shape[1] * taps)
    else:
        places = prod(at["output_size"])
        shape = (groups, x.shape[0] * places, weight.shape[1] * taps, weight.shape[0] // groups)
        sizes, stride, padding, dilation = (tuple(map(int, at[name])) for name in _WINDOWS)
        windows = Windows(sizes, stride, padding, dilation, int(groups))
        return [_leaf(at, _plain(shape), x, weight)._replace(windows=windows)]
    return [_leaf(at, _plain(shape), x, weight)]


def _contributing(at: Mapping[str, Any]) -> list[tuple[int, int]]:
    """(number of output positions, number of contributing kernel positions) of a transposed convolution.

    There is one pair for each number of contributing kernel positions, the largest first.
    """
    sizes, stride, padding, dilation = (tuple(at[key]) for key in ("output_size", "stride", "padding", "dilation"))
    where = Geometry(sizes, stride, padding, dilation, at["groups"], True)
    counts: dict[int, int] = {}
    for remainders in product(*map(range, where.stride)):
        taps = [contributing(where, axis, r, at["weight"].shape[axis + 2]) for axis, r in enumerate(remainders)]
        places = prod(len(range(r, n, s)) for r, n, s in zip(remainders, where.output_size, where.stride, strict=True))
        terms = prod(one.number for one in taps)
        counts[terms] = counts.get(terms, 0) + places
    return [(counts[terms], terms) for terms in sorted(counts, reverse=True) if counts[terms] and terms]


@reads("conv_weight", namespace="gemmsim")
def _conv_weight(at: Mapping[str, Any]) -> list[Leaf]:
    """The gradient of a convolution weight. ``small`` has one element for each window of ``large``."""
    large, small, groups = at["large"], at["small"], at["groups"]
    places = small.shape[0] * prod(small.shape[2:])
    shape = (groups, large.shape[1] // groups * prod(at["kernel"]), places, small.shape[1] // groups)
    return [_leaf(at, _plain(shape), large, small)]


def _plain(shape: tuple[Any, ...]) -> Shape:
    g, m, k, n = (int(size) for size in shape)
    return g, m, k, n
