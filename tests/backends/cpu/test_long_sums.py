"""Products of few outputs and many terms: packed some terms at a time, the same bits, memory of the order of the operands."""

from __future__ import annotations

import sys

import pytest
import torch
from support import LONG, assert_bitwise_equal, run_python
from support.cpu import isas

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

pytestmark = pytest.mark.kept(by="nothing")

#: Columns of a tile of floats.
COLUMNS = {"avx512fp16": 32, "avx512": 32, "avx2": 16, "neon": 8, "baseline": 8}


def long_k() -> int:
    """So many terms that panels of all take more than 8 MiB."""
    return (8 << 20) // (4 * (8 + COLUMNS[cpu.isa()])) + 37


#: Every accumulator, in the kernels that its sums can have: by name, what terms it is given.
REGISTERS = [
    ":fp32", ":fp64", ":e5m10", ":e5m10/rtz", ":bf16/rd", ":e5m10/ro", ":e5m10/ftz", ":bf16/sr", ":e4m3", ":e8m30",
    ":mul=e5m10, add=e6m9", "e4m3 : bf16", "e4m3 : e5m10 -> e4m3", ":bfp(8,1)", "fp64 : e8m23", ":e5m10, arithmetic=fp32",
]  # fmt: skip
COMPENSATED = [
    f":{method}({fmt})"
    for method in ("kahan", "neumaier", "two_sum", "fast_two_sum")
    for fmt in ("bf16", "e5m10/rz", "e8m14", "e5m10/sr", "fp32", "e4m3")
]
TOTALS = [
    ":exact(fp32)", ":exact(e5m10/sr)", ":binned(fp32)", ":binned(e5m10/sr)", "int8 : int(24)",
    "int8 : int(12)", "e4m3 : fixed(24, 8)", ":fixed(40, 20)",
]  # fmt: skip
ORDERS = [
    ":chunked(64, e5m10)", ":chunked(3, e5m10)", ":chunked(4, fp32)", ":chunked(5000, e5m10)", ":chunked(7, bf16/sr)",
    ":chunked(1, e5m10)", ":pairwise(e5m10)", ":pairwise(e5m10, leaf=8)", ":pairwise(fp32)", ":pairwise(bf16/sr)",
    ":pairwise(e5m10, leaf=5000)", ":interleaved(8, e5m10)", ":interleaved(4, fp32)", ":interleaved(7, bf16/sr)",
    ":chunked(16, kahan(bf16))", ":chunked(4000, neumaier(bf16))", ":shuffled(e5m10, 3)",
    ":shuffled(interleaved(4, e5m10), 3)", ":shuffled(pairwise(e5m10), 3)", ":splitk(3, e5m10, reduce=e5m10)",
]  # fmt: skip
UNITS = [
    "e4m3 : hw(h100, wgmma, e4m3)", "bf16 : hw(a100, mma, bf16)", "fp16 : hw(volta, mma, fp16)",
    "e4m3 : promote(hw(h100, wgmma, e4m3), 128)", "mxfp8_e4m3 : scaled(e5m10)", "nvfp4 : scaled(fp32)",
    "mxfp4 : scaled(fp32)", "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)", "bf16 : hw(mi300, mfma, bf16)",
]  # fmt: skip
ALL = [*REGISTERS, *COMPENSATED, *TOTALS, *ORDERS, *UNITS]


