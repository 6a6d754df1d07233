"""numpy arrays in place of tensors: the same bits as of tensors with the same numbers, in the arrays' own precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gemmsim as gs
from gemmsim.ops.arrays import takes_arrays
from gemmsim.ops.checks import check_tensor

DTYPES = (np.float64, np.float32, np.float16)


def values(*shape, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tensor(x):
    return torch.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x


def same(got, want):
    """Whether an array, or what holds arrays, has the bits of what holds tensors."""
    if isinstance(want, tuple):
        return type(got) is type(want) and all(map(same, got, want))
    if not isinstance(want, torch.Tensor):
        return got == want
    assert type(got) is np.ndarray and got.shape == tuple(want.shape)
    want = want.numpy()
    return got.dtype == want.dtype and got.tobytes() == np.ascontiguousarray(want).tobytes()


IMAGE, FILTER, VOLUME = (2, 4, 6, 5), (4, 3, 3, 2), (2, 4, 6, 5, 4)
SPEC = "e4m3 : bf16"
#: A call of each function with arrays of these shapes.
CALLS = {
    "quantize": ([(3, 7)], lambda x: gs.quantize(x, "e4m3")),
    "quantizer": ([(3, 7)], lambda x: gs.quantizer("e4m3", "e5m2")(x)),
    "qmatmul": ([(2, 3, 8), (8, 5)], lambda a, b: gs.qmatmul(a, b, SPEC)),
    "qmatmul, native": ([(3, 8), (8, 5)], lambda a, b: gs.qmatmul(a, b)),
    "qmatmul, c": ([(3, 8), (8, 5), (3, 5)], lambda a, b, c: gs.qmatmul(a, b, "sequential(fp32, init=c_first)", c=c)),
    "qmm": ([(3, 8), (8, 5)], lambda a, b: gs.qmm(a, b, SPEC)),
    "qlinear": ([(2, 3, 8), (5, 8), (5,)], lambda x, w, b: gs.qlinear(x, w, b, SPEC)),
    "qconv1d": ([(2, 4, 6), (3, 4, 3)], lambda x, w: gs.qconv1d(x, w, spec=SPEC)),
    "qconv2d": ([IMAGE, (3, 4, 3, 2)], lambda x, w: gs.qconv2d(x, w, spec=SPEC)),
    "qconv3d": ([VOLUME, (3, 4, 3, 2, 2)], lambda x, w: gs.qconv3d(x, w, spec=SPEC)),
    "qconv_transpose1d": ([(2, 4, 6), (4, 3, 3)], lambda x, w: gs.qconv_transpose1d(x, w, spec=SPEC)),
    "qconv_transpose2d": ([IMAGE, FILTER], lambda x, w: gs.qconv_transpose2d(x, w, spec=SPEC)),
    "qconv_transpose3d": ([VOLUME, (4, 3, 3, 2, 2)], lambda x, w: gs.qconv_transpose3d(x, w, spec=SPEC)),
    "qattention": ([(2, 3, 5, 8)] * 3, lambda q, k, v: gs.qattention(q, k, v, is_causal=True)),
    "qsoftmax": ([(3, 7)], lambda x: gs.qsoftmax(x, -1, gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10"))),
    "qlogsoftmax": ([(3, 7)], lambda x: gs.qlogsoftmax(x, -1, "e5m10")),
    "qlayernorm": ([(3, 7), (7,)], lambda x, w: gs.qlayernorm(x, (7,), w, spec="e5m10")),
    "qrmsnorm": ([(3, 7), (7,)], lambda x, w: gs.qrmsnorm(x, (7,), w, spec="e5m10")),
    "qgroupnorm": ([(3, 4, 5), (4,)], lambda x, w: gs.qgroupnorm(x, 2, w, spec="e5m10")),
    "qadd": ([(3, 7), (7,)], lambda x, y: gs.qadd(x, y, "e5m10", "e5m10")),
    "qmul": ([(3, 7), (7,)], lambda x, y: gs.qmul(x, y, "e5m10", "e5m10")),
    "qdiv": ([(3, 7), (7,)], lambda x, y: gs.qdiv(x, y, "e5m10", "e5m10")),
    "qpow": ([(3, 7)], lambda x: gs.qpow(x, "e5m10", "e5m10", 2)),
    "qsum": ([(3, 7)], lambda x: gs.qsum(x, 1, "e5m10")),
    "qmean": ([(3, 7)], lambda x: gs.qmean(x, "e5m10", None, 1)),
    "qrelu": ([(3, 7)], lambda x: gs.qrelu(x, "e5m10", "e5m10")),
    "qgelu": ([(3, 7)], lambda x: gs.qgelu(x, "e5m10")),
    "qsilu": ([(3, 7)], lambda x: gs.qsilu(x, "e5m10")),
    "qsigmoid": ([(3, 7)], lambda x: gs.qsigmoid(x, "e5m10")),
    "qtanh": ([(3, 7)], lambda x: gs.qtanh(x, "e5m10")),
    "qavgpool2d": ([IMAGE], lambda x: gs.qavgpool2d(x, 2, fwd_quant="e5m10")),
    "count_overflows": ([(3, 8), (8, 5)], lambda a, b: gs.count_overflows(a, b, ":fixed(4,2,rounding=rne)")),
    "sliced": ([(3, 8), (8, 5)], lambda a, b: gs.sliced.bf16(3)(a, b)),
    "sliced.matmul": ([(3, 8), (8, 5)], lambda a, b: gs.sliced.matmul(a, b, gs.sliced.bf16(2))),
    "mx.quantize": ([(3, 40)], lambda x: gs.mx.quantize(x, "mxfp4")),
    "mx.encode": ([(3, 40)], lambda x: gs.mx.encode(x, "nvfp4/tensor")),
    "mx.quantize_mx": ([(3, 40)], lambda x: gs.mx.quantize_mx(x, "mxfp4")),
    "mx.decode": ([(3, 40)], lambda x: gs.mx.decode(gs.mx.encode(x, "nvfp4/tensor"), "nvfp4/tensor")),
    "mx.tensor_scale": ([(3, 40)], lambda x: gs.mx.tensor_scale(x, "nvfp4/tensor")),
    "mx.to_blocked": ([(3, 64)], lambda x: gs.mx.to_blocked(gs.mx.encode(x, "mxfp4").scales)),
    "mx.matmul": ([(3, 40), (40, 2)], lambda a, b: gs.mx.matmul(a, b, "mxfp8_e4m3 * mxfp4 : fp32")),
    "mx.trained_matmul": ([(3, 40), (40, 2)], lambda a, b: gs.mx.trained_matmul(a, b, "mxfp8_e4m3")),
    "mx.mx_attention": ([(1, 2, 5, 32)] * 3, lambda q, k, v: gs.mx.mx_attention(q, k, v, "mxfp8_e4m3")),
    "fake_tensor_quant": ([(3, 7)], lambda x: gs.tensor_quant.fake_tensor_quant(x, 2.0)),
    "fake_tensor_quant, positions": ([(3, 7)], lambda x: gs.tensor_quant.fake_tensor_quant(x, 2.0, 8, False, True)),
    "tensor_quant": ([(3, 7)], lambda x: gs.tensor_quant.tensor_quant(x, 2.0)),
    "scaled_e4m3": ([(3, 7)], lambda x: gs.tensor_quant.scaled_e4m3(x, 2.0)),
    "dynamic_block_quant": (
        [(3, 32)], lambda x: gs.tensor_quant.dynamic_block_quant(x, 16, None, None, (2, 1), (4, 3))
    ),
    "int_matmul": ([(3, 8), (8, 5)], lambda a, b: gs.tensor_quant.int_matmul(gs.quantize(a, "int4"), gs.quantize(b, "int4"))),
    "nf4_fake_quant": ([(3, 64)], lambda x: gs.tensor_quant.nf4_fake_quant(x, 64)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_arrays_give_the_bits_of_tensors(name, dtype):
    shapes, call = CALLS[name]
    arrays = [values(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    torch.manual_seed(0)
    want = call(*map(tensor, arrays))
    before = [x.copy() for x in arrays]
    torch.manual_seed(0)
    assert same(call(*arrays), want)
    assert all(np.array_equal(x, y) for x, y in zip(arrays, before, strict=True))


def test_float64_is_kept():
    x = np.array([1 / 3, 1e300, 2.0**-1074, -0.0, np.nan, np.inf])
    found = gs.quantize(x, "fp64")
    assert found.dtype == np.float64 and found.tobytes() == x.tobytes() and found is not x
    a, b = values(3, 50), values(50, 2)
    assert same(gs.qmatmul(a, b, ":fp64"), gs.qmatmul(tensor(a), tensor(b), ":fp64"))
    assert gs.qmatmul(a, b, ":fp64").dtype == np.float64
    assert gs.qmatmul(a, b, ":fp64", out_dtype=torch.float32).dtype == np.float32


def test_integers_are_as_torchs():
    x = np.arange(-4, 4)
    with pytest.raises(gs.DTypeError, match=r"x has dtype int64; .*\n  Convert it first: x.astype\(numpy.float64\)"):
        gs.quantize(x, "e4m3")
    a, b = (np.random.default_rng(s).integers(-9, 9, (4, 4)).astype(np.int8) for s in (0, 1))
    assert same(gs.qmatmul(a, b, ":int(32)"), gs.qmatmul(tensor(a), tensor(b), ":int(32)"))


@pytest.mark.parametrize(
    "dtype, advised",
    [("int64", 64), ("int32", 64), ("int16", 32), ("int8", 32), ("bool", 32), ("float8_e5m2", 32)],
)
def test_advice_keeps_every_number(dtype, advised):
    x = torch.ones(3).to(getattr(torch, dtype))
    with pytest.raises(gs.DTypeError, match=rf"Convert it first: x.to\(torch.float{advised}\)"):
        gs.quantize(x, "e4m3")


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_arrays_of_ml_dtypes(name):
    dtype = getattr(pytest.importorskip("ml_dtypes"), name)
    a, b = values(3, 8).astype(dtype), values(8, 2, seed=1).astype(dtype)
    left, right = (torch.from_numpy(x.astype(np.float32)).to(getattr(torch, name)) for x in (a, b))
    spec = f"{ {'bfloat16': 'bf16', 'float8_e4m3fn': 'e4m3', 'float8_e5m2': 'e5m2'}[name] } : fp32"
    found, want = gs.qmatmul(a, b, spec), gs.qmatmul(left, right, spec)
    assert found.dtype == (dtype if name == "bfloat16" else np.float32)
    assert np.array_equal(found.astype(np.float32), want.float().numpy())


def test_results_that_numpy_does_not_have():
    a, b = values(3, 8), values(8, 2)
    with pytest.raises(gs.DTypeError, match=r"qmatmul: a result in bfloat16, .*\n  Use out_dtype=torch.float32"):
        gs.qmatmul(a, b, ":fp32", out_dtype=torch.bfloat16)


def test_out_is_the_array_itself():
    x, out = values(4, 5), np.full((4, 5), 7.0)
    want = gs.quantize(x, "e4m3")
    assert gs.quantize(x, "e4m3", out=out) is out and np.array_equal(out, want)
    assert gs.quantize(x, "e4m3", out=x) is x and np.array_equal(x, want)
    turned = np.full((5, 4), 7.0).T
    assert gs.quantize(x, "e4m3", out=turned) is turned and np.array_equal(turned, want)
    frozen = x.copy()
    frozen.flags.writeable = False
    for unfit in (frozen, x.astype(x.dtype.newbyteorder())):
        with pytest.raises(gs.DTypeError, match="quantize: out is an array whose memory a tensor cannot share"):
            gs.quantize(x, "e4m3", out=unfit)


def test_running_statistics_are_updated_in_place():
    x, mean, var = values(6, 3), np.zeros(3), np.ones(3)
    twins = [tensor(t) for t in (x, mean, var)]
    want = gs.qbatchnorm(*twins, training=True, fwd_quant="e5m10")
    assert same(gs.qbatchnorm(x, mean, var, training=True, fwd_quant="e5m10"), want)
    assert same(mean, twins[1]) and same(var, twins[2]) and mean.any()


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[::-1],
        lambda x: x[:, ::2],
        lambda x: np.asfortranarray(x),
        lambda x: x.astype(x.dtype.newbyteorder()),
        lambda x: np.broadcast_to(x[:1], (4, 6)),
        lambda x: x[:0],
        lambda x: np.array(x[0, 0]),
        lambda x: np.ndarray((4, 6), x.dtype, x.tobytes()),  # read-only
    ],
)
def test_any_layout(change, recwarn):
    x = change(values(4, 6))
    want = gs.quantize(torch.from_numpy(np.array(x, dtype=np.float64, order="C")), "e4m3")
    assert np.array_equal(gs.quantize(x, "e4m3"), want.numpy()) and not recwarn.list


def test_files_in_memory(tmp_path):
    x = values(4, 6)
    np.save(tmp_path / "x.npy", x)
    found = gs.quantize(np.load(tmp_path / "x.npy", mmap_mode="r"), "e4m3")
    assert type(found) is np.ndarray and np.array_equal(found, gs.quantize(x, "e4m3"))


def test_tensors_and_arrays_do_not_mix():
    a, b = values(3, 8), values(8, 2)
    for call, tensor_name, array in (
        (lambda: gs.qmatmul(a, tensor(b), ":fp32"), "b", "a"),
        (lambda: gs.qlinear(tensor(a), b.T, None, ":fp32"), "x", "weight"),
        (lambda: gs.qmatmul(tensor(a), tensor(b), ":fp32", c=np.zeros((3, 2))), "a", "c"),
        (lambda: gs.nn.QLinear(8, 2, spec=":fp32")(a), "weight", "x"),
        (lambda: gs.mx.matmul(gs.mx.encode(a, "mxfp4"), tensor(b), a_format="mxfp4"), "b", "a"),
    ):
        with pytest.raises(
            gs.DTypeError, match=f"{tensor_name} is a tensor and {array} a numpy array; allowed: only tensors"
        ):
            call()


@pytest.mark.parametrize(
    "x, words",
    [
        (np.array(["a"]), "x is an array of <U1"),
        (np.array([{}]), "x is an array of object"),
        (np.zeros(2, [("a", "f4")]), "x is an array of "),
        (np.ma.masked_array([1.0], [True]), "x is a MaskedArray"),
        ([1.0], "x is a list"),
        (np.array([1j]), r"dtype complex128; allowed: .*\n  Use x.real and x.imag\.$"),
    ],
)
def test_what_is_no_array_of_numbers(x, words):
    with pytest.raises(gs.DTypeError, match=words):
        gs.quantize(x, "e4m3")


@pytest.mark.parametrize(
    ("call", "do"),
    [
        (lambda n: gs.qmatmul(n, n, ":fp32"), "a.astype(numpy.float64)"),
        (lambda n: gs.qlinear(n, n, None, ":fp32"), "x.astype(numpy.float64)"),
        (lambda n: gs.quantize(n, "e4m3"), "x.astype(numpy.float64)"),
        (lambda n: gs.qsoftmax(n, -1), "x.astype(numpy.float64)"),
        (lambda n: gs.qadd(n, n), "x.astype(numpy.float64)"),
        (lambda n: gs.qconv1d(n, n[:, :, None]), "x.astype(numpy.float64)"),
        (lambda n: gs.count_events(n, n, ":fp32"), "a.astype(numpy.float64)"),
        (lambda n: gs.compare(":fp32", ":fp16", n, n), "a.astype(numpy.float64)"),
        (lambda n: gs.mx.quantize(n, "mxfp4/b2"), "x.astype(numpy.float64)"),
        (lambda n: gs.mx.to_mx(n, "mxfp4/b2"), "x.astype(numpy.float64)"),
    ],
)
def test_integers_are_advised_in_numpys_words(call, do):
    """The advice runs; tensors get theirs."""
    numbers = np.arange(4).reshape(2, 2)
    with pytest.raises(gs.DTypeError, match="dtype int64; allowed: ") as caught:
        call(numbers)
    assert str(caught.value).endswith(f"\n  Convert it first: {do}.")
    call(eval(do, {"numpy": np, "a": numbers, "x": numbers}))
    with pytest.raises(gs.DTypeError, match=r"dtype torch\.int64.*\n  Convert it first: [ax].to\(torch.float64"):
        call(tensor(numbers))


def test_lists_are_told_of_arrays_where_arrays_are_taken():
    both = "allowed: a torch.Tensor or a numpy array"
    for owner, call in (
        ("qmatmul", lambda: gs.qmatmul([1.0], values(1), ":fp32")),
        ("quantize", lambda: gs.quantize([1.0], "e4m3")),
        ("qsoftmax", lambda: gs.qsoftmax([1.0], -1)),
        ("mx.quantize", lambda: gs.mx.quantize([1.0], "mxfp4")),
        ("mx.to_mx", lambda: gs.mx.to_mx([1.0], "mxfp4")),
    ):
        with pytest.raises(gs.DTypeError, match=f"^{owner}: . is a list; {both}."):
            call()
    with pytest.raises(gs.DTypeError, match=r"is a list; allowed: a torch.Tensor\."):
        check_tensor("nothing.of_this_name", "x", [1.0])


def test_to_mx_of_an_array_is_that_of_its_tensor():
    x = values(32, 64, dtype=np.float32)
    for fmt, more in (
        ("mxfp8_e4m3", {}),
        ("nvfp4/tensor", {}),
        ("mxfp4", {"dim": 0}),
        ("mxfp6_e3m2", {"compat": "torchao"}),
    ):
        found, twin = (gs.mx.to_mx(one, fmt, **more) for one in (x, tensor(x)))
        assert type(found) is gs.mx.MXTensor and found.format == twin.format
        assert torch.equal(found.dequantize(), twin.dequantize())
    compiled = torch.compile(lambda x: gs.mx.to_mx(x, "mxfp4"), backend="eager")(x)
    assert torch.equal(compiled.dequantize(), gs.mx.to_mx(tensor(x), "mxfp4").dequantize())


def test_unknown_arguments_are_named():
    with pytest.raises(
        TypeError, match=r"qmatmul\(\) got an unexpected keyword argument 'sed'; allowed: .*\n  Did you mean seed=\?$"
    ):
        gs.qmatmul(values(2, 2), values(2, 2), ":fp32", sed=1)


def test_what_holds_several_arrays():
    a, b = values(3, 50, dtype=np.float32), values(50, 2, dtype=np.float32)
    events, twins = gs.count_events(a, b, ":bf16"), gs.count_events(tensor(a), tensor(b), ":bf16")
    for name in ("out", "swamped", "inexact", "underflow", "overflow"):
        assert same(getattr(events, name), getattr(twins, name))
    assert events.additions == twins.additions and events.shares() == twins.shares()
    found, twin = gs.truth(a, b, within=1e-30), gs.truth(tensor(a), tensor(b), within=1e-30)
    assert all(same(getattr(found, name), getattr(twin, name)) for name in ("value", "bound", "exact", "size"))
    assert found.method == twin.method and repr(found) == repr(twin)


def test_comparisons_and_traces():
    a, b = values(3, 9), values(9, 2)
    assert gs.compare(":bf16", ":fp32", a, b) == gs.compare(":bf16", ":fp32", tensor(a), tensor(b))
    assert gs.trace(a, b, ":bf16", at=(1, 0)) == gs.trace(tensor(a), tensor(b), ":bf16", at=(1, 0))
    w = np.random.default_rng(0).integers(-8, 8, (4, 9))
    assert gs.acc.min_accumulator_bits(w, "int8", k_dim=1) == gs.acc.min_accumulator_bits(tensor(w), "int8", k_dim=1)


def test_random_bits_are_those_of_tensors():
    x = values(5, 9)
    assert same(gs.quantize(x, "e4m3/sr", seed=7), gs.quantize(tensor(x), "e4m3/sr", seed=7))


def test_emulation_and_graphs_are_as_without():
    a, b = values(3, 8), values(8, 2)
    want = gs.qmatmul(a, b, ":fp32")
    with gs.emulate(":bf16"):
        assert np.array_equal(gs.qmatmul(a, b, ":fp32"), want)
    torch._dynamo.reset()
    run = torch.compile(
        lambda x, y: gs.qmatmul(x, y, ":fp32") + gs.quantize(x[:, :2], "e4m3"), backend="aot_eager", fullgraph=True
    )
    found = run(a, b)
    with pytest.raises(Exception, match="tensors and numpy arrays"):
        torch.compile(lambda x, y: gs.qmatmul(x, y, ":fp32"), backend="aot_eager", fullgraph=True)(a, tensor(b))
    assert type(found) is np.ndarray and np.array_equal(found, want + gs.quantize(a[:, :2], "e4m3"))


def test_subnormals_stay():
    tiny = np.float32(2.0**-135)
    x, w, b = np.full((5, 64), tiny), np.eye(64, dtype=np.float32), np.full(64, tiny)
    torch.set_flush_denormal(True)
    try:
        found = gs.qlinear(x, w, b, ":fp32")
    finally:
        torch.set_flush_denormal(False)
    assert (found == 2 * tiny).all()


def test_the_decorator():
    @takes_arrays
    def both(x, *more, flag=None):
        assert all(isinstance(t, torch.Tensor) for t in (x, *more))
        return (x, x + 1), flag

    x = values(3)
    (first, second), flag = both(x, x, values(2), flag="yes")
    assert first is x and np.array_equal(second, x + 1) and flag == "yes"
    t = tensor(x)
    assert both(t)[0][0] is t
