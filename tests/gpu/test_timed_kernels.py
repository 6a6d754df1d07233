"""The kernels that ``benchmarks/gpu_timings.py`` times give the bits of the CPU: the same template parameters, on less data.

Products in every tile (``support.cuda_tiles``); casts, block formats and row operations as they are timed. Those of
tensor cores are in ``test_tensor_cores.py``.
"""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_tiles import SHAPES, Shape, asked_tile, benchmark, operands, tiles_for, timed_specs

import gemmsim as gs
from gemmsim.backends import cuda

pytestmark = pytest.mark.gpu

SPECS = timed_specs()


def compare(text: str, shape: Shape) -> None:
    a, b = operands(text, shape)
    got = gs.qmatmul(a.cuda(), b.cuda(), text, seed=1)
    assert_bitwise_equal(got.cpu(), gs.qmatmul(a, b, text, seed=1), context=f"{text}, {shape}: {gs.last_backend()}")


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("text", SPECS)
def test_products(text, name):
    compare(text, SHAPES[name])


@pytest.mark.parametrize("text", SPECS)
def test_every_tile(text):
    """Two tiles each way, the second ones ragged, whatever a GPU of this size would take."""
    for position, tile in enumerate(tiles_for(text)):
        height, width = map(int, tile.split("x"))
        with asked_tile(position):
            compare(text, Shape(height + 5, 208, width + 16))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("text", [text for text in SPECS if "hw(" in text])
def test_models_of_instructions(text, name, monkeypatch):
    """The kernels that run where the instruction does not."""
    monkeypatch.setenv("GEMMSIM_ALLOW_TENSOR_CORES", "0")
    monkeypatch.setattr(cuda.tensor_cores.route, "_allowed", None)
    compare(text, SHAPES[name])


CASTS = [
    "e4m3", "e5m10", "bf16/sr8", "supernormal(4,3)", "bfp(8,16)", "bfp(8,tensor)", "FP[1|4|3,7](_N)", "MXFP8[E4M3]{32}",
    "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}",
]  # fmt: skip


def data(elements: int, special: bool = True) -> torch.Tensor:
    """Numbers of very different size, where asked for with zeros of both signs, infinities and NaN."""
    g = torch.Generator().manual_seed(elements)
    x = torch.randn(elements, generator=g) * torch.exp2(torch.randint(-20, 12, (elements,), generator=g).float())
    if special:
        x[5::1001], x[6::1003], x[7::997] = 0.0, -0.0, 2.0**-140
        x[20_000::30_011], x[20_001::30_013], x[20_002::30_029] = torch.nan, torch.inf, -torch.inf
    return x


@pytest.mark.parametrize("text", CASTS)
def test_casts(text):
    for elements in (1 << 18, (1 << 17) + 3):  # groups that one block measures, and groups that many do
        x = data(elements)
        got = torch.full_like(x, 7.0, device="cuda")
        gs.quantize(x.cuda(), text, out=got, seed=1)
        assert_bitwise_equal(got.cpu(), gs.quantize(x, text, seed=1), context=f"{text} {elements}")


@pytest.mark.parametrize("name", benchmark().scaled_casts(torch.ones(4096), torch.ones(4096)))
def test_scaled_casts(name):
    x = data(48 * 4096, special=False)
    results = []
    for device in ("cuda", "cpu"):
        mine = x.to(device)
        out = torch.full_like(mine, 7.0)
        benchmark().scaled_casts(mine, out)[name]()
        results.append(out.cpu())
    assert_bitwise_equal(*results, context=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp4", "nvfp4"])
def test_block_formats(fmt, dtype):
    """Into memory that is there, in whole lines, and along rows and columns."""
    x = data(96 * 4096).view(-1, 4096).to(dtype)
    y, want = x.cuda(), gs.mx.encode(x, fmt)
    got = gs.mx.encode(y, fmt)
    got.codes.fill_(0xAA), got.scales.fill_(0xAA)
    gs.mx.encode(y, fmt, out=got[:2])
    assert torch.equal(got.codes.cpu(), want.codes) and torch.equal(got.scales.cpu(), want.scales)
    for call in (
        lambda t, codes, out: gs.mx.decode(codes, fmt, out=out),
        lambda t, codes, out: gs.mx.quantize(t, fmt, out=out),
        lambda t, codes, out: gs.mx.quantize(t, fmt, dim=0, out=out),
    ):
        results = torch.full_like(y, 7.0), torch.full_like(x, 7.0)
        call(y, got, results[0]), call(x, want, results[1])
        assert_bitwise_equal(results[0].cpu(), results[1], context=f"{fmt} {dtype}")


ROWS = {
    "softmax sequential": lambda x: gs.functional.qsoftmax(x, -1, gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10")),
    "softmax tree(64)": lambda x: gs.functional.qsoftmax(
        x, -1, gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10", order="tree(64)")
    ),
    "layernorm sequential": lambda x: gs.functional.qlayernorm(
        x, (x.shape[1],), spec=gs.QLayerNormFormats(*["e5m10"] * 7)
    ),
}


@pytest.mark.parametrize(("rows", "columns"), [(64, 1024), (1 << 10, 1024), (1 << 13, 100), (1 << 17, 33)])
@pytest.mark.parametrize("name", ROWS)
def test_row_operations(name, rows, columns):
    """One row to a block, and many: the more, the more rows there are."""
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
    assert_bitwise_equal(ROWS[name](x.cuda()).cpu(), ROWS[name](x), context=f"{name} {rows}")
