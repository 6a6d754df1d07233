"""How the digits network was trained: plain float32 by torch alone; no emulation touches it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .digits import Data, Network

__all__ = ["train"]


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
