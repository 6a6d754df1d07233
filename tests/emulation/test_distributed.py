"""Two processes under emulation: DDP, FSDP2 and tensor parallelism with the bits of what each process multiplies."""

from support.processes import needs_processes, run_two_processes

WORKER = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from gemmsim.emulation import emulate
mesh = init_device_mesh("cpu", (2,))
X = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
mine = X[3 * rank : 3 * rank + 3]

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

def run(net, x, config):
    with emulate(config, seed=3, step=0):
        out = net(x)
        out.square().sum().backward()
    return out

def check(ours, theirs, context):
    for name, theirs in theirs.items():
        found = ours[name].full_tensor() if hasattr(ours[name], "full_tensor") else ours[name]
        assert torch.equal(found, theirs), (context, name, (found - theirs).abs().max())

def gradients(net):
    return {name.removeprefix("module."): p.grad for name, p in net.named_parameters()}

for config in (":e5m4", [("0", ":e5m4")], ":e5m6/sr"):
    alone = make()
    want = run(alone, mine, config)
    mean = {name: g.clone() for name, g in gradients(alone).items()}
    for g in mean.values():
        dist.all_reduce(g)
        g /= 2
    ddp = torch.nn.parallel.DistributedDataParallel(make())
    assert torch.equal(run(ddp, mine, config), want)
    check(gradients(ddp), mean, ("ddp", config))
    sharded = make()
    for module in (sharded[0], sharded[2], sharded):
        fully_shard(module, mesh=mesh)
    assert torch.equal(run(sharded, mine, config), want)
    check(gradients(sharded), mean, ("fsdp2", config))
    whole = make()
    want = run(whole, X, config)
    columns = parallelize_module(make(), mesh, {"0": ColwiseParallel(output_layouts=Replicate())})
    assert torch.equal(run(columns, X, config), want)
    weights = {name: g for name, g in gradients(whole).items() if name != "0.bias"}
    check(gradients(columns), weights, ("columns", config))

# Rows: each process multiplies its half of the sum, PyTorch adds the halves.
net = make()
net[2].bias.data.zero_()  # PyTorch adds it to one of the halves
with emulate(":e5m4"), torch.no_grad():
    hidden = torch.relu(net[0](X))
    weight = net[2].weight
    want = gs.qmatmul(hidden[:, :8], weight[:, :8].T, ":e5m4") + gs.qmatmul(hidden[:, 8:], weight[:, 8:].T, ":e5m4")
    copy = make()
    copy[2].bias.data.zero_()
    rows = parallelize_module(copy, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    found = rows(X)
    assert torch.equal(found, want), (found - want).abs().max()
"""


@needs_processes
def test_two_processes(tmp_path):
    run_two_processes(WORKER, tmp_path)
