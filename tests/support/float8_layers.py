"""What tests of float8 layers share: configurations by name, small models, and a step of them."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from gemmsim.compat.torchao.float8 import Float8LinearConfig, convert_to_float8_training

RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def configured(recipe: str, **changes) -> Float8LinearConfig:
    return dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), **changes)


def made(recipe: str, *, dtype=torch.float32, bias=True, sizes=(48, 32, 16), **changes) -> nn.Sequential:
    torch.manual_seed(0)
    one, two, three = sizes
    model = nn.Sequential(nn.Linear(one, two, bias=bias), nn.ReLU(), nn.Linear(two, three, bias=bias)).to(dtype)
    return convert_to_float8_training(model, config=configured(recipe, **changes))


def run(model: nn.Module, x: Tensor, g: Tensor | None = None) -> list[Tensor]:
    """The output, and gradients of the input and the parameters."""
    model.zero_grad()
    x = x.detach().clone().requires_grad_()
    y = model(x)
    y.backward(torch.ones_like(y) if g is None else g)
    return [y.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]


def assert_all_equal(got: list[Tensor], want: list[Tensor]) -> None:
    assert len(got) == len(want)
    for one, two in zip(got, want, strict=True):
        assert one.dtype == two.dtype and torch.equal(one, two)


def random(*shape, seed=1, dtype=torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
