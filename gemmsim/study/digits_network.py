"""Data and network of the digits study: real images, a network trained in plain float32."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from .errors import StudyError
from .files import atomic_path

PARAMETERS = ("w1", "b1", "w2", "b2")


@dataclass(frozen=True)
class Data:
    """Images as rows of 64 pixels in [0, 1] (multiples of 1/16, exact in float32) and their labels 0..9."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    TEST_IMAGES: ClassVar[int] = 599


@dataclass(frozen=True)
class Network:
    """images @ w1.T + b1, ReLU, @ w2.T + b2."""

    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor

    MACS_PER_IMAGE: ClassVar[int] = 64 * 256 + 256 * 10

    def to(self, dtype: torch.dtype) -> Network:
        """The same network with all parameters as ``dtype``."""
        return Network(*(getattr(self, name).to(dtype) for name in PARAMETERS))

    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of all parameters' bytes."""
        content = hashlib.sha256()
        for name in PARAMETERS:
            content.update(getattr(self, name).contiguous().numpy().tobytes())
        return content.hexdigest()[:16]


def load_data() -> Data:
    """The digits, split by position: image i tests when i is a multiple of 3. The same on every machine."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise StudyError(
            "the digits study needs scikit-learn. Install it with: pip install 'gemmsim[study]'."
        ) from error
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target, dtype=torch.int64)
    test = torch.arange(len(labels)) % 3 == 0
    return Data(images[~test], labels[~test], images[test], labels[test])


def trained_network(data: Data, path: Path, setting: str) -> Network:
    """The network stored at ``path`` for ``setting``; trained and stored there when absent, damaged or of another."""
    network = _load(path, setting)
    if network is None:
        network = train(data)
        with atomic_path(path) as temporary:
            np.savez(temporary, setting=setting, **{name: getattr(network, name).numpy() for name in PARAMETERS})
    return network


def train(data: Data, *, epochs: int = 40, batch: int = 200, seed: int = 0) -> Network:
    """Adam on the cross-entropy, float32, one thread so that the sums always have the same order."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(shape: tuple[int, ...], fan_in: int, fan_out: int) -> Tensor:
        bound = (6 / (fan_in + fan_out)) ** 0.5  # Glorot and Bengio 2010, equation 16
        weights: Tensor = (torch.rand(shape, generator=generator) * 2 - 1) * bound
        return weights.requires_grad_()

    w1, w2 = uniform((256, 64), 64, 256), uniform((10, 256), 256, 10)
    b1, b2 = torch.zeros(256, requires_grad=True), torch.zeros(10, requires_grad=True)
    optimizer = torch.optim.Adam([w1, b1, w2, b2], lr=1e-3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(epochs):
            order = torch.randperm(len(data.train_labels), generator=generator)
            for chosen in order.split(batch):
                hidden = torch.relu(functional.linear(data.train_images[chosen], w1, b1))
                loss = functional.cross_entropy(functional.linear(hidden, w2, b2), data.train_labels[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    finally:
        torch.set_num_threads(threads)
    return Network(w1.detach(), b1.detach(), w2.detach(), b2.detach())


def _load(path: Path, setting: str) -> Network | None:
    try:
        with np.load(path) as stored:
            if str(stored["setting"]) != setting:
                return None
            return Network(*(torch.from_numpy(stored[name]) for name in PARAMETERS))
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None
