"""Look-up of rows whose gradient is summed in a stated format."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from gemmsim.arithmetic import UnsupportedSpec

from ..checks import check_device, check_flags, check_float, check_integers, check_ints, check_numbers
from ..dispatch import transforms_active
from ..errors import DTypeError, ShapeError, message
from ..fx import traceable
from ..product.affine_formats import QuantLike
from ..product.affine_plan import Step
from ..registration import define
from ..seeds import Bits, check_seed, derive_seed
from ..single_differentiation import differentiable_once
from .formats import quant_step
from .steps import applied, map_step, quantized

__all__ = ["qembedding"]


def _sum_occurrences(
    g: Tensor, index: Tensor, rows: int, step: Step, by_count: bool, seed: int | None = None
) -> Tensor:
    """Row i: the rows of ``g`` whose index is i, added in order from +0; over their number with ``by_count``."""
    index = index.long()
    total = g.new_zeros(rows, g.shape[-1])
    order = torch.sort(index, stable=True)[1]
    counts = torch.bincount(index, minlength=rows)
    start = counts.cumsum(0) - counts
    for k in range(int(counts.max()) if index.numel() else 0):  # the k-th occurrence of every row at once
        chosen = (counts > k).nonzero().reshape(-1)
        total[chosen] = map_step("add", total[chosen], g[order[start[chosen] + k]], step, Bits(seed), 3 + k)
    if by_count:
        total = map_step("div", total, counts.clamp(min=1).to(total.dtype)[:, None], step, Bits(seed), 2)
    return total


def _sum_occurrences_fake(g: Tensor, index: Tensor, rows: int, cast: str, by_count: bool, seed: Any = None) -> Tensor:
    return g.new_empty(rows, g.shape[-1])


def _sum_occurrences_batched(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
    """One member after the other, each with random bits of its own."""
    g, index = (
        a.expand(info.batch_size, *a.shape) if d is None else a.movedim(d, 0)
        for a, d in zip(args, in_dims[:2], strict=False)
    )
    rows, cast, by_count, seed = (*args[2:], None)[:4]
    seeds = [None if seed is None else derive_seed(seed, b << 16) for b in range(info.batch_size)]
    sums = [op(g[b], index[b], rows, cast, by_count, seeds[b]) for b in range(info.batch_size)]
    return torch.stack(sums), 0


_row_gather_sum_op = define(
    "row_gather_sum(Tensor g, Tensor index, int rows, str cast, bool by_count, SymInt? seed=None) -> Tensor",
    _sum_occurrences,
    _sum_occurrences_fake,
    vmap=_sum_occurrences_batched,
    tags=(torch.Tag.nondeterministic_seeded,),
)


class _Embedding(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        weight: Tensor, index: Tensor, padding: int, by_count: bool, fwd: Step, bwd: Step, seed: int | None
    ) -> Tensor:
        return quantized(weight, fwd, Bits(seed), 0)[index]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        weight, index, ctx.padding, ctx.by_count, _, ctx.bwd, ctx.seed = inputs
        ctx.rows = weight.shape[0]
        ctx.save_for_backward(index)

    @staticmethod
    @differentiable_once("qembedding")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor) -> Any:
        index = saved[0].reshape(-1)
        g = quantized(g, ctx.bwd, Bits(ctx.seed), 1).reshape(index.numel(), g.shape[-1])
        if isinstance(ctx.bwd, str):
            total = _row_gather_sum_op(g, index, ctx.rows, ctx.bwd, ctx.by_count, ctx.seed)
        else:
            total = _sum_occurrences(g, index, ctx.rows, ctx.bwd, ctx.by_count, ctx.seed)
        if ctx.padding >= 0:
            total[ctx.padding] = 0
        return total, None, None, None, None, None, None


@traceable
def qembedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
    fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, *, seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``torch.nn.functional.embedding``: rows of ``fwd_quant(weight)``; the gradient is summed in ``bwd_quant``.

    The gradient of a row starts at +0 and adds ``bwd_quant(g)`` of its occurrences in ``input``'s row-major order, with
    ``bwd_quant`` after every addition; with ``scale_grad_by_freq`` it is then divided by their number and rounded.
    ``max_norm`` renormalises the looked-up rows of ``weight`` in place, as PyTorch. No quantiser: PyTorch's own.

    Raises:
        DTypeError, DeviceError, ShapeError: for tensors, padding_idx or indices that do not fit, and indices other than
            int32 and int64.
        UnsupportedSpec: for ``sparse`` with a quantiser: a sparse gradient adds nothing.

    Example:
        >>> gs.qembedding(torch.tensor([1]), torch.tensor([[0.1, 0.2], [0.3, 0.4]]), fwd_quant="e4m3")
        tensor([[0.3125, 0.4062]])
    """
    check_float("qembedding", "weight", weight)
    check_integers("qembedding", "input", input)
    if input.dtype not in (torch.int32, torch.int64):
        asked = f"qembedding: input of {input.dtype}"
        raise DTypeError(message(asked, "torch.int64 or torch.int32", "Convert it: input.long()."))
    check_device("qembedding", weight, input, names="weight input")
    check_flags("qembedding", scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)
    check_ints("qembedding", padding_idx=0 if padding_idx is None else padding_idx)
    check_numbers("qembedding", max_norm=0 if max_norm is None else max_norm, norm_type=norm_type)
    if weight.dim() != 2:
        asked = f"qembedding: weight of shape {tuple(weight.shape)}"
        raise ShapeError(message(asked, "(number of rows, their length)", "Reshape weight."))
    rows = weight.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        asked = f"qembedding: padding_idx={padding_idx} of {rows} rows"
        raise ShapeError(message(asked, f"from {-rows} to {rows - 1}", "Correct padding_idx."))
    # where numbers can be read
    looked = not (torch.compiler.is_compiling() or transforms_active() or input.is_meta or is_fake(input))
    if looked and input.numel() and not 0 <= int(input.min()) <= int(input.max()) < rows:
        asked = f"qembedding: indices from {int(input.min())} to {int(input.max())} of {rows} rows"
        raise ShapeError(message(asked, f"from 0 to {rows - 1}", "Correct input."))
    if fwd_quant is None and bwd_quant is None:
        return torch.nn.functional.embedding(
            input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
        )
    if sparse:
        raise UnsupportedSpec(message("qembedding: sparse=True", "dense gradients", "Leave sparse out."))
    if max_norm is not None:
        with torch.no_grad():
            torch.embedding_renorm_(weight.detach(), input.contiguous(), max_norm, norm_type)
    fwd, bwd = (quant_step("qembedding", q) for q in (fwd_quant, bwd_quant))
    padding = -1 if padding_idx is None else padding_idx % rows
    seed = check_seed("qembedding", seed)
    result: Tensor = applied(_Embedding, weight, input, padding, scale_grad_by_freq, fwd, bwd, seed)
    return result
