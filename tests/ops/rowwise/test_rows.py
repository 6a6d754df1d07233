"""Rows in narrow formats, bit for bit against the reference; stored vectors; threads, ISAs, strides, dtypes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from support import GOLDEN, ROOT, assert_bitwise_equal, assert_values_equal

import gemmsim as gs
from gemmsim.backends import cpu
from gemmsim.formats import parse_cast
from gemmsim.ops.rowwise.operators import row_norm_grad_op, row_norm_op, row_softmax_grad_op, row_softmax_op, row_sum_op
from gemmsim.reference import Row, row_log_softmax, row_norm, row_norm_grad, row_softmax, row_softmax_grad, row_sum

SETS = [
    "e5m10",
    "bf16",
    "e4m3",
    "e5m2/rtz",
    "e5m10/ru",
    "fixed(16,8)",
    "e5m10/sr8",
    "binary8p3",
    "e4m3/sr16",
    "bf16/ro",
    "supernormal(4,3)",
    "supernormal(4,3)/sr8",
    "binary8(3)",
    "binary8(3,unsigned)",
    "e4m3/rnd",
    "e8m30",
    "bfp(8,1)",
    "bfp(6,1,asymmetric)/sr8",
]
ORDERS = [1, 8, 64]


def data(rows: int, cols: int, seed: int = 0, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(rows, cols, generator=torch.Generator().manual_seed(seed))


def row(text: str, cols: int, order: int, index: int) -> Row:
    casts = [parse_cast(name) if name else None for name in text.split(";")]
    return Row(casts, cols, order, index, seed=7)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fmt", SETS)
def test_sums(fmt, order):
    x = data(9, 70)
    got = row_sum_op(x, fmt, order, 7, 0)
    want = torch.tensor([row_sum(row(fmt, 70, order, i), r) for i, r in enumerate(x.tolist())])
    assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{fmt} {order}")


@pytest.mark.parametrize("lse", [False, True], ids=["regular", "lse"])
@pytest.mark.parametrize("order", [1, 8])
@pytest.mark.parametrize("fmt", SETS)
def test_softmax(fmt, order, lse):
    x = data(9, 12, 1)
    x[0, 3], x[1, 4], x[2, 5], x[3, :] = -torch.inf, torch.inf, torch.nan, -torch.inf
    text = f"{fmt};{fmt};{fmt};"
    got = row_softmax_op(x, text, order, lse, 7, 0)
    reference = row_log_softmax if lse else row_softmax
    want = torch.tensor([reference(row(text, 12, order, i), r) for i, r in enumerate(x.tolist())])
    assert_bitwise_equal(got, want, nan_is_nan=True, context=text)
    g = data(9, 12, 2)
    got = row_softmax_grad_op(want, g, text + fmt, order, 7, 0)
    pairs = zip(want.tolist(), g.tolist(), strict=True)
    grads = [row_softmax_grad(row(text + fmt, 12, order, i), y, gi) for i, (y, gi) in enumerate(pairs)]
    assert_bitwise_equal(got, torch.tensor(grads), nan_is_nan=True, context=text)


@pytest.mark.parametrize("centered", [True, False], ids=["layer", "rms"])
@pytest.mark.parametrize("order", [1, 8])
@pytest.mark.parametrize("fmt", SETS)
def test_norms(fmt, order, centered):
    x, w, b, g = data(9, 11, 3), data(1, 11, 4)[0], data(1, 11, 5)[0], data(9, 11, 6)
    x[0, 1], x[1, 2], x[2] = torch.inf, torch.nan, 0.0
    text = ";".join([fmt] * 10 + ["", fmt])
    y, mean, rstd = row_norm_op(x, w, b, text, 1e-5, order, centered, 7, 0)
    lists = [
        row_norm(row(text, 11, order, i), r, w.tolist(), b.tolist(), 1e-5, centered) for i, r in enumerate(x.tolist())
    ]
    for got, want in zip((y, mean, rstd), zip(*lists, strict=True), strict=True):
        assert_bitwise_equal(got, torch.tensor(want), nan_is_nan=True, context=fmt)
    text = ";".join([fmt] * 13)
    dx, terms = row_norm_grad_op(x, w, mean, rstd, g, text, order, centered, 7, 0)
    grads = [
        row_norm_grad(
            row(text, 11, order, i), x[i].tolist(), w.tolist(), mean[i].item(), rstd[i].item(), g[i].tolist(), centered
        )
        for i in range(9)
    ]
    for got, want in zip((dx, terms), zip(*grads, strict=True), strict=True):
        assert_bitwise_equal(got, torch.tensor(want), nan_is_nan=True, context=fmt)


def everything(x: torch.Tensor, fmt: str) -> list[torch.Tensor]:
    x = x.detach().clone().requires_grad_()
    norm = gs.QLayerNormFormats(*[fmt] * 7, seed=3)
    results = [
        gs.qsoftmax(x, -1, gs.QSoftmaxFormats(fmt, fmt, fmt, None, fmt, fmt, seed=3)),
        gs.qlayernorm(x, x.shape[-1], torch.ones(x.shape[-1]), torch.ones(x.shape[-1]), 1e-5, norm),
        gs.qgelu(x, gs.QGELUFormats(fmt, fmt, fmt, fmt, seed=3)),
        gs.qsum(x, 0, fmt, seed=3),
    ]
    sum(r.float().sum() for r in results).backward()
    return [*(r.detach() for r in results), x.grad]


@pytest.mark.parametrize("fmt", ["e5m10", "e5m2/sr8", "fixed(16,8)", "binary8p3"])
def test_threads_isas_and_strides_change_no_bit(fmt):
    x = data(200, 48, 8)
    want, isa, threads = everything(x, fmt), cpu.isa(), torch.get_num_threads()
    try:
        for name in cpu.ISAS:
            try:
                cpu.set_isa(name)
            except cpu.LibraryError:
                continue
            for count in (1, 3):
                torch.set_num_threads(count)
                for got, w in zip(everything(x, fmt), want, strict=True):
                    assert_bitwise_equal(got, w, context=f"{name} {count}")
    finally:
        cpu.set_isa(isa)
        torch.set_num_threads(threads)
    strided = x.t().contiguous().t()
    for got, w in zip(everything(strided, fmt), want, strict=True):
        assert_bitwise_equal(got.contiguous(), w.contiguous(), context="strides")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_dtypes_hold_the_same_values(dtype):
    x = data(5, 9, 9).to(torch.bfloat16)
    formats = gs.QSoftmaxFormats("e5m2", "e5m2", "e5m2", output_quant="e5m2")
    want = gs.qsoftmax(x.float().to(torch.float16).float(), -1, formats)
    got = gs.qsoftmax(x.to(torch.float16).to(dtype), -1, formats)
    assert got.dtype is dtype
    assert_values_equal(got.float(), want)


def vectors():
    for folder in (ROOT.parent / "shared" / "vectors", GOLDEN):
        if (folder / "mptorch_ops.npz").exists():
            stored = np.load(folder / "mptorch_ops.npz")
            return stored, json.loads(bytes(stored["meta"]))
    return None, []


STORED, META = vectors()


@pytest.mark.parametrize(
    "number", [i for i, case in enumerate(META) if case["op"] in ("qlayernorm", "qsoftmax", "qgelu")]
)
def test_stored_vectors(number):
    """Values of another system, each checked there against exact arithmetic (README.md beside the file)."""
    case = META[number]
    arrays = {k[5:]: torch.from_numpy(STORED[k]) for k in STORED.files if k.startswith(f"{number:04d}/")}
    f = f"ieee_e{case['exp']}m{case['man']}"
    x = arrays["x"].requires_grad_()
    tolerance = case.get("tol_rel", 0)
    got = {}
    if case["op"] == "qlayernorm":
        w, b = arrays["w"].requires_grad_(), arrays["b"].requires_grad_()
        got["y"] = gs.qlayernorm(x, 24, w, b, case["eps"], gs.QLayerNormFormats(*[f] * 7))
        got["y"].backward(arrays["g"])
        got |= {"gx": x.grad, "gw": w.grad, "gb": b.grad}
    elif case["op"] == "qsoftmax":
        formats = gs.QSoftmaxFormats(f, None, None, f, f, f) if case["lse"] else gs.QSoftmaxFormats(f, f, f, None, f, f)
        got["y"] = gs.qsoftmax(x, case["dim"], formats)
        got["gx"] = row_softmax_grad_op(arrays["y"], arrays["g"], f"{f};{f};{f};", 1)
    else:
        got["y"] = gs.qgelu(x, gs.QGELUFormats(f, f, f, f), case["approximate"])
        if "g" in arrays:
            got["y"].backward(arrays["g"])
            got["gx"] = x.grad
    for name, value in got.items():
        want, valid = arrays[name], arrays[f"{name}_valid"].clone()
        if tolerance and name == "y":
            valid &= (value - want).abs() > tolerance * want.abs()
        assert_values_equal(value.detach(), want, valid, context=f"{case} {name}")
