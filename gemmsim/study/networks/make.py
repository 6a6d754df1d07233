"""Trains the networks that the package ships, and shows how much another training changes.

    python -m gemmsim.study.networks.make --out FOLDER          # the file as it is shipped, up to the machine's sums
    python -m gemmsim.study.networks.make --retrain 6           # accuracy of six trainings in an e5m2 register

PyTorch's sums differ between processors and versions in the last bits, so the file of another machine may differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from gemmsim._files import replacing

from ..errors import StudyError
from ..files import make_folder
from .digits import FILE, PARAMETERS, Data, Network, exact_logits, load_data, logits

__all__ = ["SHOWN", "main", "retrained", "train", "write"]

#: Orders of summation that ``--retrain`` shows, in e5m2.
SHOWN = {
    "sequential": ":e5m2",
    "rtz": ":e5m2/rtz",
    "chunk16": ":chunked(16, e5m2)",
    "pairwise": ":pairwise(e5m2)",
    "kahan": ":kahan(e5m2)",
}


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


def write(network: Network, folder: Path) -> Path:
    """Writes the parameters as safetensors into ``folder``.

    Raises:
        StudyError: without safetensors, or a folder that cannot be made.
    """
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise StudyError("install safetensors with: pip install 'gemmsim[study]'.") from error
    path = make_folder(folder) / FILE
    content = save({name: getattr(network, name).contiguous() for name in PARAMETERS})
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def retrained(data: Data, seed: int, **training: int) -> dict[str, float]:
    """Test accuracy of the training with ``seed``: exact, and in e5m2 under each order of ``SHOWN``."""
    network = train(data, seed=seed, **training)
    passes = {"exact": exact_logits(network, data.test_images)}
    passes |= {label: logits(network, data.test_images, spec, seed=0) for label, spec in SHOWN.items()}
    return {label: float((found.argmax(1) == data.test_labels).double().mean()) for label, found in passes.items()}


def main(words: Sequence[str] | None = None) -> None:
    """Does what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m gemmsim.study.networks.make", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="Write the network here.")
    parser.add_argument("--retrain", type=int, default=0, metavar="N", help="Train with seeds 0 ... N - 1.")
    asked = parser.parse_args(words)
    if asked.out is None and asked.retrain < 1:
        parser.error("nothing to do: give --out FOLDER or --retrain N")
    data = load_data()
    if asked.out is not None:
        network = train(data)
        print(f"{write(network, asked.out)} {network.fingerprint()}")
    for seed in range(asked.retrain):
        found = retrained(data, seed)
        print(f"seed {seed}: " + ", ".join(f"{label} {value:.3f}" for label, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
