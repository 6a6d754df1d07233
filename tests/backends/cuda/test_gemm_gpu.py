"""Matrix products on a GPU equal the CPU's bit for bit; and operators ask the backend of their operands' device."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import operand
from support.cuda import host_quantize
from support.cuda_gemm import host_gemm, host_multiply
from support.cuda_specs import CHIPS, ORDERS, RUNS, random_register, specs

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import convert, cpu, cuda, route
from gemmsim.ops import quantize_eager


def groups() -> dict[str, list[GemmSpec]]:
    """Specs of every kind, and drawn ones, a few to a test: each has up to four kernels, which have to be compiled."""
    named = {
        "order": ORDERS, "run": RUNS, "plain": ["e4m3 : e6m9", "e4m3 : e5m10", "bf16 : bf16", ":fp32"], "chip": CHIPS
    }  # fmt: skip
    kinds = {kind: [GemmSpec.of(text) for text in texts] for kind, texts in named.items()}
    kinds["drawn"] = specs(120, random_register, random.Random(1))
    found = {}
    for kind, members in kinds.items():
        size = 2 if kind == "chip" else 5  # an instruction is compared with its model first
        for at in range(0, len(members), size):
            found[f"{kind} {at}"] = members[at : at + size]
    return found


GROUPS = groups()


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(7, 19, 11), (150, 333, 270)], ids=str)
@pytest.mark.parametrize("name", GROUPS)
def test_products_on_a_gpu_equal_the_cpus(name, size):
    rng, (m, k, n) = random.Random(f"{name} {size}"), size
    for spec in GROUPS[name]:
        a, b, seed = operand(rng, m, k, torch.float32), operand(rng, k, n, torch.float32), rng.randrange(1 << 63)
        got, want = torch.empty(m, n, dtype=torch.float64, device="cuda"), torch.empty(m, n, dtype=torch.float64)
        cuda.gemm(a.cuda(), b.cuda(), spec, got, seed)
        try:
            cpu.gemm(a, b, spec, want, seed)
        except ValueError:  # operands of int(...) that are not whole
            continue
        assert_bitwise_equal(got.cpu(), want, context=f"{spec} {size} seed {seed}")


@pytest.mark.gpu
def test_the_public_functions_on_a_gpu():
    a, b = torch.randn(3, 65, 130), torch.randn(130, 70)
    for text in ("e4m3 : e5m10", ":bf16/sr8", ":chunked(16, e4m3, fp32)"):
        got = gs.qmatmul(a.cuda(), b.cuda(), text, seed=3)
        assert got.is_cuda and gs.last_backend().backend == "cuda"
        assert_bitwise_equal(got.cpu(), gs.qmatmul(a, b, text, seed=3), context=text)
    with pytest.raises(gs.DeviceError, match="one device"):
        gs.qmatmul(a.cuda(), b, ":e5m10")


@pytest.fixture
def on_the_host(monkeypatch):
    """The CUDA backend, its kernels run on the host, in place of the CPU's."""
    backend = SimpleNamespace(
        gemm=host_gemm, multiply=host_multiply, quantize=host_quantize, names_instruction=lambda spec: False
    )
    for module in (convert, quantize_eager, route):
        monkeypatch.setattr(module, "backend_of", lambda x: backend)


def test_operators_ask_the_backend_of_their_operands(on_the_host, monkeypatch):
    g = torch.Generator().manual_seed(2)
    a, b, c = torch.randn(2, 3, 5, 8, generator=g), torch.randn(3, 8, 4, generator=g), torch.randn(5, 4, generator=g)
    select = torch.randint(0, 2, (5, 4), generator=g)
    calls = [
        lambda: gs.qmatmul(a, b, "e4m3/sr8 : e5m10/sr8", seed=4),
        lambda: gs.qmatmul(a, b, ":sequential(e4m3, init=c_last)", c=c),
        lambda: gs.qmatmul(a, b, ":palette(e4m3, bf16)", select=select),
        lambda: gs.qmatmul(a[0, 0], b[0], ":e5m10, arithmetic=fp32", out_dtype=torch.bfloat16),
        lambda: gs.quantize(a, "e4m3/sr8", seed=5),
        lambda: gs.count_overflows(a, b, "e4m3/sr4 : fixed(5, 2, rounding=sr8)", seed=6),
    ]
    got = [call() for call in calls]
    gs.qmatmul(a[0, 0], b[0], ":e5m10, arithmetic=fp32")
    assert gs.last_backend().plan.startswith("cuda: gemm<")
    monkeypatch.undo()
    for index, call in enumerate(calls):
        assert_bitwise_equal(got[index], call(), context=f"call {index}")


@pytest.mark.gpu
@pytest.mark.parametrize(
    "text", ["int8 : int(8)", "int8 : chunked(5, int(9, saturate), fp32)", "e4m3/sr4 : fixed(8, 4, rounding=rne)"]
)
def test_overflows_counted_on_a_gpu_are_those_on_the_cpu(text):
    g = torch.Generator().manual_seed(12)
    a, b = (
        torch.randint(-99, 99, (3, 40, 70), generator=g).float(),
        torch.randint(-99, 99, (70, 33), generator=g).float(),
    )
    got = gs.count_overflows(a.cuda(), b.cuda(), text, seed=3)
    assert got.is_cuda and torch.equal(got.cpu(), gs.count_overflows(a, b, text, seed=3))
