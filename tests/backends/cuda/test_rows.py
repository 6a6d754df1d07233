"""Row kernels, run on the host: the bits of the CPU backend for every operation, order, dtype and kind of step.

The CPU backend is itself checked against the integer reference (tests/ops/rowwise).
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import compile_on_host, run_rows_on_host

import gemmsim as gs
from gemmsim import functional
from gemmsim.arithmetic import UnsupportedSpec
from gemmsim.backends import cpu
from gemmsim.backends.cuda import rows as cuda_rows
from gemmsim.formats import parse_cast
from gemmsim.ops.rowwise import operators as row_operators

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
INF, NAN = torch.inf, torch.nan

STEPS = {"sum": 1, "softmax": 4, "log_softmax": 4, "softmax_grad": 4, "norm": 12, "norm_grad": 13}
SHAPES = {1: (5, 1), 2: (130, 7), 3: (3, 300)}


def casts_of(op: str, formats: list[str]) -> tuple:
    names = itertools.islice(itertools.cycle(formats), STEPS.get(op, 1))
    return tuple(parse_cast(name) if name else None for name in names)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    x = 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    if x.dim() == 2 and min(shape) > 2:
        x[0, 1], x[0, 2], x[1, 0], x[2, 2], x[1, 1] = INF, -0.0, NAN, -INF, 1e-42
    return x


def tensors(op: str, rows: int, cols: int, dtype: torch.dtype) -> tuple[list, list]:
    """Inputs of an operation, and shapes of its outputs."""
    x, g = numbers(rows, cols), numbers(rows, cols, seed=1)
    w, b = numbers(cols, seed=2), numbers(cols, seed=3)
    mean, scale = numbers(rows, seed=4), numbers(rows, seed=5).abs()
    full, column = (rows, cols), (rows,)
    table = {
        "softmax_grad": ([x.sigmoid(), g], [full]),
        "norm": ([x, w, b], [full, column, column]),
        "norm_grad": ([x, w, mean, scale, g], [full, full]),
        "sum": ([x], [column]),
    }
    inputs, outputs = table.get(op, ([x], [full]))
    return [t.to(dtype) for t in inputs], outputs


def run_both(op, inputs, outputs, steps, dtype, out_dtypes=None, **how):
    """Results of the host-run kernel, and of the CPU backend converted to the same dtypes."""
    carrier = F64 if dtype == F64 else F32
    types = out_dtypes or [dtype if i == 0 else carrier for i in range(len(outputs))]
    got = [torch.zeros(shape, dtype=t) for shape, t in zip(outputs, types, strict=True)]
    want = [torch.zeros(shape, dtype=carrier) for shape in outputs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_rows, "launch", run_rows_on_host)
        cuda_rows.run_rows(op, inputs, got, steps, **how)
    wide = [None if t is None else t.to(carrier).contiguous() for t in inputs]
    cpu.run_rows(op, wide, want, steps, **how)
    for i, (x, y, t) in enumerate(zip(got, want, types, strict=True)):
        converted = t != carrier  # PyTorch's conversion on the CPU leaves NaN of several patterns
        assert_bitwise_equal(x, y.to(t), nan_is_nan=converted, context=f"{op} {steps[:3]} {dtype} {how} output {i}")
        if converted:
            nans = x[x.isnan()]
            assert_bitwise_equal(nans, torch.full_like(nans, NAN), context="NaN of 16 bits is the canonical one")


def compare(op: str, formats: list[str], dtype: torch.dtype = F32, order: int = 1, shape: int = 2, **how) -> None:
    rows, cols = SHAPES[shape]
    inputs, outputs = tensors(op, rows, cols, dtype)
    how = {"rows": rows, "cols": cols, "order": order, "seed": 9, "eps": 1e-5, **how}
    run_both(op, inputs, outputs, casts_of(op, formats), dtype, **how)


def sources(cases: list[tuple]) -> None:
    """Compiles the kernels of many cases together."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_rows, "launch", lambda source, *rest: found.append(source))
        for op, formats, dtype, order, how in cases:
            inputs, outputs = tensors(op, 3, 4, dtype)
            carrier = F64 if dtype == F64 else F32
            out = [torch.zeros(s, dtype=dtype if i == 0 else carrier) for i, s in enumerate(outputs)]
            cuda_rows.run_rows(op, inputs, out, casts_of(op, formats), rows=3, cols=4, order=order, **how)
    compile_on_host(found)


