"""A call of every public function and module: what the tests that walk the public lists run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim import nn as gnn
from gemmsim.ops.torch_versions import NORMS_WITHOUT_BIAS, has

#: A function of tensors, and such tensors; the first dimension of the first one is a batch where ``BATCHED`` says so.
Call = tuple[Callable[..., Any], list[Tensor]]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(list(shape), generator=torch.Generator().manual_seed(seed + 7 * sum(shape)))


def softmax(f: str, **more: Any) -> gs.QSoftmaxFormats:
    return gs.QSoftmaxFormats(f, f, f, None, f, f, **more)


def norm(f: str) -> gs.QLayerNormFormats:
    return gs.QLayerNormFormats(*[f] * 7)


def gelu(f: str) -> gs.QGELUFormats:
    return gs.QGELUFormats(None, f, f, f)


def attention(f: str) -> gs.QAttentionFormats:
    return gs.QAttentionFormats(f":{f}", softmax(f), f":{f}", f)


def quants(f: str) -> dict[str, str]:
    return {"fwd_quant": f, "bwd_quant": f}


def _conv(n: int, transposed: bool, f: str) -> Call:
    function = getattr(gs, f"qconv_transpose{n}d" if transposed else f"qconv{n}d")
    weight = randn(4, 1, *[2] * n) if transposed else randn(2, 2, *[2] * n)
    call = lambda x, w, b: function(x, w, b, stride=2, padding=1, groups=2, spec=f":{f}")  # noqa: E731
    return call, [randn(2, 4, *[3] * n), weight, randn(2)]


X, POSITIVE, W = randn(3, 4), randn(3, 4, seed=1).abs() + 0.5, randn(4)
INDEX = torch.tensor([[0, 3, 3], [2, 0, 3]])


def calls(f: str) -> dict[str, Call]:
    """A call of every function of ``gemmsim.functional``, each step rounded to ``f``."""
    q, a, n, s, g = quants(f), attention(f), norm(f), softmax(f), gelu(f)
    found: dict[str, Call] = {
        "qadd": (lambda x, y: gs.qadd(x, y, f, f), [X, W]),
        "qmul": (lambda x, y: gs.qmul(x, y, f, f), [X, W]),
        "qdiv": (lambda x, y: gs.qdiv(x, y, f, f), [X, POSITIVE[0]]),
        "qsqrt": (lambda x: gs.qsqrt(x, f, f), [POSITIVE]),
        "qpow": (lambda x: gs.qpow(x, f, f, 3.0), [X]),
        "qsum": (lambda x: gs.qsum(x, 1, f), [X]),
        "qmean": (lambda x: gs.qmean(x, f, f, -1, True), [X]),
        "qrelu": (lambda x: gs.qrelu(x, f, f), [X]),
        "qsigmoid": (lambda x: gs.qsigmoid(x, f, f), [X]),
        "qtanh": (lambda x: gs.qtanh(x, f, f), [X]),
        "qgelu": (lambda x: gs.qgelu(x, g), [X]),
        "qsilu": (lambda x: gs.qsilu(x, g), [X]),
        "qlogsoftmax": (lambda x: gs.qlogsoftmax(x, -1, f, f), [X]),
        "qsoftmax": (lambda x: gs.qsoftmax(x, -1, s), [X]),
        "qlayernorm": (lambda x, w, b: gs.qlayernorm(x, 4, w, b, 1e-5, n), [X, W, W + 1]),
        "qrmsnorm": (lambda x, w: gs.qrmsnorm(x, 4, w, 1e-5, n), [X, W]),
        "qgroupnorm": (lambda x, w, b: gs.qgroupnorm(x, 2, w, b, 1e-5, n), [randn(2, 4, 3), W, W + 1]),
        "qbatchnorm": (lambda x, w, b: gs.qbatchnorm(x, None, None, w, b, True, **q), [randn(2, 4, 3), W, W + 1]),
        "qavgpool": (lambda x: gs.qavgpool(x, 2, f, f, 1, 1), [randn(2, 2, 3, 3)]),
        "qavgpool1d": (lambda x: gs.qavgpool1d(x, 2, f, f), [randn(2, 2, 4)]),
        "qavgpool2d": (lambda x: gs.qavgpool2d(x, 2, f, f), [randn(2, 2, 4, 4)]),
        "qavgpool3d": (lambda x: gs.qavgpool3d(x, 2, f, f), [randn(2, 2, 4, 4, 2)]),
        "qadaptive_avgpool": (lambda x: gs.qadaptive_avgpool(x, 2, f, f), [randn(2, 2, 3, 5)]),
        "qembedding": (lambda w: gs.qembedding(INDEX, w, **q), [randn(4, 3)]),
        "qattention": (
            lambda q, k, v: gs.qattention(q, k, v, is_causal=True, spec=a),
            [randn(2, 2, 3, 4), randn(2, 2, 3, 4, seed=1), randn(2, 2, 3, 2)],
        ),
        "qlinear": (lambda x, w, b: gs.qlinear(x, w, b, f":{f}"), [X, randn(5, 4), randn(5)]),
        "qmm": (lambda x, y: gs.qmm(x, y, f":{f}"), [X, randn(4, 2)]),
        "qmatmul": (lambda x, y: gs.qmatmul(x, y, f":{f}"), [randn(2, 3, 4), randn(4, 2)]),
    }
    for rank in (1, 2, 3):
        found[f"qconv{rank}d"] = _conv(rank, False, f)
        found[f"qconv_transpose{rank}d"] = _conv(rank, True, f)
    return found


#: Functions whose result for an empty first dimension is empty, and which have no other result than torch's there.
BATCHED = frozenset(calls("fp32")) - {"qembedding", "qbatchnorm", "qsum"}


@dataclass
class Module:
    """How a class of ``gemmsim.nn`` is made, and what it is called with."""

    args: tuple[Any, ...]
    theirs: dict[str, Any]
    ours: dict[str, Any]
    inputs: list[Tensor]


def _bias(bias: bool) -> dict[str, bool]:
    """The argument of norms, where torch's classes have it."""
    return {"bias": bias} if has(NORMS_WITHOUT_BIAS) else {}


