"""Models that searches are tested on: the shipped digits network, and a LeNet (train_lenet.py)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from gemmsim.study.networks.digits import Network, load_data, shipped_network

DATA = load_data()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def digits_model() -> nn.Module:
    network = shipped_network()
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    names = {"0.weight": network.w1, "0.bias": network.b1, "2.weight": network.w2, "2.bias": network.b2}
    model.load_state_dict(names)
    return model


@pytest.fixture
def digits() -> tuple[nn.Module, Tensor]:
    return digits_model(), DATA.test_images


@pytest.fixture(scope="session")
def network() -> Network:
    return shipped_network()


@pytest.fixture
def lenet() -> tuple[nn.Module, Tensor]:
    found = train_lenet()
    return found.stored(), DATA.test_images.reshape(-1, 1, 8, 8)


def train_lenet() -> ModuleType:
    """The file beside this one, which no package holds."""
    path = Path(__file__).with_name("train_lenet.py")
    spec = spec_from_file_location("train_lenet", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