ROW_CASES = [
    *((op, [fmt], F32, order, {}) for op, fmt, order in [
        ("sum", "e5m10", 1), ("sum", "e5m10/sr8", 64), ("sum", "supernormal(4,3)", 8), ("sum", "binary8p3", 1024),
        ("sum", "bfp(8,1)", 1), ("softmax", "bfp(8,1)/sr8", 8),
        ("softmax", "e5m10", 1), ("softmax", "bf16/rtz", 64), ("softmax", "e5m10/sr8", 1), ("log_softmax", "e5m10", 1),
        ("softmax_grad", "e4m3/sat", 1), ("norm", "e5m10", 1), ("norm", "fixed(16,8)", 8), ("norm", "bf16/ro", 1),
        ("norm_grad", "e5m10", 1), ("norm_grad", "e5m10/sr8", 8),
    ]),
    *((op, ["e5m10"], dtype, 1, {}) for op, dtype in [("softmax", F16), ("softmax", F64), ("norm", BF16), ("sum", F64)]),
    ("norm", ["e5m10"], F32, 1, {"centered": False}), ("norm_grad", ["bf16"], F32, 1, {"centered": False}),
    ("norm", ["e11m52/ru"], F32, 1, {}), ("softmax", ["e8m30", "e9m20"], F32, 1, {}),
]  # fmt: skip


@pytest.fixture(scope="module")
def compiled():
    sources(ROW_CASES)


@pytest.mark.parametrize("case", ROW_CASES, ids=lambda c: f"{c[0]}-{c[1][0]}-{str(c[2])[6:]}-{c[3]}-{len(c[4])}")
def test_rows_are_those_of_the_cpu(compiled, case):
    op, formats, dtype, order, how = case
    for shape in SHAPES if op != "log_softmax" else (1, 2):
        compare(op, formats, dtype, order, shape, **how)


@pytest.mark.parametrize("order", [1, 8, 64], ids=str)
@pytest.mark.parametrize("blocks", [1, 16])
def test_tiles_of_any_number_of_rows(compiled, monkeypatch, order, blocks):
    monkeypatch.setattr(cuda_rows, "_BLOCKS", blocks)
    fmt = {1: "e5m10", 8: "supernormal(4,3)", 64: "e5m10/sr8"}[order]
    assert cuda_rows._tile(130, order) == {1: 128, 16: 16}[blocks] // (4 if (order, blocks) == (64, 1) else 1)
    compare("sum", [fmt], order=order)
    compare("softmax", ["bf16/rtz" if order == 64 else "e5m10"], order=64 if order == 64 else 1)


def test_tiles_fit_threads_and_shared_memory():
    for rows in (1, 1024, 1025, 5000, 10**6, 2**31):
        for order in (1, 2, 64, 1024):
            tile = cuda_rows._tile(rows, order)
            assert 1 <= tile <= 128 and tile & (tile - 1) == 0 and (order == 1 or tile * order <= 2048)
            assert -(-rows // tile) < 2**31


MAPS = [
    *((name, fmt) for name in ("add", "mul", "div", "pow", "log_add", "max") for fmt in ("e5m10", "bf16/sr8")),
    *((name, "e5m10") for name in ("sub", "sqrt", "exp", "log", "tanh", "erf", "density", "sigmoid", "tanh_cubic", "copy")),
    ("exp", "binary8p3"), ("erf", "e4m3/sat"), ("tanh", "bf16/ro"), ("sigmoid", ""), ("div", "fixed(16,8)/rna"),
    ("sqrt", "e8m40"), ("mul", "e8m40"), ("exp", "e8m40/ru"), ("add", "e11m52"), ("div", "e11m52"), ("sqrt", "e11m52/rd"),
]  # fmt: skip


def map_case(function: str, fmt: str, dtype: torch.dtype = F32) -> tuple:
    special = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 1e-40, 1e30, -700.0, 88.0, 0.1])
    near = numbers(600)
    pairs = torch.cartesian_prod(special, special)
    a, b = torch.cat([pairs[:, 0], near, near * 1e-3]), torch.cat([pairs[:, 1], near.flip(0), near * 8])
    second = b.to(dtype) if function in ("add", "sub", "mul", "div", "pow", "log_add", "max") else None
    return [a.to(dtype), second], [a.shape], (parse_cast(fmt) if fmt else None,)


