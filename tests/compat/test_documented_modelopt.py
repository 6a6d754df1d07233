"""Each item that NVIDIA ModelOpt documents in ``tensor_quant``, called as documented, with the documented defaults."""

from __future__ import annotations

import inspect
import io
import math

import numpy as np
import pytest
import torch
from support import assert_bitwise_equal

from gemmsim.compat.modelopt.torch.quantization import tensor_quant as mo

INF, NAN = math.inf, math.nan


def data():
    """Numbers around ties and ends of the grids under amax 2, and every special value."""
    x = torch.randn(64, generator=torch.Generator().manual_seed(0)) * 2
    x[:12] = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 2.0, -2.0, 2.0000002, 1e-30, -1e-30, 3e38, 0.5 / 127 * 2])
    return x


def integers_of(x, amax, bits=8, unsigned=False, narrow=True):
    """clamp(rint(x * scale), lo, hi) and scale = hi / amax, each step in float32: the documented definition."""
    v, hi = x.numpy(), np.float32(2 ** (bits - 1 + unsigned) - 1)
    lo = np.float32(0) if unsigned else -hi if narrow else -hi - 1
    scale = hi / np.float32(amax)
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.clip(np.rint(v * scale), lo, hi)), torch.tensor(scale)


def fake_of(x, amax, *grid):
    q, scale = integers_of(x, amax, *grid)
    return torch.from_numpy(q.numpy() / scale.numpy())


def affine_of(x, low, high, bits=8):
    low, high, v = np.float32(low), np.float32(high), x.numpy()
    step = (high - low) / np.float32(2**bits - 1)
    zero = np.rint(low / step) + np.float32(2 ** (bits - 1))
    with np.errstate(all="ignore"):
        q = np.clip(np.rint(v / step) - zero, np.float32(-(2 ** (bits - 1))), np.float32(2 ** (bits - 1) - 1))
    return torch.from_numpy((q + zero) * step)


def e4m3_of(x, amax):
    scale = np.float32(448) * (np.float32(1) / np.float32(amax))
    with np.errstate(all="ignore"):
        v = torch.from_numpy(x.numpy() * scale).clamp(-448, 448)
    return torch.from_numpy(v.to(torch.float8_e4m3fn).float().numpy() * (np.float32(1) / scale))


class Saved:
    """The least that a context has to be."""

    saved_tensors = ()

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors


GRADIENT = torch.arange(1.0, 65.0)
X, A = data(), torch.tensor(2.0)
INSIDE = X.abs() <= 2

#: Function class -> arguments after the context in the documented order, the documented value, where the gradient passes.
STEPS = {
    "TensorQuantFunction": ((X, A), integers_of(X, 2), INSIDE),
    "TensorQuantFunction 4 bits, full": ((X, A, 4, False, False), integers_of(X, 2, 4, False, False), INSIDE),
    "FakeTensorQuantFunction": ((X, A), fake_of(X, 2), INSIDE),
    "FakeTensorQuantFunction unsigned": ((X.abs(), A, 8, True, True), fake_of(X.abs(), 2, 8, True), INSIDE),
    "FakeTensorQuantFunction later order": (
        (X, A, None, 4, False, False, None, True),
        fake_of(X, 2, 4, False, False),
        torch.ones(64, dtype=torch.bool),
    ),
    "LegacyFakeTensorQuantFunction": ((X, A), fake_of(X, 2), INSIDE),
    "LegacyFakeTensorQuantFunction 4 bits": ((X, A, 4, False, False), fake_of(X, 2, 4, False, False), INSIDE),
    "FakeAffineTensorQuantFunction": (
        (X, torch.tensor(-1.0), torch.tensor(2.0)),
        affine_of(X, -1, 2),
        (X >= -1) & (X <= 2),
    ),
    "ScaledE4M3Function": ((X, A, 4, 3), e4m3_of(X, 2), INSIDE),
    "ScaledE4M3Function without amax": (
        (X, None, 4, 3),
        X.clamp(-448, 448).to(torch.float8_e4m3fn).float(),
        torch.ones(64, dtype=torch.bool),
    ),
    "DynamicBlockQuantizationFunction": (
        (X, 8, None, (4, 3), (8, 0)),
        mo.dynamic_block_quant(X, 8),
        torch.ones(64, dtype=torch.bool),
    ),
    "StaticBlockQuantizationFunction": (
        (X, 16, torch.full((4, 1), 2.0)),
        fake_of(X, 2),
        INSIDE,
    ),
}


