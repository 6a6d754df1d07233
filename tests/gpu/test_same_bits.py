"""The GPU gives the bits of the CPU: every accumulator, cast, dtype and layout, gradients, graphs, streams, processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from support import assert_bitwise_equal
from support.accumulators import CASES, operands
from support.hardware import choices

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec

pytestmark = pytest.mark.gpu

SHAPES = [(1, 1, 1), (3, 17, 5), (64, 129, 70), (200, 300, 130)]
CASTS = "e4m3 e5m2/sat e5m10/rtz bf16/sr8 e5m10/sr20 e8m0 fixed(8,4) binary8p3 e5m10/ftz fp32/ru e2m1".split()
CASTS += "supernormal(4,3) supernormal(4,3)/sr8 binary8(4)/ftz binary8(3,unsigned)/ru e4m3/rnd fixed(8,4)/rnu".split()
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def both(a, b, spec, **more):
    """The product on the CPU and on the GPU."""
    on_gpu = {name: x.cuda() if isinstance(x, torch.Tensor) else x for name, x in more.items()}
    got = gs.qmatmul(a.cuda(), b.cuda(), spec, seed=11, **on_gpu)
    return gs.qmatmul(a, b, spec, seed=11, **more), got.cpu()


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("wide", [False, True], ids=["normal", "wide"])
def test_every_accumulator(case, wide):
    for m, k, n in SHAPES:
        a, b = operands(case, m, k, n, wide=wide)
        want, got = both(a, b, GemmSpec.of(case.text), out_dtype=torch.float64)
        assert_bitwise_equal(got, want, context=f"{case} {(m, k, n)}")


@pytest.mark.parametrize("text", ["e4m3 : e5m10", ":fp32", ":kahan(bf16)", "e5m2/sr8 : chunked(16, bf16/sr8)", ":fp64"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_strides_and_batches(text, dtype):
    g = torch.Generator().manual_seed(2)
    a = torch.randn(4, 70, 33, generator=g).to(dtype)
    b = torch.randn(50, 70, generator=g).to(dtype).t()
    want, got = both(a.mT, b, text)
    assert_bitwise_equal(got, want, context=f"{text} {dtype}")
    want, got = both(a[:, ::2, 1::3].expand(3, 4, 35, 11), torch.randn(4, 11, 9, generator=g).to(dtype), text)
    assert_bitwise_equal(got, want, context=f"{text} {dtype} broadcast")


@pytest.mark.parametrize("one", choices(), ids=str)
def test_every_chip(one):
    g = torch.Generator().manual_seed(4)
    a, b = torch.randn(70, 100, generator=g), torch.randn(100, 66, generator=g)
    want, got = both(a, b, one, out_dtype=torch.float64)
    assert_bitwise_equal(got, want)


def test_addends_and_palettes():
    g = torch.Generator().manual_seed(5)
    a, b, c = torch.randn(65, 80, generator=g), torch.randn(80, 66, generator=g), torch.randn(66, generator=g)
    for init in ("c_first", "c_last"):
        spec = gs.acc.sequential("e5m10", init=init)
        want, got = both(a, b, spec, c=c)
        assert_bitwise_equal(got, want, context=init)
    select = torch.randint(0, 3, (65, 66), generator=g, dtype=torch.uint8)
    want, got = both(a, b, gs.acc.palette("e5m10", "bf16/rtz", "kahan(e5m2)"), select=select)
    assert_bitwise_equal(got, want, context="palette")


@pytest.mark.parametrize("text", CASTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_casts(text, dtype):
    x = (torch.randn(10_007, generator=torch.Generator().manual_seed(6)) * 50).to(dtype)
    x[:6] = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-30]).to(dtype)
    assert_bitwise_equal(gs.quantize(x.cuda(), text, seed=3).cpu(), gs.quantize(x, text, seed=3), context=text)


@pytest.mark.parametrize("inner", ["int(32)", "int(20, saturate)", "int(12, wrap)", "fp32", "e5m10/sr8", "exact(fp32)",
                                   "chunked(16, bf16)", "interleaved(4, e5m10)", "kahan(bf16)", "binned(fp32)"])  # fmt: skip
def test_products_from_tables(inner):
    signed = [x - 256 * (x >= 128) for x in range(256)]
    cut = gs.acc.table([[x * y // 16 * 16 for y in signed] for x in signed], "int8")
    g = torch.Generator().manual_seed(8)
    small = gs.acc.table(torch.randn(256, 16, generator=g), "e4m3", "e2m1")
    for products in (cut, small) if "int(" not in inner else (cut,):
        spec = GemmSpec.of(f":lookup({products}, {inner})")
        for m, k, n in SHAPES:
            a, b = torch.randn(2, m, k, generator=g) * 40, torch.randn(k, n, generator=g) * 40
            want, got = both(a, b, spec, out_dtype=torch.float64)
            assert_bitwise_equal(got, want, context=f"{products} {inner} {(m, k, n)}")
    counted = GemmSpec.of(f":lookup({cut}, int(14, saturate))")
    a, b = torch.randn(33, 70, generator=g) * 60, torch.randn(70, 20, generator=g) * 60
    assert torch.equal(gs.count_overflows(a.cuda(), b.cuda(), counted).cpu(), gs.count_overflows(a, b, counted))


def test_gradients():
    def run(device):
        g = torch.Generator().manual_seed(7)
        x, w = torch.randn(33, 40, generator=g), torch.randn(17, 40, generator=g)
        x, w = x.to(device).requires_grad_(), w.to(device).requires_grad_()
        gs.qlinear(x, w, None, "e4m3 * e5m2 : e5m10").square().sum().backward()
        return x.grad.cpu(), w.grad.cpu()

    for got, want in zip(run("cuda"), run("cpu"), strict=True):
        assert_bitwise_equal(got, want)


def test_graphs_and_streams():
    a, b = torch.randn(128, 64, device="cuda"), torch.randn(64, 96, device="cuda")
    spec = "e4m3 : e5m10"
    first = gs.qmatmul(a, b, spec)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        again = gs.qmatmul(a, b, spec)
    torch.cuda.current_stream().wait_stream(side)
    assert torch.equal(first, again)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = gs.qmatmul(a, b, spec)
    a.copy_(torch.randn_like(a))
    graph.replay()
    assert torch.equal(out, gs.qmatmul(a, b, spec))


def test_more_than_two_gigabytes_of_elements_and_many_batches():
    spec = GemmSpec.of(":e5m10")
    big = torch.randn(2, 2, device="cuda").expand(70_000, 2, 2)
    want = gs.qmatmul(big[:1], big[:1], spec)
    assert torch.equal(gs.qmatmul(big, big, spec), want.expand(70_000, 2, 2))
    rows = 2**31 // 32 + 5
    if torch.cuda.mem_get_info()[0] < 12 * 2**30:
        pytest.skip("needs 12 GiB of GPU memory")
    tall = torch.zeros(rows, 32, dtype=torch.bfloat16, device="cuda")
    tall[-1] = 1
    got = gs.qmatmul(tall, torch.ones(32, 1, dtype=torch.bfloat16, device="cuda"), spec)
    assert float(got[-1]) == 32 and float(got[:-1].abs().max()) == 0


def test_processes_share_the_cache(tmp_path):
    code = (
        "import torch, gemmsim as gs\n"
        "x = gs.qmatmul(torch.ones(8, 8, device='cuda'), torch.ones(8, 8, device='cuda'), ':e6m8')\n"
        "assert bool((x == 8).all())\n"
    )
    env = {**os.environ, "GEMMSIM_CACHE_DIR": str(tmp_path)}
    running = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(4)]
    assert [p.wait(timeout=300) for p in running] == [0, 0, 0, 0]


def test_mixed_devices_are_refused():
    with pytest.raises(ValueError, match="device"):
        gs.qmatmul(torch.ones(2, 2, device="cuda"), torch.ones(2, 2), ":e5m10")
