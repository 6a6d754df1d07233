"""Row operations on the GPU give the bits of the CPU: forward and backward, dtypes, orders, many and few rows."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import functional as f
from gemmsim.ops.rowwise.operators import row_map_op, row_sum_op
from gemmsim.ops.rowwise.softmax import softmax
from gemmsim.ops.seeds import Bits

pytestmark = pytest.mark.gpu

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
STEPS = ["e5m10", "bf16/rtz", "e5m10/sr8", "fixed(16,8)", "supernormal(4,3)"]
WHOLE = {"fwd_quant": "e5m10", "bwd_quant": "e6m9", "seed": 5}


def softmax_formats(fmt, **more):
    return gs.QSoftmaxFormats(fmt, fmt, fmt, bwd_add=fmt, bwd_mul=fmt, seed=5, **more)


CALLS = {
    **{f"softmax-{fmt}": (lambda x, w, fmt=fmt: f.qsoftmax(x, -1, softmax_formats(fmt))) for fmt in STEPS},
    "softmax-tree": lambda x, w: f.qsoftmax(x, 1, softmax_formats("e5m10", order="tree(64)")),
    "softmax-lse": lambda x, w: f.qsoftmax(x, 1, gs.QSoftmaxFormats(
        "e5m10", fwd_lse="e5m10", bwd_add="e5m10", bwd_mul="e5m10")),
    **{f"layernorm-{fmt}": (lambda x, w, fmt=fmt: f.qlayernorm(x, w.shape, w, w, spec=gs.QLayerNormFormats(
        *[fmt] * 7, seed=5))) for fmt in STEPS},
    "rmsnorm-tree": lambda x, w: f.qrmsnorm(x, w.shape, w, spec=gs.QLayerNormFormats(*["bf16"] * 7, order="tree(64)")),
    "groupnorm": lambda x, w: f.qgroupnorm(x, 4, spec=gs.QLayerNormFormats(*["e5m10"] * 7)),
    "batchnorm": lambda x, w: f.qbatchnorm(x, None, None, w, w, True, **WHOLE),
    "gelu": lambda x, w: f.qgelu(x, gs.QGELUFormats("e5m10", "e5m10", "e4m3", "e5m2")),
    "gelu-tanh": lambda x, w: f.qgelu(x, gs.QGELUFormats(None, "bf16"), "tanh"),
    "silu": lambda x, w: f.qsilu(x, gs.QGELUFormats(None, "e4m3")),
    "relu": lambda x, w: f.qrelu(x, **WHOLE),
    "add": lambda x, w: f.qadd(x, w, **WHOLE),
    "div": lambda x, w: f.qdiv(x, w, **WHOLE),
    "pow": lambda x, w: f.qpow(x, "e5m10", "e5m10", n=3.0),
    "mean": lambda x, w: f.qmean(x, dim=(0, 1), **WHOLE),
    "avgpool": lambda x, w: f.qavgpool1d(x[None], 3, stride=2, padding=1, **WHOLE),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_functions_and_gradients(name, dtype):
    def run(device):
        g = torch.Generator().manual_seed(7)
        x = (2 * torch.randn(2100, 64, generator=g)).to(dtype).to(device).requires_grad_()
        w = torch.randn(64, generator=g).to(dtype).to(device).requires_grad_()
        out = CALLS[name](x, w)
        out.backward(torch.ones_like(out))
        return [out.detach().cpu(), x.grad.cpu(), *([] if w.grad is None else [w.grad.cpu()])]

    for got, want in zip(run("cuda"), run("cpu"), strict=True):
        assert_bitwise_equal(got, want, nan_is_nan=dtype.itemsize == 2, context=f"{name} {dtype}")


@pytest.mark.parametrize("name", "exp log log_add tanh erf density sigmoid tanh_cubic pow div sqrt".split())
@pytest.mark.parametrize("fmt", ["e5m10", "bf16/sr8", "e8m40/ru", ""])
def test_every_bfloat16_argument(name, fmt):
    a = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    b = a.flip(0).roll(77) if name in ("log_add", "pow", "div") else None
    got = row_map_op(a.cuda(), None if b is None else b.cuda(), name, fmt, 3, 0).cpu()
    assert_bitwise_equal(got, row_map_op(a, b, name, fmt, 3, 0), context=f"{name} {fmt}")


@pytest.mark.parametrize("rows", [1, 7, 1500, 200_000])
@pytest.mark.parametrize("order", [1, 64, 1024])
def test_sums_of_few_and_many_rows(rows, order):
    x = torch.randn(rows, 33 if rows > 10_000 else 1100, generator=torch.Generator().manual_seed(rows))
    assert_bitwise_equal(row_sum_op(x.cuda(), "e5m10/sr8", order, 3, 0).cpu(), row_sum_op(x, "e5m10/sr8", order, 3, 0))


def test_a_counter_on_the_cpu_moves_the_seed_on():
    x, counter = torch.randn(50, 33, generator=torch.Generator().manual_seed(1)), torch.full((), 4)
    want = softmax(x, -1, "e5m10/sr8", Bits(7))
    assert_bitwise_equal(softmax(x.cuda(), -1, "e5m10/sr8", Bits(3, counter)).cpu(), want)


def test_embedding_gradient():
    def run(device):
        g = torch.Generator().manual_seed(7)
        weight = torch.randn(50, 16, generator=g).to(device).requires_grad_()
        index = torch.randint(0, 50, (400,), generator=g).to(device)
        f.qembedding(index, weight, scale_grad_by_freq=True, **WHOLE).backward(
            torch.randn(400, 16, generator=g).to(device)
        )
        return weight.grad.cpu()

    assert_bitwise_equal(run("cuda"), run("cpu"))


@pytest.mark.parametrize("text", ["bfp(8,16)", "bfp(4,5,dim=0)", "bfp(8,tensor)", "bfp(6,index=1)", "bfp(8,64)/sr8"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_block_floating_point(text, dtype):
    x = torch.randn(300, 333, generator=torch.Generator().manual_seed(2)).to(dtype)
    x[0, :3] = torch.tensor([torch.nan, torch.inf, -0.0])
    got = gs.quantize(x.cuda(), text, seed=3).cpu()
    assert_bitwise_equal(got, gs.quantize(x, text, seed=3), context=f"{text} {dtype}")


@pytest.mark.parametrize("spec", ["e4m3 : e5m10", ":e5m10/sr8"])
def test_convolutions(spec):
    def run(device):
        g = torch.Generator().manual_seed(7)
        x = torch.randn(3, 4, 9, 8, generator=g).to(device).requires_grad_()
        w = torch.randn(6, 2, 3, 3, generator=g).to(device).requires_grad_()
        out = gs.qconv2d(x, w, stride=2, padding=1, groups=2, spec=spec, seed=3)
        out.backward(torch.ones_like(out))
        return out.detach().cpu(), x.grad.cpu(), w.grad.cpu()

    for got, want in zip(run("cuda"), run("cpu"), strict=True):
        assert_bitwise_equal(got, want, context=spec)
