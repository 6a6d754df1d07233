"""Multi-head attention in any arithmetic."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from gemmsim._keywords import takes_spec
from gemmsim.functional import qmul, qsoftmax
from gemmsim.ops import QAffineFormats, ShapeError, qlinear, qmatmul
from gemmsim.ops.attention import QAttentionFormats
from gemmsim.ops.errors import message
from gemmsim.ops.product.format_warnings import warn_of_format_alone
from gemmsim.ops.product.matmul import FormatsLike
from gemmsim.ops.product.short_text import short_formats

from .emulated_marker import Emulated, holds_emulated
from .layer_base import HasSpec, adopt

__all__ = ["QMultiheadAttention"]


class QMultiheadAttention(HasSpec, Emulated, nn.MultiheadAttention):
    """``torch.nn.MultiheadAttention`` whose projections and attention are computed in the given formats.

    ``spec`` is a ``QAttentionFormats``: formats of the two products and of the softmax between them. ``projection``
    gives the formats of the four projections, as ``gemmsim.qlinear`` takes them. An ``out_proj`` that is a layer of
    gemmsim keeps its own formats. Forward arguments and results are those of PyTorch, including masks, averaged
    weights, ``kdim``, ``vdim``, ``bias_k`` and ``add_zero_attn``. A row that a mask hides entirely is NaN, or 0 with
    ``need_weights=False``, as in PyTorch; the softmax option ``masked_rows`` changes this.

    Example:
        >>> attention = gs.QAttentionFormats("bf16 : fp32", "bf16", "bf16 : fp32")
        >>> layer = gs.nn.QMultiheadAttention(16, 4, batch_first=True, spec=attention, projection="e4m3 : fp32")
        >>> [tuple(t.shape) for t in layer(*[torch.ones(2, 5, 16)] * 3)]
        [(2, 5, 16), (2, 5, 5)]
    """

    formats: QAttentionFormats
    projection: QAffineFormats

    @takes_spec("formats")
    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Any = None, dtype: Any = None, *, spec: QAttentionFormats | None = None,
        projection: FormatsLike | None = None,
    ) -> None:  # fmt: skip
        more = (dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype)
        super().__init__(embed_dim, num_heads, *more)
        self._put(spec, projection)

    @classmethod
    def _read(cls, spec: QAttentionFormats | None) -> QAttentionFormats:
        return QAttentionFormats.of(spec)

    def _put(self, spec: QAttentionFormats | None, projection: FormatsLike | None) -> None:
        self.formats = self._read(spec)
        warn_of_format_alone(type(self).__name__, "projection", projection)
        self.projection = QAffineFormats.of(projection)

    @classmethod
    @takes_spec("formats")
    def from_float(
        cls, module: nn.Module, spec: QAttentionFormats | None = None, projection: FormatsLike | None = None
    ) -> QMultiheadAttention:
        """Return a ``QMultiheadAttention`` with these formats that shares the parameters and settings of ``module``.

        ``formats``, the former keyword for ``spec``, is deprecated.

        Example:
            >>> plain = torch.nn.MultiheadAttention(16, 4)
            >>> layer = gs.nn.QMultiheadAttention.from_float(plain, projection="e4m3 : fp32")
            >>> layer.in_proj_weight is plain.in_proj_weight
            True
        """
        new = adopt(cls, module)
        new._put(spec, projection)
        return new

    def extra_repr(self) -> str:
        """Sizes, and the spec in short."""
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, spec={short_formats(self.formats)}"

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Return the attention's output and, with ``need_weights``, its weights; arguments and shapes are those of
        PyTorch.

        Raises:
            ShapeError: for operands that are not all 2-D or all 3-D, and for ``is_causal`` without ``attn_mask``.

        Example:
            >>> layer = gs.nn.QMultiheadAttention(16, 4, projection="e4m3 : fp32")
            >>> output, weights = layer(torch.ones(5, 16), torch.ones(7, 16), torch.ones(7, 16))
            >>> tuple(output.shape), tuple(weights.shape)
            ((5, 16), (5, 7))
        """
        batched = query.dim() == 3
        if query.dim() not in (2, 3) or key.dim() != query.dim() or value.dim() != query.dim():
            shapes = ", ".join(str(tuple(t.shape)) for t in (query, key, value))
            raise ShapeError(message(f"QMultiheadAttention: shapes {shapes}", "all 2-D or all 3-D", "Add a batch."))
        if is_causal and attn_mask is None:
            asked = "QMultiheadAttention: is_causal without attn_mask"
            raise ShapeError(message(asked, "the causal mask itself", "Give attn_mask, as torch.nn asks for."))
        if not batched:
            query, key, value = (t.unsqueeze(0) for t in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        q, k, v = self._project(query, key, value)
        k, v, mask = self._extend(k, v, self._mask(attn_mask, key_padding_mask, q))
        weights = self._weights(self._heads(q), self._heads(k), mask, mask is not None and not need_weights)
        dropped = nn.functional.dropout(weights, self.dropout, self.training)
        joined = qmatmul(dropped, self._heads(v), self.formats.pv).transpose(1, 2).flatten(2)
        if holds_emulated(self.out_proj):
            out = self.out_proj(joined)
        else:
            out = qlinear(joined, self.out_proj.weight, self.out_proj.bias, self.projection)
        shown = (weights.mean(1) if average_attn_weights else weights) if need_weights else None
        if not batched:
            return out.squeeze(0), None if shown is None else shown.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), shown

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        if self._qkv_same_embed_dim:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        operands = zip((query, key, value), weights, biases, strict=True)
        return [qlinear(x, w, b, self.projection) for x, w, b in operands]

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _mask(self, attn_mask: Tensor | None, padding: Tensor | None, q: Tensor) -> Tensor | None:
        """Both masks as one that is added: (batch or 1, heads or 1, L, S)."""
        total = None
        if attn_mask is not None:
            total = _additive(attn_mask, q.dtype)
            heads = (-1, self.num_heads) if total.dim() == 3 else (1, 1)
            total = total.reshape(*heads, *total.shape[-2:])
        if padding is not None:
            hidden = _additive(padding, q.dtype)[:, None, None, :]
            total = hidden if total is None else total + hidden
        return total

    def _extend(self, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """``bias_k``, ``bias_v`` and the row of zeros appended, always visible."""
        before = k.shape[1]
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat([k, self.bias_k.expand(k.shape[0], 1, -1)], 1)
            v = torch.cat([v, self.bias_v.expand(v.shape[0], 1, -1)], 1)
        if self.add_zero_attn:
            k, v = (torch.cat([t, t.new_zeros(t.shape[0], 1, t.shape[2])], 1) for t in (k, v))
        more = k.shape[1] - before
        return k, v, nn.functional.pad(mask, (0, more)) if mask is not None and more else mask

    def _weights(self, q: Tensor, k: Tensor, mask: Tensor | None, zero: bool) -> Tensor:
        factor, quant = 1 / math.sqrt(self.head_dim), self.formats.scale_quant
        scores = qmatmul(q, k.mT, self.formats.qk)
        scores = scores * factor if quant is None else qmul(scores, scores.new_full((), factor), quant, quant)
        return qsoftmax(scores if mask is None else scores + mask, -1, self.formats.softmax_of(zero))


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask that is added; of a bool one, True hides."""
    if mask.dtype is torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, float("-inf"))
    return mask.to(dtype)
