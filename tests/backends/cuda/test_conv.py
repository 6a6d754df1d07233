"""Convolutions as CUDA runs them, with the kernels run on the host: windows made a matrix, then products for each group.

The CPU backend reads windows in place; results and gradients have the same bits, random ones included.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from support import assert_bitwise_equal
from support_cuda import host_quantize
from support_cuda_gemm import host_gemm

import gemmsim as gs
from gemmsim.ops import conv_kernels, kernels, selection

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
    out = function(x, w, formats=spec, seed=3, **how)
    out.backward(torch.randn(out.shape, generator=g))
    return [out.detach(), x.grad, w.grad]


@pytest.mark.parametrize("name", CASES)
def test_convolutions_through_matrices_of_windows(name, monkeypatch):
    want = values(name)
    products = []

    def gemm(a, b, spec, out, seed=0, c=None, select=None, named=None):
        products.append(tuple(a.shape))
        return host_gemm(a, b, spec, out, seed, c, select)

    monkeypatch.setattr(conv_kernels, "asked", lambda: "as on CUDA")
    monkeypatch.setattr(conv_kernels, "_BLOCK", 64)  # a few images at a time
    monkeypatch.setattr(selection, "gemm", gemm)
    monkeypatch.setattr(kernels, "backend_of", lambda x: SimpleNamespace(quantize=host_quantize))
    got = values(name)
    assert len(products) >= 3
    for x, y, what in zip(got, want, ("result", "gradient of x", "gradient of the weight"), strict=True):
        assert_bitwise_equal(x, y, context=f"{name} {what}")
