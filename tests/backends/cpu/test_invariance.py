"""One meaning, one result: thread count, tiling, strides, batch split and neighbours never change a bit."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

SPECS = [
    ":e5m10",
    "e4m3 : e5m2",
    ":e5m2/sr8",
    ":e5m10/sr16",
    ":mul=e5m10/sr8, add=e6m9/sr20",
    ":bf16/rtz",
    "e4m3/sr : e5m10 -> e4m3/sr8",
]


@pytest.fixture(autouse=True)
def _restore_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def product(a: torch.Tensor, b: torch.Tensor, text: str, seed: int = 11) -> torch.Tensor:
    out = torch.empty(*a.shape[:-1], b.shape[-1], dtype=a.dtype)
    cpu.gemm(a, b, GemmSpec.of(text), out, seed)
    return out


def operands(m: int, k: int, n: int, batch: tuple[int, ...] = ()) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(m * 1000 + n)
    return torch.randn(*batch, m, k, generator=g), torch.randn(*batch, k, n, generator=g)


@pytest.mark.parametrize("text", SPECS)
def test_threads_and_instruction_sets(text):
    a, b = operands(131, 97, 150)
    torch.set_num_threads(1)
    want = product(a, b, text)
    for name in isas():
        cpu.set_isa(name)
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert_bitwise_equal(product(a, b, text), want, context=f"{text} {name} {threads} threads")


@pytest.mark.parametrize("text", SPECS)
def test_rows_belong_to_themselves(text):
    """The first rows of a product are the product of the first rows (random bits are keyed by global row)."""
    a, b = operands(29, 40, 33)
    whole = product(a, b, text)
    for rows in (1, 2, 7, 8, 9, 16):
        assert_bitwise_equal(product(a[:rows], b, text), whole[:rows], context=f"{text} first {rows}")


@pytest.mark.parametrize("text", [s for s in SPECS if "/sr" not in s.split(":")[0] and "->" not in s])
def test_columns_belong_to_themselves(text):
    a, b = operands(9, 40, 70)
    whole = product(a, b, text)
    for columns in (1, 3, 31, 32, 33):
        assert_bitwise_equal(product(a, b[:, :columns], text), whole[:, :columns], context=f"{text} first {columns}")


@pytest.mark.parametrize("text", SPECS)
def test_strides(text):
    a, b = operands(17, 50, 41)
    want = product(a, b, text)
    wide_a, wide_b = torch.full((17 * 2, 50 * 3), 9.0), torch.full((50 * 2, 41 * 2), 9.0)
    wide_a[::2, ::3], wide_b[::2, ::2] = a, b
    for x in (a, a.t().contiguous().t(), wide_a[::2, ::3]):
        for y in (b, b.t().contiguous().t(), wide_b[::2, ::2]):
            assert_bitwise_equal(product(x, y, text), want, context=text)
    out = torch.zeros(41, 17).t()
    cpu.gemm(a, b, GemmSpec.of(text), out, 11)
    assert_bitwise_equal(out, want, context=f"{text} transposed output")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "text", [":fp32", ":fp64", "e4m3 : e5m10", ":interleaved(4, e5m10)", ":shuffled(bf16, seed=3)"]
)
def test_panels_of_every_layout(text, dtype):
    """Rows and columns that lie side by side, next to each other or neither; more terms than are packed at a time."""
    a, b = (t.to(dtype) for t in operands(13, 301, 35))
    apart_a, apart_b = a.repeat_interleave(2, 1)[:, ::2], b.repeat_interleave(3, 1)[:, ::3]
    want = product(apart_a, apart_b, text)
    for x in (a, a.t().contiguous().t(), torch.cat([a, a]).t().contiguous().t()[:13]):
        for y in (b, b.t().contiguous().t(), torch.cat([b, b], 1)[:, :35]):
            assert_bitwise_equal(product(x, y, text), want, context=f"{text} {x.stride()} {y.stride()}")


@pytest.mark.parametrize("text", [":e5m10", ":e5m2/sr8", "e4m3/sr : e5m10 -> e4m3/sr8"])
@pytest.mark.parametrize("threads", [1, 2])
def test_batches(text, threads):
    """A batch is its rows one after another; broadcasting an operand is repeating it."""
    torch.set_num_threads(threads)
    a, b = operands(5, 12, 7, (3, 4))
    same = b[:1, :1].expand(3, 4, 12, 7)
    flat = product(a.reshape(60, 12), b[0, 0], text).reshape(3, 4, 5, 7)
    assert_bitwise_equal(product(a, same, text), flat, context=f"{text} shared b")
    if "/sr" not in text:
        whole = product(a, b, text)
        for i in range(3):
            for j in range(4):
                assert_bitwise_equal(whole[i, j], product(a[i, j], b[i, j], text), context=f"{text} {i},{j}")
    many_a, many_b = operands(4, 6, 5, (70000,))
    whole = product(many_a, many_b[:1].expand(70000, 6, 5), text)
    assert_bitwise_equal(
        whole[69999:], product(many_a.reshape(-1, 6), many_b[0], text)[-4:][None], context="70,000 batches"
    )


def test_seeds_matter_and_repeat():
    a, b = operands(16, 64, 16)
    assert_bitwise_equal(product(a, b, ":e5m2/sr8", 1), product(a, b, ":e5m2/sr8", 1))
    assert not torch.equal(product(a, b, ":e5m2/sr8", 1), product(a, b, ":e5m2/sr8", 2))
    assert not torch.equal(product(a, b, ":e5m2/sr8", 1), product(a, b, ":e5m2/sr8", 1 + (1 << 40)))


def test_flush_denormal_of_the_caller_does_not_reach_the_kernels():
    x = torch.full((3, 3), 2.0**-130)  # a subnormal of float32 and of bf16
    want = product(x, torch.eye(3), ":bf16")
    assert want.view(torch.int32)[0, 0] == 1 << 19, "2**-130 by its bits: comparing floats would flush, too"
    torch.set_flush_denormal(True)
    try:
        got = product(x, torch.eye(3), ":bf16")
    finally:
        torch.set_flush_denormal(False)
    assert_bitwise_equal(got, want)


@pytest.mark.parametrize("text", ["e5m10/sr", "e4m3/sr20", "fixed(8,4)/sr8"])
def test_stochastic_means_and_variances_follow_the_binomial(text):
    """200,000 draws of one value: the rate of rounding up is the dropped fraction, within four standard deviations."""
    from gemmsim.formats import parse_cast

    cast = parse_cast(text)
    n = 200_000
    for fraction in (0.25, 0.5, 0.8125):
        step = 2.0**-10 if "e5m10" in text else 2.0**-4 if "fixed" in text else 2.0**-3
        x = torch.full((n,), 1.0 + fraction * step)
        out = torch.empty_like(x)
        cpu.quantize(x, cast, out, 123)
        up = float((out > 1.0).double().mean())
        assert set(out.unique().tolist()) == {1.0, 1.0 + step}
        assert abs(up - fraction) < 4 * (fraction * (1 - fraction) / n) ** 0.5


@pytest.mark.parametrize("n", [3, pytest.param(32768, marks=pytest.mark.long)])
def test_results_of_more_than_two_to_the_31_elements(n):
    """Row and element offsets beyond 32 bits, which the first columns of long rows have, too; bits of the last rows as if
    computed alone."""
    m = 65537
    a = torch.randn(m, 1, generator=torch.Generator().manual_seed(6)).half()
    b = torch.randn(1, n, generator=torch.Generator().manual_seed(7)).half()
    out = torch.empty(m, 32768, dtype=torch.float16)[:, :n]  # memory that is not written is not there
    cpu.gemm(a, b, GemmSpec.of(":e5m10"), out)
    tail = torch.empty(3, n, dtype=torch.float16)
    cpu.gemm(a[-3:], b, GemmSpec.of(":e5m10"), tail)
    assert_bitwise_equal(out[-3:], tail)
    assert_bitwise_equal(out[:, -1:], (a.double() * b[:, -1:].double()).half(), context="last column")
