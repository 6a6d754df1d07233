"""Overrides of attention layers: PyTorch's Python function, and its fused operators for inference as compositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..module_paths import Placed
from .table import TABLE, Entry, packets, unseen

__all__: list[str] = []

_F = torch.nn.functional


def _at(child: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``call(...)`` at the path of a child of the running module, if it has a child of this name.

    The fused operators take the children's weights; the child modules never run.
    """
    modes = [mode for mode in torch.overrides._get_current_function_mode_stack() if isinstance(mode, Placed)]
    places = [mode.places for mode in modes if mode.places is not None]
    for place in places:
        inner = f"{place.path}.{child}" if place.path else child
        place.stack.append(inner if inner in place.paths.values() else place.path)
    try:
        return call(*args, **kwargs)
    finally:
        for place in places:
            place.stack.pop()


def _masks(mask: Tensor | None, mask_type: int | None, heads: int) -> tuple[Tensor | None, Tensor | None]:
    """The mask of pairs and the mask of keys that a merged mask means. True hides an element.

    ``mask_type``: 0 is (L, S), 1 is (B, S), 2 is (B, heads, L, S).
    """
    if mask is None:
        return None, None
    mask = mask.to(torch.bool)
    if mask_type == 1:
        return None, mask
    if mask.dim() == 4:
        mask = mask.expand(-1, heads, -1, -1).flatten(0, 1)
    return mask, None


def _multihead(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """``torch._native_multi_head_attention``, computed as nn.MultiheadAttention does without this operator.

    Operands are (B, L, E). Without ``need_weights`` no weights are returned.
    """
    padded = None
    if query.is_nested:
        padded = query
        query, hidden = _padded(query)
        key = query if key is padded else _padded(key)[0]
        value = query if value is padded else _padded(value)[0]
        mask, mask_type = hidden, 1
    pairs, keys = _masks(mask, mask_type, num_head)
    first = query.transpose(0, 1)
    second = first if key is query else key.transpose(0, 1)
    third = first if value is query else second if value is key else value.transpose(0, 1)
    out, weights = _F.multi_head_attention_forward(
        *(first, second, third, embed_dim, num_head, qkv_weight, qkv_bias, None, None, False, 0.0),
        *(proj_weight, proj_bias),
        training=False,
        key_padding_mask=keys,
        need_weights=need_weights,
        attn_mask=pairs,
        average_attn_weights=average_attn_weights,
    )
    out = out.transpose(0, 1)
    return (out if padded is None else _nested(out, hidden)), weights


def _encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """``torch._transformer_encoder_layer_fwd``, computed as nn.TransformerEncoderLayer does without this operator."""
    hidden = None
    if src.is_nested:
        src, hidden = _padded(src)
        mask, mask_type = hidden, 1

    def attend(x: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        arguments = (x, x, x, embed_dim, num_heads, *weights, mask, False, True, mask_type)
        found: Tensor = _at("self_attn", _multihead, *arguments)[0]
        return found

    def feed(x: Tensor) -> Tensor:
        inner = _at("linear1", _F.linear, x, ffn_weight_1, ffn_bias_1)
        inner = _F.gelu(inner) if use_gelu else _F.relu(inner)
        found: Tensor = _at("linear2", _F.linear, inner, ffn_weight_2, ffn_bias_2)
        return found

    def norm(x: Tensor, child: str, weight: Tensor, bias: Tensor) -> Tensor:
        found: Tensor = _at(child, _F.layer_norm, x, (embed_dim,), weight, bias, eps)
        return found

    x = src
    if norm_first:
        x = x + attend(norm(x, "norm1", norm_weight_1, norm_bias_1))
        x = x + feed(norm(x, "norm2", norm_weight_2, norm_bias_2))
    else:
        x = norm(x + attend(x), "norm1", norm_weight_1, norm_bias_1)
        x = norm(x + feed(x), "norm2", norm_weight_2, norm_bias_2)
    return x if hidden is None else _nested(x, hidden)


def _padded(x: Tensor) -> tuple[Tensor, Tensor]:
    """A nested tensor (B, *, E), padded with zeros to the longest entry, and the mask of the padding."""
    lengths = x._nested_tensor_size()[:, 0].to(x.device)
    full = x.to_padded_tensor(0.0)
    return full, torch.arange(full.shape[1], device=x.device) >= lengths.unsqueeze(1)


def _nested(x: Tensor, hidden: Tensor) -> Tensor:
    """The nested tensor of the rows that are not hidden."""
    found: Tensor = torch._nested_tensor_from_mask(x, ~hidden, mask_check=False)
    return found


def _check_keys(mask: Tensor, length: int, batch: int) -> None:
    """PyTorch's check of a mask of keys, in a form that the compiler can trace under a mode."""
    for dim, size in ((0, batch), (1, length)):
        if mask.shape[dim] != size:
            raise AssertionError(f"Expected key_padded_mask.shape[{dim}] to be {size}, but got {mask.shape[dim]}")


def _register() -> None:
    body = unseen(_F.multi_head_attention_forward)
    body.__globals__["_check_key_padding_mask"] = _check_keys  # only in this copy of the function
    TABLE[_F.multi_head_attention_forward] = Entry((), body, body=True)
    for name, run in (("_native_multi_head_attention", _multihead), ("_transformer_encoder_layer_fwd", _encoder_layer)):
        for spelling in (getattr(torch, name, None), *packets(name, "default")):
            if spelling is not None:
                TABLE[spelling] = Entry((), run, body=True)


_register()
