"""Block-format tensors where there are several: grouped products, collectives of two processes, examples of vmap."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.processes import needs_processes, run_two_processes

import gemmsim as gs
from gemmsim.compat import torchao

GENERATOR = torch.Generator().manual_seed(4)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR)


def parts(ends):
    return zip([0, *ends[:-1]], ends, strict=True)


# Grouped products


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp4", "nvfp4"])
def test_rows_in_groups(fmt):
    a, w = gs.mx.to_mx(numbers(20, 64), fmt), gs.mx.to_mx(numbers(3, 8, 64), fmt)
    ends = [5, 5, 18]
    got = torch._grouped_mm(a, w.transpose(-2, -1), torch.tensor(ends, dtype=torch.int32))
    for g, (first, last) in enumerate(parts(ends)):
        assert_bitwise_equal(got[first:last], gs.mx.matmul(a[first:last], w[g].t()))
    assert (got[18:] == 0).all() and got.shape == (20, 8)


def test_columns_terms_and_batches_in_groups():
    ends = torch.tensor([32, 96], dtype=torch.int32)
    a, b = gs.mx.to_mx(numbers(2, 5, 64), "mxfp8_e4m3"), gs.mx.to_mx(numbers(64, 96), "mxfp8_e4m3", dim=-2)
    got = torch._grouped_mm(a, b, ends)
    assert_bitwise_equal(got, torch.cat([a[0] @ b[:, :32], a[1] @ b[:, 32:]], 1))
    a, b = gs.mx.to_mx(numbers(5, 96), "mxfp4"), gs.mx.to_mx(numbers(96, 7), "mxfp4", dim=-2)
    assert_bitwise_equal(torch._grouped_mm(a, b, ends), torch.stack([a[:, :32] @ b[:32], a[:, 32:] @ b[32:]]))
    a, b = gs.mx.to_mx(numbers(2, 5, 32), "nvfp4/tensor"), gs.mx.to_mx(numbers(2, 32, 6), "nvfp4/tensor", dim=-2)
    assert_bitwise_equal(torch._grouped_mm(a, b), torch.bmm(a, b))
    assert torch._grouped_mm(a, b, out_dtype=torch.bfloat16).dtype is torch.bfloat16


@pytest.mark.parametrize(
    "offs, bias, error",
    [
        (None, None, gs.ShapeError),
        ([4, 3, 20], None, gs.ShapeError),
        ([4, 21, 21], None, gs.ShapeError),
        ([4, 20], None, gs.ShapeError),
        ([1.0, 2.0, 3.0], None, gs.DTypeError),
        ([4, 8, 20], torch.ones(8), gs.mx.MXOperatorError),
    ],
)
def test_groups_that_mean_nothing(offs, bias, error):
    a, w = gs.mx.to_mx(torch.ones(20, 64), "mxfp8"), gs.mx.to_mx(torch.ones(3, 8, 64), "mxfp8")
    found = None if offs is None else torch.tensor(offs, dtype=torch.int32 if isinstance(offs[0], int) else None)
    with pytest.raises(error, match="grouped_mm"):
        torch.ops.aten._grouped_mm.default(a, w.mT, found, bias)


def test_terms_are_cut_at_whole_blocks_only():
    a, b = gs.mx.to_mx(torch.ones(4, 64), "mxfp8"), gs.mx.to_mx(torch.ones(64, 4), "mxfp8", dim=0)
    with pytest.raises(gs.ShapeError, match="multiples of 32"):
        torch._grouped_mm(a, b, torch.tensor([16, 64], dtype=torch.int32))


@pytest.mark.parametrize("kind", ["mx", "nvfp4"])
def test_torchaos_grouped_products_encode_plain_rows(kind):
    a, w = numbers(20, 64).bfloat16(), numbers(3, 16, 64).bfloat16()
    offs = torch.tensor([6, 12, 20], dtype=torch.int32)
    if kind == "mx":
        weight = torchao.MXTensor.to_mx(w, torch.float8_e4m3fn, act_quant_kwargs=torchao.QuantizeTensorToMXKwargs())
        rows = torchao.MXTensor.to_mx(a, torch.float8_e4m3fn).dequantize()
    else:
        weight = torchao.NVFP4Tensor.to_nvfp4(w, act_quant_kwargs=torchao.QuantizeTensorToNVFP4Kwargs())
        rows = torchao.NVFP4Tensor.to_nvfp4(a).dequantize()
    got = torch._grouped_mm(a, weight.transpose(-2, -1), offs)
    values = weight.dequantize()
    want = [rows[i:j] @ values[g].T for g, (i, j) in enumerate(parts(offs.tolist()))]
    assert_bitwise_equal(got, torch.cat(want))


def test_torchaos_weights_alone_are_not_multiplied_with_plain_rows_in_mx():
    weight = torchao.MXTensor.to_mx(torch.ones(3, 16, 64), torch.float8_e4m3fn)
    with pytest.raises(AssertionError, match="weight-only"):
        torch._grouped_mm(torch.ones(20, 64), weight.mT, torch.tensor([6, 12, 20], dtype=torch.int32))


# Collectives

WORKER = """
from gemmsim.compat import torchao
ops, name = torch.ops._c10d_functional, dist.group.WORLD.group_name
every = torch.randn(2, 4, 64, generator=torch.Generator().manual_seed(7))

