"""Convolutions, transposed ones too, in every spelling, against the net."""

from itertools import product

import pytest
import torch
from emulation.agreement import NARROW, agree, numbers, same

from gemmsim.emulation.context import emulate

F = torch.nn.functional
aten = torch.ops.aten
SIZE = {1: (9,), 2: (6, 5), 3: (4, 3, 4)}
KERNEL = {1: (3,), 2: (3, 2), 3: (2, 1, 3)}


def direct(n: int, groups: int = 1, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Images, weight and bias of a convolution."""
    return [
        numbers(2, 4, *SIZE[n], dtype=dtype),
        numbers(6, 4 // groups, *KERNEL[n], dtype=dtype),
        numbers(6, dtype=dtype),
    ]


def back(n: int, groups: int = 1, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Images, weight and bias of a transposed convolution."""
    return [
        numbers(2, 4, *SIZE[n], dtype=dtype),
        numbers(4, 6 // groups, *KERNEL[n], dtype=dtype),
        numbers(6, dtype=dtype),
    ]


HOW = [
    {},
    {"stride": 2},
    {"padding": 1, "groups": 2},
    {"dilation": 2, "padding": 2},
    {"padding": "same"},
    {"padding": "same", "dilation": 2},
    {"padding": "valid"},
]
HOW_BACK = [
    {},
    {"stride": 2, "output_padding": 1},
    {"padding": 1, "groups": 2},
    {"dilation": 2, "stride": 2, "padding": 1},
]


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_convolutions(n, how, dtype):
    call = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    x, weight, bias = direct(n, how.get("groups", 1), dtype)
    agree(lambda *t: call(*t, **how), x, weight, bias)
    agree(lambda *t: call(*t, **how), x[0], weight, gradients=dtype == torch.float32)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("how", HOW_BACK, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transposed_convolutions(n, how, dtype):
    call = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
    x, weight, bias = back(n, how.get("groups", 1), dtype)
    agree(lambda *t: call(*t, **how), x, weight, bias)
    agree(lambda *t: call(*t, **how), x[0], weight, gradients=dtype == torch.float32)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_other_spellings(n):
    x, weight, bias = direct(n)
    s, p, d, none = [2] * n, [1] * n, [1] * n, [0] * n
    call = getattr(torch, f"conv{n}d")
    with emulate(NARROW):
        expected = call(x, weight, bias, 2, 1)
        found = [
            call(input=x, weight=weight, bias=bias, stride=s, padding=p),
            getattr(aten, f"conv{n}d")(x, weight, bias, s, p),
            getattr(aten, f"conv{n}d").default(x, weight, bias, s, p, d, 1),
            torch.convolution(x, weight, bias, s, p, d, False, none, 1),
            aten.convolution.default(x, weight, bias, s, p, d, False, none, 1),
            aten._convolution.default(x, weight, bias, s, p, d, False, none, 1, False, False, True, True),
            torch._convolution(x, weight, bias, s, p, d, False, none, 1, False, False, True, True),
            aten.convolution.out(x, weight, bias, s, p, d, False, none, 1, out=torch.empty(0)),
        ]
        for out in found:
            same(out, expected)
        same(
            getattr(aten, f"conv{n}d").padding(x, weight, bias, [1] * n, "same"), call(x, weight, bias, padding="same")
        )
        same(aten._convolution_mode(x, weight, bias, d, "valid", d, 1), call(x, weight, bias))
    assert not torch.equal(expected, call(x, weight, bias, 2, 1))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_other_spellings_of_transposed_ones(n):
    x, weight, bias = back(n)
    s, p, d, extra = [2] * n, [1] * n, [1] * n, [1] * n
    call = getattr(torch, f"conv_transpose{n}d")
    packet = getattr(aten, f"conv_transpose{n}d")
    with emulate(NARROW):
        expected = call(x, weight, bias, 2, 1, 1)
        same(call(x, weight, bias=bias, stride=s, padding=p, output_padding=extra), expected)
        same(packet(x, weight, bias, s, p, extra), expected)
        same(torch.convolution(x, weight, bias, s, p, d, True, extra, 1), expected)
        same(aten._convolution(x, weight, bias, s, p, d, True, extra, 1, False, False, True, True), expected)
        overload = packet.default if n == 1 else packet.input
        same(overload(x, weight, bias, s, p, extra), expected)


def test_convolutions_over_time_first():
    x, weight, bias = numbers(9, 2, 4), numbers(3, 4, 6), numbers(6)
    with emulate(NARROW):
        expected = F.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=1).permute(2, 0, 1)
        same(torch.conv_tbc(x, weight, bias, 1), expected)
        same(aten.conv_tbc.default(x, weight, bias, 1), expected)


def test_modules():
    x = numbers(2, 4, 6, 5)
    for module in (torch.nn.Conv2d(4, 6, 3, padding_mode="circular", padding=1), torch.nn.ConvTranspose2d(4, 6, 3, 2)):
        agree(lambda t, *parameters, m=module: torch.func.functional_call(m, dict(zip(dict(m.named_parameters()), parameters, strict=True)), t), x, *module.parameters())  # fmt: skip


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("transposed", [False, True])
def test_autocast(cast, transposed):
    call, tensors = (F.conv_transpose2d, back(2)) if transposed else (F.conv2d, direct(2))

    def run(*t):
        with torch.autocast("cpu", cast):
            return call(*t, stride=2)

    found = agree(run, *tensors, gradients=False)
    assert found.dtype == cast
    with torch.autocast("cpu", cast), emulate(NARROW):
        same(call(*tensors, stride=2), found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_not_a_number_infinities_and_dtypes(dtype):
    x, weight, bias = direct(2, dtype=dtype)
    agree(F.conv2d, x, weight, bias)
    x[0, 0, 0, 0], weight[1, 0, 0, 0], bias[2] = torch.nan, torch.inf, -torch.inf
    agree(F.conv2d, x, weight, bias, gradients=False)


WRONG = {
    "channels": lambda: F.conv2d(numbers(2, 3, 6, 5), numbers(6, 4, 3, 3)),
    "groups": lambda: F.conv2d(numbers(2, 4, 6, 5), numbers(6, 2, 3, 3), groups=3),
    "kernel": lambda: F.conv1d(numbers(2, 4, 2), numbers(6, 4, 3)),
    "bias": lambda: F.conv1d(numbers(2, 4, 9), numbers(6, 4, 3), numbers(5)),
    "dtype": lambda: F.conv1d(numbers(2, 4, 9), numbers(6, 4, 3, dtype=torch.float64)),
    "bias dtype": lambda: F.conv1d(numbers(2, 4, 9), numbers(6, 4, 3), numbers(6, dtype=torch.float64)),
    "stride": lambda: F.conv1d(numbers(2, 4, 9), numbers(6, 4, 3), stride=0),
    "padding": lambda: F.conv1d(numbers(2, 4, 9), numbers(6, 4, 3), padding="some"),
    "same with stride": lambda: F.conv1d(numbers(2, 4, 9), numbers(6, 4, 3), padding="same", stride=2),
    "output padding": lambda: F.conv_transpose1d(numbers(2, 4, 9), numbers(4, 6, 3), output_padding=1),
    "rank": lambda: F.conv2d(numbers(2, 4, 9), numbers(6, 4, 3)),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_pytorchs_own(name):
    with pytest.raises((RuntimeError, TypeError, ValueError)) as expected:
        WRONG[name]()
    with pytest.raises(type(expected.value)) as found, emulate(NARROW):
        WRONG[name]()
    assert str(found.value) == str(expected.value)


def test_empty_ones_are_pytorchs():
    with emulate(NARROW):
        assert F.conv1d(torch.empty(0, 4, 9), numbers(6, 4, 3)).shape == (0, 6, 7)
        x = numbers(2, 4, 9).to(torch.complex64)
        assert F.conv1d(x, x[:, :, :3]).dtype == torch.complex64


def _order(t):
    """Strides of the dimensions of more than one entry."""
    return [stride for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1]


def _channels_last(t, yes):
    """``t`` (B, C, ...) with its channels innermost, or not."""
    return t.movedim(1, -1).contiguous().movedim(-1, 1) if yes else t.contiguous()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_results_and_gradients_lie_in_memory_as_pytorchs_do(dims, dtype, threads):
    """PyTorch chooses its kernel, and so the layout, by type, sizes and threads."""
    before, seen = torch.get_num_threads(), set()
    torch.set_num_threads(threads)
    try:
        choices = product((False, True), (1, 4), ((4, 6, 1), (4, 4, 4), (1, 3, 1)), (False, True), (False, True))
        for transposed, batch, (a, b, groups), x_last, weight_last in choices:
            x = _channels_last(torch.randn(batch, a, *[3] * dims, dtype=dtype), x_last).requires_grad_()
            shape = (a, b // groups) if transposed else (b, a // groups)
            weight = _channels_last(torch.randn(*shape, *[2] * dims, dtype=dtype), weight_last).requires_grad_()
            call = getattr(torch.nn.functional, f"conv_transpose{dims}d" if transposed else f"conv{dims}d")
            want = call(x, weight, groups=groups)
            with emulate(":fp32"):
                found = call(x, weight, groups=groups)
            assert _order(found) == _order(want)
            upstream = torch.randn_like(want)
            wants = torch.autograd.grad(want, (x, weight), upstream)
            for one, other in zip(torch.autograd.grad(found, (x, weight), upstream), wants, strict=True):
                assert _order(one) == _order(other)
            seen.add(found.is_contiguous())
    finally:
        torch.set_num_threads(before)
    assert seen == {True, False} or dtype is torch.float64  # PyTorch has one kernel for float64 of its own
