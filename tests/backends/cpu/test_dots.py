"""Ten thousand dot products of each accumulator equal the reference bit for bit, on every instruction set.

Short ones (K from 0 to 9, so that chunks, lanes, leaves and slices are ragged), because the reference is slow; over
operands that reach subnormals, overflow, ties, zeros of both signs, infinities and NaN.
"""

from __future__ import annotations

import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import KINDS, assert_equals_reference, operand

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

DOTS = 10_000
M, N = 12, 37
KS = [1, 2, 3, 4, 5, 7, 9]
#: The variants of each constructor, used in turn.
VARIANTS = {
    "sequential": "e5m10 bf16 e4m3/rtz e5m2/sr8 e5m10/ftz fp32 e6m9/sat fp64 e8m7/ru fixed(12,6)/rna".split(),
    "sequential with mul": """sequential(e5m10, mul=e5m10); sequential(bf16, mul=e4m3/rtz); sequential(fp32, mul=bf16)
        sequential(e5m2/sr8, mul=e5m10/sr20); sequential(e4m3/sat, mul=e5m2/rd); sequential(fp64, mul=fp32)""",
    "chunked": """chunked(2, e5m10); chunked(3, bf16, fp32); chunked(4, e4m3/sat, e5m10/rtz); chunked(2, e5m2/sr8, bf16/sr4)
        chunked(3, kahan(bf16), fp32); chunked(5, fp32); chunked(3, sequential(e5m10/ftz, mul=e4m3))""",
    "promote": "promote(e4m3, 2, fp32); promote(bf16/rtz, 3, e5m10); promote(e5m2/sr8, 4, fp64); promote(e5m10/ftz, 2)",
    "pairwise": "pairwise(e5m10); pairwise(bf16, 2); pairwise(e4m3/sat, 3); pairwise(e5m2/sr8); pairwise(fp32/rd, 4)",
    "interleaved": """interleaved(2, e5m10); interleaved(4, bf16, combine=pairwise); interleaved(3, e4m3/rtz)
        interleaved(3, e5m2/sr8, combine=pairwise); interleaved(16, fp32)""",
    "splitk": "splitk(2, e5m10, bf16); splitk(3, fp32, fp32); splitk(4, e5m2/sr8, e4m3/sr4); splitk(2, e4m3/sat, e5m10/rtz)",
    "shuffled": "shuffled(e5m10, 1); shuffled(pairwise(bf16), 2); shuffled(e5m2/sr8, 3); shuffled(neumaier(e4m3), 4)",
    "kahan": "kahan(e5m10); kahan(bf16); kahan(fp32); kahan(e4m3/rtz); kahan(e5m2/sr8); kahan(e5m10/sat, mul=bf16)",
    "neumaier": """neumaier(e5m10); neumaier(bf16); neumaier(fp32); neumaier(e4m3/ru); neumaier(e5m2/sr8)
        neumaier(e5m10/ftz, mul=e4m3)""",
    "two_sum": "two_sum(e5m10); two_sum(bf16); two_sum(fp32); two_sum(e4m3/sat); two_sum(e5m2/sr8); two_sum(fp32, mul=bf16)",
    "fast_two_sum": """fast_two_sum(e5m10); fast_two_sum(bf16); fast_two_sum(fp32); fast_two_sum(e4m3/rna)
        fast_two_sum(e5m2/sr8); fast_two_sum(bf16, mul=bf16)""",
    "exact": "exact(fp32); exact(e5m2/sr8); exact(e4m3/rd); exact(fp64); exact(fixed(12,4)); exact(e5m10/ftz)",
    "binned": "binned(fp32); binned(bf16, carry=1); binned(e5m2/sr8, carry=2); binned(e4m3/sat, carry=3); binned(fp64)",
    "int": """int(8); int(16, saturate); int(12, when=end); int(10, saturate, when=end); int(14, signed=false, shift=2)
        int(32); int(4, saturate, shift=3); chunked(2, int(12), fixed(14,0))""",
    "fixed": """fixed(12, 4, rounding=rtz); fixed(16, 8, rounding=rne, overflow=wrap); fixed(8, 2, rounding=sr8)
        fixed(24, 12, rounding=rna); fixed(10, -2, rounding=rd); pairwise(fixed(9, 3, rounding=rne), 2)""",
}


def variants(name: str) -> list[str]:
    listed = VARIANTS[name]
    if isinstance(listed, list):
        return listed
    return [text.strip() for text in listed.replace("\n", ";").split(";") if text.strip()]


def operands(rng: random.Random, k: int, integer: bool) -> tuple[torch.Tensor, torch.Tensor]:
    kinds = ["normal", "small", "relu"] if integer else KINDS
    a, b = (operand(rng, *shape, torch.float32, rng.choice(kinds)) for shape in ((M, k), (k, N)))
    if integer:
        return (a * 20).round(), (b * 20).round()
    for x in (a, b):
        x.view(-1)[rng.randrange(x.numel())], x.view(-1)[rng.randrange(x.numel())] = -0.0, 0.0
    return a, b


@pytest.mark.parametrize("name", VARIANTS)
def test_ten_thousand_dots_equal_the_reference(name):
    rng, done, integer = random.Random(name), 0, name == "int"
    found = variants(name)
    for turn in range(10_000):
        if done >= DOTS:
            break
        spec = GemmSpec.of(f":{found[turn % len(found)]}")
        a, b = operands(rng, rng.choice(KS), integer)
        seed = rng.randrange(1 << 63)
        assert_equals_reference(spec, a, b, seed)
        done += a.shape[0] * b.shape[1]
    assert done >= DOTS and turn > 2 * len(found)


def test_no_terms_are_zero():
    for name in VARIANTS:
        for text in variants(name):
            out = torch.full((2, 3), 7.0)
            cpu.gemm(torch.empty(2, 0), torch.empty(0, 3), GemmSpec.of(f":{text}"), out)
            assert_bitwise_equal(out, torch.zeros(2, 3), context=text)
