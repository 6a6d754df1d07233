"""What PyTorch refuses, gemmsim refuses: one bad argument at a time, the same call to both.

For each function a good call; each of its arguments in turn is replaced by every value of a table. Where PyTorch raises,
ours raises a typed error before any of its operators runs; where both compute, shapes and dtypes are the same. Tensors
of mixed float dtypes are the exception: PyTorch refuses them here and there, ours are exact and take them.
"""

from __future__ import annotations

import pytest
import torch
from support.rounding import assert_near, largest
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import gemmsim as gs

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("generator")]

ID = "fp32"
SOFT = gs.QSoftmaxFormats(ID, ID, ID, None, ID, ID)
NORM = gs.QLayerNormFormats(*[ID] * 7)
GELU = gs.QGELUFormats(ID, ID, ID, ID)
ATTENTION = gs.QAttentionFormats(":fp32", SOFT, ":fp32")
QUANTS = {"fwd_quant": ID, "bwd_quant": ID}
TYPED = (gs.ShapeError, gs.DTypeError, gs.DeviceError, gs.SpecError, gs.FormatError, IndexError)


@pytest.fixture
def generator():
    torch.manual_seed(0)


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def convolution(n: int, transposed: bool):
    name = f"conv_transpose{n}d" if transposed else f"conv{n}d"
    ours = getattr(gs, "q" + name)
    weight = randn(4, 3, *[2] * n) if transposed else randn(6, 2, *[2] * n)
    good = {"input": randn(2, 4, *[5] * n), "weight": weight, "bias": randn(6)}
    good |= {"stride": 1, "padding": 0, "groups": 2, "dilation": 1}
    if transposed:
        good["output_padding"] = 0
    return getattr(F, name), lambda input, weight, **rest: ours(input, weight, **rest, spec=":fp32"), good


def pool(n: int):
    ours = getattr(gs, f"qavgpool{n}d")
    good = {"input": randn(2, 3, *[6] * n), "kernel_size": 2, "stride": 2, "padding": 0}
    good |= {"ceil_mode": False, "count_include_pad": True} | ({} if n == 1 else {"divisor_override": None})
    return getattr(F, f"avg_pool{n}d"), lambda input, **rest: ours(input, **rest, **QUANTS), good


def adaptive(n: int):
    good = {"input": randn(2, 3, *[6] * n), "output_size": 2}
    ours = lambda input, output_size: gs.qadaptive_avgpool(input, output_size, ID, ID, rank=n)  # noqa: E731
    return getattr(F, f"adaptive_avg_pool{n}d"), ours, good


