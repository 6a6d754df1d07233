"""What tests of compiled code share: a net and its input, a compiler that has seen nothing, and how many graphs it made."""

from __future__ import annotations

import torch

NET = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


def forget() -> None:
    """The compiler's graphs and counts."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def graphs() -> int:
    """How many graphs were compiled since ``forget``."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]