def modules(f: str, dtype: torch.dtype | None = torch.float32) -> dict[str, Module]:
    """Arguments of every class of ``gemmsim.nn``, with arithmetic ``f``; ``dtype`` where torch's class takes one."""
    q, s, more = quants(f), {"spec": f":{f}"}, {"dtype": dtype}
    steps: dict[str, Any] = {**s, **q}
    image = {n: randn(2, 4, *[4] * n) for n in (1, 2, 3)}
    sequence = randn(2, 2, 4)
    heads = {"spec": attention(f), "projection": f":{f}"}
    made = {
        "QLinear": Module((4, 3), more, s, [X]),
        "QLazyLinear": Module((3,), more, s, [X]),
        "QLayerNorm": Module((4,), more, {"spec": norm(f)}, [X]),
        "QRMSNorm": Module((4,), more, {"spec": norm(f)}, [X]),
        "QGroupNorm": Module((2, 4), {**more, **_bias(False)}, {"spec": norm(f)}, [image[1]]),
        "QSoftmax": Module((-1,), {}, {"spec": softmax(f)}, [X]),
        "QGELU": Module(("tanh",), {}, {"spec": gelu(f)}, [X]),
        "QSiLU": Module((), {}, {"spec": gelu(f)}, [X]),
        "QAdaptiveAvgPool2d": Module(((2, None),), {}, q, [image[2]]),
        "QEmbedding": Module((4, 3), more, q, [INDEX]),
        "QMultiheadAttention": Module((4, 2), more, heads, [sequence] * 3),
        "QLSTMCell": Module((4, 3), more, steps, [X]),
        "QGRUCell": Module((4, 3), more, steps, [X]),
        "QLSTM": Module((4, 3), more, steps, [sequence]),
        "QGRU": Module((4, 3), more, steps, [sequence]),
        "Quantizer": Module((f, f), {}, {}, [X]),
    }
    for n in (1, 2, 3):
        made[f"QBatchNorm{n}d"] = Module((4,), {**more, **_bias(n != 2)}, q, [image[n]])
        made[f"QAvgPool{n}d"] = Module((2,), {}, q, [image[n]])
        for name in (f"Conv{n}d", f"ConvTranspose{n}d"):
            made[f"Q{name}"] = Module((4, 2, 2), more, s, [image[n]])
            made[f"QLazy{name}"] = Module((2, 2), more, s, [image[n]])
    return made


def make(name: str, f: str, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """The module of this name."""
    how = modules(f, dtype)[name]
    module: torch.nn.Module = getattr(gnn, name)(*how.args, **how.theirs, **how.ours)
    return module


def first(result: Any) -> Tensor:
    """The result, or the first of several."""
    return first(result[0]) if isinstance(result, (tuple, list)) else result
