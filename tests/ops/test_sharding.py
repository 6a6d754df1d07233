"""Products of DTensors in two processes: the bits of the whole product, or a refusal with its reason."""

from __future__ import annotations

import re

from support import ROOT
from support.fork import run_forked
from support.processes import needs_processes, run_two_processes

WORKER = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
mesh = init_device_mesh("cpu", (2,))
generator = torch.Generator().manual_seed(3)
R = Replicate()

def numbers(*shape):
    return torch.randn(shape, generator=generator)

def spread(t, placement):
    return distribute_tensor(t, mesh, [placement])

def check(got, want, placement=None, context=""):
    assert isinstance(got, DTensor), context
    assert placement is None or got.placements == (placement,), (context, got.placements)
    whole = got.full_tensor()
    assert whole.shape == want.shape and whole.dtype == want.dtype, context
    assert torch.equal(whole.view(torch.int32), want.view(torch.int32)), context

x, w, bias, g = numbers(6, 32), numbers(10, 32), numbers(10), numbers(6, 10)
SPECS = [
    "e4m3 : e5m10", ":kahan(bf16)", "mxfp8_e4m3 * mxfp4 : fp32", "e4m3 : chunked(8, e5m10) -> bf16",  # rounded alike
    "e4m3/sr8 : e5m10/sr8", ": bf16/sr", "nvfp4/tensor : fp32", "bfp(8,16) : fp32",  # what needs all of an operand
    "hw(hopper, wgmma, e4m3)", ": exact()",
]
WHOLE = SPECS[4:8]
ROWS, COLUMNS, BOTH = (Shard(0), R, R), (R, Shard(0), Shard(0)), (Shard(0), Shard(0), Shard(0))

# qlinear and its gradients, in all that training uses
for spec in SPECS:
    for places in (ROWS, COLUMNS, BOTH):
        plain = [t.clone().requires_grad_() for t in (x, w, bias)]
        want = gs.qlinear(*plain, spec, seed=5)
        want.backward(g)
        leaves = [spread(t, p).requires_grad_() for t, p in zip((x, w, bias), places)]
        got = gs.qlinear(*leaves, spec, seed=5)
        place = R if spec in WHOLE else Shard(1) if places is COLUMNS else Shard(0)
        check(got, want, place, (spec, places))
        got.backward(spread(g, place))
        for leaf, p in zip(leaves, plain):
            check(leaf.grad, p.grad, None, (spec, places, p.shape))

# one sequence of specs on the same shapes: what was chosen for one is not taken for another
for spec in (":e5m10", ":e5m10/sr8", ":e5m10"):
    check(gs.qmatmul(spread(x, Shard(0)), spread(w.T, R), spec, seed=1), gs.qmatmul(x, w.T, spec, seed=1))

# formats of layers: quantisers of all steps, random bits, scaling
for formats in (
    gs.QAffineFormats(fprop="e4m3 : fp32", input_quant="e4m3", weight_quant="e4m3/sr8", output_quant="bf16", grad_quant="e5m2/sr8"),
    gs.QAffineFormats(fprop=":bf16", dgrad=":e5m10", wgrad=None, grad_quant="e5m2"),
):
    torch.manual_seed(0)
    layer = gs.nn.QLinear(32, 10, spec=formats)
    plain = x.clone().requires_grad_()
    want = gs.qlinear(plain, layer.weight, layer.bias, formats, seed=9)
    want.backward(g)
    ours = [spread(t.detach(), p).requires_grad_() for t, p in zip((x, layer.weight, layer.bias), ROWS)]
    got = gs.qlinear(*ours, formats, seed=9)
    check(got, want, None, formats)
    if formats.wgrad is not None:
        got.backward(spread(g, Shard(0)))
        check(ours[0].grad, plain.grad, None, formats)
        check(ours[1].grad, layer.weight.grad, None, formats)

# without a seed the processes agree on one, whatever their generators hold
torch.manual_seed(rank)
parts = gs.qmatmul(spread(x, Shard(0)), spread(w.T, R), ":bf16/sr")
torch.manual_seed(0)
check(parts, gs.qmatmul(x, w.T, ":bf16/sr"), R)
check(gs.quantize(spread(x, Shard(1)), "e5m2/sr8", seed=2), gs.quantize(x, "e5m2/sr8", seed=2), R)
check(gs.quantize(spread(x, Shard(1)), "e5m2"), gs.quantize(x, "e5m2"), Shard(1))

# batches, uneven shards, values given as sums
batch, right = numbers(3, 4, 8), numbers(3, 8, 5)
want = gs.qmatmul(batch, right, "e4m3 : e5m10")
for places in ((Shard(0), Shard(0)), (Shard(0), R), (Shard(1), R), (R, Shard(2)), (R, Shard(0))):
    check(gs.qmatmul(spread(batch, places[0]), spread(right, places[1]), "e4m3 : e5m10"), want, None, places)
check(gs.qmatmul(spread(batch, Shard(0)), spread(right[0], R), ":bf16"), gs.qmatmul(batch, right[0], ":bf16"), Shard(0))

# refusals
def refused(call, text):
    try:
        call()
    except gs.ShardingError as error:
        assert text in str(error), error
    else:
        raise SystemExit("no error: " + text)

refused(lambda: gs.qmatmul(spread(x, Shard(1)), spread(w.T, R), ":e5m10"), "another order than the accumulator's")
refused(lambda: gs.qlinear(spread(x, R), spread(w, Shard(1)), None, "e4m3 : fp32"), "sharded sum: b")
refused(lambda: gs.qlinear(spread(x, Shard(1)), spread(w, Shard(1)), None, ":bf16/sr"), "redistribute")
refused(lambda: gs.qlinear(spread(x, Shard(0)), w, None, ":e5m10"), "plain tensor b")
"""


@needs_processes
def test_two_processes_compute_the_bits_of_the_whole_product(tmp_path):
    run_two_processes(WORKER, tmp_path)


def test_plain_tensors_load_no_rules():
    code = """
import sys, torch, gemmsim as gs
x = torch.ones(2, 3, requires_grad=True)
gs.qlinear(x, torch.ones(4, 3), None, "e4m3 : e5m10").sum().backward()
gs.quantize(x.detach(), "e4m3")
assert "gemmsim.ops.product.sharding" in sys.modules and "gemmsim.ops.product.sharding_rules" not in sys.modules
"""
    done = run_forked(code)
    assert done.returncode == 0, done.stderr


def test_the_rules_alone_import_torch_distributed():
    line = re.compile(r"^\s*(import|from) torch\.distributed", re.MULTILINE)
    files = [path for path in (ROOT / "gemmsim").rglob("*.py") if line.search(path.read_text(encoding="utf-8"))]
    assert [path.name for path in files] == ["sharding_rules.py"]