X, C = randn(2, 4, 3), randn(4)
PAIR = {"input": randn(3, 4), "other": randn(4)}
CALLS = {
    **{f"conv{n}d": convolution(n, False) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": convolution(n, True) for n in (1, 2, 3)},
    **{f"avgpool{n}d": pool(n) for n in (1, 2, 3)},
    **{f"adaptive_avgpool{n}d": adaptive(n) for n in (1, 2, 3)},
    "linear": (F.linear, lambda input, weight, bias: gs.qlinear(input, weight, bias, ":fp32"), {"input": randn(2, 3, 4), "weight": randn(5, 4), "bias": randn(5)}),
    "matmul": (lambda input, other: torch.matmul(input, other), lambda input, other: gs.qmatmul(input, other, ":fp32"), {"input": randn(2, 3, 4), "other": randn(2, 4, 5)}),
    "mm": (lambda input, other: torch.mm(input, other), lambda input, other: gs.qmm(input, other, ":fp32"), {"input": randn(3, 4), "other": randn(4, 5)}),
    "softmax": (lambda input, dim: F.softmax(input, dim), lambda input, dim: gs.qsoftmax(input, dim, SOFT), {"input": randn(2, 3), "dim": 1}),
    "layernorm": (F.layer_norm, lambda input, normalized_shape, **rest: gs.qlayernorm(input, normalized_shape, **rest, spec=NORM), {"input": randn(2, 3, 4), "normalized_shape": (3, 4), "weight": randn(3, 4), "bias": randn(3, 4), "eps": 1e-5}),
    "rmsnorm": (F.rms_norm, lambda input, normalized_shape, **rest: gs.qrmsnorm(input, normalized_shape, **rest, spec=NORM), {"input": randn(2, 3, 4), "normalized_shape": (4,), "weight": C, "eps": 1e-5}),
    "groupnorm": (F.group_norm, lambda input, num_groups, **rest: gs.qgroupnorm(input, num_groups, **rest, spec=NORM), {"input": X, "num_groups": 2, "weight": C, "bias": C, "eps": 1e-5}),
    "batchnorm": (F.batch_norm, lambda input, **rest: gs.qbatchnorm(input, **rest, **QUANTS), {"input": X, "running_mean": C, "running_var": C.abs(), "weight": C, "bias": C, "training": True, "momentum": 0.1, "eps": 1e-5}),
    "embedding": (F.embedding, lambda input, weight, **rest: gs.qembedding(input, weight, **rest, **QUANTS), {"input": torch.tensor([[0, 1], [2, 3]]), "weight": randn(4, 3), "padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False}),
    "attention": (F.scaled_dot_product_attention, lambda **all: gs.qattention(**all, spec=ATTENTION), {"query": randn(2, 4, 5, 8), "key": randn(2, 4, 7, 8), "value": randn(2, 4, 7, 6), "attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}),
    "gelu": (F.gelu, lambda input, approximate: gs.qgelu(input, GELU, approximate), {"input": PAIR["input"], "approximate": "none"}),
    "silu": (F.silu, lambda input: gs.qsilu(input, GELU), {"input": PAIR["input"]}),
    "relu": (F.relu, lambda input: gs.qrelu(input, ID, ID), {"input": PAIR["input"]}),
    "sigmoid": (torch.sigmoid, lambda input: gs.qsigmoid(input, ID, ID), {"input": PAIR["input"]}),
    "log_softmax": (lambda input, dim: F.log_softmax(input, dim), lambda input, dim: gs.qlogsoftmax(input, dim, ID, ID), {"input": randn(2, 3), "dim": 1}),
    "tanh": (torch.tanh, lambda input: gs.qtanh(input, ID, ID), {"input": PAIR["input"]}),
    "sqrt": (torch.sqrt, lambda input: gs.qsqrt(input, ID, ID), {"input": PAIR["input"].abs()}),
    "add": (torch.add, lambda input, other: gs.qadd(input, other, ID, ID), PAIR),
    "mul": (torch.mul, lambda input, other: gs.qmul(input, other, ID, ID), PAIR),
    "div": (torch.div, lambda input, other: gs.qdiv(input, other, ID, ID), PAIR),
    "pow": (torch.pow, lambda input, exponent: gs.qpow(input, ID, ID, exponent), {"input": PAIR["input"], "exponent": 2.0}),
    "sum": (lambda input, dim, keepdim: torch.sum(input, dim, keepdim), lambda input, dim, keepdim: gs.qsum(input, dim, ID, keepdim), {"input": PAIR["input"], "dim": 1, "keepdim": False}),
    "mean": (lambda input, dim, keepdim: torch.mean(input, dim, keepdim), lambda input, dim, keepdim: gs.qmean(input, ID, ID, dim, keepdim), {"input": PAIR["input"], "dim": 1, "keepdim": False}),
}  # fmt: skip

NUMBERS = [-1, 0, 1, 3, 20, -100, 1.5, "same", "zzz", None, True, (), (1,), (2, 2), (1, 1, 1), (2, 2, 2, 2), [1], (-1,)]
NUMBERS += [(0, 0), (1.5,), (0, 1), (0, -2), float("nan"), float("inf"), torch.tensor(2), randn(2, 3)]
MASKS = [torch.ones(s, dtype=torch.bool) for s in ((), (7,), (5, 7), (7, 5), (3, 5, 7), (2, 4, 5, 7), (2, 2, 4, 5, 7))]
MASKS += [torch.ones(5, 7, dtype=d) for d in (torch.int32, torch.float64, torch.float16)]
MASKS += [torch.ones(5, 7, device="meta").bool()]
#: Where PyTorch refuses and ours computes: tensors of another float dtype.
MIXED = (torch.float64, torch.float16)


def replacements(name: str, value: object) -> list[object]:
    if not isinstance(value, Tensor):
        return NUMBERS + (MASKS if name == "attn_mask" else [])
    if not value.is_floating_point():
        wrong = [value.float(), value.int(), value > 0, value.byte(), value - 9, value + 9, value[0, 0], value[:0]]
        return [*wrong, None, value.tolist(), value.to("meta")]
    shapes = [randn(), randn(4), value[0], value[None], value[None, None], torch.cat([value, value], -1)]
    shapes += [value[..., :-1], value[:-1], value[..., :0], value[:0]]
    if value.dim() > 1:
        shapes += [value.mT, value[:, :-1], value[:, :0], torch.cat([value, value], 1)]
    kinds = [value.to(d) for d in (torch.int64, torch.bool, torch.complex64, *MIXED)]
    return [*shapes, *kinds, value.tolist(), None, 1.0, "a", value.to("meta"), value.to_sparse()]


class Operators(TorchDispatchMode):
    """Names of gemmsim's operators that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "gemmsim" in str(function):
            self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def outcome(function, arguments):
    """The result or exception, and the operators that ran before."""
    ran = Operators()
    try:
        with ran:
            return function(**{k: v.clone() if isinstance(v, Tensor) else v for k, v in arguments.items()}), ran.names
    except Exception as error:
        return error, ran.names


@pytest.mark.parametrize("name", CALLS)
def test_what_torch_refuses_is_refused_before_anything_runs(name):
    theirs, ours, good = CALLS[name]
    for found, want in zip(tree_leaves(outcome(ours, good)[0]), tree_leaves(outcome(theirs, good)[0]), strict=True):
        # Sums have at most 27 terms here, and fewer than 20 other roundings follow.
        assert_near(found, want, 27 + 20, size=1 + largest(want))
    refused = 0
    for argument, value in good.items():
        for bad in replacements(argument, value):
            arguments = {**good, argument: bad}
            want, _ = outcome(theirs, arguments)
            got, ran = outcome(ours, arguments)
            context = f"{argument}={bad if not isinstance(bad, Tensor) else (bad.dtype, tuple(bad.shape))}: {want!r}"
            if isinstance(got, Exception):
                assert isinstance(got, TYPED) and not ran, f"{context} {got!r} after {ran}"
                refused += 1
            elif isinstance(want, Exception):
                assert isinstance(bad, Tensor) and isinstance(value, Tensor) and bad.dtype in MIXED, context
            else:
                assert (got.shape, got.dtype) == (want.shape, want.dtype), f"{context} {got.shape} {got.dtype}"
    assert refused > 5
