"""Reports of models that are not computed: as of a real run, of billions of parameters, without memory."""

from __future__ import annotations

import resource
import time
from collections import Counter

import pytest
import torch
from support.models import make
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import gemmsim as gs
from gemmsim.emulation.fake_tensor_assumptions import call_fake

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

    with pytest.raises(gs.emulation.DryRunError, match="_local_scalar_dense of a Asks|needs values"):
        gs.audit.dry_run(Asks(), torch.eye(2))
    with pytest.raises(gs.emulation.ConfigError):
        gs.audit.dry_run(Llama(*SMALL), torch.randint(30, (2, 5)), [("nowhere", SPEC)])


def test_experts_get_equal_shares_and_the_report_says_so():
    """Which rows go to which expert is data: all else is as in a real run, the multiply-adds in all, too."""
    model, inputs = make("mixture")
    with gs.emulate(SPEC):
        real = gs.audit(model, **inputs)
    dry = gs.audit.dry_run(model, inputs, SPEC)
    assert [r.module for r in dry if "experts" not in r.module] == [r.module for r in real if "experts" not in r.module]
    fields = [Counter((r.op, r.module, r.role, r.spec, r.dtype) for r in report) for report in (dry, real)]
    assert fields[0] == fields[1] and dry.total_macs == real.total_macs
    assert [r.to_dict() for r in dry if "experts" not in r.module] == [
        r.to_dict() for r in real if "experts" not in r.module
    ]
    assert {r.shape[1] for r in dry if "experts" in r.module and r.role == "fprop"} == {2 * 10 * 2 // 4}
    assert dry.assumed == {"grouped_mm: groups of equal sizes": 4} and not real.assumed
    assert "Assumed because values were not available: grouped_mm: groups of equal sizes x4." in str(dry)
    assert gs.emulation.Report.from_dict(dry.to_dict()).assumed == dry.assumed


def test_experts_that_pytorch_multiplies():
    """A native grouped product is one record, whatever its groups."""
    model, inputs = make("mixture")
    dry = gs.audit.dry_run(model, inputs)
    assert [r.to_dict() for r in dry] == [r.to_dict() for r in gs.audit(model, **inputs)]
    assert not dry.assumed and any(r.op == "aten._grouped_mm" for r in dry)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "a, b", [((8, 16), (3, 16, 8)), ((3, 5, 16), (16, 8)), ((4, 8), (8, 24)), ((3, 4, 8), (3, 8, 8))]
)
def test_grouped_products_without_values_look_as_with_them(a, b, dtype):
    ends = None if len(a) == len(b) == 3 else torch.tensor([2, 5, 8], dtype=torch.int32)
    real = torch._grouped_mm(torch.ones(a, dtype=dtype), torch.ones(b, dtype=dtype), ends)
    with FakeTensorMode():
        offs = None if ends is None else torch.empty(3, dtype=torch.int32)
        operands = (torch.empty(a, dtype=dtype), torch.empty(b, dtype=dtype), offs)
        fake = call_fake(torch.ops.aten._grouped_mm.default, operands, {})
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def test_experts_found_by_their_tokens_are_refused():
    transformers = pytest.importorskip("transformers", reason="needs the extra 'transformers'")
    model, inputs = make("mixture")
    eager = transformers.MixtralForCausalLM._from_config(model.config, experts_implementation="eager")
    with pytest.raises(gs.emulation.DryRunError, match="nonzero.*needs values"):
        gs.audit.dry_run(eager, inputs, SPEC)
