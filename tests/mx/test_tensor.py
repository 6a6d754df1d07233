"""``MXTensor``: every operation on shapes is the one on the values, or raises; products are exact."""

from __future__ import annotations

import copy
import io
import math
import pickle
import warnings

import pytest
import torch

import gemmsim as gs
from gemmsim.mx import BlockDimWarning, MXFileError, MXOperatorError, MXTensor, to_mx

NAMES = ["mxfp8_e4m3", "mxfp8_e5m2/rceil", "mxfp4", "mxfp4/b6", "mxfp6_e3m2/b16", "mxint8", "nvfp4", "nvfp4/tensor"]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def values(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    kind = {8: torch.int64, 4: torch.int32, 2: torch.int16}[got.element_size()]
    alike = (got.contiguous().view(kind) == want.contiguous().view(kind)) | (got.isnan() & want.isnan())
    return got.dtype == want.dtype and got.shape == want.shape and bool(alike.all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_values_shape_and_dtype_are_those_of_the_conversions(name, dtype):
    x = values(3, 70, 4, dtype=dtype)
    x[0, 0, 0], x[1, 3, 1], x[2, :, 2] = math.nan, -0.0, 0.0
    if dtype is not torch.float16:
        x[2, 3, 3] = math.inf
    if gs.formats.parse(name).tensor_scale:
        x = values(3, 70, 4, dtype=dtype)
    for dim in (0, -2, 2):
        t = to_mx(x, name, dim)
        want = gs.mx.quantize(x, name, dim=dim)
        assert t.shape == x.shape and t.dtype == dtype and t.block_dim == (dim - 3 if dim >= 0 else dim)
        assert same(t.dequantize(), want)
        assert same(t.to_dtype(torch.float32), gs.mx.quantize(x, name, dim=dim, dtype=torch.float32))
        found = gs.mx.quantize_mx(x, name, dim)
        back = gs.mx.dequantize_mx(
            found.codes, found.scales, name, dim, size=x.shape[dim], dtype=dtype, tensor_scale=found.tensor_scale
        )
        assert same(back, want)


#: What keeps blocks whole, for a (4, 6, 192) tensor with blocks along the last dimension.
OPERATIONS = {
    "transpose": lambda t: t.transpose(0, 2),
    "mT": lambda t: t.mT,
    "permute": lambda t: t.permute(2, 0, 1),
    "view rows": lambda t: t.view(24, 192),
    "view heads": lambda t: t.view(4, 6, 2, 96),
    "reshape joins": lambda t: t.reshape(4, 6 * 192),
    "reshape transposed": lambda t: t.transpose(0, 1).reshape(24, 192),
    "unflatten": lambda t: t.unflatten(0, (2, 2)),
    "flatten": lambda t: t.flatten(),
    "slice rows": lambda t: t[1:, ::2],
    "slice blocks": lambda t: t[..., 96:],
    "slice to the end": lambda t: t[..., :192],
    "empty slice": lambda t: t[3:1],
    "select": lambda t: t[2],
    "select negative": lambda t: t.select(1, -1),
    "select after": lambda t: t.permute(2, 0, 1)[:, 1],
    "split": lambda t: t.split([1, 3])[1],
    "chunk blocks": lambda t: t.chunk(2, -1)[1],
    "unbind": lambda t: t.unbind(1)[4],
    "index_select": lambda t: t.index_select(1, torch.tensor([5, 0, 0])),
    "expand": lambda t: t[:, :1].expand(2, 4, 3, 192),
    "expand -1": lambda t: t[:1].expand(5, -1, -1),
    "unsqueeze first": lambda t: t.unsqueeze(0),
    "unsqueeze last": lambda t: t.unsqueeze(-1),
    "squeeze": lambda t: t[:1].unsqueeze(2).squeeze(),
    "squeeze one": lambda t: t.unsqueeze(1).squeeze(1),
    "cat": lambda t: torch.cat([t, t[:1]]),
    "cat blocks": lambda t: torch.cat([t, t[..., :96]], -1),
    "stack": lambda t: torch.stack([t, t], 1),
    "stack last": lambda t: torch.stack([t, t], -1),
    "clone": lambda t: t.mT.clone(),
    "contiguous": lambda t: t.mT.contiguous(),
    "detach": lambda t: t.detach(),
    "copy": copy.deepcopy,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "t": lambda t: t[0].t(),
    "T": lambda t: t[0].T,
    "movedim": lambda t: t.movedim(-1, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_on_shapes_is_the_one_on_the_values(operation, name):
    x = values(4, 6, 192, seed=1)
    change = OPERATIONS[operation]
    t = to_mx(x, name)
    got, want = change(t), change(t.dequantize())
    assert isinstance(got, MXTensor) and got.format == t.format
    assert same(got.dequantize(), want)
    zero = [stride == 0 for stride in want.stride()]
    assert got.is_contiguous() or [stride == 0 for stride in got.stride()] == zero
    for block in range(-got.ndim, 0):
        assert (got.scales.shape[block] == got.shape[block]) == (block != got.block_dim or got.shape[block] == 1)


def test_sums_are_those_of_the_values():
    x = values(4, 64, dtype=torch.bfloat16)
    t = to_mx(x, "mxfp8_e4m3")
    plain = t.dequantize()
    for got, want in ((t.sum(), plain.sum()), (t.sum(0), plain.sum(0)), (t.sum(-1, keepdim=True), plain.sum(-1, True))):
        assert not isinstance(got, MXTensor) and same(got, want)
    assert same(t.sum(0, dtype=torch.float64), plain.sum(0, dtype=torch.float64))


def test_short_last_blocks_stay_at_the_end():
    t = to_mx(values(3, 40), "mxfp4")
    assert same(t[:, 32:].dequantize(), t.dequantize()[:, 32:])
    assert same(torch.cat([t[:, :32], t], 1).dequantize(), torch.cat([t.dequantize()[:, :32], t.dequantize()], 1))
    for change in (lambda: torch.cat([t, t], 1), lambda: t.view(-1), lambda: t.view(3, 2, 20), lambda: t[:, :8]):
        with pytest.raises(gs.ShapeError, match="to_mx|multiples"):
            change()


CUTS = {
    "slice": lambda t: t[:, 1:],
    "step": lambda t: t[:, ::2],
    "select": lambda t: t[:, 0],
    "index_select": lambda t: t.index_select(1, torch.tensor([0])),
    "view": lambda t: t.view(4, 4, 16),
    "fold": lambda t: t.t().reshape(-1),
    "unbind": lambda t: t.unbind(1),
    "squeeze": lambda t: to_mx(torch.ones(4, 1), "mxfp8_e4m3").squeeze(1),
    "expand": lambda t: to_mx(torch.ones(4, 1), "mxfp8_e4m3").expand(4, 8),
    "rank": lambda t: t.view(2, 64, 2),
    "size": lambda t: t.view(5, -1),
}  # fmt: skip


@pytest.mark.parametrize("cut", CUTS)
def test_what_cuts_blocks_raises_and_says_the_way_out(cut):
    with pytest.raises((gs.ShapeError, RuntimeError), match="dequantize|elements"):
        CUTS[cut](to_mx(values(4, 64), "mxfp8_e4m3"))


REFUSED = {
    "mul": lambda t: t * 2,
    "add": lambda t: t + t,
    "relu": lambda t: torch.relu(t),
    "exp_": lambda t: t.exp_(),
    "int": lambda t: t.to(torch.int32),
    "equal": lambda t: torch.equal(t, t),
    "plain left": lambda t: torch.ones(4, 64) @ t.t(),
    "plain right": lambda t: t @ torch.ones(64, 4),
    "into plain": lambda t: torch.ones(4, 64).copy_(t),
    "alpha": lambda t: torch.addmm(torch.ones(4), t, t.t(), alpha=2),
    "cat plain": lambda t: torch.cat([t, torch.ones(4, 64)]),
    "cat other": lambda t: torch.cat([t, to_mx(torch.ones(4, 64), "mxfp4")]),
    "cat dim": lambda t: torch.cat([t, to_mx(torch.ones(4, 64), "mxfp8_e4m3", 0)]),
    "cat scale": lambda t: torch.cat([to_mx(torch.full((2, 16), v), "nvfp4/tensor") for v in (1.0, 2.0)]),
    "copy other": lambda t: t.copy_(to_mx(torch.ones(4, 64), "mxfp8_e5m2")),
    "from_dlpack": lambda t: torch.from_dlpack(t),
    "apply_": lambda t: t.apply_(abs),
    "float": lambda t: float(to_mx(torch.ones(1), "mxfp4")),
    "index": lambda t: t[torch.tensor([0, 1])],
    "result": lambda t: torch.add(torch.ones(4, 64), 1, out=t),
    "count_overflows": lambda t: gs.count_overflows(t, t.t(), "mxfp8_e4m3 : scaled(fixed(24, 8, overflow=wrap), fp32)"),
    "qmatmul": lambda t: gs.qmatmul(t, t.t(), ":fp32"),
    "channels": lambda t: t.view(1, 2, 2, 64).clone(memory_format=torch.channels_last),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_is_decoded_unasked(what):
    with pytest.raises(MXOperatorError, match=r"allowed: .*\n  "):
        REFUSED[what](to_mx(values(4, 64), "mxfp8_e4m3"))


def test_compat_is_the_mode_of_a_system_and_its_order_of_codes():
    x = torch.full((2, 32), 2.0**-125)
    for mode in ("torchao", "torchao-0.18", "torchao-0.6.1", "torchmx", "microxcaling"):
        t = to_mx(x, "mxfp4", compat=mode)
        assert same(t.dequantize(), gs.mx.quantize(x, f"mxfp4/{mode}"))
        assert t.packing == ("hi_first" if mode in ("torchao-0.6.1", "torchmx") else "lo_first")
    assert to_mx(x, "mxfp4", compat="torchmx", packing="bytes").packing == "bytes"
    with pytest.raises(gs.FormatError, match="floor"):
        to_mx(x, "mxfp4/rceil", compat="torchao-0.6.1")


# Products


def exact(a, b, dtype):
    return gs.qmatmul(a.dequantize(torch.float32), b.dequantize(torch.float32), ": fp32", out_dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shapes", [((5, 70), (70, 3)), ((2, 5, 70), (2, 70, 3)), ((2, 4, 5, 64), (2, 4, 64, 3)),
                                    ((2, 5, 70), (70, 3)), ((70,), (70, 3)), ((5, 70), (70,)), ((70,), (70,))], ids=str)  # fmt: skip
def test_matmul_is_a_sequential_float32_sum_of_exact_products(shapes, dtype):
    a = to_mx(values(*shapes[0], dtype=dtype), "mxfp8_e4m3")
    b = to_mx(values(*shapes[1], seed=1), "mxfp4", 0 if len(shapes[1]) == 1 else -2)
    got = a @ b
    want = exact(a, b, torch.promote_types(dtype, torch.float32))
    assert not isinstance(got, MXTensor) and same(got, want)


def test_linear_and_addmm_add_the_bias_in_float32():
    x, w = values(2, 5, 64, dtype=torch.bfloat16), values(3, 64, seed=1, dtype=torch.bfloat16)
    bias = values(3, seed=2, dtype=torch.bfloat16)
    a, b = to_mx(x, "mxfp8_e4m3"), to_mx(w, "mxfp8_e5m2")
    want = (exact(a, b.mT, torch.float32) + bias.float()).bfloat16()
    assert same(torch.nn.functional.linear(a, b, bias), want)
    assert same(torch.addmm(bias, a[0], b.t()), want[0])
    assert same(torch.nn.functional.linear(a, b), exact(a, b.mT, torch.bfloat16))


def test_an_act_format_encodes_plain_left_operands():
    x, w = values(5, 64), values(3, 64, seed=1)
    b = to_mx(w, "mxfp4", act_format="mxfp8_e4m3")
    assert same(torch.nn.functional.linear(x, b), exact(to_mx(x, "mxfp8_e4m3"), b.t(), torch.float32))


def test_scale_products_beyond_float32_and_nan_blocks():
    x = torch.full((1, 32), 2.0**120)
    x[0, 1:] = 0
    y = torch.full((1, 32), 2.0**-120)
    assert (to_mx(x, "mxfp8_e4m3") @ to_mx(y, "mxfp8_e4m3").t()).item() == 1.0
    y[0, 5] = math.nan
    assert (to_mx(x, "mxfp8_e4m3") @ to_mx(y, "mxfp8_e4m3").t()).isnan().all()


def test_blocks_across_the_sum_warn_and_are_multiplied_as_they_are():
    a, b = to_mx(values(4, 64), "mxfp8_e4m3", 0), to_mx(values(64, 3, seed=1), "mxfp8_e4m3", 0)
    with pytest.warns(BlockDimWarning, match="blocks of a lie along dim -2"):
        got = a @ b
    assert same(got, exact(a, b, torch.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(a.requantize(-1) @ b, exact(gs.mx.requantize(a, -1), b, torch.float32))


def test_requantize_rounds_the_values_again():
    t = to_mx(values(64, 32, dtype=torch.bfloat16), "mxfp4/b16")
    again = t.requantize(0)
    assert again.block_dim == -2 and again.dtype == torch.bfloat16
    assert same(again.dequantize(), gs.mx.quantize(t.dequantize(), "mxfp4/b16", dim=0))
    assert t.requantize(-1, "mxfp8_e4m3").packing == "bytes"


# Gradients


def test_gradients_are_straight_through():
    x = values(4, 64).requires_grad_()
    out = to_mx(x, "mxfp4").dequantize(torch.float64)
    grad = values(4, 64, seed=3, dtype=torch.float64)
    out.backward(grad)
    assert same(x.grad, grad.float())
    x.grad = None
    gs.mx.requantize(to_mx(x, "mxfp4"), 0).dequantize().sum().backward()
    assert same(x.grad, torch.ones(4, 64))


def test_gradients_become_block_tensors_where_asked():
    x, w = values(4, 64).requires_grad_(), values(6, 64, seed=1).requires_grad_()
    a, b = to_mx(x, "mxfp8_e4m3"), to_mx(w, "mxfp8_e4m3")
    grad = values(4, 6, seed=2)
    with pytest.warns(BlockDimWarning):
        gs.mx.NoopFwToMXBw.apply(a @ b.t(), "mxfp4").backward(grad)
    g = gs.mx.quantize(grad, "mxfp4")
    assert same(x.grad, gs.qmatmul(g, b.dequantize().detach(), ": fp32"))
    assert same(w.grad, gs.qmatmul(g.t(), a.dequantize().detach(), ": fp32"))
    y = to_mx(values(4, 64).requires_grad_(), "mxfp8_e4m3") @ to_mx(values(6, 64), "mxfp8_e4m3").t()
    with pytest.raises(MXOperatorError, match="plain"):
        y.sum().backward()


# Storage


@pytest.mark.parametrize("name", NAMES)
def test_files(name, tmp_path):
    t = to_mx(values(4, 70), name, act_format="mxfp8_e4m3")
    parameter = torch.nn.Parameter(t, requires_grad=False)
    file = io.BytesIO()
    torch.save({"w": parameter, "x": torch.ones(2)}, file)
    file.seek(0)
    back = torch.load(file, weights_only=True)["w"]
    assert repr(back) == repr(t) and same(back.dequantize(), t.dequantize())
    pytest.importorskip("safetensors", reason="gemmsim[safetensors] is not installed")
    gs.mx.save_file({"w": parameter, "x": torch.ones(2), "v": t.t()}, tmp_path / "t.safetensors", {"k": "v"})
    loaded = gs.mx.load_file(tmp_path / "t.safetensors")
    assert sorted(loaded) == ["v", "w", "x"] and repr(loaded["w"]) == repr(t) and repr(loaded["v"]) == repr(t.t())
    assert same(loaded["v"].dequantize(), t.t().dequantize()) and torch.equal(loaded["x"], torch.ones(2))


def test_files_whose_notes_do_not_fit():
    t = to_mx(values(4, 64), "mxfp4")
    with pytest.raises(MXFileError, match="w.codes"):
        gs.mx.flatten_tensors({"w": t, "w.codes": torch.ones(1)})
    plain, note = gs.mx.flatten_tensors({"w": t})
    del plain["w.scales"]
    with pytest.raises(MXFileError, match="w.scales"):
        gs.mx.unflatten_tensors(plain, note)
    assert sorted(gs.mx.unflatten_tensors({"x": torch.ones(1)}, None)) == ["x"]


def test_copy_and_state_dicts():
    x = values(4, 64, seed=5)
    t = to_mx(torch.zeros(4, 64), "nvfp4/tensor")
    t.copy_(x)
    assert same(t.dequantize(), gs.mx.quantize(x, "nvfp4/tensor"))
    t[1:].copy_(to_mx(x, "nvfp4/tensor")[1:])
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(to_mx(torch.zeros(4, 64), "mxfp8_e4m3"), requires_grad=False)
    module.load_state_dict({"weight": to_mx(x, "mxfp8_e4m3")})
    assert same(module.weight.dequantize(), gs.mx.quantize(x, "mxfp8_e4m3"))
    assert isinstance(copy.deepcopy(module).weight, torch.nn.Parameter)


@pytest.mark.parametrize("name", ["mxfp8_e4m3", "nvfp4/tensor"])
def test_shared_memory(name):
    t = to_mx(values(4, 64), name)
    want = t.dequantize()
    assert not t.is_shared() and t.share_memory_() is t and t.is_shared() and t.codes.is_shared()
    assert same(t.dequantize(), want)
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(to_mx(values(4, 64), name), requires_grad=False)
    assert module.share_memory().weight.is_shared()


def test_dtype_conversions_keep_the_codes():
    t = to_mx(values(4, 64), "mxfp8_e4m3")
    for got, dtype in ((t.bfloat16(), torch.bfloat16), (t.to(torch.float64), torch.float64), (t.half(), torch.float16)):
        assert got.dtype == dtype and torch.equal(got.codes, t.codes) and same(got.dequantize(), t.dequantize(dtype))
    assert t.to("meta").device.type == "meta" and t.float() is t


def test_compiled_code():
    x, w = values(4, 64).requires_grad_(), values(6, 64, seed=1).requires_grad_()

    def layer(x, w):
        out = to_mx(x, "mxfp8_e4m3") @ to_mx(w, "nvfp4/tensor").t()
        return out + to_mx(x, "mxfp4", 0).dequantize().sum()

    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert same(compiled(x.detach(), w.detach()), layer(x.detach(), w.detach()))
    t = to_mx(x.detach(), "mxfp8_e4m3")
    given = torch.compile(lambda t: (t.t(), t @ t[:2].mT), backend="aot_eager", fullgraph=True)(t)
    assert repr(given[0]) == repr(t.t()) and same(given[1], t @ t[:2].mT)
    graded = torch.compile(lambda x: to_mx(x, "mxfp4").dequantize() * 2, backend="aot_eager", fullgraph=True)
    graded(x).sum().backward()
    assert same(x.grad, torch.full((4, 64), 2.0))


def test_constructor_errors():
    x = to_mx(values(4, 64), "mxfp4")
    for call, error in (
        (lambda: MXTensor(x.codes, x.scales, "mxfp5"), gs.FormatError),
        (lambda: MXTensor(x.codes.float(), x.scales, "mxfp4"), gs.DTypeError),
        (lambda: MXTensor(x.codes, x.scales, "mxfp4", size=60), gs.ShapeError),
        (lambda: MXTensor(x.codes, x.scales, "nvfp4"), gs.ShapeError),
        (lambda: MXTensor(x.codes, x.scales, "mxfp4", dtype=torch.int8), gs.DTypeError),
        (lambda: MXTensor(x.codes, x.scales, "mxfp4", tensor_scale=torch.tensor(1.0)), gs.ShapeError),
        (lambda: to_mx(x, "mxfp4"), gs.DTypeError),
        (lambda: to_mx(torch.ones(()), "mxfp4"), gs.ShapeError),
    ):
        with pytest.raises(error):
            call()
