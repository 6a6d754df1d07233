"""Accumulators of every kind, with what is known about each: what tests that hold for all of them run over."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gemmsim.arithmetic import GemmSpec


@dataclass(frozen=True)
class Case:
    """A spec; whether its operands must be integers, and whether negated operands negate the result (zeros apart)."""

    text: str
    integer: bool = False
    symmetric: bool = True

    @property
    def stochastic(self) -> bool:
        """Whether it draws random bits, which belong to global rows and columns."""
        return GemmSpec.of(self.text).is_stochastic

    def __str__(self) -> str:
        return self.text


CASES = [
    *map(Case, ":e5m10 :bf16 :fp32 :e5m2/sat :e4m3 :e5m10/ftz :e6m9/rna :e5m10/rtz :e11m40".split()),
    Case(":bf16/ru", symmetric=False),
    Case(":mul=e5m10, add=bf16"),
    Case(":e5m2/sr8"),
    Case(":mul=e4m3/sr20, add=e5m10/sr4"),
    Case(":e5m10, arithmetic=fp32"),
    Case(":chunked(8, e5m10)"),
    Case(":chunked(5, bf16, fp32)"),
    Case(":chunked(4, e5m2/sr8, e5m10/sr8)"),
    Case(":promote(e4m3, 16)"),
    Case(":pairwise(e5m10)"),
    Case(":pairwise(bf16/sr8, 3)"),
    Case(":interleaved(16, e5m10)"),
    Case(":interleaved(5, e5m2/sr8, combine=pairwise)"),
    Case(":splitk(3, e5m10, bf16)"),
    Case(":shuffled(chunked(8, e5m10), 7)"),
    Case(":chunked(12, pairwise(kahan(e5m2), 4), bf16)"),
    Case(":kahan(e5m10)"),
    Case(":neumaier(bf16)"),
    Case(":two_sum(e4m3, mul=e5m2)"),
    Case(":fast_two_sum(fp32)"),
    Case(":kahan(e5m2/sr8)"),
    Case(":exact(bf16)"),
    Case(":chunked(8, exact(e5m2/sr8))"),
    Case(":binned(e5m2, carry=2)", symmetric=False),
    Case(":chunked(9, binned(e5m2/sr8, carry=1), e5m10)", symmetric=False),
    Case(":int(32)", integer=True),
    Case(":int(10)", integer=True, symmetric=False),
    Case(":int(10, saturate)", integer=True, symmetric=False),
    Case(":int(12, when=end, shift=2)", integer=True, symmetric=False),
    Case(":chunked(8, int(10), fixed(16,0))", integer=True, symmetric=False),
    Case(":fixed(12, 4, rounding=rne)", symmetric=False),
    Case(":fixed(12, 4, rounding=sr8, overflow=wrap)", symmetric=False),
    Case(":hw(hopper, wgmma, bf16)"),
    Case(":hw(hopper, wgmma, e4m3)"),
    Case(":hw(cdna3, mfma, fp16)", symmetric=False),
    Case(":fused(16, 20, e5m10/rtz)"),
    Case(":fused(8, exact, bf16)"),
    Case(":chunked(24, fused(16, 50, fp32), bf16)"),
    Case(":splitk(3, e5m10, bf16/via(fp32), grain=8, partial=fp32)"),
    Case(":splitk(2, bf16/sr8, fp32, grain=4, partial=e5m10/sr4, share=floor)"),
    Case(":splitk([9, 4, 3], kahan(e5m10), tree(((2+0)+1), e6m9))"),
    Case(":interleaved(4, e5m10, combine=halves, width=3)"),
    Case(":interleaved(8, fused(8, 25, a=fp16, first=16), combine=interleaved(3, fp32, combine=bf16/sr8), width=2)"),
    Case(":pairwise(bf16, 3, pairs=halves)"),
    Case(":chunked(5, e5m10, kahan(e5m10))"),
    Case(":shuffled(promote(chunked(2, bf16), 8, two_sum(e5m10)), 3)"),
    Case(":hw(hopper, mma, fp16, first=32)"),
]


def operands(
    case: Case, m: int, k: int, n: int, seed: int = 0, wide: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 operands for ``case``: normal ones (integers where it needs them); ``wide``: of very different size,
    with subnormals of small formats, overflows and zeros of both signs."""
    g = torch.Generator().manual_seed(1000 * m + seed)
    pair = []
    for shape in ((m, k), (k, n)):
        x = torch.randn(*shape, generator=g)
        if case.integer:
            x = (x * 40).round()
        elif wide:
            x = x * torch.exp2(torch.randint(-14, 12, shape, generator=g).float())
            x[torch.rand(shape, generator=g) < 0.1] = 0.0
            x[torch.rand(shape, generator=g) < 0.1] = -0.0
        pair.append(x)
    return pair[0], pair[1]
