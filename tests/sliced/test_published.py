"""What is known of each scheme's accuracy, on fixed seeds.

Figures were measured here unless a source is named; intervals are several times as wide as the figures' spread over
five seeds (docs/howto/sliced.md).
"""

from __future__ import annotations

import math

import pytest
import torch

import gemmsim as gs
from gemmsim import sliced

SEEDS = [0, 1]


def relative(y: torch.Tensor, t: torch.Tensor) -> float:
    return float((y.double() - t).norm() / t.norm())


def normal(m: int, k: int, n: int, seed: int, dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(m, k, generator=g, dtype=dtype), torch.randn(k, n, generator=g, dtype=dtype)


@pytest.mark.parametrize("seed", SEEDS)
def test_bf16_slices_recover_float32_product_by_product(seed):
    """Henry, Tang, Heinecke 2019: x3 has about 16 bits, x6 what float32 has, x9 hardly more."""
    a, b = normal(64, 1024, 64, seed)
    want = gs.truth(a, b).value
    figures = {(1, 1): 2.34e-3, (2, 3): 4.4e-6, (3, 6): 3.7e-8, (3, 9): 3.6e-8}
    found = {key: relative(sliced.bf16(*key)(a, b), want) for key in figures}
    for key, figure in figures.items():
        assert 0.9 * figure < found[key] < 1.1 * figure, key
    assert found[3, 9] < found[3, 6] < relative(gs.qmatmul(a, b, ":fp32"), want) / 5
    for products in (6, 9):
        for joined in (False, True):
            cutting = sliced.bf16(3, products, spec=":hw(hopper, wgmma, bf16)", joined=joined)
            assert 0.9e-6 < relative(cutting(a, b), want) < 1.1e-6, "a register that cuts off stops them"


@pytest.mark.parametrize("seed", SEEDS)
def test_tf32x3_needs_its_sum_outside_of_the_tensor_core(seed):
    """Ootomo, Yokota 2022: the register's truncation is what Markidis' way loses; inside, the error grows like K."""
    g = torch.Generator().manual_seed(seed)
    inside = {256: 8.4e-7, 1024: 3.3e-6, 4096: 1.25e-5, 16384: 5e-5}
    outside = {256: 1.3e-7, 1024: 2.2e-7, 4096: 4.1e-7, 16384: 8.5e-7}
    for k in inside:
        a, b = torch.rand(16, k, generator=g) * 2 - 1, torch.rand(k, 16, generator=g) * 2 - 1
        want = gs.truth(a, b).value
        cut, kept = relative(sliced.tf32x3("inside")(a, b), want), relative(sliced.tf32x3("outside")(a, b), want)
        assert 0.85 * inside[k] < cut < 1.15 * inside[k]
        assert 0.75 * outside[k] < kept < 1.25 * outside[k]
        assert kept < 0.6 * relative(gs.qmatmul(a, b, ":fp32"), want), "below a chain of fp32"


def largest(scheme: sliced.Sliced | str, a: torch.Tensor, b: torch.Tensor) -> float:
    """max of error / sum of \\|a b\\|."""
    got = gs.qmatmul(a, b, scheme) if isinstance(scheme, str) else scheme(a, b)
    return float(((got - gs.truth(a, b, at_most=0).value).abs() / (a.abs() @ b.abs())).max())


@pytest.mark.parametrize("seed", SEEDS)
def test_int8_slices_gain_nearly_seven_bits_each(seed):
    a, b = normal(64, 1024, 64, seed, torch.float64)
    errors = {n: largest(sliced.ozaki_int8(n), a, b) for n in range(2, 9)}
    for n in range(3, 9):
        assert -7.2 < math.log2(errors[n] / errors[n - 1]) < -6
    plain = largest(":fp64", a, b)
    assert errors[8] < plain < errors[7], "36 products are below a chain of fp64, 28 are not"
    single = sliced.ozaki_int8(4, "fp32")(a.float(), b.float())
    assert (
        single.dtype is torch.float32 and largest(sliced.ozaki_int8(4, "fp32"), a.float(), b.float()) <= 1.01 * 2.0**-24
    )


@pytest.mark.parametrize(("phi", "figure"), [(0.5, 4e-16), (1, 9e-15), (2, 8e-13), (4, 2e-9)])
def test_wide_rows_cost_slices(phi, figure):
    """Median of five draws: the largest error of one is itself spread over a factor ten."""
    found = []
    for seed in range(5):
        g = torch.Generator().manual_seed(seed)
        wide = [
            (torch.rand(*shape, generator=g, dtype=torch.float64) - 0.5)
            * torch.exp(phi * torch.randn(*shape, generator=g, dtype=torch.float64))
            for shape in ((32, 1024), (1024, 32))
        ]
        found.append(largest(sliced.ozaki_int8(8), *wide))
    assert figure / 3 < sorted(found)[2] < figure * 3, found