def pairs(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("context", [Saved, torch.autograd.function.FunctionCtx])
def test_forward_and_backward_take_a_context_and_the_documented_arguments(name, context):
    arguments, want, passes = STEPS[name]
    cls, ctx = getattr(mo, name.split()[0]), context()
    got = cls.forward(ctx, *arguments)
    for mine, documented in zip(pairs(got), pairs(want), strict=True):
        assert_bitwise_equal(mine, documented, nan_is_nan=True)
    grads = cls.backward(ctx, *[GRADIENT] * len(pairs(got)))
    assert torch.equal(grads[0], torch.where(passes, GRADIENT, torch.zeros(())))
    assert grads[1:] and not any(grad is not None for grad in grads[1:])


@pytest.mark.parametrize("name", STEPS)
def test_apply_has_the_same_values_and_gradient(name):
    (x, *others), want, passes = STEPS[name]
    leaf = x.clone().requires_grad_()
    got = getattr(mo, name.split()[0]).apply(leaf, *others)
    for mine, documented in zip(pairs(got), pairs(want), strict=True):
        assert_bitwise_equal(mine.detach(), documented, nan_is_nan=True)
    pairs(got)[0].backward(GRADIENT)
    assert torch.equal(leaf.grad, torch.where(passes, GRADIENT, torch.zeros(())))


@pytest.mark.parametrize("name", STEPS)
def test_a_function_of_ones_own_may_call_the_steps(name):
    (x, *others), want, passes = STEPS[name]
    cls = getattr(mo, name.split()[0])

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return cls.forward(ctx, x, *others)

        @staticmethod
        def backward(ctx, *grads):
            return cls.backward(ctx, *grads)[0] * 2

    class Doubled(cls):
        @staticmethod
        def backward(ctx, *grads):
            first, *rest = cls.backward(ctx, *grads)
            return first * 2, *rest

    for function in (Own.apply, lambda t: Doubled.apply(t, *others)):
        leaf = x.clone().requires_grad_()
        got = pairs(function(leaf))[0]
        assert_bitwise_equal(got.detach(), pairs(want)[0], nan_is_nan=True)
        got.backward(GRADIENT)
        assert torch.equal(leaf.grad, torch.where(passes, 2 * GRADIENT, torch.zeros(())))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["FakeTensorQuantFunction", "TensorQuantFunction", "ScaledE4M3Function"])
def test_apply_is_compiled_mapped_and_differentiated_by_torch_func(name):
    (x, amax, *others), want, passes = STEPS[name]

    def function(t):
        return pairs(getattr(mo, name).apply(t, amax, *others))[0]

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for mapped in (compiled(x), torch.vmap(function)(x.view(4, 16)).view(64)):
        assert_bitwise_equal(mapped, pairs(want)[0], nan_is_nan=True)
    gradient = torch.func.grad(lambda t: (function(t) * GRADIENT).sum())(x)
    assert torch.equal(gradient, torch.where(passes, GRADIENT, torch.zeros(())))


def test_backward_sums_over_what_amax_repeated():
    x, amax = torch.tensor([[0.5], [3.0]]), torch.tensor([[1.0, 2.0, 4.0]])
    ctx = Saved()
    y = mo.FakeTensorQuantFunction.forward(ctx, x, amax)
    assert y.shape == (2, 3)
    assert mo.FakeTensorQuantFunction.backward(ctx, torch.ones(2, 3))[0].tolist() == [[3.0], [1.0]]


