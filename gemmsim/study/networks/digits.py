"""Data and network of the studies on handwritten digits: real images, a network trained in plain float32.

Data: scikit-learn's bundled digits (1,797 images of 8 x 8 pixels, UCI ML hand-written digits test set), every third one
for testing. Network: 64-256-10 with ReLU, shipped with the package, because training gives other weights on another
machine, and what a truncating accumulator makes of a network depends on them.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

import gemmsim as gs

from ..errors import StudyError

__all__ = ["FILE", "Data", "Network", "exact_logits", "load_data", "logits", "shipped_network"]

PARAMETERS = ("w1", "b1", "w2", "b2")
SHAPES = {"w1": (256, 64), "b1": (256,), "w2": (10, 256), "b2": (10,)}
#: The network, beside this module: safetensors of the four parameters, float32.
FILE = "digits_64_256_10.safetensors"
EXACT = ":fp64"


@dataclass(frozen=True)
class Data:
    """Images as rows of 64 pixels in [0, 1] (multiples of 1/16, exact in float32) and their labels 0..9."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    TEST_IMAGES: ClassVar[int] = 599
    TRAIN_IMAGES: ClassVar[int] = 1198


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
    """The digits, split by position: image i tests when i is a multiple of 3. The same on every machine.

    Raises:
        StudyError: without scikit-learn.
    """
    pixels, targets = _digits()
    images = torch.tensor(pixels / 16, dtype=torch.float32)
    labels = torch.tensor(targets, dtype=torch.int64)
    test = torch.arange(len(labels)) % 3 == 0
    return Data(images[~test], labels[~test], images[test], labels[test])


def shipped_network() -> Network:
    """The network that comes with the package.

    Raises:
        StudyError: without safetensors; a file that is damaged or not there.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load
    except ImportError as error:
        raise StudyError(
            "this study reads a network with safetensors. Install it with: pip install 'gemmsim[study]'."
        ) from error
    try:
        stored = load(files(__package__).joinpath(FILE).read_bytes())
    except (OSError, SafetensorError) as error:
        raise StudyError(f"cannot read the network {FILE}: {error}. Install gemmsim again.") from error
    if {name: tuple(value.shape) for name, value in stored.items()} != SHAPES:
        raise StudyError(f"{FILE} holds another network than 64-256-10. Install gemmsim again.")
    return Network(*(stored[name] for name in PARAMETERS))


def logits(network: Network, images: Tensor, spec: str, seed: int) -> Tensor:
    """Forward pass of ``network`` with both matrix products under ``spec``; each layer draws its own random bits.

    ``images``: (images, 64). The result is (images, 10) in the dtype of products; bias and ReLU are in float32, in
    float64 for a float64 network.
    """
    hidden = torch.relu(gs.qmatmul(images, network.w1.mT, spec, seed=2 * seed) + network.b1)
    return gs.qmatmul(hidden, network.w2.mT, spec, seed=2 * seed + 1) + network.b2


def exact_logits(network: Network, images: Tensor) -> Tensor:
    """The same pass with everything in float64: its error is about 1e-15, far below anything compared with it."""
    return logits(network.to(torch.float64), images.double(), EXACT, seed=0)


def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels 0..16 as (1797, 64) and targets, from scikit-learn's own file: importing it takes longer than a study."""
    found = importlib.util.find_spec("sklearn")
    path = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz" if found and found.origin else None
    if path is not None and path.is_file():
        table = np.loadtxt(io.StringIO(gzip.decompress(path.read_bytes()).decode("ascii")), delimiter=",")
        return table[:, :-1], table[:, -1]
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise StudyError(
            "studies on digits need the images of scikit-learn. Install it with: pip install 'gemmsim[study]'."
        ) from error
    loaded = load_digits()
    return loaded.data, loaded.target
