"""The two networks of the study on recipes, and their training: a small GPT, and a small convolutional network."""

from __future__ import annotations

import math
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

import gemmsim as gs

from .capture import ROLES, capture_layers
from .cast_losses import ProductLosses, product_losses
from .language_model import LanguageModel, Text, load_text, loss_of, model_of, rate_at, windows_of
from .networks.digits import Data, load_data
from .recipe_parts import BASELINE
from .tensor_files import TensorFile

__all__ = ["NETWORKS", "Network", "Training", "network", "train_recipe"]


@dataclass
class Training:
    """Losses of the steps in nats, on the test set at the end, its accuracy, and what products lost, by role."""

    losses: list[float] = field(default_factory=list)
    test_loss: float = math.nan
    accuracy: float = math.nan
    lost: dict[str, list[ProductLosses]] = field(default_factory=lambda: {role: [] for role in ROLES})


class Network(ABC):
    """A network with its data."""

    #: Linear layers that recipes cover; those that they leave in bf16; of those that they cover, what some leave, too.
    layers: ClassVar[tuple[str, ...]]
    kept: ClassVar[tuple[str, ...]]
    kept_by: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    #: Multiply-adds of a training step with one text or image.
    macs: ClassVar[int]
    #: Texts or images of a step.
    size: ClassVar[int]

    @abstractmethod
    def model(self, seed: int) -> nn.Module:
        """The network with the first weights of this seed."""

    @abstractmethod
    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """What goes in, and what should come out, drawn from the training data."""

    @abstractmethod
    def test_set(self) -> tuple[Tensor, Tensor]:
        """All data that are not trained on."""

    @abstractmethod
    def loss(self, logits: Tensor, wanted: Tensor) -> Tensor:
        """Mean cross entropy, nats."""

    @abstractmethod
    def right(self, logits: Tensor, wanted: Tensor) -> float:
        """Share of right answers."""

    def rules(self, formats: str, kept: Sequence[str]) -> list[tuple[str, str]]:
        """For ``gs.emulate``: ``formats`` in all linear layers but ``kept``, bf16 in every other product."""
        return [*((layer, formats) for layer in (*self.layers, *self.kept) if layer not in kept), ("*", BASELINE)]

    @classmethod
    def kept_of(cls, recipe: str) -> tuple[str, ...]:
        """The linear layers that this recipe leaves in bf16."""
        return (*cls.kept, *cls.kept_by.get(recipe, ()))


class Gpt(Network):
    """Two blocks of width 64 on characters. The last projection stays in bf16; of NVFP4 the last layer before, too."""

    layers = tuple(f"blocks.{at}.{part}" for at in range(2) for part in ("inner", "outer", "up", "down"))
    kept = ("head",)
    kept_by: ClassVar[Mapping[str, tuple[str, ...]]] = {"nvfp4_pretraining": ("blocks.1.down",)}
    size = 8
    macs = 3 * LanguageModel.CONTEXT * LanguageModel.macs(61)

    def __init__(self) -> None:
        self.text: Text = load_text()

    def model(self, seed: int) -> nn.Module:
        """The network of the study ``language``."""
        return model_of(len(self.text.characters), None, None, seed)

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Pieces of 32 characters, and the same ones a character further on."""
        starts = torch.randint(len(self.text.train) - LanguageModel.CONTEXT, (size,), generator=generator)
        return self._pieces(self.text.train, starts)

    def test_set(self) -> tuple[Tensor, Tensor]:
        """Pieces of the last tenth of the text."""
        last = len(self.text.test) - LanguageModel.CONTEXT
        return self._pieces(self.text.test, torch.arange(0, last, LanguageModel.CONTEXT))

    def _pieces(self, numbers: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        windows = windows_of(numbers, starts)
        return windows[:, :-1], windows

    def loss(self, logits: Tensor, wanted: Tensor) -> Tensor:
        """Nats a character."""
        return loss_of(logits, wanted)

    def right(self, logits: Tensor, wanted: Tensor) -> float:
        """Share of right next characters."""
        return float((logits.argmax(-1) == wanted[:, 1:]).double().mean())


class Patches(nn.Module):
    """A convolution of 3 x 3 pixels, padded by one, as a product of patches, (pixels, 9 C), and filters."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.linear, self.stride = nn.Linear(9 * inputs, outputs), stride

    def forward(self, x: Tensor) -> Tensor:
        """(images, C, side, side) to (images, outputs, side / stride, side / stride)."""
        side = x.shape[-1] // self.stride
        patches = functional.unfold(x, 3, padding=1, stride=self.stride).mT
        return self.linear(patches).mT.unflatten(-1, (side, side))


