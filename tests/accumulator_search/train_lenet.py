"""Makes the LeNet that searches are tested on: ``python tests/accumulator_search/train_lenet.py`` writes its file again.

Training gives other last bits on another machine, and a search's choice may hang on them; so the weights are a file, in
float16, of which the test set of the digits has 0.97 right.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from gemmsim.study.networks.digits import load_data

FILE = Path(__file__).with_name("lenet.safetensors")


def architecture() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def stored() -> nn.Module:
    model = architecture()
    model.load_state_dict({name: value.float() for name, value in load_file(FILE).items()})
    return model


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, data = architecture(), load_data()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    images = data.train_images.reshape(-1, 1, 8, 8)
    for _ in range(60):
        for chosen in torch.randperm(len(images)).split(100):
            loss = functional.cross_entropy(model(images[chosen]), data.train_labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    save_file({name: value.half() for name, value in model.state_dict().items()}, FILE)
    right = stored()(data.test_images.reshape(-1, 1, 8, 8)).argmax(1) == data.test_labels
    print(f"{FILE}: {float(right.float().mean()):.3f} of the test images")


if __name__ == "__main__":
    main()
