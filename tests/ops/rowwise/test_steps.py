"""Functions in narrow formats, forward and backward, against their definition: one number and one rounding at a time.

Steps are those of docs/reference/functional.md, in fractions (gemmsim/reference). Softmax, layer and rms norm have the
same in test_rows.py, the logarithm of softmax in test_logsoftmax_steps.py, products and convolutions in tests/ops.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.formats import parse_cast
from gemmsim.reference import Row, gemm, row_norm, row_norm_grad, row_softmax, row_softmax_grad, row_sum

FORMATS = ["e5m3", "e4m3/rtz", "bf16/ru", "fixed(16,8)"]
EACH = pytest.mark.parametrize("fmt", FORMATS)
SPECIALS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, -3e38, 1.0625, -1.1875, 17.0, 2.0**-9, 448.0]


class Step(Row):
    """Single steps rounded to one format (None: float32)."""

    def __init__(self, fmt: str | None) -> None:
        super().__init__([parse_cast(fmt) if fmt else None], 1)

    def __call__(self, x: float) -> float:
        return self.round(x, 0)

    def plus(self, x: float, y: float) -> float:
        return self.add(x, y, 0)

    def times(self, x: float, y: float) -> float:
        return self.mul(x, y, 0)

    def over(self, x: float, y: float) -> float:
        return self.div(x, y, 0)

    def of(self, name: str, x: float) -> float:
        return self.function(name, x, 0.0, 0)

    def sum(self, terms) -> float:
        return row_sum(self, list(terms))


SINGLE = Step(None)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(list(shape), generator=torch.Generator().manual_seed(seed + sum(shape)))


def single(value: float) -> float:
    return torch.tensor(value, dtype=torch.float32).item()


def run(function, *tensors, g=None):
    """Result and gradients as tensors."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    y = function(*leaves)
    return [y.detach(), *torch.autograd.grad(y, leaves, randn(*y.shape, seed=9) if g is None else g)]


def check(got, *want) -> None:
    for number, (g, w) in enumerate(zip(got, want, strict=True)):
        w = torch.tensor(w, dtype=torch.float64).float().reshape(g.shape)
        assert_bitwise_equal(g.contiguous(), w, nan_is_nan=True, context=f"result {number}")


def pairs():
    """All pairs of special numbers, and random ones."""
    x, y = zip(*itertools.product(SPECIALS, SPECIALS), strict=True)
    return torch.cat([torch.tensor(x), randn(60)]), torch.cat([torch.tensor(y), randn(60, seed=1)])


@EACH
@pytest.mark.parametrize("name", ["add", "mul", "div"])
def test_arithmetic(name, fmt):
    (x, y), q, s = pairs(), fmt, Step(fmt)
    g = torch.cat([torch.tensor(SPECIALS), randn(len(x) - len(SPECIALS), seed=2)])
    got = run(lambda x, y: getattr(gs, "q" + name)(x, y, q, q), x, y, g=g)
    columns = list(zip(x.tolist(), y.tolist(), g.tolist(), strict=True))
    if name == "add":
        check(got, [s.plus(a, b) for a, b, _ in columns], *[[s(c) for _, _, c in columns]] * 2)
    elif name == "mul":
        check(got, *([s.times(u, v) for u, v in ((r[i], r[j]) for r in columns)] for i, j in ((0, 1), (2, 1), (2, 0))))
    else:
        z = [s.over(a, b) for a, b, _ in columns]
        by_y = [s.over(s.times(-c, w), b) for (_, b, c), w in zip(columns, z, strict=True)]
        check(got, z, [s.over(c, b) for _, b, c in columns], by_y)


@EACH
def test_functions_of_one_number(fmt):
    x = torch.cat([torch.tensor(SPECIALS), randn(60)])
    g = randn(len(x), seed=3)
    s, columns = Step(fmt), list(zip(x.tolist(), g.tolist(), strict=True))
    root = [s.root(a, 0) for a, _ in columns]
    check(run(lambda x: gs.qsqrt(x, fmt, fmt), x, g=g), root,
          [s.over(c, s(single(2 * y))) for (_, c), y in zip(columns, root, strict=True)])  # fmt: skip
    check(run(lambda x: gs.qrelu(x, fmt, fmt), x, g=g),
          [s(a if a > 0 or a != a else 0.0) for a, _ in columns], [s(c if a > 0 else 0.0) for a, c in columns])  # fmt: skip
    t = [s.of("tanh", a) for a, _ in columns]
    check(run(lambda x: gs.qtanh(x, fmt, fmt), x, g=g), t,
          [s.times(c, s.plus(1.0, -s.times(y, y))) for (_, c), y in zip(columns, t, strict=True)])  # fmt: skip
    t = [s.of("sigmoid", a) for a, _ in columns]
    check(run(lambda x: gs.qsigmoid(x, fmt, fmt), x, g=g), t,
          [s.times(c, s.times(y, s.plus(1.0, -y))) for (_, c), y in zip(columns, t, strict=True)])  # fmt: skip