def gathered(t):
    return ops.wait_tensor.default(ops.all_gather_into_tensor.default(t, 2, name))

for fmt, dim in (("mxfp8_e4m3", -1), ("mxfp4", -1), ("nvfp4", -1), ("mxfp6_e3m2", 0)):
    t = gathered(gs.mx.to_mx(every[rank] if dim else every[rank].mT.contiguous(), fmt, dim))
    whole = every.flatten(0, 1) if dim else torch.cat([every[0].mT, every[1].mT])
    want = gs.mx.to_mx(whole, fmt, dim)
    assert isinstance(t, gs.mx.MXTensor) and t.shape == want.shape and t.block_dim == want.block_dim, fmt
    assert torch.equal(t.codes, want.codes) and torch.equal(t.scales, want.scales), fmt
t = gathered(torchao.MXTensor.to_mx(every[rank], torch.float8_e4m3fn, 32))
assert type(t) is torchao.MXTensor and t.elem_dtype == torch.float8_e4m3fn and t.qdata.shape == (8, 64)
scale = torch.tensor(0.01)
t = gathered(gs.mx.to_mx(every[rank], "nvfp4/tensor", tensor_scale=scale))
assert torch.equal(t.dequantize(), gs.mx.quantize(every.flatten(0, 1), "nvfp4/tensor", tensor_scale=scale))
for make, error in (
    (lambda: gs.mx.to_mx(every[rank], "nvfp4/tensor"), gs.mx.MXOperatorError),
    (lambda: gs.mx.to_mx(every[rank], "mxfp8", 0), gs.ShapeError),
):
    try:
        gathered(make())
        raise SystemExit("no error")
    except error as found:
        assert "all_gather" in str(found)
