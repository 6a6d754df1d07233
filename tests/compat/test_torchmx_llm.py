"""transformers' Llama and Qwen2 with torchmx's layers, on tiny random models."""

from __future__ import annotations

import copy

import pytest
import torch

from gemmsim.compat.torchmx.config import MXConfig, QAttentionConfig, QLinearConfig

pytest.importorskip("transformers", reason="gemmsim[transformers] is not installed")

FP8 = MXConfig("float8_e4m3")
LINEAR = QLinearConfig(FP8, FP8)
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 64}  # fmt: skip


@pytest.fixture(params=["Llama", "Qwen2"])
def model(request):
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{request.param}Config")(**SIZES)
    return getattr(transformers, f"{request.param}ForCausalLM")(config).bfloat16().eval()


def logits(model, tokens, **kwargs):
    with torch.no_grad():
        return model(tokens, **kwargs).logits.float()


@pytest.mark.parametrize("inside", [False, True], ids=["projections", "products"])
def test_models_stay_close_to_their_originals(model, inside):
    from gemmsim.compat.torchmx.layers import llm
    from gemmsim.compat.torchmx.layers.mx_linear import MXInferenceLinear
    from gemmsim.compat.torchmx.quant_api import quantize_llm_

    tokens = torch.randint(50, (2, 37), generator=torch.Generator().manual_seed(1))
    want = logits(model, tokens)
    found = copy.deepcopy(model)
    quantize_llm_(found, QAttentionConfig(LINEAR, *([FP8] * 4 if inside else [])), LINEAR)
    layer = found.model.layers[0]
    assert type(layer.self_attn).__name__ in llm.__all__ and type(layer.mlp).__name__ in llm.__all__
    assert all(isinstance(m, MXInferenceLinear) for m in (found.lm_head, layer.self_attn.q_proj, layer.mlp.up_proj))
    got = logits(found, tokens)
    error = (got - want).norm() / want.norm()
    # e4m3 is off by 2^-4 at most, 0.025 in the mean square; two layers with five rounded operands on a path, and logits:
    # sqrt(2 * 5 * 2 + 2) times that is 0.12.
    assert 0 < error < 0.15
    # the first tokens do not see the later ones, whose values share no block with theirs but in value and probabilities
    step = found(tokens[:, :36], use_cache=True)
    following = logits(found, tokens[:, 36:], past_key_values=step.past_key_values)
    # blocks along the tokens, of values and probabilities, are others: two operands in either layer, 0.025 * sqrt(4)
    assert (following[:, 0] - got[:, 36]).norm() < 0.1 * got[:, 36].norm()


def test_attention_is_the_products_of_its_parts(model):
    from gemmsim.compat.torchmx.layers import llm
    from gemmsim.compat.torchmx.mx_tensor import MXTensor

    attention = model.model.layers[0].self_attn
    made = llm.replacement(attention, QAttentionConfig(LINEAR, FP8, FP8, FP8, FP8), LINEAR)
    tensors = [torch.randn(1, 4, 40, 16, generator=torch.Generator().manual_seed(n)).bfloat16() for n in range(3)]
    q, k = (MXTensor.to_mx(t, FP8.elem_dtype).to_dtype() for t in tensors[:2])
    v = MXTensor.to_mx(tensors[2].mT.contiguous(), FP8.elem_dtype).to_dtype().mT
    scores = (q @ k.mT / 4).masked_fill(torch.ones(40, 40).triu(1).bool(), torch.finfo(torch.bfloat16).min)
    weights = torch.softmax(scores, -1, dtype=torch.float32).bfloat16()
    got, probabilities = made._attend(*tensors, None)
    assert torch.equal(probabilities, weights)
    assert torch.equal(got, MXTensor.to_mx(weights, FP8.elem_dtype).to_dtype() @ v)


def test_split_models_are_refused(model):
    from gemmsim.compat.torchmx.layers import llm

    attention = model.model.layers[0].self_attn
    attention.config.pretraining_tp = 2
    with pytest.raises(ValueError, match="pretraining_tp"):
        llm.replacement(attention, QAttentionConfig(LINEAR), LINEAR)


def test_exchanged_layers_leave_the_hooks_of_the_originals(model):
    from gemmsim.compat.torchmx.quant_api import quantize_llm_

    layer = model.model.layers[0]
    old = layer.self_attn, layer.mlp
    quantize_llm_(model, QAttentionConfig(LINEAR), LINEAR)
    assert layer.mlp is not old[1] and len(layer.mlp._forward_pre_hooks) == 1
    assert not any(module._forward_pre_hooks for module in old)


@pytest.mark.parametrize("inside", [False, True], ids=["projections", "products"])
def test_gradients_reach_what_is_below(model, inside):
    from gemmsim.compat.torchmx.quant_api import quantize_llm_

    tokens = torch.randint(50, (2, 33), generator=torch.Generator().manual_seed(1))

    def gradient(net):
        net.zero_grad()
        net(tokens, labels=tokens).loss.backward()
        return net.model.embed_tokens.weight.grad.float()

    want = gradient(copy.deepcopy(model))
    quantize_llm_(model, QAttentionConfig(LINEAR, *([FP8] * 4 if inside else [])), LINEAR)
    got = gradient(model)
    # as far off as logits are: the same roundings lie on every path, forward and back
    assert 0 < (got - want).norm() / want.norm() < 0.2