def operands(text: str, m: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers for integer registers; else of both signs, the second row and column with what is not finite and -0."""
    k = long_k()
    g = torch.Generator().manual_seed(k + len(text))
    if "int8" in text:
        return torch.randint(-99, 99, (m, k), generator=g).float(), torch.randint(-99, 99, (k, n), generator=g).float()
    a, b = torch.randn(m, k, generator=g), torch.randn(k, n, generator=g)
    a[:, 7::11] = -0.0
    a[:, k // 2 :] *= 2.0**-7  # what is known of the first terms does not hold for the others
    a[1, k // 2], b[k // 3, 1] = float("inf"), float("nan")
    a[2] *= 2.0**-9  # rows whose sums underflow in small formats, and overflow
    a[3] *= 2.0**12
    return a, b


def wide_enough(text: str) -> tuple[int, int]:
    """Rows and columns of a product whose panels are small beside its operands: it is packed as a whole."""
    return (48, 16) if text.startswith(("mx", "nv")) else (16, 8)


def check(text: str, seed: int = 5) -> None:
    a, b = operands(text, *wide_enough(text))
    want = gs.qmatmul(a, b, text, seed=seed)
    for m, n in ((1, 1), (4, 2), (1, 3)):
        got = gs.qmatmul(a[:m], b[:, :n].contiguous(), text, seed=seed)
        assert_bitwise_equal(got, want[:m, :n], nan_is_nan=True, context=f"{text} {cpu.isa()} {m} x {n}")


@pytest.mark.parametrize("number", range(len(ALL)), ids=lambda i: ALL[i])
def test_outputs_are_those_of_a_product_that_is_packed_as_a_whole(number):
    names = isas()
    for name in names if LONG else [names[number % len(names)]]:
        cpu.set_isa(name)
        try:
            check(ALL[number])
        finally:
            cpu.set_isa(names[0])


@pytest.mark.parametrize("text", [":e5m10", ":kahan(bf16)", ":chunked(64, e5m10)", ":exact(fp32)", "int8 : int(20)"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_operands_of_any_dtype_and_strides(text, dtype):
    a, b = operands(text, 4, 2)
    a, b = a.to(dtype), b.to(dtype)
    want = gs.qmatmul(a, b, text)
    views = {
        "transposed": (a.t().contiguous().t(), b.t().contiguous().t()),
        "every other": (a.repeat_interleave(2, 1)[:, ::2], b.repeat_interleave(2, 0)[::2]),
        "batched": (a.expand(3, *a.shape), b),
    }
    for name, (left, right) in views.items():
        got = gs.qmatmul(left, right, text)
        assert_bitwise_equal(got, want.expand_as(got), nan_is_nan=True, context=name)
    assert_bitwise_equal(gs.qmatmul(a[1], b[:, 1], text), want[1, 1], nan_is_nan=True, context="vectors")


@pytest.mark.parametrize("init", ["c_first", "c_last"])
@pytest.mark.parametrize(
    "text", [":sequential(e5m10, init={})", ":sequential(bf16/sr, init={})", ":sequential(fp32, init={})"]
)
def test_an_addend_has_its_place(text, init):
    spec = text.format(init)
    a, b = operands(spec, 16, 8)
    c = torch.randn(16, 8)
    want = gs.qmatmul(a, b, spec, c=c, seed=2)
    got = gs.qmatmul(a[:4], b[:, :2].contiguous(), spec, c=c[:4, :2], seed=2)
    assert_bitwise_equal(got, want[:4, :2], nan_is_nan=True)


@pytest.mark.parametrize(
    "text",
    [
        ":e5m10", ":fp32", "e4m3 : bf16", ":bf16/sr", ":kahan(bf16)", ":neumaier(e5m10)", ":pairwise(e5m10)",
        ":chunked(5000, kahan(e5m10))", ":interleaved(8, e5m10)", ":mul=e5m10, add=e6m9",
    ],
)  # fmt: skip
def test_additions_are_counted_alike(text):
    names = isas()
    for name in names if LONG or text in (":fp32", ":e5m10") else names[:1]:
        cpu.set_isa(name)
        try:
            a, b = operands(text, 16, 8)
            want = gs.count_events(a, b, text, seed=4)
            got = gs.count_events(a[:4], b[:, :2].contiguous(), text, seed=4)
        finally:
            cpu.set_isa(names[0])
        assert_bitwise_equal(got.out, want.out[:4, :2], nan_is_nan=True, context=name)
        for count in ("swamped", "inexact", "underflow", "overflow"):
            assert_bitwise_equal(getattr(got, count), getattr(want, count)[:4, :2], context=f"{name} {count}")


@pytest.mark.parametrize(
    "text", ["int8 : int(12)", "int8 : int(16, overflow=wrap)", "int8 : chunked(4000, int(14), fp32)"]
)
def test_overflows_are_counted_alike(text):
    a, b = operands(text, 16, 8)
    want = gs.count_overflows(a, b, text)
    assert want.any()
    assert_bitwise_equal(gs.count_overflows(a[:4], b[:, :2].contiguous(), text), want[:4, :2])


def test_fractions_are_refused_wherever_they_are():
    k = long_k()
    a, b = torch.ones(1, k), torch.ones(k, 1)
    b[k - 1] = 0.5
    with pytest.raises(ValueError, match="int"):
        gs.qmatmul(a, b, ":int(24)")


def test_elements_of_a_palette_have_their_own_accumulators():
    spec = GemmSpec.of(":palette(e5m10, bf16, e4m3, interleaved(4, e5m10), shuffled(bf16, 3), kahan(bf16))")
    a, b = operands(":e5m10", 16, 8)
    select = torch.arange(128).reshape(16, 8) % 6
    want = gs.qmatmul(a, b, spec, select=select)
    got = gs.qmatmul(a[:4], b[:, :3].contiguous(), spec, select=select[:4, :3])
    assert_bitwise_equal(got, want[:4, :3], nan_is_nan=True)


@pytest.mark.parametrize("inner", ["e5m10", "fp32", "int(14)", "kahan(bf16)", "interleaved(4, e5m10)", "exact(fp32)"])
def test_products_of_a_table(inner):
    values = [float(v) for v in range(-8, 8)]
    codes = [*range(8), *range(-8, 0)]  # of int4, two's complement
    table = gs.acc.table([[float(x * y // 2 * 2) for y in codes] for x in codes], "int4", name="long_sums_int4")
    spec = gs.acc.lookup(table, inner)
    g, k = torch.Generator().manual_seed(3), long_k()
    a, b = (torch.tensor(values)[torch.randint(16, shape, generator=g)] for shape in ((40, k), (k, 32)))
    want = gs.qmatmul(a, b, spec)
    got = gs.qmatmul(a[:3], b[:, :2].contiguous(), spec)
    assert_bitwise_equal(got, want[:3, :2])


@pytest.mark.parametrize("text", [":e5m10", ":kahan(bf16)", ":interleaved(8, e5m10)", "e4m3 : hw(h100, wgmma, e4m3)"])
def test_convolutions_of_many_channels(text):
    g = torch.Generator().manual_seed(8)
    x, weight = torch.randn(1, 16_000, 3, 3, generator=g), torch.randn(24, 16_000, 3, 3, generator=g)
    want = gs.qconv2d(x, weight, spec=text, padding=1)
    got = gs.qconv2d(x, weight[:1], spec=text)
    assert_bitwise_equal(got, want[:, :1, 1:2, 1:2])


MEMORY = """
import resource, torch
import gemmsim as gs

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

K = 1 << 22
a, b = torch.randn(1, K).round_(decimals=2), torch.randn(K, 1).round_(decimals=2)
whole, half = a.mul(40).round(), b.half()
select = torch.zeros(1, 1, dtype=torch.uint8)
calls = {
    **{text: lambda text=text: gs.qmatmul(a, b, text) for text in TEXTS},
    "int8 : int(20)": lambda: gs.qmatmul(whole, b, "int8 : int(20)"),
    "half": lambda: gs.qmatmul(a.half(), half, ":e5m10"),
    "batch": lambda: gs.qmatmul(a.view(4, 1, -1), b.view(4, -1, 1), ":e5m10"),
    "rows": lambda: gs.qmatmul(a.view(4, -1), b[: K // 4], ":e5m10"),
    "columns, transposed": lambda: gs.qmatmul(a[:, : K // 4], b.view(4, -1).t(), ":e5m10"),
    "events": lambda: gs.count_events(a, b, ":e5m10"),
    "palette": lambda: gs.qmatmul(a, b, ":palette(e5m10, bf16)", select=select),
    "convolution": lambda: gs.qconv2d(a.view(1, -1, 1, 1), b.view(1, -1, 1, 1), spec=":e5m10"),
    "linear": lambda: gs.qlinear(a, b.t(), spec=":e5m10"),
}
short = {text: gs.qmatmul(a[:, :64], b[:64], text) for text in TEXTS}  # what is made once
gs.count_events(a[:, :64], b[:64], ":e5m10"), gs.qconv2d(a[:, :64].view(1, -1, 1, 1), b[:64].view(1, -1, 1, 1), spec=":e5m10")
for name, call in calls.items():
    before = peak()
    call()
    print(f"{name}\t{peak() - before:.0f}")
"""

#: Accumulators whose panels would take 640 MiB and more beside 32 MiB of operands.
LARGE = [
    ":fp32", ":e5m10", ":bf16/sr", ":bfp(8,1)", ":kahan(bf16)", ":neumaier(e5m10/sr)", ":exact(fp64)", ":binned(fp32)",
    ":fixed(40, 20)", ":chunked(64, e5m10)", ":pairwise(e5m10)", ":chunked(64, bf16/sr)", ":interleaved(8, e5m10)",
    "e4m3 : hw(h100, wgmma, e4m3)", "bf16 : hw(a100, mma, bf16)",
]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units")
def test_memory_is_of_the_order_of_the_operands():
    """A dot product of 2^22 terms: at most three times its operands beside them, whatever sums it up."""
    done = run_python(f"TEXTS = {LARGE!r}\n{MEMORY}")
    assert done.returncode == 0, done.stderr
    grown = dict(line.split("\t") for line in done.stdout.splitlines())
    assert len(grown) == len(LARGE) + 9
    assert {name: mib for name, mib in grown.items() if int(mib) > 96} == {}
