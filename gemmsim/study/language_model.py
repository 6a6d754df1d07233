"""Text and network of the language study: characters of a public-domain text, a small GPT, its training."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

import torch
from torch import Tensor, nn
from torch.nn import functional

import gemmsim as gs

__all__ = ["LanguageModel", "Text", "Training", "load_text", "loss_of", "model_of", "rate_at", "train", "windows_of"]

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Text:
    """Characters as numbers: the first nine tenths to train on, the rest to test on."""

    train: Tensor
    test: Tensor
    characters: str

    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the characters' numbers."""
        content = torch.cat([self.train, self.test]).numpy().tobytes()
        return hashlib.sha256(content + self.characters.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Training:
    """Losses in nats a character: of each step, and on the test text at the end."""

    losses: list[float]
    test_loss: float


def load_text() -> Text:
    """The Declaration of Independence of 1776, without its signatures (texts/SOURCE.txt names the edition)."""
    text = files("gemmsim.study").joinpath("texts/declaration.txt").read_text(encoding="ascii")
    characters = "".join(sorted(set(text)))
    numbers = torch.tensor([characters.index(letter) for letter in text])
    cut = len(numbers) * 9 // 10
    return Text(numbers[:cut], numbers[cut:], characters)


class Block(nn.Module):
    """Attention, then a layer of four times the width; both behind a layer norm and added to their input."""

    def __init__(self, width: int, heads: int, attention: Attention) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.attention = heads, attention

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) to the same."""
        batch, time, width = x.shape
        parts = self.inner(self.norm1(x)).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = self.attention(parts[0], parts[1], parts[2]).transpose(1, 2).reshape(batch, time, width)
        x = x + self.outer(mixed)
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class LanguageModel(nn.Module):
    """Logits of the next character. All matrix products are ``nn.Linear`` or the two of ``attention``."""

    CONTEXT, WIDTH, HEADS, LAYERS = 32, 64, 2, 2

    def __init__(self, characters: int, attention: Attention) -> None:
        super().__init__()
        self.letters = nn.Embedding(characters, self.WIDTH)
        self.places = nn.Embedding(self.CONTEXT, self.WIDTH)
        self.blocks = nn.Sequential(*(Block(self.WIDTH, self.HEADS, attention) for _ in range(self.LAYERS)))
        self.norm = nn.LayerNorm(self.WIDTH)
        self.head = nn.Linear(self.WIDTH, characters)

    @classmethod
    def macs(cls, characters: int) -> int:
        """Multiply-adds of a forward pass, by character."""
        layer = 12 * cls.WIDTH**2 + 2 * cls.CONTEXT * cls.WIDTH
        return cls.LAYERS * layer + cls.WIDTH * characters

    def forward(self, numbers: Tensor) -> Tensor:
        """(batch, time) to (batch, time, characters)."""
        places = torch.arange(numbers.shape[1])
        return self.head(self.norm(self.blocks(self.letters(numbers) + self.places(places))))


def _plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def model_of(characters: int, fmt: str | None, accumulator: str | None, seed: int) -> LanguageModel:
    """The network with its first weights by ``seed``; every product in the block format ``fmt``, or float32."""
    torch.manual_seed(seed)
    if fmt is None:
        return LanguageModel(characters, _plain)
    config = gs.mx.MXAttentionConfig(query=fmt, accumulator=accumulator)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return gs.mx.mx_attention(query, key, value, config, is_causal=True)

    model = LanguageModel(characters, attention)
    gs.mx.swap_linear_with_mx_linear(model, gs.mx.MXLinearConfig(input=fmt, accumulator=accumulator))
    return model


def train(
    text: Text, fmt: str | None, accumulator: str | None, *, steps: int, batch: int = 16, seed: int = 0
) -> Training:
    """Adam with a cosine schedule, on one thread so that PyTorch's sums always have the same order.

    Weights, optimizer, norms, softmax, activations and residuals are float32; only operands and sums of matrix products
    are in ``fmt`` and ``accumulator``, forward and backward. All settings see the same first weights and batches.
    """
    threads, random_state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    try:
        model = model_of(len(text.characters), fmt, accumulator, seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.99))
        generator = torch.Generator().manual_seed(seed)
        losses = []
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, steps)
            starts = torch.randint(len(text.train) - model.CONTEXT, (batch,), generator=generator)
            loss = _loss(model, text.train, starts)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            starts = torch.arange(0, len(text.test) - model.CONTEXT, model.CONTEXT)
            return Training(losses, _loss(model, text.test, starts).item())
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(random_state)


def rate_at(step: int, steps: int) -> float:
    """Learning rate of a step: up over 20 steps, then down by a cosine."""
    warm = min(1.0, (step + 1) / 20)
    return 4e-3 * warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def windows_of(numbers: Tensor, starts: Tensor) -> Tensor:
    """Pieces of the text, a character longer than the context, (starts, context + 1)."""
    return torch.stack([numbers[start : start + LanguageModel.CONTEXT + 1] for start in starts.tolist()])


def loss_of(logits: Tensor, windows: Tensor) -> Tensor:
    """Mean cross entropy of the next character, nats; ``logits`` are those of ``windows[:, :-1]``."""
    return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def _loss(model: LanguageModel, numbers: Tensor, starts: Tensor) -> Tensor:
    windows = windows_of(numbers, starts)
    return loss_of(model(windows[:, :-1]), windows)
