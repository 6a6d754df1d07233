"""Reading machine code: loops, spills, registers, and what counts as worse than before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cuda import tiny_kernel

from gemmsim.backends import cuda
from gemmsim.backends.cuda import KernelSource, compile_kernel
from gemmsim.backends.cuda.jit.sass_report import KernelFacts, innermost_loops, inspect_kernel, regressions

LISTING = """
.text.gemmsim_kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   FFMA R0, R1, R2, R0 ;
.L_x_0:
        /*0020*/                   FFMA.FTZ R0, R1, R2, R0 ;
        /*0030*/                   FADD R0, R0, R2 ;
        /*0040*/              @!P0 BRA `(.L_x_0) ;
        /*0050*/               @P1 BRA `(.L_x_1) ;
        /*0060*/                   BRA `(.L_x_2) ;
        /*0070*/                   STL [R1], R0 ;
.L_x_2:
        /*0080*/                   EXIT ;
.L_x_3:
        /*0090*/                   BRA `(.L_x_3);
"""


def test_the_innermost_loop_is_the_one_without_another_inside():
    assert innermost_loops(LISTING) == [["FFMA", "FADD", "BRA"]]


LOOP = """
#include "gemmsim/device/round.h"
struct Args { const float* a; float* out; int n; };
extern "C" __global__ void __launch_bounds__(128) gemmsim_kernel(const Args args) {
    float s[8] = {};
#pragma unroll 1
    for (int k = 0; k < args.n; ++k) {
#pragma unroll
        for (int j = 0; j < 8; ++j) s[j] = FUNCTOR::apply(__fmaf_rn(args.a[k], args.a[k + j], s[j]));
    }
    for (int j = 0; j < 8; ++j) args.out[threadIdx.x * 8 + j] = s[j];
}
"""


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("functor", "instructions"),
    [("gemmsim::NoRound<float>", 1), ("gemmsim::Split<float, 11>", 3), ("gemmsim::Magic<float, 11>", 4),
     ("gemmsim::MagicSubnormal<float, 11, -14>", 5), ("gemmsim::Truncate<float, 11>", 2), ("gemmsim::ThroughHalf", 3), ("gemmsim::ThroughBf16", 3)],
)  # fmt: skip
def test_functors_cost_what_their_table_says(functor, instructions, compiled_before):
    """Instructions of a loop of eight multiply-adds with their roundings; what the loop itself takes comes on top."""
    text = LOOP.replace("FUNCTOR", functor)
    sources = {
        name: KernelSource("test", name, text.replace(functor, name), threads=128, work=8, hot="loop")
        for name in (functor, "gemmsim::NoRound<float>")
    }
    if compiled_before(*((source, "sm_90a") for source in sources.values())):
        return
    facts = {name: inspect_kernel(compile_kernel(source, "sm_90a")) for name, source in sources.items()}
    added = facts[functor].per_result - facts["gemmsim::NoRound<float>"].per_result
    assert abs(added - (instructions - 1)) < 0.3 and facts[functor].spills == 0


@pytest.mark.cuda
def test_facts_of_a_small_kernel():
    facts = inspect_kernel(compile_kernel(tiny_kernel(), "sm_90a"))
    assert (facts.spills, facts.stack) == (0, 0) and 4 <= facts.registers <= 16
    assert 3 <= facts.instructions <= 20 and facts.per_result == facts.instructions
    straight = replace(tiny_kernel(), hot="loop")
    with pytest.raises(cuda.CudaError, match="has no loop"):
        inspect_kernel(compile_kernel(straight, "sm_90a"))


def test_regressions_are_what_got_worse():
    base = KernelFacts("cast<x>", "sm_90a", registers=100, spills=0, stack=0, instructions=500, per_result=10.0)
    assert regressions([base], [base]) == []
    assert regressions([replace(base, registers=102, per_result=10.2, instructions=900)], [base]) == []
    assert regressions([replace(base, registers=90, per_result=5.0)], [base]) == []
    for change in ({"registers": 103}, {"per_result": 10.3}, {"spills": 1}, {"stack": 8}):
        (line,) = regressions([replace(base, **change)], [base])
        assert line.startswith("cast<x> sm_90a: ") and next(iter(change)) in line
    other = replace(base, arch="sm_80")
    assert regressions([base, other], [base]) == ["cast<x> sm_80: not in the baseline"]
    assert regressions([], [base]) == ["cast<x> sm_90a: only in the baseline"]
