"""Attention whose two products have operands in block formats."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gemmsim.ops.checks import check_float
from gemmsim.ops.errors import ShapeError, message
from gemmsim.ops.fx import traceable

from .configs import MXAttentionConfig, attention_constants
from .training import differentiable_product

__all__ = ["mx_attention"]


@traceable
def mx_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    config: MXAttentionConfig | str | None = None,
    *,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``softmax(query @ key.mT * scale + mask) @ value`` with block-format operands, in query's dtype, with
    gradients.

    Query and key are encoded along the head dimension, probabilities along the keys, and value along the sequence.
    The products of the backward pass encode every operand anew along their own reduction dimension
    (``trained_matmul``). Scores, mask and softmax are in float32; probabilities are rounded to query's dtype before
    they are encoded.

    Args:
        query, key, value: (..., L, D), (..., S, D) and (..., S, E); batch dimensions broadcast.
        config: an ``MXAttentionConfig``, or one block format for all operands.
        attn_mask: boolean, True where a key takes part, or numbers that are added to the scores; broadcasts to (...,
            L, S).
        dropout_p: probability with which a softmax result becomes 0; the others are divided by 1 - dropout_p. Dropout
            is always applied.
        is_causal: if true, query i attends only to keys up to i; ``attn_mask`` must then be None.
        scale: 1/sqrt(D) by default.

    A row without any visible key gives NaN, and so do NaN blocks.
    Source: the attention layers of torchmx 0.1.0, for the dimensions along which blocks lie.

    Raises:
        DTypeError, ShapeError: for tensors that do not fit, and for a mask together with ``is_causal``.

    Example:
        >>> q, k, v = torch.ones(4, 64), torch.ones(8, 64), torch.eye(8, 64)
        >>> gs.mx.mx_attention(q, k, v, "mxfp8_e4m3", is_causal=True)[:, :5]
        tensor([[1.0000, 0.0000, 0.0000, 0.0000, 0.0000],
                [0.5000, 0.5000, 0.0000, 0.0000, 0.0000],
                [0.3438, 0.3438, 0.3438, 0.0000, 0.0000],
                [0.2500, 0.2500, 0.2500, 0.2500, 0.0000]])
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_float("mx.mx_attention", name, tensor)
    if is_causal and attn_mask is not None:
        asked = "mx.mx_attention: attn_mask with is_causal=True"
        raise ShapeError(message(asked, "one of the two", "Put the causal part into the mask."))
    if isinstance(config, MXAttentionConfig):
        q, k, v, p = config.query, config.key, config.value, config.probabilities
        g, accumulator = config.grad, config.accumulator
    else:
        q, k, v, p, g, accumulator = attention_constants(config or "mxfp8_e4m3")
    sums = (accumulator, accumulator, accumulator)
    scores = differentiable_product(query, key.mT, (q, k, g), sums, False, torch.float32)
    scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        boolean = attn_mask.dtype is torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if boolean else scores + attn_mask
    probabilities = torch.softmax(scores, -1).to(query.dtype)
    probabilities = torch.dropout(probabilities, dropout_p, dropout_p > 0)
    return differentiable_product(probabilities, value, (p, v, g), sums, False, query.dtype)
