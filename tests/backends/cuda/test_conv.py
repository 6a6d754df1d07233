"""Convolutions as CUDA runs them, with the kernels run on the host: windows read in place, or made a matrix first, which
native products need. Results and gradients have the CPU backend's bits, random ones included.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_bitwise_equal
from support.cuda import host_quantize
from support.cuda_gemm import _run, host_multiply
from support.device_tables import gpu  # noqa: F401

import gemmsim as gs
from gemmsim.backends import convert, cuda, route
from gemmsim.ops import quantize_eager
from gemmsim.ops.conv import im2col_indices as conv_windows
from gemmsim.ops.conv import products as conv_products

cuda_gathered = importlib.import_module("gemmsim.backends.cuda.simt.implicit_im2col")

CASES = {
    "padding": (gs.qconv2d, (2, 3, 6, 5), (4, 3, 3, 2), {"padding": 1}, "e4m3 : e5m10"),
    "groups": (gs.qconv1d, (2, 4, 9), (6, 2, 3), {"stride": 2, "dilation": 2, "groups": 2}, "e5m2 : bf16/sr8 -> e4m3/sr8"),
    "transposed": (gs.qconv_transpose2d, (1, 4, 3, 4), (4, 2, 3, 2), {"stride": 2, "padding": 1, "groups": 2}, ":e6m9"),
    "casts": (gs.qconv2d, (1, 2, 5, 5), (3, 2, 2, 2), {"stride": 2}, "e4m3/sr8 * bf16/sr8 : chunked(4, e5m10)"),
}  # fmt: skip


def values(name: str) -> list[torch.Tensor]:
    function, shape, kernel, how, spec = CASES[name]
    g = torch.Generator().manual_seed(5)
    x, w = torch.randn(shape, generator=g).requires_grad_(), torch.randn(kernel, generator=g).requires_grad_()
    out = function(x, w, spec=spec, seed=3, **how)
    out.backward(torch.randn(out.shape, generator=g))
    return [out.detach(), x.grad, w.grad]


@contextmanager
def on_the_host() -> Iterator[list[object]]:
    """Windows are read by the CUDA backend's kernels; where they lie in memory, for each product."""
    products = []

    def multiply(product):
        products.append(product.windows)
        return cuda.multiply(product)

    backend = SimpleNamespace(multiply=multiply, quantize=host_quantize, names_instruction=lambda spec: False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_gathered, "launch", _run)
        patch.setattr(cuda_gathered, "quantize", host_quantize)
        for module in (convert, route, quantize_eager):
            patch.setattr(module, "backend_of", lambda x: backend)
        yield products


@pytest.mark.parametrize("name", CASES)
def test_convolutions_read_windows_in_place(name):
    want = values(name)
    with on_the_host() as products:
        got = values(name)
    assert len(products) == 3
    for x, y, what in zip(got, want, ("result", "gradient of x", "gradient of the weight"), strict=True):
        assert_bitwise_equal(x, y, context=f"{name} {what}")


@pytest.mark.kept(by="nothing")
def test_a_convolution_while_a_graph_is_captured(gpu):  # noqa: F811
    """Its tables are the graph's own at first, and kept for the graph once they are there; the bits are the same."""
    want = values("padding")

    def tables(capturing):
        gpu.capturing = capturing
        with on_the_host() as products:
            got = values("padding")
        for x, y in zip(got, want, strict=True):
            assert_bitwise_equal(x, y, context=f"capturing: {capturing}")
        return {t.data_ptr() for where in products for t in (where.rows, where.cols)}

    conv_windows._tables.clear()
    tables(capturing=True)
    assert not conv_windows._tables._kept and not gpu.of_graphs()
    made = tables(capturing=False)
    assert len(conv_windows._tables._kept) == len(made) and not gpu.of_graphs()
    assert tables(capturing=True) == made == gpu.of_graphs()


#: One kernel of the CUDA backend for each: what its operands are and how terms meet.
ARBITRARY = ("e4m3 : e6m9", ":e5m10/sr8", ":interleaved(3, bf16)", ":fp64 -> e5m2", ":kahan(e5m10)")


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_any_arguments(data):
    draw, small = data.draw, st.integers(1, 3)
    groups, batch, kernel = draw(small), draw(st.integers(0, 3)), [draw(small) for _ in range(2)]
    inputs, outputs = groups * draw(small), groups * draw(small)
    stride, dilation, transposed = [draw(small), draw(small)], [draw(small), draw(small)], draw(st.booleans())
    size = [draw(st.integers(1 + d * (k - 1), 9)) for d, k in zip(dilation, kernel, strict=True)]
    padding, spec = [draw(st.integers(0, 2)) for _ in range(2)], draw(st.sampled_from(ARBITRARY))
    mode = "zeros" if transposed else draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
    if mode in ("reflect", "circular"):
        padding = [min(p, n - 1) for p, n in zip(padding, size, strict=True)]
    g = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    shape = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    x, w = torch.randn(batch, inputs, *size, generator=g), torch.randn(*shape, *kernel, generator=g)
    if draw(st.booleans()):
        x = x.contiguous(memory_format=torch.channels_last)
    how = {"stride": stride, "dilation": dilation, "groups": groups, "padding": padding, "seed": 5}
    if transposed:
        reach = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(size, stride, dilation, kernel, strict=True)]
        how["padding"] = [min(p, (r - 1) // 2) for p, r in zip(padding, reach, strict=True)]
        function = gs.qconv_transpose2d
    else:
        how["padding_mode"], function = mode, gs.qconv2d
    want = function(x, w, spec=spec, **how)
    with on_the_host() as products:
        got = function(x, w, spec=spec, **how)
    assert len(products) == (want.numel() > 0)
    assert_bitwise_equal(got, want, context=f"{spec} {tuple(x.shape)} {tuple(w.shape)} {how}")


def test_an_addend_in_the_accumulator():
    g = torch.Generator().manual_seed(8)
    x, w, bias = (torch.randn(*s, generator=g) for s in ((2, 4, 5, 5), (6, 2, 3, 3), (6,)))
    formats = gs.QAffineFormats(fprop=":sequential(bf16, init=c_last)", bias_in_accumulator=True)
    want = gs.qconv2d(x, w, bias, groups=2, spec=formats)
    with on_the_host() as products:
        got = gs.qconv2d(x, w, bias, groups=2, spec=formats)
    assert len(products) == 1
    assert_bitwise_equal(got, want)


@pytest.mark.parametrize("name", CASES)
def test_convolutions_through_matrices_of_windows(name, monkeypatch):
    want = values(name)
    products = []

    def multiply(product):
        products.append(tuple(product.a.shape))
        return host_multiply(product)

    backend = SimpleNamespace(multiply=multiply, quantize=host_quantize, names_instruction=lambda spec: False)
    monkeypatch.setattr(route, "reads_windows", lambda spec: False)
    monkeypatch.setattr(conv_products, "_BLOCK", 64)  # a few images at a time
    for module in (convert, route, quantize_eager):
        monkeypatch.setattr(module, "backend_of", lambda x: backend)
    got = values(name)
    assert len(products) >= 3
    for x, y, what in zip(got, want, ("result", "gradient of x", "gradient of the weight"), strict=True):
        assert_bitwise_equal(x, y, context=f"{name} {what}")
