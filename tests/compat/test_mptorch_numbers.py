"""Numbers and formats of gemmsim.compat.mptorch as values: their texts, copies, and what they refuse."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from gemmsim.compat.mptorch import number, quant


def test_numbers_are_values_with_their_texts():
    texts = {
        number.FixedPoint(8, 4): "FixedPoint (wl=8, fl=4)",
        number.FloatingPoint(5, 10): "FloatingPoint (exponent=5, mantissa=10)",
        number.SuperNormalFloat(4, 3, 1): "SuperNormalFloat (exponent=4, mantissa=3, binades=(1, 1))",
        number.BlockFloatingPoint(8): "BlockFloatingPoint (wl=8, dim=-1)",
        number.Binary8(3): "Binary8 (P=3, exp=5, man=2, signed=True, subnormals=True, overflow_policy=saturate_maxfloat2)",
    }  # fmt: skip
    for value, text in texts.items():
        assert repr(value) == str(value) == text
        assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value
    with pytest.raises(NotImplementedError):
        repr(number.Number())
    f = number.FloatingPoint(4, 3, subnormals=True)
    assert (f.normal_max, f.normal_min, f.subnormal_min, f.subnormal_max) == (240.0, 2.0**-6, 2.0**-9, 2.0**-6 * 0.875)
    assert number.FloatingPoint(4, 3).subnormal_min is None and number.FloatingPoint(8, 7).is_bfloat16
    s = number.SuperNormalFloat(4, 3, 1)
    assert (s.normal_max, s.supernormal_min, s.max_finite) == (64.0, 128.0, 8192.0)
    assert (
        number.Binary8(3).normal_max == 57344 and number.Binary8(4, overflow_policy="saturate_infty").normal_max == 224
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: number.FloatingPoint(9, 3),
        lambda: number.FloatingPoint(0, 3),
        lambda: number.FixedPoint(0, 3),
        lambda: number.SuperNormalFloat(4, 3, (1, 2, 3)),
        lambda: number.BlockFloatingPoint(8, -2),
        lambda: number.Binary8(3, overflow_policy="saturate"),
        lambda: number.Binary8(8),
        lambda: quant.float_quantize(torch.ones(1), 4, 3, rounding="neerest"),
        lambda: quant.quantizer(number.FloatingPoint(4, 3), clamping_grad_zero=True),
    ],
)
def test_bad_arguments_are_both_errors(make):
    for kind in (ValueError, AssertionError):
        with pytest.raises(kind):
            make()


def test_formats_show_what_they_are():
    f, g = number.FloatingPoint(5, 10), number.FloatingPoint(4, 3)
    assert repr(quant.QAffineFormats()) == "QAffineFormats (default_fwd, default_bwd, rbits_add=0, rbits_mul=0)"
    both = quant.QAffineFormats((f, g), (f,), rbits=(4, 8))
    assert repr(both) == (
        "QAffineFormats (fwd_mul=FloatingPoint (exponent=4, mantissa=3), fwd_add=FloatingPoint (exponent=5, mantissa=10), "
        "fwd_rnd=nearest, bwd_fma=FloatingPoint (exponent=5, mantissa=10), bwd_rnd=nearest, rbits_add=4, rbits_mul=8)"
    )
    assert (both.fwd_add, both.fwd_mul, both.fwd_fma, both.bwd_fma) == (f, g, False, True)
    for other in (pickle.loads(pickle.dumps(both)), copy.deepcopy(both)):
        assert other == both and other.fwd_mul == g
    assert quant.QAffineFormats(()).fwd_use_default_prec and both.with_arithmetic("fp32").fprop.arithmetic == "fp32"
    with pytest.raises(ValueError):
        quant.QSoftmaxFormats(f)
    assert quant.QSoftmaxFormats(f, fwd_lse=f).use_lse
    assert quant.QLayerNormFormats(f, f).fwd_use_default_prec