class Conv(Network):
    """Three convolutions and a linear layer on the digits, the first and the last layer in bf16."""

    layers = ("2.linear", "4.linear")
    kept = ("0.linear", "7")
    size = 32
    macs = 3 * (64 * 9 * 16 + 16 * 144 * 32 + 16 * 288 * 32 + 512 * 10)

    def __init__(self) -> None:
        self.data: Data = load_data()

    def model(self, seed: int) -> nn.Module:
        """8 x 8 pixels, 16 channels, 32 channels of 4 x 4 pixels, 32 again, 10 classes."""
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        try:
            return nn.Sequential(
                Patches(1, 16, 1), nn.ReLU(), Patches(16, 32, 2), nn.ReLU(), Patches(32, 32, 1), nn.ReLU(),
                nn.Flatten(), nn.Linear(512, 10),
            )  # fmt: skip
        finally:
            torch.set_rng_state(state)

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Images and classes, drawn with replacement."""
        chosen = torch.randint(Data.TRAIN_IMAGES, (size,), generator=generator)
        return self._images(self.data.train_images[chosen]), self.data.train_labels[chosen]

    def test_set(self) -> tuple[Tensor, Tensor]:
        """599 images."""
        return self._images(self.data.test_images), self.data.test_labels

    def _images(self, rows: Tensor) -> Tensor:
        return rows.reshape(-1, 1, 8, 8)

    def loss(self, logits: Tensor, wanted: Tensor) -> Tensor:
        """Nats an image."""
        return functional.cross_entropy(logits, wanted)

    def right(self, logits: Tensor, wanted: Tensor) -> float:
        """Share of right classes."""
        return float((logits.argmax(-1) == wanted).double().mean())


NETWORKS: dict[str, type[Network]] = {"gpt": Gpt, "conv": Conv}


def network(name: str) -> Network:
    """The network of this name, with its data.

    Raises:
        StudyError: without scikit-learn, for the digits.
    """
    return NETWORKS[name]()


def train_recipe(net: Network, formats: str, kept: Sequence[str], *, steps: int, seed: int, looks: int) -> Training:
    """Adam with a cosine schedule and clipped gradients, on one thread.

    Products are those of ``formats`` in all linear layers but ``kept``, and bf16 with fp32 sums elsewhere. Weights,
    optimizer, norms, softmax, activations and results of products are float32. First weights and batches depend on
    ``seed`` alone, random bits on it and the step. At ``looks`` steps, the last one among them, the products of the
    layers that are not kept are compared with float64.
    """
    threads, random_state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            # That gradients vanish without scales is what some trainings are to show.
            warnings.simplefilter("ignore", gs.FormatsWarning)
            return _trained(net, net.rules(formats, kept), steps, seed, looks)
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(random_state)


def _trained(net: Network, rules: list[tuple[str, str]], steps: int, seed: int, looks: int) -> Training:
    model = net.model(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.99))
    generator = torch.Generator().manual_seed(seed)
    looked = {steps * (look + 1) // looks - 1 for look in range(looks)}
    done = Training()
    for step in range(steps):
        inputs, wanted = net.batch(net.size, generator)
        if step in looked:
            _look(net, model, (inputs, wanted), rules, seed, step, done)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, steps)
        optimizer.zero_grad()
        with gs.emulate(rules, seed=seed, root=model, step=step):
            loss = net.loss(model(inputs), wanted)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        done.losses.append(loss.item())
    inputs, wanted = net.test_set()
    with torch.no_grad(), gs.emulate(rules, seed=seed, root=model, step=steps):
        logits = model(inputs)
    done.test_loss, done.accuracy = float(net.loss(logits, wanted)), net.right(logits, wanted)
    return done


def _look(
    net: Network,
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    rules: list[tuple[str, str]],
    seed: int,
    step: int,
    done: Training,
) -> None:
    """Adds what the products of a recipe lose in a pass over ``batch``, which changes nothing."""
    inputs, wanted = batch
    formats = {layer: gs.QAffineFormats.of(text) for layer, text in rules if layer != "*"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "operands.safetensors"
        with gs.emulate(rules, seed=seed, root=model, step=step):
            capture_layers(
                model, (inputs,), path, layers=list(formats), roles=ROLES, loss=lambda logits: net.loss(logits, wanted)
            )
        for place, (layer, given) in enumerate(formats.items()):
            x, w, g = (TensorFile(path, f"{layer}/{part}").load() for part in ("input", "weight", "grad"))
            pairs = {"fprop": (x, w), "dgrad": (g, w.mT), "wgrad": (g.mT, x.mT)}
            for role, (a, b) in pairs.items():
                # Bits of their own for each product: with the same ones, errors of products would not be independent.
                bits = (seed << 32) + (step << 12) + 8 * place + 2 * ROLES.index(role)
                lost = product_losses(a.contiguous(), b.contiguous(), getattr(given, role), seed=bits)
                done.lost[role].append(lost)
