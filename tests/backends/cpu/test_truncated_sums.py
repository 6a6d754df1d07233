"""Plain registers whose sums are cut by their bits (cutlass_kernels/cpu/tiles/nearest/truncated.h), with exceptions that are rare.

Rows are looked at four at a time, and an exception sends them, or the eight of a tile, another way for a while: here it is planted
in some rows only. test_speculative.py has data that are exceptions throughout.
"""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

ROWS, TERMS, COLUMNS = 15, 150, 17  # rows of a tile, four more, two and one; terms beyond the first other way
GROUPS = {"first four": range(4), "second four": range(4, 8), "next four": range(8, 12), "others": range(12, 15)}
GROUPS["all"] = range(ROWS)
#: Half of a last place is added times this: a midpoint, and what float32 rounds to one from below and from above.
NEAR = (1.0, 1 + 2.0**-23, 1 - 2.0**-24)


def small(bits: int) -> tuple[float, ...]:
    """What sums become, in units of the smallest normal number: on midpoints below it, beside them, and that number."""
    half = 2.0**-bits
    return 1 - half / 2, 1 - half, 1 - 3 * half, half, 3 * half, -half / 2, 1.0


def planted(
    spec: GemmSpec, bits: int, emin: int | None, rows: range, c: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands whose sums of column 0 meet an exception at every ninth step, in these rows."""
    g = torch.Generator().manual_seed(bits + 31 * rows.start + rows.stop)
    scale = 1.0 if emin is None else 2.0 ** (emin + 6)
    a = torch.randn(ROWS, TERMS, generator=g) * scale
    b = torch.randn(TERMS, COLUMNS, generator=g)
    a[:, 0], b[0] = 1.5 * scale, 1.0
    chosen = list(rows)
    for k in range(5, TERMS, 9):
        addend = None if c is None else c[chosen, :1].tolist()
        s = torch.tensor(reference.gemm(a[chosen, :k].tolist(), b[:k, :1].tolist(), spec, c=addend))[:, 0].double()
        if emin is None or k % 2:
            b[k, 0] = NEAR[k // 9 % 3]
            a[chosen, k] = (torch.exp2(torch.frexp(s)[1].double() - 1 - bits) * torch.sign(s)).float()
        else:
            b[k, 0] = 1.0
            a[chosen, k] = (small(bits)[k // 18 % 7] * 2.0**emin - s).float()
    return a, b


@pytest.mark.parametrize("rows", GROUPS)
@pytest.mark.parametrize("text, bits, emin", [(":e5m10", 11, -14), (":bf16", 8, None), (":e5m7", 8, -14), (":e6m9", 10, -30),
                                              (":e4m9/sat", 10, -6), (":e8m10", 11, None), (":e8m12", 13, None), (":e5m10/ftz", 11, -14), (":e5m10/rtz", 11, -14),
                                              (":e5m10, arithmetic=fp32", 11, -14), (":chunked(75, e5m10)", 11, -14), (":e5m12", 13, -14),
                                              (":sequential(e5m10, init=c_first)", 11, -14)])  # fmt: skip
def test_rare_exceptions(text, bits, emin, rows):
    spec = GemmSpec.of(text)
    c = torch.linspace(-0.05, 0.05, ROWS * COLUMNS).view(ROWS, COLUMNS) if "c_first" in text else None
    a, b = planted(spec, bits, emin, GROUPS[rows], c)
    addend = None if c is None else c.tolist()
    want = torch.tensor(reference.gemm(a.tolist(), b.tolist(), spec, c=addend), dtype=torch.float64)
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(ROWS, COLUMNS, dtype=torch.float64)
        cpu.gemm(a, b, spec, out, 0, c)
        assert_bitwise_equal(out, want, context=f"{text}, {rows}, {name}")
