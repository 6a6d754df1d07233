"""Specs that reach every kind of run, order and step of the CUDA backend's matrix products."""

from __future__ import annotations

import random
from collections.abc import Callable

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu, cuda

FORMATS = """e5m10 e5m2 e4m3 ieee_e4m3 e8m7 tf32 e6m9 e2m1 fp32 e5m21 fp64 e11m40 e5m0 fixed(16,8) ufixed(12,4) int16
e5m10/ftz bf16/ftz e4m3fnuz binary8p3 binary8p1""".split()
MODES = ["", "", "", "/rtz", "/ru", "/rd", "/rna", "/sr8", "/sr20", "/srb8", "/ro"]
OPERANDS = ["", "", "e4m3", "bf16*e4m3", "e5m10/rtz", "e4m3/sr", "fixed(8,4)", "e8m0"]
OUTPUTS = ["", "", "", "", " -> bf16", " -> e4m3/sat", " -> e5m10/sr", " -> binary8p1"]


def random_register(rng: random.Random) -> str:
    """A plain register between operand and output casts."""

    def cast() -> str:
        return rng.choice(FORMATS) + rng.choice(MODES) + rng.choice(["", "", "/sat", "/satprop"])

    text = f"mul={cast()}, add={cast()}" if rng.random() < 0.3 else cast()
    fp32 = ", arithmetic=fp32" if rng.random() < 0.2 else ""
    return f"{rng.choice(OPERANDS)} : {text}{rng.choice(OUTPUTS)}{fp32}"


def specs(count: int, draw: Callable[[random.Random], str], rng: random.Random) -> list[GemmSpec]:
    """``count`` specs that mean something and that both backends compute."""
    found: list[GemmSpec] = []
    while len(found) < count:
        try:
            spec = GemmSpec.of(draw(rng))
        except ValueError:
            continue
        if cpu.refuses(spec) is None and cuda.refuses(spec) is None:
            found.append(spec)
    return found


ORDERS = [
    ":chunked(3, e5m10)", ":chunked(8, e5m2/sr8, e6m9/sr8)", ":pairwise(e5m10/sr8, 3)", ":pairwise(e5m10, 1)",
    ":interleaved(5, e5m10/sr8, combine=pairwise)", ":interleaved(4, bf16)", ":splitk(3, e5m10, e6m9/sr20)",
    ":shuffled(chunked(4, e5m10/sr8), 5)", ":shuffled(interleaved(4, chunked(2, e4m3, bf16/sr8)), 5)",
    ":chunked(8, interleaved(2, pairwise(e5m2/sr8, 2)), bf16/rtz)", ":promote(e5m10, 4, fp32)",
    ":splitk(2, chunked(5, fp32, fp64/rtz), bf16)", ":chunked(4, binary8p1, e5m10/srb8)", ":chunked(16, e4m3, fp32)",
    ":pairwise(chunked(2, e5m10/sr8, e5m2/sr8), 2), arithmetic=fp32",
]  # fmt: skip
SCHEDULED = [
    ":splitk(3, e5m10, bf16/via(fp32), grain=8, partial=fp32)", ":splitk([9, 4, 3], kahan(e5m10), tree(((2+0)+1), e6m9))",
    ":splitk(2, bf16/sr8, fp32/sr20, grain=4, partial=e5m10/sr4, share=floor)",
    ":interleaved(4, chunked(2, e5m10, bf16), combine=halves, width=3)", ":pairwise(bf16/sr8, 3, pairs=halves)",
    ":interleaved(8, fused(8, 25, a=fp16, first=16), combine=interleaved(3, fp32, combine=bf16/sr8), width=2)",
    ":chunked(5, e5m10, kahan(e5m10))", ":promote(hw(hopper, wgmma, e4m3), 8, neumaier(fp32))",
    ":shuffled(promote(chunked(2, bf16), 8, two_sum(e5m10)), 3)", ":chunked(3, exact(fp32), fast_two_sum(bf16/rtz))",
    ":hw(hopper, mma, fp16, first=32)", ":hw(cdna2, mfma, bf16, first=16)", ":hw(ampere, mma, fp64, out=fp64, first=8)",
    ":fused(4, 12, first=8)", ":splitk(2, pairwise(e5m10, 2), chunked(2, fp32, pairwise(e5m10)), partial=fp16)",
    "int8 : interleaved(3, int(20, saturate), combine=halves, width=2)",
]  # fmt: skip
RUNS = [
    ":kahan(bf16)", ":neumaier(e5m10)", ":two_sum(e5m2)", ":fast_two_sum(e6m9, mul=e5m10)", ":kahan(e5m10/sr8)",
    ":two_sum(e5m10/sr8, mul=e4m3/sr20)", ":neumaier(fp32)", ":kahan(fp64)", ":kahan(e5m10), arithmetic=fp32",
    ":binned(fp32)", ":chunked(4, binned(e5m2/sr8, carry=2), e5m10/sr8)", ":exact(fp32)", ":chunked(4, exact(bf16/sr8), e5m10/sr8)", "e4m3 : exact(fp64)",
    "int8 : int(24)", "int8 : int(12, wrap)", "int8 : int(12, saturate)", "int4 : int(7, saturate, when=end)",
    "int8 : int(40, wrap, signed=False)", "int8 : chunked(4, int(12, saturate), fp32)", "int16 : int(20, wrap, shift=3)",
    "int16*int8 : int(32, saturate)", "int16*int8 : int(32, wrap)", ":fixed(16, 8)", ":fixed(24, 12, rounding=rne)",
    ":fixed(16, 8, rounding=sr8)", ":fixed(16, 8, overflow=wrap)",
]  # fmt: skip
CHIPS = [
    ":hw(hopper, wgmma, e4m3)", ":hw(hopper, wgmma, bf16)", ":hw(hopper, wgmma, fp16, out=fp16)", ":hw(volta, mma, fp16)",
    ":promote(hw(hopper, wgmma, e4m3), 8, fp32)", ":hw(ampere, mma, tf32)", ":hw(cdna2, mfma, bf16)",
    ":hw(hopper, mma, e4m3, e5m2)", ":hw(blackwell, mma, e5m2, out=fp16)", ":hw(blackwell, tcgen05, e3m2, e2m1)",
    ":hw(cdna3, mfma, fp16)", ":hw(cdna1, mfma, fp16)", ":hw(cdna1, mfma, bf16)", ":hw(cdna3, mfma, e4m3fnuz)", ":hw(ampere, mma, fp64, out=fp64)",
]  # fmt: skip
