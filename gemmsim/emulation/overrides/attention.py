"""Overrides of attention: two products with a scale, a mask, a softmax and dropout between them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.dispatch import unobserved

from ..autocast import autocast, is_enabled
from ..rowwise_rules import RowSteps
from . import attention_layers  # noqa: F401  # importing it registers overrides
from .layouts import gradient_laid, like_operand
from .matmul import FLOATS, product
from .rowwise import softmax
from .table import Site, overrides, packets

__all__ = ["attention"]

_F = torch.nn.functional
_KINDS = ("sdpa.qk", "sdpa.pv", "softmax")
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


@overrides(
    _KINDS,
    *(_F.scaled_dot_product_attention, *packets("scaled_dot_product_attention")),
    names=_NAMES,
)
def attention(
    qk: Site, pv: Site, rows: Site, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Attention as PyTorch's kernels compute it: scores in float32 (float64 for float64), scaled after the product."""
    return _attend(qk, pv, rows, query, key, value, attn_mask, dropout_p, is_causal, None, scale, enable_gqa)[0]


@overrides(
    _KINDS,
    getattr(torch, "_scaled_dot_product_attention_math", None),
    *packets("_scaled_dot_product_attention_math"),
    names=(*_NAMES, "dropout_mask"),
)
def _math(
    qk: Site, pv: Site, rows: Site, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, dropout_mask: Tensor | None = None, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """``_scaled_dot_product_attention_math``: the result and the weights."""
    out, weights, _ = _attend(
        qk, pv, rows, query, key, value, attn_mask, dropout_p, is_causal, dropout_mask, scale, enable_gqa
    )
    return out if out is NotImplemented else (out, weights)


@overrides(
    _KINDS,
    getattr(torch, "_scaled_dot_product_flash_attention_for_cpu", None),
    *packets("_scaled_dot_product_flash_attention_for_cpu"),
    names=("query", "key", "value", "dropout_p", "is_causal"),
)
def _flash(
    qk: Site, pv: Site, rows: Site, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0,
    is_causal: bool = False, *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    """The result, and the logarithm of the sum of exponentials of each row of scores."""
    out, _, scores = _attend(qk, pv, rows, query, key, value, attn_mask, dropout_p, is_causal, None, scale, False)
    return out if out is NotImplemented else (out, torch.logsumexp(scores, -1))


def _attend(
    qk: Site, pv: Site, rows: Site, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float,
    causal: bool, kept: Tensor | None, scale: float | None, gqa: bool,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The result, the weights that it multiplies, and the scores after scale and mask.

    All three are NotImplemented where PyTorch has to raise its own error. ``kept``: the elements that dropout keeps,
    instead of random ones.
    """
    if type(mask).__name__ == "CausalBias" and not causal:  # torch.nn.attention.bias: a mask that has not been made yet
        mask = mask._materialize(query.device)  # type: ignore[union-attr]
    query, key, value, mask = autocast(query, key, value, mask)
    if not _fits(query, key, value, mask, dropout, causal, gqa):
        return NotImplemented, NotImplemented, NotImplemented
    device = query.device.type
    if is_enabled(device):  # PyTorch applies no autocast below attention
        with torch.autocast(device, enabled=False):
            return _attend(qk, pv, rows, query, key, value, mask, dropout, causal, kept, scale, gqa)
    if _is_fused(query, key, value, mask, dropout, gqa):
        query, key, value = (gradient_laid(t, _heads_inside) for t in (query, key, value))
    if gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = _scores(qk, query, key, scale)
    if causal:
        hidden = torch.full((query.shape[-2], key.shape[-2]), -math.inf, dtype=scores.dtype, device=query.device)
        mask = hidden.triu(1)
    if mask is not None:
        mask = _added(mask, scores) if mask.dtype is torch.bool else mask
        scores = scores.add_(mask) if _may_overwrite(scores, mask) else scores + mask
    weights = _weights(rows, scores)
    if kept is not None:
        weights, value = weights.masked_fill(~kept, 0.0), value * (1 / (1 - dropout))
    elif dropout > 0:
        weights = torch.dropout(weights, dropout, True)
    weights = weights.to(value.dtype)
    out = product(pv, weights, value)
    if mask is None or not mask.requires_grad:  # no fused kernel takes a mask that requires a gradient
        out = _laid_as_query(out, query, key, value, dropout)
    return out, weights, scores


def _laid_as_query(out: Tensor, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
    """``out`` in the layout of ``query`` if PyTorch would run a fused kernel.

    These kernels give their result that layout, and models take views of it.
    """
    alike = out.dim() == 4 and out.shape == query.shape and all(t.stride(-1) == 1 for t in (query, key, value))
    if not alike or (dropout > 0 and not query.is_cuda):  # fused kernels have no dropout on the CPU
        return out
    found: Tensor = like_operand(out, query)
    return found


def _is_fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, gqa: bool) -> bool:
    """Whether PyTorch's fused kernel runs on a CPU. Its gradients have the heads next to their elements."""
    if dropout > 0 or (mask is not None and mask.requires_grad):
        return False
    if not all(t.dim() == 4 and t.device.type == "cpu" and t.stride(-1) == 1 for t in (query, key, value)):
        return False
    heads = slice(0, 1 if gqa else 2)
    return query.shape[heads] == key.shape[heads] == value.shape[heads] and query.shape[3] == value.shape[3]


def _heads_inside(grad: Tensor) -> Tensor:
    return grad.transpose(1, 2).contiguous().transpose(1, 2)


def _scores(qk: Site, query: Tensor, key: Tensor, scale: float | None) -> Tensor:
    """``query @ key.mT`` times the scale, in float32 or float64, without rounding to a narrow dtype between the two."""
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    if qk.plan is None:
        found = torch.matmul(query.to(wide), key.to(wide).mT)
    else:
        found = product(qk, query, key.mT, dtype=wide)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    return found.mul_(scale) if qk.plan is not None and _may_overwrite(found) else found * scale


def _may_overwrite(scores: Tensor, mask: Tensor | None = None) -> bool:
    """Whether the next step may write its result into ``scores``, because autograd has not saved them.

    ``mask``: the tensor that the next step adds.
    """
    if torch.compiler.is_compiling() or not unobserved(scores, mask):
        return False
    if mask is None:
        return True
    return mask.dtype == scores.dtype and not mask.requires_grad and _expands(mask.shape, scores.shape)


def _added(mask: Tensor, scores: Tensor) -> Tensor:
    """A boolean mask as numbers to add: 0 where it is true, -inf where it is false and hides."""
    return torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, float("-inf"))


def _weights(rows: Site, scores: Tensor) -> Tensor:
    """The softmax of each row; 0 for a row that is hidden entirely."""
    steps: RowSteps | None = rows.plan  # type: ignore[assignment]
    if steps is None:
        # A check of the result costs less than masks of all rows.
        if scores.device.type == "cpu" and unobserved(scores):
            found = torch.softmax(scores, -1)
            if not found[..., :1].isnan().any():
                return found
        result: Tensor = torch.ops.aten._safe_softmax.default(scores, -1)
        return result
    return softmax(rows, scores, -1, hidden=True)


def _fits(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool, gqa: bool) -> bool:
    """Whether PyTorch accepts this call; for others, its own error says what is wrong."""
    if q.is_nested or k.is_nested or v.is_nested or min(q.dim(), k.dim(), v.dim()) < 2:
        return False
    if q.dtype not in FLOATS or q.dtype != k.dtype or q.dtype != v.dtype or q.device != k.device:
        return False
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2] or k.device != v.device or not 0 <= dropout <= 1:
        return False
    if mask is not None and (causal or mask.dtype not in (torch.bool, torch.float32, q.dtype)):
        return False
    heads = q.shape[:-2]
    if gqa:
        if min(q.dim(), k.dim(), v.dim()) < 3 or not k.shape[-3] or not v.shape[-3]:
            return False
        if q.shape[-3] % k.shape[-3] or q.shape[-3] % v.shape[-3]:
            return False
        left, right = (*k.shape[:-3], q.shape[-3]), (*v.shape[:-3], q.shape[-3])
    else:
        left, right = k.shape[:-2], v.shape[:-2]
    if not (_broadcast(heads, left) and _broadcast(heads, right) and _broadcast(left, right)):
        return False
    if mask is None:
        return True
    shape = (*torch.broadcast_shapes(heads, left), q.shape[-2], k.shape[-2])
    return mask.device == q.device and _expands(mask.shape, shape)


def _broadcast(a: Any, b: Any) -> bool:
    """Whether two shapes broadcast."""
    return all(m == n or m == 1 or n == 1 for m, n in zip(reversed(a), reversed(b), strict=False))


def _expands(mask: Any, shape: Any) -> bool:
    """Whether a mask broadcasts to this shape of scores."""
    return len(mask) <= len(shape) and all(m in (1, n) for m, n in zip(reversed(mask), reversed(shape), strict=False))
