"""What must hold for accumulators whatever they compute: special cases of one another, and invariances of them all."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal, assert_values_equal
from support.accumulators import CASES, Case, operands
from support.cpu import isas

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

M, K, N = 40, 37, 70
#: Two tiles and a ragged one.
FEW, SOME = 11, 35
#: Run formats of the identities: overflowing to infinity, NaN and the ends; subnormals or none; every machine carrier.
RUNS = ["e5m10", "bf16/rtz", "e4m3", "e5m2/sat", "fp32", "e5m10/ftz", "e6m9/rd", "e11m40", "fixed(16,8)", "binary8p3"]


@pytest.fixture(autouse=True)
def _restore_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def product(a: torch.Tensor, b: torch.Tensor, text: str, seed: int = 5) -> torch.Tensor:
    out = torch.empty(a.shape[0], b.shape[1], dtype=torch.float64)
    cpu.gemm(a, b, GemmSpec.of(text), out, seed)
    return out


def check_same(one: str, other: str, integer: bool = False) -> None:
    """Equal bits on tame and on wide operands. A total of -0 (a sum that underflowed) is +0 once added to +0, which is
    what every order but a tree does with it: zeros count as one."""
    for wide in (False, True):
        a, b = operands(Case("", integer=integer), FEW, K, SOME, wide=wide)
        if wide and not integer:
            a[1, 3], b[5, 2], a[2, 0], a[3, 1] = float("inf"), float("nan"), 1e-40, 3e38
        assert_bitwise_equal(product(a, b, one) + 0.0, product(a, b, other) + 0.0, context=f"{one} and {other}")


@pytest.mark.parametrize("run", [*RUNS, "kahan(e5m10)", "exact(bf16)", "sequential(bf16, mul=e4m3)", "binned(e5m2)"])
def test_one_run_of_all_terms_is_the_run(run):
    for outer in (f"chunked({K}, {run})", f"chunked(1000, {run})", f"promote({run}, {K}, fp64)"):
        check_same(f":{outer}", f":{run}")
    for lanes in (f"interleaved(1, {run})", f"interleaved(1, {run}, combine=pairwise)"):
        check_same(f":{lanes}", f":{run}")
    check_same(f":splitk(1, {run}, fp64)", f":{run}")
    a, b = operands(Case(""), FEW, K, SOME, wide=True)
    for leaf in (K, 1000):
        assert_bitwise_equal(product(a, b, f":pairwise({run}, {leaf})"), product(a, b, f":{run}"), context="pairwise")


@pytest.mark.parametrize("mul", ["e4m3", "bf16", "e5m2/rtz", "e5m10/ru", "e3m2/sat", "fixed(12,6)"])
@pytest.mark.parametrize("add", ["e5m10", "fp32", "e5m2", "bf16/rtz", "e6m9/sat"])
def test_chunks_of_one_term_are_products_rounded_by_themselves(mul, add):
    check_same(f":chunked(1, {mul}, {add})", f":mul={mul}, add={add}")


@pytest.mark.parametrize("run", RUNS)
def test_other_special_cases_of_one_another(run):
    check_same(f":promote({run}, 8, fp32)", f":chunked(8, {run}, fp32)")
    check_same(f":interleaved({K}, {run})", f":chunked(1, {run})")
    check_same(f":interleaved(64, {run}, combine=pairwise)", f":pairwise({run})")
    check_same(f":splitk(5, {run}, fp64)", f":chunked({-(-K // 5)}, {run}, fp64)")


@pytest.mark.parametrize("out", ["fp32", "e5m2", "e4m3/rtz", "fixed(16,4)"])
def test_exact_sums_do_not_depend_on_the_order(out):
    for seed in (0, 1, 99):
        check_same(f":shuffled(exact({out}), {seed})", f":exact({out})")
    check_same(f":interleaved(7, exact(fp64)) -> {out}", f":chunked(1, exact(fp64)) -> {out}", integer=True)
    check_same(f":pairwise(exact(fp64), 3) -> {out}", f":exact(fp64) -> {out}", integer=True)


@pytest.mark.parametrize(
    "register", ["int(8)", "int(12, signed=false)", "int(10, when=end)", "int(9, shift=2)", "int(1)"]
)
def test_registers_that_wrap_do_not_depend_on_the_order(register):
    for seed in (0, 1, 99):
        check_same(f":shuffled({register}, {seed})", f":{register}", integer=True)
    wraps = register.replace(", when=end", "")
    check_same(f":{wraps.replace(')', ', when=end)')}", f":{wraps}", integer=True)


def test_wide_registers_are_exact():
    for text in (
        ":int(40)",
        ":int(40, saturate)",
        ":fixed(45, 3)",
        ":fixed(45, 0, overflow=wrap)",
        ":fp32",
        ":kahan(fp32)",
    ):
        check_same(text, ":exact(fp64)", integer=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_instruction_sets_and_threads_change_nothing(case):
    a, b = operands(case, M, K, N, wide=True)
    torch.set_num_threads(1)
    want = product(a, b, case.text)
    for name in isas():
        cpu.set_isa(name)
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert_bitwise_equal(product(a, b, case.text), want, context=f"{case} {name} {threads} threads")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_and_columns_belong_to_themselves(case):
    """Batch and tile invariance: part of a product is the product of the parts. Random bits are those of the global row
    and column, so a stochastic part must begin at the first of each."""
    a, b = operands(case, M, K, N, wide=True)
    whole = product(a, b, case.text)
    for rows, columns in ((1, 1), (7, 3), (9, 33), (40, 64)):
        part = product(a[:rows], b[:, :columns], case.text)
        assert_bitwise_equal(part, whole[:rows, :columns], context=f"{case} first {rows} x {columns}")
    if not case.stochastic:
        for row in range(0, M, 5):
            assert_bitwise_equal(product(a[row : row + 1], b, case.text), whole[row : row + 1], context=f"{case} {row}")
        part = product(a[3:29], b[:, 5:50], case.text)
        assert_bitwise_equal(part, whole[3:29, 5:50], context=f"{case} in the middle")


@pytest.mark.parametrize("case", [case for case in CASES if case.symmetric and not case.stochastic], ids=str)
def test_negated_operands_negate_the_result(case):
    for wide in (False, True):
        a, b = operands(case, M, K, N, wide=wide)
        want = -product(a, b, case.text)
        for x, y in ((-a, b), (a, -b)):
            assert_values_equal(product(x, y, case.text), want, context=str(case))
        assert_values_equal(product(-a, -b, case.text), -want, context=str(case))


@pytest.mark.parametrize("text", [":bf16/ru", ":int(10)", ":int(10, saturate)"])
def test_one_sided_accumulators_are_told_apart(text):
    """What the flag ``symmetric`` says is not empty."""
    case = next(case for case in CASES if case.text == text)
    a, b = operands(case, M, K, N)
    assert not torch.equal(product(-a, b, text), -product(a, b, text))
