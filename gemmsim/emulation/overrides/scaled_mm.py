"""Overrides of products of scaled float8 operands, and of grouped products."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gemmsim.arithmetic import UnsupportedSpec
from gemmsim.formats import parse_cast
from gemmsim.ops.errors import message
from gemmsim.ops.lazy_dynamo import assume_constant_result
from gemmsim.ops.product.affine_plan import AffinePlan, Product
from gemmsim.ops.product.eager import spec_of
from gemmsim.ops.product.scaled_epilogue import finished, with_library_nans

from ..dynamo_support import is_recorded
from ..fake_tensor_assumptions import assume
from .library_sites import by_library, check_may_be_unknown, settled, settled_as_chain
from .matmul import FLOATS, nth, product
from .table import Site, overrides, packets

__all__: list[str] = []

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
#: PyTorch's numbers for scalings by factors of rows and columns: one factor for all, one for each row.
_WHOLE, _ROWS = 0, 1


@overrides(
    "scaled_mm",
    *(torch._scaled_mm, *packets("_scaled_mm", "default")),
    names=("input|self", "mat2", "scale_a", "scale_b", "bias", "scale_result", "out_dtype", "use_fast_accum"),
)
def _scaled_mm(
    at: Site, a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    """The sums as the spec's accumulator makes them, then cuBLASLt's epilogue (``scaled_epilogue.finished``).

    ``use_fast_accum`` has no effect on a spec, which says how sums are made. A library is asked with it.
    """
    if not all(t.dim() == 2 and t.dtype in _FLOAT8 for t in (a, b)) or a.shape[1] != b.shape[0]:
        return NotImplemented
    if not _factors(scale_a, a.shape[0], 0) or not _factors(scale_b, b.shape[1], 1):
        _refuse_blocks(scale_a, scale_b)
        return NotImplemented
    if (scale_a.numel() == 1) != (scale_b.numel() == 1) and min(a.shape[0], b.shape[1]) > 1:
        return NotImplemented
    dtype = a.dtype if out_dtype is None else out_dtype
    return _finished(at, a, b, _Ends(scale_a, scale_b, bias, scale_result, dtype), use_fast_accum)


class _Ends(NamedTuple):
    """What follows the sums: the arguments of ``finished`` after them."""

    scale_a: Tensor
    scale_b: Tensor
    bias: Tensor | None
    last: Tensor | None
    dtype: torch.dtype


def _finished(at: Site, a: Tensor, b: Tensor, ends: _Ends, fast: bool) -> Tensor:
    """The scaled product. The spec's own output cast rounds the scaled sums, not the sums."""
    if by_library(at):
        return _finished_by_library(at, a, b, ends, fast)
    plan, out = at.plan, "fp32"
    if plan is not None and plan.is_plain and plan.fprop.spec is not None:
        specs = (plan.fprop.spec, plan.dgrad.spec, plan.wgrad.spec)
        out = _last_cast(plan.fprop.spec)
        plan = plan if out == "fp32" else _registers(*specs)
    acc = product(at._replace(plan=plan), a.float(), b.float())
    return finished(acc, *ends, out)


def _finished_by_library(at: Site, a: Tensor, b: Tensor, ends: _Ends, fast: bool) -> Tensor:
    """The scaled product as ``gemmsim.scaled_mm`` gives it.

    A bias and factors of rows, which were not compared with a GPU, are unknown.
    """
    if ends.bias is not None or max(ends.scale_a.numel(), ends.scale_b.numel()) > 1:
        check_may_be_unknown(at, "a bias" if ends.bias is not None else "a factor for each row and column")
    if 0 in (*a.shape, b.shape[1]):
        return a.new_zeros(a.shape[0], b.shape[1], dtype=ends.dtype)
    at = settled(at, a, b, ends.dtype, register=True, fast=fast)
    acc = product(at, a.float(), b.float())
    return with_library_nans(finished(acc, *ends))


@assume_constant_result
def _last_cast(spec: str) -> str:
    """The cast that a spec ends with; "fp32", in which the sums are, where it has none or one that draws bits."""
    last = spec_of(spec).out
    return "fp32" if last is None or last.is_stochastic or last == parse_cast("fp32") else str(last)


@assume_constant_result
def _registers(fprop: str, dgrad: str | None, wgrad: str | None) -> AffinePlan:
    """The plan of these specs whose forward product ends with the register; a constant of compiled code."""
    return _cached_registers(fprop, dgrad, wgrad)


@lru_cache(maxsize=1024)
def _cached_registers(fprop: str, dgrad: str | None, wgrad: str | None) -> AffinePlan:
    backward = [None if text is None else spec_of(text) for text in (dgrad, wgrad)]
    first = Product.of(replace(spec_of(fprop), out=None))
    return AffinePlan(first, Product.of(backward[0]), Product.of(backward[1]))


def _factors(scale: Tensor, count: int, dim: int) -> bool:
    """Whether ``scale`` is one factor, or one for each row or column."""
    if scale.dtype != torch.float32:
        return False
    shape = (1, count) if dim else (count, 1)
    return scale.numel() == 1 or tuple(scale.shape) == shape


