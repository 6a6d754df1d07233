"""Random bits: repeatable by seed and by ``torch.manual_seed``, drawn only when needed."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs

A, B = torch.randn(8, 32, generator=torch.Generator().manual_seed(1)), torch.eye(32)
#: (name, call) of everything that can draw; each call makes one tensor.
STOCHASTIC = {
    "quantize": lambda seed: gs.quantize(A, "e5m2/sr8", seed=seed),
    "qmatmul": lambda seed: gs.qmatmul(A, B, ":e5m2/sr8", seed=seed),
    "qmatmul, operand cast": lambda seed: gs.qmatmul(A, B, "e5m2/sr8 : fp32", seed=seed),
    "qmatmul, grad": lambda seed: gs.qmatmul(A.clone().requires_grad_(), B, "e5m2/sr8 : e5m4/sr8", seed=seed).detach(),
    "qmm": lambda seed: gs.qmm(A, B, ":e5m2/sr8", seed=seed),
    "qlinear": lambda seed: gs.qlinear(A, B, None, ":e5m2/sr8", seed=seed),
    "qlinear, quantisers": lambda seed: gs.qlinear(
        A, B, B[0], gs.QAffineFormats("e5m10", output_quant="e5m2/sr8"), seed=seed
    ),
}


def drawn_from_the_generator(call) -> bool:
    before = torch.get_rng_state()
    call()
    return not torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", STOCHASTIC)
def test_a_seed_fixes_the_result_and_another_changes_it(name):
    call = STOCHASTIC[name]
    first = call(7)
    assert_bitwise_equal(call(7), first)
    assert not torch.equal(call(8), first)
    assert not torch.equal(call(2**64 - 1), first)
    assert not drawn_from_the_generator(lambda: call(7))


@pytest.mark.parametrize("name", STOCHASTIC)
def test_without_a_seed_torch_manual_seed_decides(name):
    call = STOCHASTIC[name]
    torch.manual_seed(3)
    first, second = call(None), call(None)
    torch.manual_seed(3)
    assert_bitwise_equal(call(None), first)
    assert_bitwise_equal(call(None), second)
    assert not torch.equal(first, second)


def test_deterministic_calls_leave_the_generator_alone():
    x = A.clone().requires_grad_()
    assert not drawn_from_the_generator(lambda: gs.quantize(A, "e5m2"))
    assert not drawn_from_the_generator(lambda: gs.qmatmul(A, B, "e4m3 : e5m10"))
    assert not drawn_from_the_generator(lambda: gs.qmatmul(x, B, "e4m3 : e5m10").sum().backward())
    assert not drawn_from_the_generator(lambda: gs.quantizer("e5m2", "e5m2")(x).sum().backward())
    assert not drawn_from_the_generator(lambda: gs.qmatmul(x, B, ":sequential(e5m2/sr8, seed=3)").sum().backward())


def test_whether_a_gradient_is_wanted_does_not_change_the_forward_pass():
    spec = "e5m2/sr8 * e4m3/sr4 : mul=e5m4/sr8, add=e5m4/sr8"
    torch.manual_seed(3)
    plain = gs.qmatmul(A, B, spec)
    torch.manual_seed(3)
    assert_bitwise_equal(gs.qmatmul(A.clone().requires_grad_(), B, spec).detach(), plain)


def test_a_seed_in_the_spec_comes_first():
    want = gs.qmatmul(A, B, ":e5m2/sr8", seed=3)
    assert_bitwise_equal(gs.qmatmul(A, B, ":sequential(e5m2/sr8, seed=3)"), want)
    assert_bitwise_equal(gs.qmatmul(A, B, ":sequential(e5m2/sr8, seed=3)", seed=99), want)


def test_steps_of_a_layer_have_seeds_of_their_own():
    seeds = {gs.ops.derive_seed(5, stream) for stream in gs.ops.Stream}
    assert len(seeds) == len(gs.ops.Stream) and gs.ops.derive_seed(5, gs.ops.Stream.FPROP) == 5
    formats = gs.QAffineFormats(fprop=":fp32", input_quant="e5m2/sr8", weight_quant="e5m2/sr8")
    got = gs.qlinear(A, A, None, formats, seed=5)
    x = gs.quantize(A, "e5m2/sr8", seed=gs.ops.derive_seed(5, gs.ops.Stream.INPUT))
    w = gs.quantize(A, "e5m2/sr8", seed=gs.ops.derive_seed(5, gs.ops.Stream.WEIGHT))
    assert not torch.equal(x, w)
    assert_bitwise_equal(got, gs.qmatmul(x, w.mT, ":fp32"))


def test_splitmix64_known_answers():
    """First outputs of splitmix64 from state 0 (reference implementation by S. Vigna)."""
    assert gs.ops.derive_seed(0, 1) == 0xE220A8397B1DCDAF
    assert gs.ops.derive_seed(0, 2) == 0x6E789E6AA1B965F4
    assert gs.ops.derive_seed(0, 3) == 0x06C45D188009454F


def test_formats_can_fix_the_seed_of_all_steps():
    formats = gs.QAffineFormats("e5m2", "e5m2", "sr", "sr", input_quant="e5m2/sr8", grad_quant="e5m2/sr8", seed=4)

    def run():
        x, w = A.clone().requires_grad_(), B.clone().requires_grad_()
        y = gs.qlinear(x, w, None, formats)
        y.backward(torch.ones_like(y) / 3)
        return y.detach(), x.grad, w.grad

    assert not drawn_from_the_generator(run)
    for first, second in zip(run(), run(), strict=True):
        assert_bitwise_equal(first, second)


def test_the_mean_of_stochastic_rounding_is_the_value():
    x = torch.full((100_000,), 1.3)
    mean = gs.quantize(x, "e5m2/sr16", seed=0).double().mean().item()
    # Two neighbours 0.25 apart with P(up) = floor(0.2 * 2^16) / 2^16: standard error 0.25 * 0.4 / sqrt(n).
    up = int((1.3 - 1.25) / 0.25 * 2**16) / 2**16
    assert abs(mean - (1.25 + 0.25 * up)) < 4 * 0.25 * (up * (1 - up) / 100_000) ** 0.5
