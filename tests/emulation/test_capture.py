"""Operands in a file while they pass: values, names, memory that stays, and what is left after a crash."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from support import ROOT
from torch import nn

import gemmsim as gs
from gemmsim.emulation import CaptureError, ConfigError
from gemmsim.emulation.observe.safetensors_writer import GrowingFile

SPEC = "e4m3 : e5m10"


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


@pytest.mark.parametrize("config", [None, SPEC])
def test_operands_are_those_that_were_multiplied(tmp_path, config):
    net, x, file = model(), torch.randn(5, 4, requires_grad=True), tmp_path / "operands.safetensors"
    with gs.emulate(config), gs.capture(to=file) as grown:
        out = net(x)
        out.backward(torch.ones_like(out))
        assert not file.exists() and grown.partial.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name]
    found = load_file(file)
    op = "gemmsim.matmul" if config else "aten.addmm"
    assert torch.equal(found[f"0/{op}/fprop/0/a"], x) and torch.equal(found[f"0/{op}/fprop/0/b"], net[0].weight.mT)
    hidden = net[:2](x)
    if config is None:
        assert torch.equal(found[f"2/{op}/fprop/0/a"], hidden)
    back = "gemmsim.matmul" if config else "aten.mm"
    assert torch.equal(found[f"2/{back}/dgrad/0/a"], torch.ones(5, 3))
    assert {name.split("/")[2] for name in found} == {"fprop", "dgrad", "wgrad"} and len(found) == grown.count == 12
    with safe_open(file, "pt") as opened:
        assert opened.metadata()["made_by"] == "gemmsim.capture"


def test_chosen_modules_kinds_roles_and_rows(tmp_path):
    net, x = model(), torch.randn(9, 4, requires_grad=True)
    file = tmp_path / "some.safetensors"
    rules = [("0", SPEC), ("2", None)]
    with gs.emulate(rules), gs.capture(net, ["2", "nothing"], roles=("fprop", "wgrad"), max_rows=3, to=file):
        net(x).sum().backward()
    found = load_file(file)
    assert sorted(found) == sorted(f"2/aten.{op}/{n}" for op in ("addmm/fprop/0", "mm/wgrad/0") for n in "ab")
    assert found["2/aten.addmm/fprop/0/a"].shape == (3, 6) and found["2/aten.addmm/fprop/0/b"].shape == (6, 3)
    with gs.emulate(SPEC):
        whole = net[:2](x)
    assert torch.equal(found["2/aten.addmm/fprop/0/a"], whole[[0, 4, 8]])
    with gs.emulate(rules), gs.capture(net, kinds="linear", to=file):
        net(x).sum().backward()
    assert {name.split("/")[0] for name in load_file(file)} == {"0"}
    with gs.emulate(SPEC), gs.capture(net, kinds="linear", roles="wgrad", to=file):
        net(x).sum().backward()
    assert {name.split("/")[0] for name in load_file(file)} == {"0", "2"}
    with gs.capture(net, kinds="*mm", roles="dgrad", to=file):
        net(x).sum().backward()
    assert len(load_file(file)) == 4


def test_paths_are_the_models_and_run_does_a_step(tmp_path):
    outer = nn.Sequential(model())
    with gs.capture(outer, to=tmp_path / "o.safetensors"):
        outer[0](torch.randn(2, 4))
    assert {name.split("/")[0] for name in load_file(tmp_path / "o.safetensors")} == {"0.0", "0.2"}
    path = gs.capture(outer, "0.2", to=tmp_path / "run.safetensors").run(torch.randn(2, 4))
    assert {name.split("/")[2] for name in load_file(path)} == {"fprop", "dgrad", "wgrad"}
    assert all(p.grad is None for p in outer.parameters())
    with pytest.raises(ConfigError, match="model"):
        gs.capture(to=tmp_path / "x").run(torch.randn(2, 4))


def test_dtypes_batches_vectors_and_convolutions(tmp_path):
    file = tmp_path / "kinds.safetensors"
    half, double = torch.randn(3, 5).half(), torch.randn(5, 3, dtype=torch.float64)
    brain, image = torch.randn(1, 3, 3, dtype=torch.bfloat16), torch.randn(1, 2, 5)
    with gs.capture(to=file):
        half @ half.mT
        double @ double.mT
        torch.bmm(brain, brain)
        torch.mv(double, double[0])
        torch.conv1d(image, torch.ones(3, 2, 2))
        torch.ones(2, 2, dtype=torch.complex64) @ torch.ones(2, 2, dtype=torch.complex64)
        torch.empty(0, 3) @ torch.ones(3, 2)
        half @ half.mT
    found = load_file(file)
    assert torch.equal(found["-/aten.mm/fprop/0/a"], half) and torch.equal(found["-/aten.mm/fprop/1/b"], double.mT)
    assert torch.equal(found["-/aten.bmm/fprop/0/b"], brain) and found["-/aten.mv/fprop/0/b"].shape == (3, 1)
    assert torch.equal(found["-/aten.convolution/fprop/0/a"], image)
    assert found["-/aten.mm/fprop/2/a"].shape == (0, 3) and torch.equal(found["-/aten.mm/fprop/3/b"], half.mT)


def test_an_audit_outside_or_inside_sees_the_same(tmp_path):
    net, x = model(), torch.randn(5, 4)
    wanted = [r.to_dict() for r in gs.audit(net, x)]
    with gs.audit() as outside, gs.capture(to=tmp_path / "a"), gs.audit() as inside:
        net(x).sum().backward()
    assert [r.to_dict() for r in outside] == [r.to_dict() for r in inside] == wanted


def test_the_header_grows_beyond_its_room(tmp_path):
    grown = GrowingFile(tmp_path / "f", {"made_by": "test"}, room=256)
    tensors = {f"name {i}": torch.full((i % 5, 3), float(i)) for i in range(300)}
    for name, tensor in tensors.items():
        grown.add(name, tensor)
    partial = load_file(grown.partial)  # readable while it grows
    assert len(partial) > 150 and "__unwritten__" in partial
    grown.close()
    found = load_file(tmp_path / "f")
    assert found.keys() == tensors.keys() and all(torch.equal(found[name], t) for name, t in tensors.items())
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_an_exception_leaves_what_there_is_under_the_other_name(tmp_path):
    file = tmp_path / "operands.safetensors"
    file.write_text("old")
    with pytest.raises(KeyError), gs.capture(to=file):
        torch.eye(2) @ torch.eye(2)
        raise KeyError
    assert file.read_text() == "old"
    assert set(load_file(tmp_path / "operands.safetensors.part")) >= {f"-/aten.mm/fprop/0/{n}" for n in "ab"}


def test_nothing_that_matches_is_an_error_that_says_what_there_was(tmp_path):
    with pytest.raises(CaptureError, match="0/aten.addmm/fprop"), gs.capture(patterns="1", to=tmp_path / "f"):
        model()(torch.randn(2, 4))
    assert not list(tmp_path.iterdir())


def test_bad_arguments_and_places_that_cannot_be_written(tmp_path):
    for wrong in ({"roles": "forward"}, {"max_rows": 0}, {"patterns": "re:("}, {"model": 3}):
        with pytest.raises(ConfigError):
            gs.capture(**wrong)
    with pytest.raises(CaptureError, match="nowhere"), gs.capture(to=tmp_path / "nowhere" / "f"):
        pass
    assert torch._C._len_torch_dispatch_stack() == 0


CHILD = """
import resource, signal, sys, torch, gemmsim as gs
torch.set_num_threads(1)
x = torch.ones(64, 64)
limit, file = int(sys.argv[1]), sys.argv[2]
if limit:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
with gs.capture(to=file):
    for i in range(10**6):
        x @ x
        if i == 500:
            print("going", flush=True)