def _refuse_blocks(*scales: Any) -> None:
    """Raises ``UnsupportedSpec`` for scales of blocks along K, which PyTorch's CPU code does not support either."""
    if any(t.dim() == 2 and min(t.shape) > 1 or t.dtype == torch.float8_e8m0fnu for t in scales):
        asked = "scaled_mm with scales of blocks"
        do = "Use gemmsim.mx for blocks of operands, or a rule None for the kind scaled_mm."
        raise UnsupportedSpec(message(asked, "one scale for an operand, or one for each row and column", do))


@overrides(
    "scaled_mm",
    *(getattr(torch, "_scaled_mm_v2", None), *packets("_scaled_mm_v2", "default")),
    names=("input|self", "mat2", "scale_a", "recipe_a", "swizzle_a", "scale_b", "recipe_b", "swizzle_b", "bias",
           "out_dtype", "contraction_dim", "use_fast_accum"),
)  # fmt: skip
def _scaled_mm_v2(
    at: Site, a: Tensor, b: Tensor, scale_a: Any, recipe_a: Any, swizzle_a: Any, scale_b: Any, recipe_b: Any,
    swizzle_b: Any, bias: Tensor | None, out_dtype: torch.dtype | None, contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    """``_scaled_mm`` with the scaling of each operand named by a number."""
    recipes = {*recipe_a, *recipe_b}
    if not recipes <= {_WHOLE, _ROWS} or len(scale_a) != 1 or len(scale_b) != 1:
        asked = f"scaled_mm with scalings {sorted(recipes)}"
        do = "Use gemmsim.mx for blocks of operands, or a rule None for the kind scaled_mm."
        raise UnsupportedSpec(message(asked, "scaling of whole operands (0) or of rows (1)", do))
    if len(contraction_dim) or list(recipe_a) != list(recipe_b):
        return NotImplemented
    dtype = torch.bfloat16 if out_dtype is None else out_dtype
    return _scaled_mm(at, a, b, scale_a[0], scale_b[0], bias, None, dtype, use_fast_accum)


@overrides(
    "grouped_mm",
    *(getattr(torch, "_scaled_grouped_mm", None), *packets("_scaled_grouped_mm", "default")),
    *(getattr(torch, "_scaled_grouped_mm_v2", None), *packets("_scaled_grouped_mm_v2", "default")),
)
def _scaled_grouped_mm(at: Site, *given: Any, **more: Any) -> Any:
    asked = "grouped products with scales"
    do = "Use a rule None for the kind grouped_mm, or a model that scales each group's operands itself."
    raise UnsupportedSpec(message(asked, "grouped products without scales", do))


@overrides(
    "grouped_mm",
    *(getattr(torch, "_grouped_mm", None), *packets("_grouped_mm", "default")),
    names=("input|self", "mat2", "offs", "bias", "out_dtype"),
)
def _grouped_mm(
    at: Site, a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Any:
    """One product per group: offs[g] is where the rows (columns, terms) of group g end in a two-dimensional operand."""
    at = settled_as_chain(at, a.dtype)
    dims = (a.dim(), b.dim())
    if bias is not None or a.dtype not in FLOATS or a.dtype != b.dtype or out_dtype not in (None, a.dtype):
        return NotImplemented
    if dims == (3, 3):
        fit = offs is None and a.shape[0] == b.shape[0] and a.shape[2] == b.shape[1]
        return product(at, a, b) if fit else NotImplemented
    if offs is None or dims not in ((2, 3), (3, 2), (2, 2)) or a.shape[-1] != b.shape[-2]:
        return NotImplemented
    groups = offs.shape[0]
    if (dims == (2, 3) and b.shape[0] != groups) or (dims == (3, 2) and a.shape[0] != groups):
        return NotImplemented
    jagged = {(2, 3): a.shape[0], (3, 2): b.shape[-1], (2, 2): a.shape[1]}[dims]
    sizes = _group_sizes(offs, jagged)
    if dims == (2, 3):
        parts = list(a.split(sizes))
        outs = [product(nth(at, g), parts[g], b[g]) for g in range(groups)]
        return torch.cat([*outs, a.new_zeros(sizes[-1], b.shape[-1])])
    if dims == (3, 2):
        parts = list(b.split(sizes, 1))
        outs = [product(nth(at, g), a[g], parts[g]) for g in range(groups)]
        return torch.cat([*outs, a.new_zeros(a.shape[1], sizes[-1])], 1)
    left, right = a.split(sizes, 1), b.split(sizes)
    return torch.stack([product(nth(at, g), left[g], right[g]) for g in range(groups)])


def _group_sizes(offs: Tensor, total: int) -> list[int]:
    """Sizes of all groups, and of the rest after the last group, which belongs to no group.

    Fake offsets give equal sizes if the run follows only shapes. A recorded program reads the sizes from its data when
    it runs.
    """
    if type(offs).__name__ == "FakeTensor" and not is_recorded():
        assume("grouped_mm: groups of equal sizes")
        count = offs.shape[0]
        return [total // count] * (count - 1) + [total - total // count * (count - 1), 0]
    ends = [0, *offs.tolist(), total]
    return [end - start for start, end in zip(ends, ends[1:], strict=False)]
