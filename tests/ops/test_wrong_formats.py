"""What stands for a format and is none: a typed error that names what was given, also for values without a hash."""

from __future__ import annotations

import pytest
import torch

import gemmsim as gs
from gemmsim import mx
from gemmsim import nn as qnn

A, IMAGE, KERNEL = torch.ones(4, 8), torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3)

CALLS = {
    "qmatmul": lambda wrong: gs.qmatmul(A, A.mT, wrong),
    "qlinear": lambda wrong: gs.qlinear(A, A, None, wrong),
    "qconv2d": lambda wrong: gs.qconv2d(IMAGE, KERNEL, spec=wrong),
    "QLinear": lambda wrong: qnn.QLinear(3, 3, spec=wrong),
    "quantize": lambda wrong: gs.quantize(A, wrong),
    "qsum": lambda wrong: gs.qsum(A, 0, wrong),
    "qavgpool2d": lambda wrong: gs.qavgpool2d(IMAGE, 2, wrong),
    "to_mx": lambda wrong: mx.to_mx(A, wrong),
    "mx.matmul": lambda wrong: mx.matmul(A, A.mT, wrong),
    "MXLinear": lambda wrong: mx.MXLinear(3, 3, config=wrong),
    "explain": gs.explain,
}


@pytest.mark.parametrize("wrong", [["e5m10"], {"a": 1}, 3, gs.QSoftmaxFormats()], ids=repr)
@pytest.mark.parametrize("name", CALLS)
def test_the_error_names_what_was_given(name, wrong):
    with pytest.raises((gs.FormatError, gs.SpecError), match="allowed") as caught:
        CALLS[name](wrong)
    assert repr(wrong) in str(caught.value)


def test_amax_that_is_no_number():
    with pytest.raises(gs.DTypeError, match="amax or bias 'big' of type str"):
        gs.tensor_quant.fake_tensor_quant(A, "big")
