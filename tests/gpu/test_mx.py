"""Block formats on a GPU: codes, scales and values of the CPU, for every format, mode, packing, dtype and layout."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.rounding import gamma

import gemmsim as gs
from gemmsim.formats import parse_block

pytestmark = pytest.mark.gpu

NAMES = [
    "mxfp8_e4m3", "mxfp8_e5m2/ceil", "mxfp6_e3m2/even", "mxfp6_e2m3/rceil", "mxfp4", "mxint8/ceil", "mxint4/rceil", "mxint2",
    "mx(e3m4)/b7/rna", "mxfp8_e4m3/rtz", "nvfp4", "nvfp4/tensor/rtz", "nvfp4/tensor", "mx(e4m3,e5m2)/b8", "mxfp8_e4m3/b100",
    "mxfp4/torchao-0.18/rceil", "mxfp8_e5m2/torchao-0.18", "mxfp6_e2m3/torchao-0.6.1", "mxint8/torchmx",
    "mxint4/microxcaling/rna", "mxfp8_e4m3/microxcaling/flush", "mxfp6_e3m2/microxcaling/rtz",
]  # fmt: skip
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def hard(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Random patterns, spread magnitudes, zeros, and a NaN and an infinity here and there."""
    g = torch.Generator().manual_seed(9)
    bits = torch.randint(-(2**31), 2**31, (rows, columns), generator=g).to(torch.int32).view(torch.float32)
    spread = torch.randn(rows, columns, generator=g) * torch.exp2(
        torch.randint(-30, 30, (rows, 1), generator=g).float()
    )
    x = torch.where(torch.arange(rows)[:, None] % 4 == 0, bits, spread)
    x[5], x[6, 3], x[7, 9] = 0.0, float("nan"), float("inf")
    return x.to(dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conversions(name, dtype):
    x = hard(130, 416, dtype)
    fmt = parse_block(name)
    packings = ["bytes", *{4: ["lo_first", "hi_first"], 6: ["dense"]}.get(fmt.element.bits, [])]
    for view, dim in ((x, -1), (x, 0), (x[3:, 1::2], -1), (x.t(), -1)):
        for packing in packings:
            want = gs.mx.encode(view, name, dim=dim, packing=packing)
            got = gs.mx.encode(view.cuda() if view.is_contiguous() else _like(view), name, dim=dim, packing=packing)
            assert torch.equal(got.codes.cpu(), want.codes) and torch.equal(got.scales.cpu(), want.scales), packing
            more = {"dim": dim, "size": view.shape[dim], "packing": packing, "dtype": dtype}
            assert_bitwise_equal(gs.mx.decode(got, name, **more).cpu(), gs.mx.decode(want, name, **more), context=name)
        assert_bitwise_equal(gs.mx.quantize(_like(view), name, dim=dim).cpu(), gs.mx.quantize(view, name, dim=dim))


def _like(view: torch.Tensor) -> torch.Tensor:
    """``view`` on the GPU, with its strides."""
    room = torch.empty(view.untyped_storage().size() // view.element_size(), dtype=view.dtype, device="cuda")
    found = room.as_strided(view.shape, view.stride(), view.storage_offset())
    found.copy_(view)
    return found


def test_in_place_out_and_graphs():
    x = torch.randn(64, 256, device="cuda")
    want = gs.mx.quantize(x, "nvfp4/tensor")
    second = gs.mx.tensor_scale(x, "nvfp4/tensor")
    mine = x.clone()
    assert torch.equal(gs.mx.quantize(mine, "nvfp4/tensor", tensor_scale=second, out=mine), want)
    gs.mx.encode(x, "nvfp4/tensor")  # its kernel is another one, which cannot be loaded while a graph is captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        encoded = gs.mx.encode(x, "nvfp4/tensor")
    x.copy_(torch.randn_like(x))
    graph.replay()
    again = gs.mx.encode(x, "nvfp4/tensor")
    assert torch.equal(encoded.codes, again.codes) and torch.equal(encoded.scales, again.scales)


def test_more_than_two_to_the_31_elements():
    rows = 2**31 // 4096 + 3
    if torch.cuda.mem_get_info()[0] < 12 * 2**30:
        pytest.skip("needs 12 GiB of GPU memory")
    x = torch.zeros(rows, 4096, dtype=torch.bfloat16, device="cuda")
    x[-1] = torch.randn(4096, device="cuda")
    encoded = gs.mx.encode(x, "mxfp8_e4m3")
    want = gs.mx.encode(x[-1:].cpu(), "mxfp8_e4m3")
    assert torch.equal(encoded.codes[-1:].cpu(), want.codes) and torch.equal(encoded.scales[-1:].cpu(), want.scales)
    assert int(encoded.codes[:-1].max()) == 0
    along_rows = gs.mx.quantize(x, "mxfp8_e4m3", dim=0)
    assert_bitwise_equal(along_rows[-3:].cpu(), gs.mx.quantize(x[rows // 32 * 32 :].cpu(), "mxfp8_e4m3", dim=0)[-3:])


PRODUCTS = [
    "mxfp8_e4m3 : fp32", "mxfp8_e4m3*mxfp4 : e5m10", "nvfp4/tensor : fp32", "mxint8 : exact(fp32)",
    "mxfp8_e4m3 : scaled(fp32)", "mxfp8_e5m2*mxfp4 : scaled(e5m10, bf16)", "nvfp4/tensor : scaled(chunked(4, e5m10, fp32), fp32) -> bf16",
    "nvfp4/tensor*nvfp4 : scaled(pairwise(fp32), bf16/rtz)", "mxint8/torchmx : scaled(int(24), fp32)", "mxfp4/b7*mxfp8_e4m3/b14 : scaled(e6m9, e5m10/sr8)",
    "mxfp8_e4m3 : scaled(kahan(bf16), fp64)", "bf16*mxfp6_e2m3 : scaled(fp32, fp32, n=8)", "mxfp6_e3m2 : scaled(exact(fp32), fp32)",
    "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)", "nvfp4/tensor : hw(blackwell, mxf4nvf4, e2m1)",
]  # fmt: skip


@pytest.mark.parametrize("text", PRODUCTS)
def test_products(text):
    g = torch.Generator().manual_seed(2)
    for m, k, n in ((3, 40, 5), (70, 256, 130), (200, 333, 129)):
        a, b = torch.randn(m, k, generator=g), torch.randn(k, n, generator=g)
        want = gs.qmatmul(a, b, text, seed=3, out_dtype=torch.float64)
        assert_bitwise_equal(
            gs.qmatmul(a.cuda(), b.cuda(), text, seed=3, out_dtype=torch.float64).cpu(), want, context=text
        )
    x, w = torch.randn(2, 7, 64, generator=g), torch.randn(9, 64, generator=g)
    assert_bitwise_equal(gs.qlinear(x.cuda(), w.cuda(), None, text, seed=1).cpu(), gs.qlinear(x, w, None, text, seed=1))


def test_encoded_operands_and_gradients():
    a, b = torch.randn(33, 96), torch.randn(96, 17)
    one, two = gs.mx.encode(a, "mxfp4"), gs.mx.encode(b, "mxfp6_e3m2", dim=-2)
    want = gs.mx.matmul(one, two, "scaled(fp32)", a_format="mxfp4", b_format="mxfp6_e3m2")
    on_gpu = [gs.mx.Encoded(*(None if t is None else t.cuda() for t in x)) for x in (one, two)]
    assert_bitwise_equal(gs.mx.matmul(*on_gpu, "scaled(fp32)", a_format="mxfp4", b_format="mxfp6_e3m2").cpu(), want)


def test_cublas_takes_bfloat16():
    a, b = torch.randn(256, 512, device="cuda"), torch.randn(512, 128, device="cuda")
    exact = gs.qmatmul(a, b, "mxfp8_e4m3 : exact(fp64)", out_dtype=torch.float64)
    with gs.cublas_acceleration(True):
        fast = gs.qmatmul(a, b, "mxfp8_e4m3 : fp32")
        assert "bf16/fp32" in str(gs.last_backend())
    size = gs.qmatmul(a.abs(), b.abs(), "mxfp8_e4m3 : exact(fp64)", out_dtype=torch.float64)
    assert bool(((fast.double() - exact).abs() <= gamma(512) * size).all())


def test_mixed_devices_are_refused():
    encoded = gs.mx.encode(torch.randn(4, 32), "mxfp8_e4m3")
    with pytest.raises(ValueError, match="one device"):
        gs.mx.decode((encoded.codes.cuda(), encoded.scales), "mxfp8_e4m3")
