"""PyTorch's transformer modules with emulated layers inside, made to call their children.

They read their children's weights and compute in their place: ``TransformerEncoderLayer`` and ``MultiheadAttention`` in
evaluation without gradients (the "fast path"), ``MultiheadAttention`` its ``out_proj`` always, ``TransformerEncoder``
packs its input into nested tensors, which only that path takes. No class of PyTorch changes: an encoder gets
``use_nested_tensor=False``, a layer gets a hook, with which it leaves the fast path, and an attention becomes an
instance of a class made from its own, which computes in evaluation what it computes in training: the fast path has
other bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrize import is_parametrized

from gemmsim.ops.errors import DTypeError, ShapeError, message

from .emulated_marker import Emulated, holds_emulated, keep_called
from .instance_class import Made, derived

__all__ = ["call_children"]

_OUTER = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.MultiheadAttention)


def call_children(model: nn.Module) -> nn.Module:
    """Return ``model`` itself, in which PyTorch's transformer modules call every emulated layer inside them, in every
    mode.

    Use it for layers that you put into ``nn.TransformerEncoder``, ``nn.TransformerEncoderLayer``,
    ``nn.TransformerDecoderLayer`` or ``nn.MultiheadAttention`` yourself; the converters of gemmsim call it. It
    changes those of these modules that contain an emulated layer, a quantiser, a hook of gemmsim or an ``MXTensor``.
    They then compute the same bits in evaluation as in training. An attention gets a class that is derived from its
    own and has the same name; ``isinstance``, ``state_dict``, copies and pickles work as before. Modules that became
    ``Emulated`` by an assignment to ``__class__`` get their hook. A second call changes nothing more. Modules without
    such layers do not change.

    No inputs are packed into nested tensors: positions that ``src_key_padding_mask`` hides have values, as in
    training. An attention that is called with nested tensors raises ``ShapeError``. The function does not reach
    subclasses whose ``forward`` does not call PyTorch's.

    Raises:
        DTypeError: if ``model`` is not a module.

    Example:
        >>> block = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> block.linear1 = gs.nn.QLinear.from_float(block.linear1, "e4m3 : fp32")
        >>> gs.nn.call_children(block) is block
        True
    """
    if not isinstance(model, nn.Module):
        asked = f"call_children: model={model!r} of type {type(model).__name__}"
        raise DTypeError(message(asked, "a module", "Give the model that contains the layers."))
    for outer in model.modules():
        if isinstance(outer, Emulated):
            keep_called(outer)  # which got its class by assignment
        if isinstance(outer, _OUTER) and holds_emulated(outer):
            for inner in outer.modules():
                _prepare(inner)
    return model


def _prepare(module: nn.Module) -> None:
    if isinstance(module, nn.TransformerEncoder):
        module.use_nested_tensor = False
    elif isinstance(module, nn.TransformerEncoderLayer):
        keep_called(module)
    elif isinstance(module, nn.MultiheadAttention) and not isinstance(module, (_CallsOutProj, Emulated)):
        kind: Any = type(module)
        if is_parametrized(module):  # PyTorch made this class for the module, and puts back the one behind it later
            kind.__bases__ = (_calling(kind.__bases__[0]),)
        else:
            module.__class__ = _calling(kind)


def _calling(kind: type) -> Any:
    """``kind`` with an attention that calls its ``out_proj`` in the place of PyTorch's."""
    bases = (_CallsOutProj,) if kind is nn.MultiheadAttention else (kind, _CallsOutProj)
    return derived(kind, _calling, bases)


class _CallsOutProj(Made, nn.MultiheadAttention):
    """The mixin of these classes. It stands behind a subclass's own methods, which call it by ``super()``."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """What training computes; ``out_proj`` is called where it is or holds an emulated module."""
        if query.is_nested or key.is_nested or value.is_nested:
            asked, allowed = "MultiheadAttention with emulated layers: nested tensors", "padded ones"
            raise ShapeError(message(asked, allowed, "Pad the input and give key_padding_mask."))
        attn_mask, key_padding_mask = _masks(attn_mask, key_padding_mask, query.dtype)
        swapped = self.batch_first and query.dim() == 3
        if swapped:
            # The projection of the input is one product where all three are the same tensor.
            same_key, same_value = key is query, value is key
            query = query.transpose(1, 0)
            key = query if same_key else key.transpose(1, 0)
            value = key if same_value else value.transpose(1, 0)
        last = self.out_proj
        project = last if holds_emulated(last) else lambda rows: functional.linear(rows, last.weight, last.bias)
        masks, options = (key_padding_mask, attn_mask), (need_weights, average_attn_weights, is_causal)
        out, weights = _core(self, project, (query, key, value), masks, *options)
        return out.transpose(1, 0) if swapped else out, weights


def _masks(mask: Tensor | None, padding: Tensor | None, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """Both masks as numbers that are added; PyTorch's errors for dtypes that do not go together."""
    kinds = functional._none_or_dtype(mask)
    padding = functional._canonical_mask(padding, "key_padding_mask", kinds, "attn_mask", dtype)
    return functional._canonical_mask(mask, "attn_mask", None, "", dtype, check_other=False), padding


