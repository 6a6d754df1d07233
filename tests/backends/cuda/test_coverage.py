"""The CUDA backend takes whatever the CPU backend takes: every format, rounding and policy, in every place of a spec.

A plan is made for each; those of formats that are not one grid, and of the roundings that only integers of 128 bits know,
are compiled for the host, too, and compared with the CPU backend bit for bit.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import operand
from support.cuda_gemm import compile_on_host, cuda_gemm, host_gemm, sources_of

from gemmsim import formats
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu, cuda

GRIDS = """supernormal(4,3) supernormal(4,3,2,1) supernormal(5,2,1,3,saturate) supernormal(4,3,1,1,even_exponent)
binary8(3) binary8(1) binary8(4,unsigned) binary8(3,saturate_infty) binary8(3)/ftz binary8(3,saturate_maxfloat)
fixed(8,4,symmetric) fixed(8,4,unbounded) ufixed(8,4) fixed(53,10) fixed(12,-3) fixed(4,20) binary8p1uf e8m0
bfp(8,1) bfp(4,1,asymmetric) bfp(1,1) bfp(30,1,inf)""".split()
FORMATS = sorted({*formats.names(), *GRIDS, "e5m10/ftz", "e4m3b3", "e5m0", "e11m0", "e2m52", "binary16p8se", "e1m5"})
ROUNDINGS = "rne rna rnd rnu rtz ru rd ro sr4 sr16 sr20 srb8 src8".split()
POLICIES = ["", "/sat", "/satprop", "/clamp"]
PLACES = [
    "{} : e5m10", "bf16*{} : fp32", ":{}", ":mul={}, add=e5m10", ":fp32 -> {}", ":{}, arithmetic=fp32", ":kahan({})",
    ":chunked(4, {})", ":pairwise({}, 2)", ":interleaved(3, {}, combine=pairwise)", ":splitk(2, fp32, {})", ":exact({})",
    ":shuffled({}, 3)", ":two_sum({})", ":binned({})", ":mul={}, add=e8m22", ":palette({}, fp32)", ":chunked(4, fp32, {})",
]  # fmt: skip


def all_specs() -> list[GemmSpec]:
    """Every format with every rounding, places and policies taking turns."""
    found, places, policies = [], itertools.cycle(PLACES), itertools.cycle(POLICIES)
    for fmt, rounding in itertools.product(FORMATS, ROUNDINGS):
        for _ in range(2):
            try:
                found.append(GemmSpec.of(next(places).format(f"{fmt}/{rounding}{next(policies)}")))
            except ValueError:  # a combination that means nothing
                continue
    return [spec for spec in found if not spec.needs_steps]  # lists of values are looked up around a kernel


SPECS = all_specs()


def test_whatever_the_cpu_takes_has_a_kernel():
    a, b, out = torch.zeros(4, 6), torch.zeros(6, 4), torch.zeros(4, 4)
    planned = 0
    for spec in SPECS:
        reason = cpu.refuses(spec)
        assert (cuda.refuses(spec) is None) == (reason is None), f"{spec}: {reason}, {cuda.refuses(spec)}"
        if reason is not None or spec.has_blocks:
            continue
        done = tuple(cast is not None and cuda_gemm.is_beforehand(cast) for cast in (spec.cast_a, spec.cast_b))
        plain = replace(spec, out=None) if spec.out is not None and spec.out.is_stochastic else spec
        for member in cuda_gemm._members(spec):
            operands = cuda_gemm.operands_of(a, b, out, member, None, None, done)
            cuda_gemm.kernel_for(plain, member, operands, out, a.shape[-1])
            planned += 1
    assert planned > 1500


@pytest.mark.parametrize("part", range(2))
def test_grids_and_late_roundings_have_the_cpus_bits(part):
    rng = random.Random(part)
    words = ("supernormal", "binary8(", "bfp(", "rnu", "rnd", "unbounded", "srb", "src")
    chosen = [s for s in SPECS if any(w in str(s) for w in words) and cpu.refuses(s) is None and not s.has_blocks]
    calls = []
    for spec in rng.sample([s for s in chosen if "palette" not in str(s)], 14):
        dtype = rng.choice([torch.float32, torch.float64, torch.bfloat16, torch.float16])
        calls.append((operand(rng, 5, 19, dtype), operand(rng, 19, 7, dtype), spec, rng.randrange(1 << 60)))
    compile_on_host(sources_of(calls))
    for a, b, spec, seed in calls:
        got, want = (torch.full((5, 7), 7.0, dtype=torch.float64) for _ in range(2))
        host_gemm(a, b, spec, got, seed)
        cpu.gemm(a, b, spec, want, seed)
        assert_bitwise_equal(got, want, context=f"{spec} {a.dtype}")


#: Block floating point of single numbers, alone and in every composite.
OWN_EXPONENTS = [
    ":bfp(8,1)", ":bfp(4,1,asymmetric)/sr8", ":mul=bfp(6,1), add=bfp(9,1,inf)/rnd", ":kahan(bfp(8,1))",
    ":chunked(4, bfp(8,1), bfp(12,1))", ":pairwise(bfp(8,1)/srb8, 3)", ":bfp(30,1)", ":exact(bfp(8,1))",
    ":bfp(1,1,asymmetric)/ru", ":interleaved(3, bfp(2,1), combine=pairwise)", ":bfp(8,1), arithmetic=fp32",
    ":fp32 -> bfp(8,1)",
]  # fmt: skip


def test_registers_in_block_floating_point_have_the_cpus_bits():
    rng, calls = random.Random(3), []
    for text in OWN_EXPONENTS:
        spec = GemmSpec.parse(text)
        assert cuda.refuses(spec) is None
        for kind in ("normal", "huge", "special"):
            calls.append((operand(rng, 5, 19, torch.float32, kind), operand(rng, 19, 7, torch.float32, kind), spec, 11))
    compile_on_host(sources_of(calls))
    for a, b, spec, seed in calls:
        got, want = (torch.full((5, 7), 7.0, dtype=torch.float64) for _ in range(2))
        host_gemm(a, b, spec, got, seed)
        cpu.gemm(a, b, spec, want, seed)
        assert_bitwise_equal(got, want, context=f"{spec}")
