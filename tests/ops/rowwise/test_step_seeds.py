"""Under one seed every step of an operation rounds with random bits of its own."""

from __future__ import annotations

import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.ops.rowwise.elementwise import StepChain
from gemmsim.ops.seeds import Bits

HALFWAY = torch.full([4096], 1 + 2.0**-11)  # between two neighbours of e5m10


def ups(y: torch.Tensor) -> torch.Tensor:
    return (y > HALFWAY).double()


def test_steps_of_a_chain_draw_independently() -> None:
    chain = StepChain("test", "e5m10/sr24", "e5m10/sr24", "sequential", Bits(7))
    one, zero = torch.ones(()), torch.zeros(())
    draws = [ups(chain.add(HALFWAY, zero)), ups(chain.mul(HALFWAY, one)), ups(chain.div(HALFWAY, one))]
    for i, a in enumerate(draws):
        # A fair coin for each element: six standard deviations of the mean, sqrt(1/4 / 4096), are 0.047.
        assert abs(a.mean() - 0.5) < 0.047
        for b in draws[:i]:
            assert abs((a == b).double().mean() - 0.5) < 0.047


def test_first_step_has_the_bits_of_the_function_of_its_own() -> None:
    chain = StepChain("test", "e5m10/sr24", None, "sequential", Bits(7))
    zero = torch.zeros(())
    assert_bitwise_equal(chain.add(HALFWAY, zero), gs.qadd(HALFWAY, zero, "e5m10/sr24", seed=7))


def test_batch_norm_repeats_with_its_seed_and_only_with_it() -> None:
    x = torch.randn(16, 3, 5, generator=torch.Generator().manual_seed(1))

    def run(seed: int | None) -> list[torch.Tensor]:
        leaf, w, b = x.clone().requires_grad_(), torch.ones(3).requires_grad_(), torch.zeros(3).requires_grad_()
        mean, var = torch.zeros(3), torch.ones(3)
        y = gs.qbatchnorm(leaf, mean, var, w, b, True, 0.1, 1e-5, "e5m4/sr8", "e5m4/sr8", seed=seed)
        return [y.detach(), mean, var, *torch.autograd.grad(y, [leaf, w, b], x)]

    first, again, other = run(3), run(3), run(4)
    for a, b in zip(first, again, strict=True):
        assert_bitwise_equal(a, b)
    assert not torch.equal(first[0], other[0])
    torch.manual_seed(0)
    drawn = run(None)
    torch.manual_seed(0)
    for a, b in zip(drawn, run(None), strict=True):
        assert_bitwise_equal(a, b)
