"""explain(): every fact of the spec is there, in a few aligned lines."""

import pytest

import gemmsim as gs
from gemmsim import acc
from gemmsim.arithmetic import GemmSpec


def test_whole_text_of_a_common_spec():
    assert GemmSpec.of("e4m3 : e5m10").explain() == (
        "spec        e4m3 : e5m10\n"
        "operands    a and b rounded to e4m3 (max 448), to nearest, ties to even\n"
        "product     exact (fused multiply-add)\n"
        "each step   s = R(s + a*b), one rounding to e5m10 (max 65504), to nearest, ties to even\n"
        "order       sequential, k ascending from +0\n"
        "overflow    e4m3: to NaN (no infinity in the format)\n"
        "            e5m10: to infinity\n"
        "output      the accumulator's value, then to nearest even in the output tensor's dtype\n"
        "arithmetic  exact: every rounding happens once, from the exact value"
    )


def test_every_part_shows():
    text = GemmSpec.of(
        "* e2m1 : sequential(bf16/sr8, mul=fixed(8,4)/rtz, seed=3, init=c_last) -> binary8p3uf/sat"
    ).explain()
    for fragment in [
        "operand a   as given",
        "operand b   rounded to e2m1 (max 6)",
        "q = R(a*b), rounded to fixed(8,4) (max 7.9375, min -8), toward zero",
        "s = R(s + q), to e8m7 (max 3.38953139e+38), stochastic",
        "then C as one more addend",
        "fixed(8,4): saturates",
        "e2m1: to the largest value",
        "unsigned",
        "8 random bits per rounding, Philox4x32-10, seed 3",
    ]:
        assert fragment in text, text


def test_arithmetic_and_seed_words():
    text = GemmSpec.of(":e5m10/sr4, arithmetic=fp32").explain()
    assert "first rounded to binary32" in text
    assert "4 random bits per rounding" in text and "a new seed at each call" in text
    assert "random" not in GemmSpec.of(":e5m10").explain()


def test_accumulators_explain_themselves():
    text = acc.sequential("e5m10/sat").explain()
    assert text.startswith("accumulator e5m10/sat") and "saturates" in text and "sequential" in text


@pytest.mark.parametrize(
    "spec, words",
    [
        ("e4m3 : e5m10", "dgrad :e5m10 and the same for wgrad: the gradient is not rounded to an operand format"),
        (":bf16", "dgrad :e8m7 and the same for wgrad"),
        ("hw(hopper, wgmma, e4m3)", "and the same for wgrad: the gradient is rounded to e4m3"),
        (
            "hw(hopper, wgmma, e4m3, e5m2)",
            "wgrad e5m2 * e4m3 : hw(hopper, wgmma, e5m2, e4m3): the gradient is rounded to e4m3",
        ),
        ("mxfp8_e4m3 : fp32", "every operand is encoded again, including the gradient"),
        (":palette(e5m10, bf16)", "none: select applies to the forward product only"),
    ],
)
def test_what_becomes_of_gradients(spec, words):
    """The line says what ``QAffineFormats.of`` makes of the spec."""
    (line,) = [line for line in gs.explain(spec).splitlines() if line.startswith("backward")]
    assert words in line