DEFAULTS = {
    "FakeTensorQuantFunction": {"num_bits": 8, "unsigned": False, "narrow_range": True},
    "LegacyFakeTensorQuantFunction": {"num_bits": 8, "unsigned": False, "narrow_range": True},
    "TensorQuantFunction": {"num_bits": 8, "unsigned": False, "narrow_range": True},
    "FakeAffineTensorQuantFunction": {"num_bits": 8},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_documented_defaults_of_forward(name):
    found = inspect.signature(getattr(mo, name).forward).parameters
    assert list(found)[:2] == ["ctx", "inputs"]
    assert {key: found[key].default for key in DEFAULTS[name]} == DEFAULTS[name]


def test_the_legacy_gradient_is_clipped_as_coded_or_passes_as_documented():
    for function in (mo.legacy_fake_tensor_quant, mo.LegacyFakeTensorQuantFunction.apply):
        for keyword, passes in (({}, INSIDE), ({"pass_through_bwd": True}, torch.ones(64, dtype=torch.bool))):
            leaf = X.clone().requires_grad_()
            y = function(leaf, A, **keyword)
            assert_bitwise_equal(y.detach(), fake_of(X, 2), nan_is_nan=True)
            y.backward(GRADIENT)
            assert torch.equal(leaf.grad, torch.where(passes, GRADIENT, torch.zeros(())))
    ctx = Saved()
    mo.LegacyFakeTensorQuantFunction.forward(ctx, X, A, pass_through_bwd=True)
    assert torch.equal(mo.LegacyFakeTensorQuantFunction.backward(ctx, GRADIENT)[0], GRADIENT)


@pytest.mark.parametrize("cls", ["TensorQuantFunction", "FakeTensorQuantFunction", "LegacyFakeTensorQuantFunction"])
def test_documented_errors_of_forward(cls):
    forward = getattr(mo, cls).forward
    with pytest.raises(ValueError, match="Negative values in amax"):
        forward(Saved(), X, torch.tensor(-1.0))
    with pytest.raises(TypeError, match="Negative values encountered in unsigned quantization"):
        forward(Saved(), X, A, 8, True)
    with pytest.raises(TypeError, match="at most 3|at most 4"):
        forward(Saved(), X, A, 8, False, True, None, None)
    with pytest.raises(NotImplementedError, match="Only support E=4 & M=3 for now"):
        mo.ScaledE4M3Function.forward(Saved(), X, A, 3, 4)


def test_a_scale_that_float16_cannot_hold_is_a_value_error():
    with pytest.raises(ValueError, match="scale is too large for FP16"):
        mo.TensorQuantFunction.forward(Saved(), X.half(), torch.tensor(1e-4))


def test_scaled_e4m3_impl_and_abstract():
    assert_bitwise_equal(mo.scaled_e4m3_impl(X, A), e4m3_of(X, 2), nan_is_nan=True)
    assert not mo.scaled_e4m3_impl(X.clone().requires_grad_(), A).requires_grad
    for given in (X.half(), torch.empty(3, 0, device="meta")):
        found = mo.scaled_e4m3_abstract(given, None)
        assert (found.shape, found.dtype, found.device) == (given.shape, given.dtype, given.device)


# descriptors

FIELDS = {
    "num_bits": (8, (4, 3)),
    "name": (None, "weights"),
    "fake_quant": (True, False),
    "axis": (None, (0, 1)),
    "block_sizes": (None, {-1: 32, "type": "dynamic", "scale_bits": (8, 0)}),
    "amax": (None, [1.0, 2.5]),
    "learn_amax": (False, True),
    "scale_amax": (None, 0.5),
    "calib_method": ("max", "histogram"),
    "unsigned": (False, True),
    "narrow_range": (False, True),
    "dynamic": (False, True),
}


def test_the_descriptors_arguments_and_defaults():
    found = inspect.signature(mo.ScaledQuantDescriptor).parameters
    assert {name: p.default for name, p in found.items()} == {name: default for name, (default, _) in FIELDS.items()}
    assert mo.QuantDescriptor is mo.ScaledQuantDescriptor


@pytest.mark.parametrize("name", FIELDS)
def test_each_property_is_read_only_and_alone_in_dict_where_it_is_no_default(name):
    default, other = FIELDS[name]
    plain, changed = mo.ScaledQuantDescriptor(), mo.ScaledQuantDescriptor(**{name: other})
    assert getattr(plain, name) == default
    assert np.array_equal(getattr(changed, name), other) if name == "amax" else getattr(changed, name) == other
    with pytest.raises(AttributeError):
        setattr(changed, name, default)
    assert plain.dict() == {} and changed.dict() == {name: other} and plain != changed
    assert mo.ScaledQuantDescriptor(**changed.dict()) == changed
    if name == "amax":
        assert changed.amax.dtype == np.float32


def test_blocks_axes_and_sizes():
    static = mo.ScaledQuantDescriptor.get_block_quant_axes_and_sizes
    assert static({-1: 32, -2: 8, "type": "static", "scale_bits": 8, "scale_block_sizes": {-1: 4}}) == {-1: 32, -2: 8}
    assert static(None) is None


@pytest.mark.parametrize(
    "kind, fields",
    [
        (ValueError, {"num_bits": -1}),
        (TypeError, {"num_bits": (5, 4)}),
        (TypeError, {"name": 1}),
        (TypeError, {"learn_amax": True, "axis": 0}),
        (TypeError, {"amax": "1"}),
        (AssertionError, {"block_sizes": {-1: 32}, "axis": 0}),
        (AssertionError, {"block_sizes": [32]}),
        (AssertionError, {"block_sizes": {"last": 32}}),
        (AssertionError, {"block_sizes": {-1: 0}}),
    ],
    ids=str,
)
def test_the_descriptors_documented_errors(kind, fields):
    with pytest.raises(kind):
        mo.ScaledQuantDescriptor(**fields)


def test_the_descriptors_by_name():
    per_channel = [f"CONV{kind}{dims}D_WEIGHT_PER_CHANNEL" for kind in ("", "TRANSPOSE") for dims in (1, 2, 3)]
    for name in (*per_channel, "LINEAR_WEIGHT_PER_ROW"):
        assert getattr(mo, f"QUANT_DESC_8BIT_{name}").dict() == {"axis": 0}
    assert mo.QUANT_DESC_8BIT_PER_TENSOR.dict() == {}
    assert mo.QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR.dict() == {"unsigned": True}


# symbolic


class Exported(torch.nn.Module):
    """A function of one's own, whose ONNX nodes are the ones that ``symbolic`` makes."""

    def __init__(self, name, later, *arguments):
        super().__init__()
        cls = getattr(mo, name)

        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, amax):
                return cls.forward(ctx, x, amax, *later)

            @staticmethod
            def symbolic(g, x, amax):
                return cls.symbolic(g, x, *(arguments or (amax,)), *later)

        self.own = Own
        self.register_buffer("amax", A)

    def forward(self, x):
        return self.own.apply(x, self.amax)


