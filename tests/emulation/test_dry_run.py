"""Reports of models that are not computed: as of a real run, of billions of parameters, without memory."""

from __future__ import annotations

import resource
import time

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import gemmsim as gs

SPEC = "e4m3 : e5m10"


class Block(nn.Module):
    """A layer as Llama has it, but for rotations of positions, which multiply no matrices."""

    def __init__(self, width, inner, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (part(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        x = x + self.o(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, width, inner, heads, layers, words):
        super().__init__()
        self.embed, self.norm = nn.Embedding(words, width), nn.RMSNorm(width)
        self.layers = nn.ModuleList(Block(width, inner, heads) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


SMALL = (16, 24, 2, 2, 30)


def test_the_report_is_that_of_a_real_run():
    model, ids = Llama(*SMALL), torch.randint(30, (2, 5))
    rules = [("layers.*", SPEC), ("head", {"fprop": ":bf16"})]
    with gs.emulate(rules):
        real = gs.audit(model, ids)
    dry = gs.audit.dry_run(model, ids, rules)
    assert [r.to_dict() for r in dry] == [r.to_dict() for r in real] and len(real) > 30
    assert all(p.grad is None and type(p) is nn.Parameter for p in model.parameters())
    native = gs.audit.dry_run(model, (ids,))
    assert not native.emulated and native.total_macs == real.total_macs
    forward = gs.audit.dry_run(model, {"ids": ids}, SPEC, backward=False)
    assert {r.role for r in forward} == {"fprop"} and not forward.native


def test_models_of_the_meta_device_and_fake_ones():
    ids = torch.randint(30, (2, 5))
    wanted = gs.audit.dry_run(Llama(*SMALL), ids, SPEC).to_dict()
    with torch.device("meta"):
        model = Llama(*SMALL)
    assert gs.audit.dry_run(model, ids, SPEC).to_dict() == wanted
    assert gs.audit.dry_run(model, ids.to("meta"), SPEC).to_dict() == wanted
    with FakeTensorMode():
        fake = Llama(*SMALL)
    assert gs.audit.dry_run(fake, ids, SPEC).to_dict() == wanted


def test_seven_billion_parameters_in_a_moment():
    with torch.device("meta"):
        model = Llama(4096, 11008, 32, 32, 32000)
    assert sum(p.numel() for p in model.parameters()) > 6.7e9
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    report = gs.audit.dry_run(model, torch.zeros(1, 2048, dtype=torch.int64), SPEC)
    seconds = time.process_time() - start
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KiB, of 26 GiB of parameters
    assert seconds < 20  # about one and a half; slow and busy machines take longer
    # Two multiply-adds for each parameter and token and pass, embedding and norms aside, and attention's scores.
    products = 3 * 2048 * (sum(p.numel() for n, p in model.named_parameters() if "norm" not in n and "embed" not in n))
    assert report.total_macs == products + 3 * 32 * 32 * 2 * 2048 * 2048 * 128 and report.emulated_share == 1
    assert {r.nans for r in report} == {None}


def test_shared_parameters_stay_shared():
    model = Llama(*SMALL)
    model.head.weight = model.embed.weight
    report = gs.audit.dry_run(model, torch.randint(30, (2, 5)))
    assert {r.role for r in report if r.module == "head"} == {"fprop", "dgrad", "wgrad"}


def test_what_asks_for_values_is_told():
    class Asks(nn.Module):
        def forward(self, x):
            return x @ x if x.sum() > 0 else x

    with pytest.raises(gs.emulation.DryRunError, match="_local_scalar_dense of a Asks|asks for values"):
        gs.audit.dry_run(Asks(), torch.eye(2))
    with pytest.raises(gs.emulation.ConfigError):
        gs.audit.dry_run(Llama(*SMALL), torch.randint(30, (2, 5)), [("nowhere", SPEC)])
