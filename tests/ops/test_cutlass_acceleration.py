"""``cutlass_acceleration`` beside ``cublas_acceleration``: which library is asked where both are entered, and what CPU
tensors are told."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.backends.acceleration import asked, current

A, B = torch.linspace(-2, 2, 60).view(6, 10), torch.linspace(-1, 3, 40).view(10, 4)
Cublas, Cutlass = gs.cublas_acceleration, gs.cutlass_acceleration


@pytest.fixture(autouse=True)
def _off():
    assert asked() is None
    yield
    assert asked() is None


def libraries():
    return None if current() is None else current().library, Cublas.enabled, Cutlass.enabled


def test_the_innermost_that_is_on_is_asked():
    with Cublas(True, "tf32"):
        with Cutlass():
            assert libraries() == ("cutlass", False, True) and Cublas.fast_mode == "tf32"
            with Cublas(False):
                assert libraries() == ("cutlass", False, True)
            with Cublas(True):
                assert libraries() == ("cublas", True, False)
                with Cublas(False):
                    assert libraries() == ("cutlass", False, True), "an outer one is on still"
            with Cutlass(False):
                assert libraries() == ("cublas", True, False)
                with Cublas(False):
                    assert libraries() == (None, False, False)
        assert libraries() == ("cublas", True, False)


def test_enable_and_disable_of_both():
    Cublas.enable(True, "tf32")
    Cutlass.enable()
    assert libraries() == ("cutlass", False, True) and Cublas.fast_mode == "tf32"
    Cutlass.disable()
    assert libraries() == ("cublas", True, False)
    Cutlass.enabled = True
    Cublas.disable()
    assert libraries() == ("cutlass", False, True)
    Cutlass.enabled = False
    assert asked() is None
    with Cublas(True):
        Cutlass.enable()
        assert libraries() == ("cutlass", False, True)
        Cutlass.disable()
        Cutlass.enable()
        with Cutlass(False):
            assert libraries() == ("cublas", True, False)
        assert libraries() == ("cutlass", False, True)
    assert asked() is None, "what was enabled inside ends with the block"


def test_one_object_may_be_entered_again_and_decorates():
    one = Cutlass()
    with one, one:
        Cublas.enable()
        assert libraries() == ("cublas", True, False)

    @one
    def inside():
        return libraries()

    assert inside() == ("cutlass", False, True) and repr(one) == "cutlass_acceleration(True)" and one.enabled


def test_tensors_of_the_cpu_keep_their_bits_and_are_told_why():
    want = gs.qmatmul(A, B, "bf16 : fp32")
    with Cutlass():
        got = gs.qmatmul(A, B, "bf16 : fp32")
        plan = gs.last_backend().plan
        blocks = gs.mx.matmul(A.repeat(1, 4), B.repeat(4, 1), "fp32", a_format="mxfp8_e4m3", b_format="mxfp4")
        assert "cutlass_acceleration refused: " in gs.last_backend().plan
    assert_bitwise_equal(got, want)
    assert "cutlass_acceleration refused: CUTLASS runs on GPUs of compute capability 9.0, not on cpu" in plan
    wanted = gs.mx.matmul(A.repeat(1, 4), B.repeat(4, 1), "fp32", a_format="mxfp8_e4m3", b_format="mxfp4")
    assert_bitwise_equal(blocks, wanted)


def test_gradients_are_asked_of_the_library_of_their_forward_product():
    x = A.clone().requires_grad_()
    with Cutlass():
        y = gs.qmatmul(x, B, "bf16 : fp32")
    y.sum().backward()
    assert "cutlass_acceleration refused" in gs.last_backend().plan


def test_words():
    with pytest.raises(gs.SpecError, match=r"cutlass_acceleration: enabled='bf16'; allowed: True or False"):
        Cutlass("bf16")
    assert "cutlass: mainloop e4m3 by e4m3, promoted every 128 terms, on Hopper" in gs.explain("e4m3 : fp32")
    assert "cutlass: mainloop bf16 by bf16 of the operands' values, if bfloat16 holds them" in gs.explain(
        "mxfp4 : fp32"
    )
    for other in (":e5m10", "mxfp8_e4m3 : e5m10", "mxfp8_e4m3 * bf16 : fp32", "mxfp8_e4m3 : scaled(fp32)"):
        assert "cutlass" not in gs.explain(other)
