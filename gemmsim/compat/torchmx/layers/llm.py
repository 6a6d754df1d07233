"""Attention and MLP of transformers' Llama and Qwen2 with MX operands, for inference; needs gemmsim[transformers]."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2

from gemmsim.nn import Emulated
from gemmsim.nn.undoing import naming
from gemmsim.nn.weights import computed_parameter, own_forward

from ..config import MXConfig, QAttentionConfig, QLinearConfig
from ..mx_tensor import MXTensor
from .mx_linear import MXInferenceLinear

__all__ = [
    "ATTENTION_LAYERS",
    "MLP_LAYERS",
    "MXInferenceLlamaAttention",
    "MXInferenceLlamaMLP",
    "MXInferenceQwen2Attention",
    "MXInferenceQwen2MLP",
    "replacement",
]


def _exchanged(cls: type, mod: nn.Module, qconfig: QLinearConfig) -> Any:
    """A ``cls`` with everything ``mod`` has, its linear layers in MX, but for those whose weight is no parameter.

    ``mod`` stays as it is.
    """
    made = copy.copy(mod)
    made.__class__ = cls
    made._forward_pre_hooks = mod._forward_pre_hooks.copy()  # which emulated modules add one to
    made._modules = dict(mod._modules)
    for name, child in mod._modules.items():
        if isinstance(child, nn.Linear) and not (computed_parameter(child) or own_forward(child)):
            with naming(name):
                made._modules[name] = MXInferenceLinear.from_float(child, qconfig)
    return made


def _values(x: Tensor, config: MXConfig) -> Tensor:
    """The values of ``x`` in MX along its last dimension, with the identity as gradient."""
    return MXTensor.to_mx(x.contiguous(), config.elem_dtype, config.block_size).to_dtype()


class _Attention(Emulated):
    """The forward pass of both attention layers; ``_home`` is transformers' module of the layer."""

    _home: Any
    qconfig: QAttentionConfig

    @classmethod
    def from_float(cls, mod: Any, qconfig: QAttentionConfig) -> Any:
        """A layer with ``mod``'s projections in MX.

        Raises:
            ValueError: for a model split by ``pretraining_tp``.
        """
        parts = getattr(mod.config, "pretraining_tp", 1)
        if parts > 1:
            raise ValueError(f"pretraining_tp={parts}; allowed: 1.\n  Load the model with pretraining_tp=1.")
        made = _exchanged(cls, mod, qconfig.projection_config)
        made.qconfig = qconfig
        return made

    def forward(
        self: Any,
        hidden_states: Tensor,
        position_embeddings: Any = None,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> Any:
        """transformers' arguments and results; query, key, value and probabilities in MX where configured.

        Gradients pass straight through the encodings; torchmx's layers have none.
        """
        if not self.qconfig.is_qkv_quantization_enabled:
            return super().forward(hidden_states, position_embeddings, attention_mask, past_key_values, **kwargs)  # type: ignore[misc]
        heads = (*hidden_states.shape[:-1], -1, self.head_dim)
        layers = (self.q_proj, self.k_proj, self.v_proj)
        query, key, value = (layer(hidden_states).view(heads).transpose(1, 2) for layer in layers)
        query, key = self._home.apply_rotary_pos_emb(query, key, *position_embeddings)
        if past_key_values is not None:  # kept in high precision
            key, value = past_key_values.update(key, value, self.layer_idx)
        key, value = (self._home.repeat_kv(t, self.num_key_value_groups) for t in (key, value))
        out, weights = self._attend(query, key, value, attention_mask)
        out = out.transpose(1, 2).reshape(*hidden_states.shape[:-1], -1)
        return self.o_proj(out), weights

    def _attend(self: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        config: QAttentionConfig = self.qconfig
        names = (config.query_config, config.key_config, config.value_config, config.attention_weights_config)
        q_config, k_config, v_config, p_config = (found for found in names if found is not None)
        scores = _values(query, q_config) @ _values(key, k_config).transpose(2, 3)
        scores = scores / math.sqrt(self.head_dim)
        if mask is None and query.shape[2] > 1:
            # attention functions that mask by themselves are given no mask by transformers
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
            mask = mask.tril(key.shape[2] - query.shape[2])
        if mask is not None:
            boolean = mask.dtype is torch.bool
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min) if boolean else scores + mask
        weights = torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype)
        weights = torch.dropout(weights, self.attention_dropout, self.training)
        values = _values(value.transpose(2, 3), v_config).transpose(2, 3)
        return _values(weights, p_config) @ values, weights


class MXInferenceLlamaAttention(_Attention, llama.LlamaAttention):
    """Llama's attention: query and key in MX along the head, value along the sequence, probabilities along the keys.

    Softmax is in float32, the cache stays in high precision; a missing mask is the causal one.
    """

    _home = llama


class MXInferenceQwen2Attention(_Attention, qwen2.Qwen2Attention):
    """Qwen2's attention; as ``MXInferenceLlamaAttention``."""

    _home = qwen2


class MXInferenceLlamaMLP(Emulated, llama.LlamaMLP):
    """Llama's MLP with linear layers in MX."""

    @classmethod
    def from_float(cls, mod: Any, qconfig: QLinearConfig) -> Any:
        """A layer with ``mod``'s linear layers in MX."""
        return _exchanged(cls, mod, qconfig)


class MXInferenceQwen2MLP(Emulated, qwen2.Qwen2MLP):
    """Qwen2's MLP with linear layers in MX."""

    @classmethod
    def from_float(cls, mod: Any, qconfig: QLinearConfig) -> Any:
        """A layer with ``mod``'s linear layers in MX."""
        return _exchanged(cls, mod, qconfig)


ATTENTION_LAYERS: dict[type, Any] = {
    llama.LlamaAttention: MXInferenceLlamaAttention,
    qwen2.Qwen2Attention: MXInferenceQwen2Attention,
}
MLP_LAYERS: dict[type, Any] = {llama.LlamaMLP: MXInferenceLlamaMLP, qwen2.Qwen2MLP: MXInferenceQwen2MLP}


def replacement(mod: nn.Module, qattention_config: QAttentionConfig, qmlp_config: QLinearConfig) -> nn.Module | None:
    """The MX layer for one of transformers' layers, None for any other module, and one with its own ``forward``."""
    made: nn.Module | None = None
    if own_forward(mod):
        return None
    if type(mod) in ATTENTION_LAYERS:
        made = ATTENTION_LAYERS[type(mod)].from_float(mod, qattention_config)
    elif type(mod) in MLP_LAYERS:
        made = MLP_LAYERS[type(mod)].from_float(mod, qmlp_config)
    return made
