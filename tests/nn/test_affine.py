"""Linear layers and convolutions as modules: torch.nn's, with formats that are no part of their state."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from support import assert_bitwise_equal
from support.rounding import assert_near, largest
from torch import nn

import gemmsim as gs

FORMATS = gs.QAffineFormats(fprop="e4m3 : e5m10", dgrad=":e6m9", wgrad=":e6m9", grad_quant="e5m2")

#: our class, arguments, lazy class and its arguments, shape of an input.
MODULES = [
    ("QLinear", (5, 3), "QLazyLinear", (3,), (4, 5)),
    ("QConv1d", (4, 6, 3), "QLazyConv1d", (6, 3), (2, 4, 9)),
    ("QConv2d", (4, 6, (3, 2)), "QLazyConv2d", (6, (3, 2)), (2, 4, 7, 6)),
    ("QConv3d", (2, 3, 2), "QLazyConv3d", (3, 2), (2, 2, 4, 3, 5)),
    ("QConvTranspose1d", (4, 6, 3), "QLazyConvTranspose1d", (6, 3), (2, 4, 5)),
    ("QConvTranspose2d", (4, 6, 3), "QLazyConvTranspose2d", (6, 3), (2, 4, 5, 3)),
    ("QConvTranspose3d", (2, 3, 2), "QLazyConvTranspose3d", (3, 2), (2, 2, 3, 3, 2)),
]
EACH = pytest.mark.parametrize("name, args, lazy, lazy_args, shape", MODULES, ids=[m[0] for m in MODULES])


def module_of(name, args, **options):
    torch.manual_seed(0)
    return getattr(gs.nn, name)(*args, **options)


def function_of(name):
    if name == "QLinear":
        return gs.qlinear
    return getattr(gs, name.replace("QConvTranspose", "qconv_transpose").replace("QConv", "qconv"))


@EACH
def test_the_module_is_the_function_on_its_parameters(name, args, lazy, lazy_args, shape):
    module, x = module_of(name, args, spec=FORMATS), torch.randn(shape)
    want = function_of(name)(x, module.weight, module.bias, spec=FORMATS)
    assert_bitwise_equal(module(x), want)
    module.formats = None
    assert_bitwise_equal(module(x), getattr(nn, name[1:]).forward(module, x))


@EACH
def test_the_state_is_that_of_the_torch_module(name, args, lazy, lazy_args, shape):
    module, plain = module_of(name, args, spec=FORMATS), getattr(nn, name[1:])(*args)
    assert isinstance(module, type(plain))
    assert list(module.state_dict()) == list(plain.state_dict())
    file = io.BytesIO()
    torch.save(plain.state_dict(), file)
    file.seek(0)
    module.load_state_dict(torch.load(file, weights_only=True))
    assert_bitwise_equal(module.weight, plain.weight)
    assert module.formats == FORMATS


@EACH
def test_copies_and_pickles_keep_formats_and_values(name, args, lazy, lazy_args, shape):
    module, x = module_of(name, args, spec=FORMATS), torch.randn(shape)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(file, weights_only=False)):
        assert other.formats == FORMATS and type(other) is type(module)
        assert_bitwise_equal(other(x), module(x))


@EACH
def test_from_float_shares_parameters(name, args, lazy, lazy_args, shape):
    plain = getattr(nn, name[1:])(*args).eval()
    module = getattr(gs.nn, name).from_float(plain, "e4m3 : e5m10")
    assert module.weight is plain.weight and not module.training
    assert module.formats == gs.QAffineFormats.of("e4m3 : e5m10")
    assert type(getattr(gs.nn, lazy).from_float(plain)) is type(module)
    module.register_buffer("other", torch.zeros(1))
    assert "other" not in plain.state_dict()
    with pytest.raises(TypeError, match="itself"):
        type(module).from_float(nn.ReLU())
    with pytest.raises(TypeError, match="itself"):
        type(module).from_float(module)


@EACH
def test_a_lazy_module_becomes_the_other_at_its_first_input(name, args, lazy, lazy_args, shape):
    module, x = module_of(lazy, lazy_args, spec=FORMATS), torch.randn(shape)
    first = module(x)
    assert type(module) is getattr(gs.nn, name)
    assert_bitwise_equal(first, module(x))
    assert_bitwise_equal(first, function_of(name)(x, module.weight, module.bias, spec=FORMATS))


@EACH
def test_repr_device_and_dtype(name, args, lazy, lazy_args, shape):
    module = module_of(name, args, spec="e4m3 : e5m10", dtype=torch.float64, device="meta")
    assert module.weight.dtype == torch.float64 and module.weight.device.type == "meta"
    assert repr(module).startswith(name) and repr(module).endswith(", spec='e4m3 : e5m10')")
    assert module_of(name, args, bias=False, spec=FORMATS).bias is None


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [1, (2, 1), "same", "valid"], ids=str)
def test_padding_of_conv2d_is_that_of_torch(mode, padding):
    torch.manual_seed(0)
    plain = nn.Conv2d(2, 3, (2, 3), padding=padding, padding_mode=mode, dtype=torch.float64)
    module = gs.nn.QConv2d.from_float(plain, ":fp64")
    x = torch.randn(2, 2, 6, 5, dtype=torch.float64)
    size = 2 * 2 * 3 * largest(x) * largest(plain.weight) + largest(plain.bias)
    assert_near(module(x), plain(x), 2 * 2 * 3 + 1, size=size)
    assert_near(module(x[0]), plain(x[0]), 2 * 2 * 3 + 1, size=size)


def test_output_size_of_a_transposed_convolution():
    torch.manual_seed(0)
    plain = nn.ConvTranspose2d(2, 3, 3, stride=3, padding=1, dtype=torch.float64)
    module = gs.nn.QConvTranspose2d.from_float(plain, ":fp64")
    x = torch.randn(2, 2, 4, 4, dtype=torch.float64)
    for size in ([10, 12], [2, 3, 11, 10]):
        want = plain(x, output_size=size)
        terms = 2 * 3 * 3
        assert_near(module(x, output_size=size), want, terms + 1, size=terms * largest(x) * largest(plain.weight) + 1)
    with pytest.raises(gs.ShapeError, match="from"):
        module(x, output_size=[13, 13])


def test_training_and_other_dtypes():
    net = nn.Sequential(gs.nn.QConv2d(2, 4, 3, spec=FORMATS), nn.Flatten(), gs.nn.QLinear(16, 2, spec=FORMATS))
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        net.to(dtype).zero_grad()
        net(torch.randn(3, 2, 4, 4, dtype=dtype)).sum().backward()
        assert all(p.grad is not None and p.grad.dtype == dtype for p in net.parameters())
