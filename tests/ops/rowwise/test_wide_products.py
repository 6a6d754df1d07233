"""Products whose exact value double does not hold: rounded once all the same."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

import gemmsim as gs
from gemmsim.backends import cpu
from gemmsim.formats import parse_cast
from gemmsim.reference import round_value


def hard_pairs(p: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of 40 bits whose products lie near the midpoints of formats of ``p`` bits, and random ones."""
    generator = torch.Generator().manual_seed(p)
    x = 1 + torch.randint(0, 1 << 39, (400,), generator=generator).double() * 2.0**-39
    # y makes x * y a midpoint up to y's own rounding, which leaves a rest far below double's last place
    target = 1 + (2 * torch.randint(0, 1 << (p - 1), (400,), generator=generator) + 1).double() * 2.0**-p
    return torch.cat([x, x]), torch.cat([target / x, torch.randn(400, generator=generator, dtype=torch.float64)])


@pytest.mark.parametrize("isa", cpu.ISAS)
@pytest.mark.parametrize("text", ["e8m30", "e8m30/rtz", "e11m45", "e8m26/ru"])
def test_products_of_wide_numbers_are_rounded_once(text: str, isa: str) -> None:
    before = cpu.isa()
    try:
        cpu.set_isa(isa)
    except cpu.LibraryError:
        pytest.skip(f"no {isa} here")
    try:
        cast = parse_cast(text)
        x, y = hard_pairs(cast.format.p)
        got = gs.qmul(x, y, text).tolist()
    finally:
        cpu.set_isa(before)
    exact = [Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert got == [round_value(v, cast) for v in exact]