"""


@needs_processes
def test_two_processes_gather_codes_and_scales(tmp_path):
    run_two_processes(WORKER, tmp_path)


# Examples of torch.func


def test_vmap_of_encoding_products_and_decoding_is_the_loop():
    x, w = numbers(3, 4, 64), gs.mx.to_mx(numbers(8, 64), "mxfp4")
    vmap = torch.func.vmap

    def layer(one):
        return gs.mx.to_mx(one, "mxfp8_e4m3") @ w.t()

    assert_bitwise_equal(vmap(layer)(x), torch.stack([layer(one) for one in x]))
    assert_bitwise_equal(vmap(layer, in_dims=1)(x.transpose(0, 1)), torch.stack([layer(one) for one in x]))
    for dim in (-1, 0):
        made = vmap(lambda one, dim=dim: gs.mx.to_mx(one, "mxfp6_e2m3/b8", dim), in_dims=2)(x)
        assert isinstance(made, gs.mx.MXTensor)
        want = torch.stack([gs.mx.quantize(one, "mxfp6_e2m3/b8", dim=dim) for one in x.unbind(2)])
        assert_bitwise_equal(made.dequantize(), want)
    t = gs.mx.to_mx(x, "nvfp4")
    assert_bitwise_equal(vmap(lambda one: one.dequantize())(t), t.dequantize())
    assert_bitwise_equal(vmap(lambda one: gs.mx.FromMX.apply(one, torch.float64))(t), t.dequantize(torch.float64))
    assert_bitwise_equal(vmap(lambda one: one @ one.t())(t), torch.bmm(t, t.mT))


@pytest.mark.parametrize("name", ["mxfp4/b6", "mxfp8_e4m3", "nvfp4/tensor"])
@pytest.mark.filterwarnings("error")  # PyTorch's fallback, one example after the other, warns
def test_vmap_of_the_conversions_is_the_loop(name):
    x = numbers(5, 6, 40) * torch.tensor([1.0, 50, 0.01, 7, 3]).view(5, 1, 1)
    vmap = torch.func.vmap

    def all_three(one, dim):
        codes, scales, second = gs.mx.encode(one, name, dim=dim)
        back = gs.mx.decode((codes, scales, second), name, dim=dim, size=one.shape[dim], dtype=torch.float64)
        return codes, scales, back, gs.mx.quantize(one, name, dim=dim)

    for place, dim in ((0, -1), (1, 0), (2, 1)):
        given = x.movedim(0, place)
        got = vmap(lambda one, dim=dim: all_three(one, dim), in_dims=place)(given)
        want = zip(*(all_three(one, dim) for one in x), strict=True)
        for g, w in zip(got, want, strict=True):
            assert torch.equal(g, torch.stack(w))
    codes, scales, second = gs.mx.encode(x[0], name)
    shared = vmap(lambda c: gs.mx.decode((c, scales, second), name))(codes.expand(3, -1, -1))
    assert torch.equal(shared[2], gs.mx.decode((codes, scales, second), name))
    nested = vmap(vmap(lambda row: gs.mx.quantize(row, name, tensor_scale=second)))(x)
    assert torch.equal(nested, gs.mx.quantize(x, name, tensor_scale=second))


def test_transforms_see_the_straight_through_gradients():
    x = numbers(3, 4, 64)

    def loss(one):
        return (gs.mx.FromMX.apply(gs.mx.to_mx(one, "mxfp8_e4m3"), one.dtype) ** 2).sum()

    want = 2 * gs.mx.quantize(x, "mxfp8_e4m3")
    assert_bitwise_equal(torch.func.grad(loss)(x[0]), want[0])
    assert_bitwise_equal(torch.func.vmap(torch.func.grad(loss))(x), want)


def test_what_vmap_cannot_do_says_so():
    x = numbers(3, 4, 64)
    with pytest.raises(gs.mx.MXOperatorError, match="tensor_scale for each example"):
        torch.func.vmap(lambda one: gs.mx.to_mx(one, "nvfp4/tensor"))(x)
    shared = torch.func.vmap(lambda one: gs.mx.to_mx(one, "nvfp4/tensor", tensor_scale=0.01))(x)
    assert_bitwise_equal(shared.dequantize(), gs.mx.quantize(x, "nvfp4/tensor", tensor_scale=0.01))
    with pytest.raises(gs.mx.MXOperatorError):
        torch.func.vmap(lambda one: one * 2)(gs.mx.to_mx(x, "mxfp4"))
    with pytest.raises(gs.mx.MXOperatorError, match="outside of vmap"):
        torch.func.vmap(torch.func.grad(lambda one: gs.mx.NoopFwToMXBw.apply(one, "mxfp4").sum()))(x)