@EACH
def test_cubes_and_their_gradients(fmt):
    """x**3 of numbers of five bits is exact in doubles."""
    x = torch.tensor([0.0, -0.0, 1.5, -1.5, 0.40625, -31.0, 2.0**-6, math.nan, math.inf, -math.inf])
    g, s = randn(len(x)), Step(fmt)
    want = [s(v**3) for v in x.tolist()]
    slope = [s.times(s(v**2), 3.0) for v in x.tolist()]
    grads = [s.times(c, d) for c, d in zip(g.tolist(), slope, strict=True)]
    check(run(lambda x: gs.qpow(x, fmt, fmt, 3.0), x, g=g), want, grads)


@EACH
@pytest.mark.parametrize("kind", ["none", "tanh", "silu"])
def test_gates(kind, fmt):
    x = torch.cat([torch.tensor([0.0, -0.0, math.nan, 1e-40, 20.0, -20.0, 1.0625]), randn(40)])
    g, s, w = randn(len(x), seed=4), Step(fmt), SINGLE
    formats = gs.QGELUFormats(fmt, fmt, fmt, fmt)
    call = (lambda x: gs.qsilu(x, formats)) if kind == "silu" else (lambda x: gs.qgelu(x, formats, kind))
    y, dx = [], []
    for a, c in zip(x.tolist(), g.tolist(), strict=True):
        a = s(a)
        t = s.of({"none": "erf", "tanh": "tanh_cubic", "silu": "sigmoid"}[kind], a)
        if kind == "silu":
            y.append(s.times(a, t))
            slope = w.times(t, w.plus(w.times(a, w.plus(1.0, -t)), 1.0))
        else:
            half = w.times(w.plus(1.0, t), 0.5)
            y.append(s.times(single(a * 0.5), w.plus(1.0, t)))
            if kind == "none":
                slope = w.plus(half, w.of("density", a))
            else:
                inner = w.plus(w.times(w.times(a, a), single(0.134145)), 1.0)
                left = w.times(w.times(single(a * 0.5), w.plus(1.0, -w.times(t, t))), single(0.7978845608028654))
                slope = w.plus(half, w.times(left, inner))
        dx.append(s.times(s(c), slope))
    check(run(call, x, g=g), y, dx)


@EACH
def test_sums_and_means(fmt):
    x, s = randn(3, 7), Step(fmt)
    totals = [s.sum(row) for row in x.tolist()]
    g = randn(3, seed=5)
    check(run(lambda x: gs.qsum(x, 1, fmt), x, g=g), totals, [[c] * 7 for c in g.tolist()])
    mean = [s.over(t, 7.0) for t in totals]
    check(run(lambda x: gs.qmean(x, fmt, fmt, 1), x, g=g), mean, [[s.over(c, 7.0)] * 7 for c in g.tolist()])
    columns = [s.sum(column) for column in x.T.tolist()]
    check([gs.qsum(x, (0, 1), fmt)], s.sum(columns))


@EACH
def test_broadcast_gradients(fmt):
    x, y, s = randn(2, 3, 4), randn(3, 1), Step(fmt)
    g = randn(2, 3, 4, seed=6)
    got = run(lambda x, y: gs.qmul(x, y, fmt, fmt), x, y, g=g)
    want = [s.sum(s.times(g[i, j, k].item(), x[i, j, k].item()) for i in range(2) for k in range(4)) for j in range(3)]
    check(got[2:], want)


