"""Functions of formats name their own keyword where another one is given, and go on computing."""

from __future__ import annotations

import sys
import typing

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing.get_overloads is not there before Python 3.11")
@pytest.mark.parametrize(
    "kind", ["FloatFormat", "FixedFormat", "CodebookFormat", "SupernormalFormat", "OwnExponentFormat"]
)
@pytest.mark.parametrize("method", ["encode", "decode"])
def test_codes_of_tensors_are_tensors_to_type_checkers(kind, method):
    one, tensors = typing.get_overloads(getattr(getattr(gs.formats, kind), method))
    assert one.__annotations__["return"] in ("int", "float")
    first = next(iter(tensors.__annotations__))
    assert tensors.__annotations__[first] == tensors.__annotations__["return"] == "Tensor"


@pytest.mark.parametrize(
    ("call", "right"),
    [
        (gs.quantize, "fmt"),
        (gs.quantizer, "forward_number"),
        (gs.compare, "spec_a"),
        (gs.mx.quantize, "fmt"),
        (gs.mx.to_mx, "fmt"),
        (gs.mx.encode, "fmt"),
        (gs.mx.decode, "fmt"),
        (gs.mx.quantize_mx, "fmt"),
        (gs.mx.dequantize_mx, "fmt"),
        (gs.mx.tensor_scale, "fmt"),
        (gs.qadd, "fwd_quant"),
        (gs.qmul, "fwd_quant"),
        (gs.qdiv, "fwd_quant"),
        (gs.qsqrt, "fwd_quant"),
        (gs.qpow, "fwd_quant"),
        (gs.qmean, "fwd_quant"),
        (gs.qrelu, "fwd_quant"),
        (gs.qsigmoid, "fwd_quant"),
        (gs.qtanh, "fwd_quant"),
        (gs.qlogsoftmax, "fwd_quant"),
        (gs.qbatchnorm, "fwd_quant"),
        (gs.qavgpool, "fwd_quant"),
        (gs.qadaptive_avgpool, "fwd_quant"),
        (gs.qsum, "quant"),
    ],
)
def test_functions_of_formats_name_their_own_keyword(call, right):
    for wrong in {"spec", "fmt", "format", "sepc"} - {right}:
        with pytest.raises(gs.KeywordError, match=rf"'{wrong}'; allowed: {right}.\n  Try {right}='e4m3'.$"):
            call(torch.ones(2), **{wrong: "e4m3"})
    near = f"{right}x"
    with pytest.raises(gs.KeywordError, match=rf"'{near}'; allowed: .*\b{right}\b.*\n  Did you mean {right}=.$"):
        call(torch.ones(2), **{near: "e4m3"})


def test_keywords_of_quantisers_still_compute():
    """The right ones, in compiled code and traces, too."""
    x = torch.linspace(-3, 3, 16)
    want = gs.quantize(x, "e4m3")
    assert_bitwise_equal(gs.quantize(x, fmt="e4m3"), want)
    compiled = torch.compile(lambda x: gs.quantize(x, fmt="e4m3", overflow="sat"), backend="eager", fullgraph=True)
    assert_bitwise_equal(compiled(x), want)
    traced = torch.fx.symbolic_trace(lambda x: gs.quantize(x, fmt="e4m3"))
    assert_bitwise_equal(traced(x), want)
    assert_bitwise_equal(gs.quantizer(forward_number="e4m3")(x), want)
