"""None in place of an operand is a typed error that names the operand, in every public operation."""

from __future__ import annotations

import inspect

import pytest
import torch
from support.functional import calls

import gemmsim as gs
import gemmsim.nn as qnn

X, W = torch.rand(4, 32), torch.rand(32, 4)
#: Optional operands, by function.
OPTIONAL = {
    **dict.fromkeys(("qlayernorm", "qrmsnorm", "qgroupnorm", "qbatchnorm"), (1, 2)),
    **dict.fromkeys(("qlinear", *(f"qconv{kind}{d}d" for kind in ("", "_transpose") for d in (1, 2, 3))), (2,)),
}
FUNCTIONS = calls("e5m10")
CALLS = {
    f"{name}, {place}": (call, tensors, place)
    for name, (call, tensors) in FUNCTIONS.items()
    for place in range(len(tensors))
    if place not in OPTIONAL.get(name, ())
}
OTHERS = {
    "qmatmul by PyTorch, a": lambda: gs.qmatmul(None, W),
    "qmatmul by PyTorch, b": lambda: gs.qmatmul(X, None),
    "qmm, a": lambda: gs.qmm(None, W, ":fp32"),
    "qmm, b": lambda: gs.qmm(X, None, ":fp32"),
    "qlinear by PyTorch": lambda: gs.qlinear(None, W),
    "quantize": lambda: gs.quantize(None, "e4m3"),
    "quantize with blocks": lambda: gs.quantize(None, "bfp(8,16)"),
    "quantizer": lambda: gs.quantizer("e4m3")(None),
    "count_overflows, a": lambda: gs.count_overflows(None, W, "int8 : int(20)"),
    "count_overflows, b": lambda: gs.count_overflows(X, None, "int8 : int(20)"),
    "explain": lambda: gs.explain(None),
    "QLinear": lambda: qnn.QLinear(32, 4, spec=":fp32")(None),
    "mx.to_mx": lambda: gs.mx.to_mx(None, "mxfp4"),
    "mx.matmul": lambda: gs.mx.matmul(None, None, ":fp32"),
    "mx.requantize": lambda: gs.mx.requantize(None, 0),
    "mx.to_blocked": lambda: gs.mx.to_blocked(None),
    "mx.from_blocked": lambda: gs.mx.from_blocked(None, 1, 1),
    "mx.from_blocked, rows": lambda: gs.mx.from_blocked(X, None, 1),
    "mx.swap_linear": lambda: gs.mx.swap_linear_with_mx_linear(None),
    "int_matmul": lambda: gs.tensor_quant.int_matmul(None, W),
    "int_linear": lambda: gs.tensor_quant.int_linear(None, W, input_amax=1.0, weight_amax=1.0),
    "pact": lambda: gs.tensor_quant.pact(X, None, X),
    "static_blockwise_fp4_fake_quant": lambda: gs.tensor_quant.static_blockwise_fp4_fake_quant(None, X),
    "scaled_e4m3_abstract": lambda: gs.tensor_quant.scaled_e4m3_abstract(None),
}


def refuses(call):
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert type(caught.value).__module__.startswith("gemmsim") and "None" in str(caught.value), caught.value


@pytest.mark.parametrize("name", CALLS)
def test_functions_refuse_none(name):
    call, tensors, place = CALLS[name]
    refuses(lambda: call(*(None if i == place else t for i, t in enumerate(tensors))))


@pytest.mark.parametrize("name", OTHERS)
def test_other_operations_refuse_none(name):
    refuses(OTHERS[name])


@pytest.mark.parametrize("package", ["mx", "tensor_quant"])
def test_functions_of_tensors_refuse_none_everywhere(package):
    """Every public function whose first argument is a tensor, given None for all that it needs."""
    module = getattr(gs, package)
    for name in module.__all__:
        found = getattr(module, name)
        if inspect.isclass(found) or not callable(found):
            continue
        parameters = inspect.signature(found).parameters.values()
        needed = [p for p in parameters if p.default is p.empty and p.kind is not p.KEYWORD_ONLY]
        if (
            not needed
            or needed[0].annotation != "Tensor"
            or any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters)
        ):
            continue
        with pytest.raises((TypeError, ValueError)) as caught:
            found(*[None] * len(needed))
        assert type(caught.value).__module__.startswith("gemmsim"), f"{package}.{name}: {caught.value!r}"