@EACH
def test_average_pooling(fmt):
    """3 x 3 windows, stride 2, padding 1: divisors 4, 6 and 9 without the padding."""
    x, s = randn(4, 5), Step(fmt)
    windows = {}
    for i, j in itertools.product(range(2), range(3)):
        rows, columns = (range(max(2 * a - 1, 0), min(2 * a + 2, n)) for a, n in ((i, 4), (j, 5)))
        windows[i, j] = list(itertools.product(rows, columns))
    y = [s.over(s.sum(x[p].item() for p in w), float(len(w))) for w in windows.values()]
    g = randn(1, 2, 3, seed=7)
    shares = {o: s.over(g[0][o].item(), float(len(w))) for o, w in windows.items()}
    places = itertools.product(range(4), range(5))
    dx = [s.sum(share for o, share in shares.items() if p in windows[o]) for p in places]
    check(run(lambda x: gs.qavgpool2d(x[None], 3, fmt, fmt, 2, 1, count_include_pad=False), x, g=g), y, dx)


@EACH
@pytest.mark.parametrize("by_count", [False, True])
def test_embedding(by_count, fmt):
    w, index, s = randn(4, 2), torch.tensor([2, 0, 2, 3, 2]), Step(fmt)
    g = randn(5, 2, seed=8)
    dw = []
    for row in range(4):
        found = [k for k in range(5) if index[k] == row and row != 3]  # 3 is the padding
        for c in range(2):
            total = s.sum(s(g[k, c].item()) for k in found)
            dw.append(s.over(total, float(max(len(found), 1))) if by_count else total)
    got = run(lambda w: gs.qembedding(index, w, 3, None, 2.0, by_count, fwd_quant=fmt, bwd_quant=fmt), w, g=g)
    check(got, [[s(v) for v in w[i].tolist()] for i in index], dw)


@pytest.mark.parametrize("fmt", ["e5m3", "bf16/ru"])
def test_batch_norm(fmt):
    x, w, b, s = randn(3, 2, 2), randn(2), randn(2, seed=1), Step(fmt)
    g = randn(3, 2, 2, seed=2)
    y, dx, dw, db = torch.empty(3, 2, 2), torch.empty(3, 2, 2), [], []
    eps, count = single(1e-2), 6.0
    for c in range(2):
        # qmean sums dimension 0 first, then the last
        mean = s.over(s.sum(s.sum(x[:, c, k].tolist()) for k in range(2)), count)
        d = torch.tensor([[s.plus(v, -mean) for v in row] for row in x[:, c].tolist()])
        square = torch.tensor([[s.times(v, v) for v in row] for row in d.tolist()])
        var = s.over(s.sum(s.sum(square[:, k].tolist()) for k in range(2)), count)
        std = s.root(s.plus(var, eps), 0)
        flat, grads = d.flatten().tolist(), g[:, c].flatten().tolist()
        hat = [s.over(v, std) for v in flat]
        y[:, c] = torch.tensor([s.plus(s.times(h, w[c].item()), b[c].item()) for h in hat]).reshape(3, 2)
        q = [s(v) for v in grads]
        db.append(s.sum(q))
        dw.append(s.sum(s.times(v, h) for v, h in zip(q, hat, strict=True)))
        dhat = [s.times(v, w[c].item()) for v in q]
        by_std = s.sum(s.over(s.times(-v, h), std) for v, h in zip(dhat, hat, strict=True))
        by_var = s(s.over(by_std, s(single(2 * std))))
        share = s.over(by_var, count)
        dd = [single(s.over(v, std) + s.times(share, s.times(s(u), 2.0))) for v, u in zip(dhat, flat, strict=True)]
        by_mean = s.over(-s.sum(s(v) for v in dd), count)
        dx[:, c] = torch.tensor([single(s(v) + by_mean) for v in dd]).reshape(3, 2)
    got = run(lambda x, w, b: gs.qbatchnorm(x, None, None, w, b, True, 0.1, 1e-2, fmt, fmt), x, w, b, g=g)
    check(got, y.tolist(), dx.tolist(), dw, db)


@EACH
def test_running_statistics(fmt):
    x, s = randn(3, 1), Step(fmt)
    running = [torch.tensor([1.5]), torch.tensor([0.75])]
    gs.qbatchnorm(x, *running, None, None, True, 0.25, 1e-2, fmt, fmt)
    mean = s.over(s.sum(x[:, 0].tolist()), 3.0)
    d = [s.plus(v, -mean) for v in x[:, 0].tolist()]
    var = s.over(s.sum(s.times(v, v) for v in d), 2.0)  # n - 1, as PyTorch's
    for now, old, new in zip(running, (1.5, 0.75), (mean, var), strict=True):
        check([now], s.plus(s.times(old, 0.75), s.times(new, s(0.25))))