@pytest.fixture(scope="module")
def compiled_maps():
    found = []
    for function, fmt in MAPS:
        inputs, _, steps = map_case(function, fmt)
        dtypes = tuple(None if t is None else t.dtype for t in inputs)
        found.append(cuda_rows.row_source("map", dtypes, (F32,), steps, function=function))
    compile_on_host(found)


@pytest.mark.parametrize(("function", "fmt"), MAPS, ids=lambda v: v or "carrier")
def test_maps_are_those_of_the_cpu(compiled_maps, function, fmt):
    inputs, outputs, steps = map_case(function, fmt)
    run_both("map", inputs, outputs, steps, F32, rows=inputs[0].numel(), cols=1, function=function, seed=9)


def test_tensors_of_several_dtypes():
    """Inputs of 16 bits beside float32; a result of 16 bits; float64 beside 16 bits."""
    x, w = numbers(9, 7).half(), numbers(7, seed=1).bfloat16()
    shapes = [(9, 7), (9,), (9,)]
    e5m10 = (parse_cast("e5m10"),) * 12
    run_both("norm", [x, w, None], shapes, e5m10, F32, [F16, F32, F32], rows=9, cols=7, eps=1e-5)
    a, b = numbers(40).half(), numbers(40, seed=1)
    run_both("map", [a, b], [(40,)], e5m10[:1], F32, [F32], rows=40, cols=1, function="mul")
    run_both("map", [a, b.double()], [(40,)], (None,), F64, [F64], rows=40, cols=1, function="div")


def test_formats_beyond_float64_are_refused():
    with pytest.raises(UnsupportedSpec, match=r"float64.*narrower"):
        cuda_rows.row_source("sum", (F32,), (F32,), (parse_cast("binary16p2"),))


FORMATS = {
    "softmax": gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10", bwd_add="e5m10", bwd_mul="e5m10"),
    "layernorm": gs.QLayerNormFormats(*["e5m10"] * 7, order="tree(8)"),
    "silu": gs.QGELUFormats("e5m10", "e5m10", "e4m3", "e5m2"),
}
CALLS = {
    "softmax": lambda x, w: functional.qsoftmax(x, 0, FORMATS["softmax"]),
    "layernorm": lambda x, w: functional.qlayernorm(x, (7,), w, w, spec=FORMATS["layernorm"]),
    "silu": lambda x, w: functional.qsilu(x, FORMATS["silu"]),
    "avgpool": lambda x, w: functional.qavgpool1d(x[None], 3, stride=2, padding=1, fwd_quant="e5m10", bwd_quant="e6m9"),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_and_gradients_through_the_kernels(name):
    def values(through_kernels: bool) -> list[torch.Tensor]:
        with pytest.MonkeyPatch.context() as patch:
            if through_kernels:
                patch.setattr(cuda_rows, "launch", run_rows_on_host)
                patch.setattr(row_operators, "backend_of", lambda x: SimpleNamespace(run_rows=cuda_rows.run_rows))
            g = torch.Generator().manual_seed(3)
            x, w = torch.randn(9, 7, generator=g).requires_grad_(), torch.randn(7, generator=g).requires_grad_()
            out = CALLS[name](x, w)
            out.backward(torch.randn(out.shape, generator=g))
            return [out.detach(), x.grad, *([] if w.grad is None else [w.grad])]

    for got, want in zip(values(True), values(False), strict=True):
        assert_bitwise_equal(got, want, context=name)
