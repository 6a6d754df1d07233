"""Models that others wrote, small and random, and some in the style of well-known ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["MODELS", "make", "run"]

_SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def _transformers() -> Any:
    return pytest.importorskip("transformers", reason="needs the extra 'transformers'")


def _tokens() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(0, 60, (2, 10), generator=torch.Generator().manual_seed(4))}


def llama() -> tuple[nn.Module, dict[str, Any]]:
    tf = _transformers()
    return tf.LlamaForCausalLM(tf.LlamaConfig(vocab_size=60, num_key_value_heads=2, **_SIZES)), _tokens()


def qwen2() -> tuple[nn.Module, dict[str, Any]]:
    tf = _transformers()
    return tf.Qwen2ForCausalLM(tf.Qwen2Config(vocab_size=60, num_key_value_heads=2, **_SIZES)), _tokens()


def bert() -> tuple[nn.Module, dict[str, Any]]:
    tf = _transformers()
    return tf.BertModel(tf.BertConfig(vocab_size=60, **_SIZES)), _tokens()


def vit() -> tuple[nn.Module, dict[str, Any]]:
    tf = _transformers()
    return tf.ViTModel(tf.ViTConfig(image_size=16, patch_size=8, **_SIZES)), {"pixel_values": torch.randn(2, 3, 16, 16)}


def mixture() -> tuple[nn.Module, dict[str, Any]]:
    tf = _transformers()
    config = tf.MixtralConfig(vocab_size=60, num_key_value_heads=2, num_local_experts=4, **_SIZES)
    return tf.MixtralForCausalLM(config), _tokens()


class Residual(nn.Module):
    """A residual block as in torchvision's ResNet: two convolutions, batch norms, a projection where sizes change."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample = nn.Conv2d(inside, outside, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


def resnet() -> tuple[nn.Module, dict[str, Any]]:
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    body = (Residual(8, 8, 1), Residual(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return nn.Sequential(stem, *body), {"input": torch.randn(2, 3, 8, 8)}


class UNet(nn.Module):
    """A denoiser: time embedding, a way down and up with a skip, attention over the pixels at the bottom by einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.enter, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 4, 2, 1)
        self.norm, self.qkv = nn.GroupNorm(4, 16), nn.Conv2d(16, 48, 1)
        self.up, self.leave = nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.Conv2d(16, 3, 3, padding="same")

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        angles = t[:, None] * torch.arange(1, 5)
        moment = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        first = self.enter(x)
        low = F.silu(self.down(first)) + moment[:, :, None, None]
        q, k, v = self.qkv(self.norm(low)).flatten(2).chunk(3, 1)
        weights = torch.einsum("bct,bcs->bts", q, k).mul(16**-0.5).softmax(-1)
        low = low + torch.einsum("bts,bcs->bct", weights, v).view_as(low)
        return self.leave(torch.cat([self.up(low), first], 1))


def unet() -> tuple[nn.Module, dict[str, Any]]:
    return UNet(), {"x": torch.randn(2, 3, 8, 8), "t": torch.tensor([0.1, 0.7])}


class LanguageModel(nn.Module):
    """An LSTM over tokens, its output layer tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 12)
        self.lstm = nn.LSTM(12, 20, num_layers=2, batch_first=True, proj_size=12)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.embedding(tokens))[0] @ self.embedding.weight.T


def lstm() -> tuple[nn.Module, dict[str, Any]]:
    return LanguageModel(), {"tokens": torch.randint(0, 40, (3, 6))}


def transformer() -> tuple[nn.Module, dict[str, Any]]:
    model = nn.Transformer(16, 2, 1, 1, 24, dropout=0.0, batch_first=True)
    return model, {"src": torch.randn(2, 5, 16), "tgt": torch.randn(2, 4, 16)}


#: Name -> a model in evaluation mode and the arguments of a call.
MODELS: dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {
    made.__name__: made for made in (llama, qwen2, bert, vit, mixture, resnet, unet, lstm, transformer)
}


def make(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """The model of this name, always with the same weights and arguments."""
    torch.manual_seed(0)
    model, arguments = MODELS[name]()
    return model.eval(), arguments


def run(model: nn.Module, arguments: dict[str, Any]) -> torch.Tensor:
    """The first output of a call."""
    out: Any = model(**arguments)
    return out if isinstance(out, torch.Tensor) else out[0]


def gradients(model: nn.Module, out: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradients of the mean square of ``out``, by parameter."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(out.float().square().mean(), [*named.values()], allow_unused=True)
    return {name: g for name, g in zip(named, found, strict=True) if g is not None}