@pytest.mark.parametrize("fmt", ["e5m3", "bf16/ru", "fixed(16,8)"])
def test_group_norm(fmt):
    """Two groups of two channels: rows without weight, then mul(w y) + b for each channel, in float32."""
    x, w, b, s = randn(2, 4, 3), randn(4), randn(4, seed=1), Step(fmt)
    g = randn(2, 4, 3, seed=3)
    cast = parse_cast(fmt)
    forward, backward = Row([cast] * 10 + [None, cast], 6), Row([cast] * 13, 6)
    y, dx, hats = [], [], torch.empty(2, 4, 3)
    for n, first in itertools.product(range(2), (0, 2)):
        row = x[n, first : first + 2].flatten().tolist()
        hat, mean, rstd = row_norm(forward, row, [1.0] * 6, None, 1e-2, True)
        channels = [first + k // 3 for k in range(6)]
        hats[n, first : first + 2] = torch.tensor(hat).reshape(2, 3)
        y += [SINGLE.plus(s.times(h, w[c].item()), b[c].item()) for h, c in zip(hat, channels, strict=True)]
        inner = [
            s.times(v, w[c].item()) for v, c in zip(g[n, first : first + 2].flatten().tolist(), channels, strict=True)
        ]
        dx += row_norm_grad(backward, row, [1.0] * 6, mean, rstd, inner, True)[0]
    dw = [s.sum(s.times(h, v) for h, v in zip(hats[:, c].flatten().tolist(), g[:, c].flatten().tolist(), strict=True))
          for c in range(4)]  # fmt: skip
    db = [s.sum(g[:, c].flatten().tolist()) for c in range(4)]
    formats = gs.QLayerNormFormats(*[fmt] * 7)
    check(run(lambda x, w, b: gs.qgroupnorm(x, 2, w, b, 1e-2, formats), x, w, b, g=g), y, dx, dw, db)


@pytest.mark.parametrize("fmt", ["e5m3", "bf16/ru"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, fmt):
    q, k, v, s = randn(3, 4), randn(3, 4, seed=1), randn(3, 2, seed=2), Step(fmt)
    g, cast = randn(3, 2, seed=3), parse_cast(fmt)
    spec = gs.GemmSpec(accumulator=gs.acc.sequential(fmt))
    mm = lambda a, b: gemm(a, b, spec)  # noqa: E731
    turn = lambda a: [list(column) for column in zip(*a, strict=True)]  # noqa: E731
    scores = [[s.times(u, 0.5) for u in row] for row in mm(q.tolist(), k.T.tolist())]
    if causal:
        scores = [[u if j <= i else -math.inf for j, u in enumerate(row)] for i, row in enumerate(scores)]
    weights = [row_softmax(Row([cast] * 3 + [None], 3), row) for row in scores]
    y = mm(weights, v.tolist())
    gl = g.tolist()
    back = [
        row_softmax_grad(Row([cast] * 3 + [None], 3), p, u) for p, u in zip(weights, mm(gl, v.T.tolist()), strict=True)
    ]
    if causal:
        back = [[u if j <= i else 0.0 for j, u in enumerate(row)] for i, row in enumerate(back)]
    back = [[s.times(u, 0.5) for u in row] for row in back]
    formats = gs.QAttentionFormats(f":{fmt}", gs.QSoftmaxFormats(*[fmt] * 3, None, fmt, fmt), f":{fmt}", fmt)
    got = run(lambda q, k, v: gs.qattention(q, k, v, is_causal=causal, spec=formats), q, k, v, g=g)
    check(got, y, mm(back, k.tolist()), mm(turn(back), q.tolist()), mm(turn(weights), gl))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("count", [255, 257, 2049, 70001])
def test_means_divide_by_the_number_of_terms_even_where_the_dtype_does_not_hold_it(dtype, count):
    x = torch.zeros(count, dtype=dtype)
    x[3] = 3.0
    x.requires_grad_()
    y = gs.qmean(x, "fp32", "fp32", 0)
    assert y.item() == torch.tensor(3.0 / count).to(dtype).item()
    y.backward()
    assert x.grad[0].item() == torch.tensor(1.0 / count).to(dtype).item()
    z = gs.qbatchnorm(x.detach().float().view(-1, 1).to(dtype), training=True, fwd_quant="fp32")
    assert z.dtype == dtype and z.isfinite().all()