def exported(model, x, **options):
    onnx = pytest.importorskip("onnx")
    stored = io.BytesIO()
    torch.onnx.export(model, (x,), stored, dynamo=False, opset_version=17, **options)
    return onnx.load_from_string(stored.getvalue())


def run(graph, x):
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(graph.SerializeToString(), options)
    return [torch.from_numpy(found) for found in session.run(None, {session.get_inputs()[0].name: x.numpy()})]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("amax", [(), (A,), (2.0,)], ids=["a value of the graph", "a tensor", "a number"])
@pytest.mark.parametrize("name", ["FakeTensorQuantFunction", "LegacyFakeTensorQuantFunction", "TensorQuantFunction"])
def test_symbolic_with_its_documented_defaults_has_the_functions_bits(name, amax):
    want = pairs(STEPS[name][1])
    got = run(exported(Exported(name, (), *amax), X), X)
    for theirs, documented in zip(got, want, strict=True):
        assert_bitwise_equal(theirs, documented, nan_is_nan=True)


@pytest.mark.filterwarnings("ignore")
def test_symbolic_of_the_full_range_is_quantize_and_dequantize():
    graph = exported(Exported("FakeTensorQuantFunction", (8, False, False)), X)
    assert [n.op_type for n in graph.graph.node if n.op_type != "Constant"] == ["QuantizeLinear", "DequantizeLinear"]
    finite = ~X.isnan()
    assert ((run(graph, X)[0] - fake_of(X, 2, 8, False, False))[finite].abs() <= 2 / 127 * 1.001).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, later", [("ScaledE4M3Function", (4, 3)), ("ScaledE4M3Function", ())])
def test_symbolic_of_e4m3_has_tensorrts_nodes(name, later):
    graph = exported(Exported(name, later), X, custom_opsets={"trt": 1})
    kinds = [n.op_type for n in graph.graph.node if n.op_type != "Constant"]
    assert kinds == ["TRT_FP8QuantizeLinear", "TRT_FP8DequantizeLinear"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "function",
    [
        lambda x, amax: mo.fake_tensor_quant(x, amax),
        lambda x, amax: mo.legacy_fake_tensor_quant(x, amax),
        lambda x, amax: mo.tensor_quant(x, amax),
        lambda x, amax: mo.scaled_e4m3(x, amax, 4, 3),
        lambda x, amax: mo.fake_affine_tensor_quant(x, -amax, amax),
    ],
)
def test_plain_programs_are_exported(function):
    pytest.importorskip("onnxscript")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("amax", A)

        def forward(self, x):
            return function(x, self.amax)

    program = torch.onnx.export(Model(), (X,), dynamo=True, verbose=False)
    for theirs, mine in zip(run(program.model_proto, X), pairs(function(X, A)), strict=True):
        assert_bitwise_equal(theirs, mine, nan_is_nan=True)