def _core(
    self: Any,
    project: Callable[[Tensor], Tensor],
    inputs: tuple[Tensor, Tensor, Tensor],
    masks: tuple[Tensor | None, Tensor | None],
    need_weights: bool,
    average: bool,
    is_causal: bool,
) -> tuple[Tensor, Tensor | None]:
    """Attention of query, key and value with the sequence first, ``project`` last; operations and order are PyTorch's.

    ``masks``: of padded keys, and of positions.
    """
    (query, key, value), (padding, mask) = inputs, masks
    checked: Any = functional
    batched = checked._mha_shape_check(query, key, value, padding, mask, self.num_heads)
    if not batched:
        query, key, value = (t.unsqueeze(1) for t in (query, key, value))
        padding = None if padding is None else padding.unsqueeze(0)
    if is_causal and mask is None:
        asked = "MultiheadAttention: is_causal without attn_mask"
        raise RuntimeError(message(asked, "the causal mask itself", "Give attn_mask."))
    if is_causal and padding is None and not need_weights:
        mask = None  # the hint alone
    elif padding is not None:
        is_causal = False
    q, k, v = _project(self, query, key, value)
    length, batch = query.shape[:2]
    q, k, v, mask = _heads(self, q, k, v, mask, padding)
    dropout = self.dropout if self.training else 0.0
    if need_weights:
        scaled = q * math.sqrt(1.0 / float(self.head_dim))
        scores = torch.bmm(scaled, k.mT) if mask is None else torch.baddbmm(mask, scaled, k.mT)
        weights = torch.softmax(scores, -1)
        weights = functional.dropout(weights, dropout) if dropout > 0.0 else weights
        joined = torch.bmm(weights, v).transpose(0, 1).reshape(length * batch, self.embed_dim)
        weights = weights.view(batch, self.num_heads, length, k.shape[1])
        weights = weights.mean(1) if average else weights
    else:
        weights = None
        if mask is not None:
            mask = mask.unsqueeze(0) if mask.shape[0] == 1 else mask.view(batch, self.num_heads, *mask.shape[1:])
        q, k, v = (t.view(batch, self.num_heads, t.shape[1], self.head_dim) for t in (q, k, v))
        found = functional.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal)
        joined = found.permute(2, 0, 1, 3).reshape(length * batch, self.embed_dim)
    out = project(joined)
    out = out.reshape(length, batch, out.shape[-1])
    if not batched:
        out, weights = out.squeeze(1), None if weights is None else weights.squeeze(0)
    return out, weights


def _project(self: Any, query: Tensor, key: Tensor, value: Tensor) -> Sequence[Tensor]:
    """Query, key and value of every head side by side; one product where the three are one tensor, or the last two."""
    width = self.embed_dim
    if not self._qkv_same_embed_dim:
        weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [_linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]
    weight, bias = self.in_proj_weight, self.in_proj_bias
    parts: list[Tensor] = []
    for x, count in _runs(query, key, value):
        at = slice(len(parts) * width, (len(parts) + count) * width)
        out = _linear(x, weight[at], None if bias is None else bias[at])
        # one after the other in memory, as PyTorch lays them
        parts.extend(out.unflatten(-1, (count, width)).movedim(-2, 0).contiguous().unbind(0))
    return parts


def _runs(query: Tensor, key: Tensor, value: Tensor) -> list[tuple[Tensor, int]]:
    """The tensors to project, and how many of query, key and value each stands for."""
    if key is value:
        return [(query, 3)] if query is key else [(query, 1), (key, 2)]
    return [(query, 1), (key, 1), (value, 1)]


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``functional.linear`` as it is with gradients: on other strides it asks whether the weight needs one."""
    if x.is_contiguous() or x.dim() == 2:
        return functional.linear(x, weight, bias)
    out = torch.mm(x.reshape(x.shape[:-1].numel(), x.shape[-1]), weight.t()).view(*x.shape[:-1], weight.shape[0])
    return out if bias is None else out + bias.to(out.dtype)


def _heads(
    self: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, padding: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """(batch * heads, length, head_dim) each, with added keys, and both masks as one (1 or batch * heads, L, S)."""
    length, batch = q.shape[:2]
    if mask is not None:
        allowed = (length, k.shape[0]) if mask.dim() == 2 else (batch * self.num_heads, length, k.shape[0])
        if tuple(mask.shape) != allowed:
            asked = f"MultiheadAttention: attn_mask of shape {tuple(mask.shape)}"
            raise RuntimeError(message(asked, f"{allowed} here", "Reshape it."))
        mask = mask.unsqueeze(0) if mask.dim() == 2 else mask
    if self.bias_k is not None and self.bias_v is not None:
        k, v = (torch.cat([t, more.repeat(1, batch, 1)]) for t, more in ((k, self.bias_k), (v, self.bias_v)))
    q, k, v = (t.reshape(t.shape[0], batch * self.num_heads, self.head_dim).transpose(0, 1) for t in (q, k, v))
    if self.add_zero_attn:
        k, v = (torch.cat([t, t.new_zeros(t.shape[0], 1, t.shape[2])], 1) for t in (k, v))
    more = (self.bias_k is not None) + bool(self.add_zero_attn)
    if more:
        mask, padding = (None if t is None else functional.pad(t, (0, more)) for t in (mask, padding))
    if padding is not None:
        hidden = padding.view(batch, 1, 1, k.shape[1]).expand(-1, self.num_heads, -1, -1).flatten(0, 1)
        mask = hidden if mask is None else mask + hidden
    return q, k, v, mask
