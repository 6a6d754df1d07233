"""gemmsim's own quantisers in optimizers: their format and random bits are known, as those of casts are."""

import pytest
import torch
from torch.nn import Parameter

import gemmsim as gs
from gemmsim.optim import OptimizerError, QOptim

MAKE = {"name": str, "function": gs.quantizer, "module": gs.nn.Quantizer}


def stepped(steps, dtype, rank=0, **options):
    weight = Parameter(torch.ones(500, dtype=dtype))
    optimizer = QOptim(torch.optim.SGD([weight], lr=2.0**-12), **options)
    torch.manual_seed(rank)
    for _ in range(steps):
        weight.grad = -torch.ones_like(weight)
        optimizer.step()
    return weight.detach()


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_master_copies_are_as_wide(make):
    assert stepped(1024, torch.bfloat16, weight_quant="bf16", acc_quant=make("fp32"))[0] == 1.25


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_replicas_with_one_seed_stay_equal(make):
    first, second = (stepped(4, torch.float32, rank, weight_quant=make("bf16/sr16"), seed=7) for rank in (0, 1))
    assert torch.equal(first, second) and first.unique().numel() > 1


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
@pytest.mark.parametrize("name", ["weight_quant", "grad_quant", "momentum_quant"])
def test_what_the_weights_do_not_hold_is_refused(name, make):
    with pytest.raises(OptimizerError, match=rf"QOptim: {name}='e8m23' of weights in bfloat16"):
        stepped(1, torch.bfloat16, **{name: make("fp32")})
    stepped(1, torch.bfloat16, **{name: make("fp32")}, acc_quant="fp32")