"""


def test_a_killed_process_leaves_a_readable_file(tmp_path):
    file = tmp_path / "operands.safetensors"
    child = subprocess.Popen([sys.executable, "-c", CHILD, "0", str(file)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "going\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGKILL)
    child.wait()
    with safe_open(f"{file}.part", "pt") as found:
        assert not file.exists() and len(found.keys()) > 900
        assert torch.equal(found.get_tensor("-/aten.mm/fprop/400/a"), torch.ones(64, 64))


def test_a_full_disk_is_an_error_of_its_own(tmp_path):
    """A limit on the size of files stands for the disk."""
    file = tmp_path / "operands.safetensors"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(1 << 24), str(file)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1 and "CaptureError" in done.stderr and "max_rows" in done.stderr, done.stderr
    assert not file.exists()


MEMORY = """
import sys, torch, gemmsim as gs
torch.set_num_threads(1)
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
a, b = torch.ones(64, 256), torch.ones(256, 64)
with gs.capture(to=sys.argv[1]) as grown:
    for i in range(1200):
        a @ b
        if i == 200:
            before = resident()
print(resident() - before, grown.size)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_the_file(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "f")], cwd=ROOT, capture_output=True, text=True, check=True
    )
    more, written = map(int, done.stdout.split())
    assert written > 150e6 and more < written / 20


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="without oneDNN an LSTM is several operators")
def test_products_inside_one_operator_are_named_and_what_to_do(tmp_path):
    net, x, file = nn.Sequential(nn.LSTM(4, 4)), torch.randn(3, 2, 4), tmp_path / "x.safetensors"
    says = r"capture: 0/aten\.mkldnn_rnn_layer/fprop: inside one native operator(.|\n)*gemmsim\.emulate.*QLSTM"
    with torch.no_grad(), pytest.raises(CaptureError, match=says), gs.capture(to=file):
        net(x)
    with torch.no_grad(), gs.emulate("fp32 : fp32"), gs.capture(to=file) as found:
        net(x)
    assert found.count
    with torch.no_grad(), pytest.raises(CaptureError, match="match nothing"), gs.capture(None, "other", to=file):
        net(x)


def test_operands_without_values_are_said(tmp_path):
    x = torch.ones(2, 3, device="meta")
    with pytest.raises(CaptureError, match="-/aten.mm/fprop: operands without values"):
        with gs.capture(to=tmp_path / "x.safetensors"):
            x @ x.T
