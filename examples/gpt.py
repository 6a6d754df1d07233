"""A small GPT (decoder-only transformer) that learns to write Python's own documentation, character by character.

The text is ``pydoc_data.topics``, which every Python has. Everything computes as the run says: projections, attention,
softmax, layer norms, the head, forward and backward, and the optimizer's weights and moments.

python examples/gpt.py            minutes on a CPU
python examples/gpt.py --smoke    seconds
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from common import arguments, vars_of
from torch import Tensor, nn

import gemmsim as gs
from gemmsim import train
from gemmsim.nn import QEmbedding, QLayerNorm, QLinear
from gemmsim.optim import QAdamW


@dataclass(frozen=True)
class Run:
    """One arithmetic. ``accumulator`` None: float32 throughout."""

    accumulator: str | None = None
    rows: str | None = None
    weights: str | None = None

    @property
    def affine(self) -> Any:
        """Products: e4m3 operands, e5m2 gradients."""
        if self.accumulator is None:
            return None
        backward = f"e5m2 * e4m3 : {self.accumulator}"
        # Gradients of a mean over a thousand letters are far below what e5m2 holds: each matrix gets a power of two.
        return gs.QAffineFormats(fprop=f"e4m3 : {self.accumulator}", dgrad=backward, wgrad=backward, use_scaling=True)

    @property
    def softmax(self) -> gs.QSoftmaxFormats | None:
        """Softmax with every step rounded."""
        return None if self.rows is None else gs.QSoftmaxFormats(*[self.rows] * 3, None, *[self.rows] * 2)

    @property
    def norm(self) -> gs.QLayerNormFormats | None:
        """Layer norm with every step rounded."""
        return None if self.rows is None else gs.QLayerNormFormats(*[self.rows] * 7)


RUNS = {
    "float32": Run(),
    "FP8, fp32 accumulator": Run("fp32", None, "bf16/sr"),
    "FP8, e6m7 accumulator, fp16 softmax and norms": Run("e6m7", "fp16", "bf16/sr"),
    "FP8, e6m5 accumulator, fp16 softmax and norms": Run("e6m5", "fp16", "bf16/sr"),
}


class Block(nn.Module):
    """Causal attention and a two-layer network, each behind a layer norm and beside a shortcut."""

    def __init__(self, width: int, heads: int, run: Run) -> None:
        super().__init__()
        self.heads = heads
        self.attention = gs.QAttentionFormats(run.affine, run.softmax, run.affine)
        self.norm1 = QLayerNorm(width, spec=run.norm)
        self.norm2 = QLayerNorm(width, spec=run.norm)
        self.qkv = QLinear(width, 3 * width, spec=run.affine)
        self.out = QLinear(width, width, spec=run.affine)
        self.up = QLinear(width, 4 * width, spec=run.affine)
        self.down = QLinear(4 * width, width, spec=run.affine)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )  # fmt: skip
        mixed = gs.qattention(q, k, v, is_causal=True, spec=self.attention)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Token and position embeddings, blocks, a head."""

    def __init__(self, letters: int, context: int, width: int, heads: int, depth: int, run: Run) -> None:
        super().__init__()
        self.tokens = QEmbedding(letters, width)
        self.places = QEmbedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads, run) for _ in range(depth)])
        self.norm = QLayerNorm(width, spec=run.norm)
        self.head = QLinear(width, letters, spec=run.affine)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, index: Tensor) -> Tensor:
        x = self.tokens(index) + self.places(torch.arange(index.shape[1]))
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


class Text:
    """Python's documentation as letters: the last tenth is for testing."""

    def __init__(self, context: int, batch: int, steps: int, seed: int) -> None:
        from pydoc_data.topics import topics

        text = "\n".join(topics[name] for name in sorted(topics))
        # Rare letters are written as '?', so that the number of letters does not depend on the Python version much.
        common = [chr(c) for c in range(32, 127)] + ["\n"]
        place = {letter: number for number, letter in enumerate(common)}
        letters = torch.tensor([place.get(letter, place["?"]) for letter in text])
        cut = len(letters) * 9 // 10
        self.letters, self.known = common, place
        self.train, self.test = letters[:cut], letters[cut:]
        self.context, self.batch, self.steps, self.seed = context, batch, steps, seed

    def windows(self, text: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """``count`` windows at random places, and the letters that follow each position."""
        start = torch.randint(len(text) - self.context - 1, (count, 1), generator=generator)
        index = start + torch.arange(self.context)
        return text[index], text[index + 1]

    def __call__(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        for _ in range(self.steps):
            yield self.windows(self.train, self.batch, generator)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def write(model: nn.Module, text: Text, start: str, length: int, seed: int = 0) -> str:
    """``start`` and ``length`` more letters, drawn from the model."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.tensor([[text.known[letter] for letter in start]])
    for _ in range(length):
        weights = torch.softmax(model(index[:, -text.context :])[:, -1] / 0.8, dim=-1)
        index = torch.cat([index, torch.multinomial(weights, 1, generator=generator)], dim=1)
    return "".join(text.letters[i] for i in index[0].tolist())


def main() -> None:
    options = arguments(__doc__ or "", epochs=8, batch=16)
    context, width, heads, depth, steps = (16, 16, 2, 1, 3) if options.smoke else (64, 64, 4, 2, 50)
    text = Text(context, options.batch, steps, options.seed)
    x, y = text.windows(text.test, 8 if options.smoke else 64, torch.Generator().manual_seed(1))
    found = {}
    for name, run in RUNS.items():
        if options.only and name not in options.only:
            continue
        print(f"gpt: {name}", flush=True)
        torch.manual_seed(options.seed)
        model = GPT(len(text.letters), context, width, heads, depth, run)
        optimizer = QAdamW(model.parameters(), lr=3e-3, acc_quant=run.weights, momentum_quant=run.weights and "bf16")
        found[name] = train.fit(
            model,
            optimizer,
            loss,
            text,
            epochs=options.epochs,
            evaluate=lambda model: {"test_loss": float(loss(model, x, y))},
            scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs),
            folder=options.out / "gpt" / name.replace(" ", "_").replace(",", ""),
            setting=vars_of(options, name),
        )
        print(write(model, text, "The ", 20 if options.smoke else 160), flush=True)
    picture = options.out / "gpt.png"
    columns = {"loss": "training loss (nats a letter)", "test_loss": "test loss (nats a letter)"}
    train.curves_plot(found, picture, columns, title="A small GPT on Python's documentation, one epoch = 50 steps")
    for name, rows in found.items():
        print(f"{name:48} test loss {rows[-1]['test_loss']:.4f}")
    print(f"plot: {picture}")


if __name__ == "__main__":
    main()
