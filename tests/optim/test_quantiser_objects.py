"""gemmsim's own quantisers in optimizers: their format and random bits are known, as those of casts are."""

import pickle

import pytest
import torch
from torch.nn import Parameter

import gemmsim as gs
from gemmsim import optim
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
    with pytest.raises(OptimizerError, match=rf"QOptim: {name}='(e8m23|fp32)' of weights in bfloat16"):
        stepped(1, torch.bfloat16, **{name: make("fp32")})
    stepped(1, torch.bfloat16, **{name: make("fp32")}, acc_quant="fp32")


def test_messages_and_reprs_say_a_format_as_it_was_written():
    weight = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    weight.grad = torch.ones_like(weight)
    for make in (optim.QSGD, optim.QAdam, optim.QAdamW):
        optimizer = make([weight], acc_quant="fp32", momentum_quant=("fp16", "sr"))
        said = ("acc_quant='fp32'", "momentum_quant='e5m10/sr16'")  # a pair is no text
        assert all(one in repr(optimizer) for one in said) and "\n" not in repr(optimizer)
        with pytest.raises(OptimizerError, match=f"^{make.__name__}: acc_quant='fp32' of weights in bfloat16"):
            optimizer.step()
        assert repr(pickle.loads(pickle.dumps(optimizer))) == repr(optimizer)


def test_optimizers_print_on_one_line():
    w, b = torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)
    assert repr(optim.QSGD([w])) == str(optim.QSGD([w])) == "<QSGD of 1 parameter: lr=0.001>"
    groups = [{"params": [w], "lr": 1.0}, {"params": [b], "momentum": 0.9}]
    assert repr(optim.QSGD(groups, acc_quant="bf16/sr", compensated=True, seed=3)) == (
        "<QSGD of 2 parameters in 2 groups: lr=1.0 and 0.001, momentum=0 and 0.9, acc_quant='bf16/sr', compensated=True, "
        "seed=3>"
    )
    assert repr(optim.QAdamW([w, b], betas=(0.8, 0.9))) == "<QAdamW of 2 parameters: lr=0.001, betas=(0.8, 0.9)>"
    around = optim.QOptim(torch.optim.SGD([w], 0.1, momentum=0.9), "e4m3", grad_quant=torch.sign, seed=0)
    assert (
        repr(around)
        == "<QOptim around SGD of 1 parameter: lr=0.1, momentum=0.9, weight_quant='e4m3', grad_quant=sign, seed=0>"
    )
