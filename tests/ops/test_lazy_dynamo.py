"""Operators do not load PyTorch's compiler, which takes seconds; when it is loaded, it knows what it has to know."""

from __future__ import annotations

from support import run_python

FIRST = """
import sys
import torch
import gemmsim as gs
import gemmsim.nn as qnn

def compiler(): return "torch._dynamo" in sys.modules

x, w = torch.rand(4, 32, requires_grad=True), torch.rand(8, 32, requires_grad=True)
image, kernel = torch.rand(1, 2, 8, 8, requires_grad=True), torch.rand(2, 2, 3, 3, requires_grad=True)
one = torch.tensor(1.0)
calls = {
    "qmatmul": lambda: gs.qmatmul(x, w.mT, "e4m3 : e5m10"),
    "qmm with a seed": lambda: gs.qmm(x, w.mT, "e4m3 : e5m10/sr8", seed=1),
    "qlinear": lambda: gs.qlinear(x, w, None, "e4m3 : e5m10"),
    "qconv2d": lambda: gs.qconv2d(image, kernel, None, spec="e4m3 : e5m10"),
    "quantizer": lambda: gs.quantizer("e4m3")(x),
    "qsoftmax": lambda: gs.qsoftmax(x, -1),
    "qlayernorm": lambda: gs.qlayernorm(x, (32,)),
    "qattention": lambda: gs.qattention(x[None], x[None], x[None]),
    "QLinear": lambda: qnn.QLinear(32, 4, spec="e4m3 : e5m10")(x),
    "mx.to_mx": lambda: gs.mx.to_mx(x, "mxfp4").dequantize(),
    "MXLinear": lambda: gs.mx.MXLinear(32, 4)(x),
    "fake_tensor_quant": lambda: gs.tensor_quant.fake_tensor_quant(x, one),
    "scaled_e4m3": lambda: gs.tensor_quant.scaled_e4m3(x, one, None, 4, 3),
    "TensorQuantizer": lambda: gs.tensor_quant.TensorQuantizer(gs.tensor_quant.QuantDescriptor())(x),
}
for name, call in calls.items():
    y = call()
    assert not compiler(), f"{name} imports torch._dynamo"
    y.sum().backward()
    assert not compiler(), f"the gradient of {name} imports torch._dynamo"
with torch.no_grad():
    gs.quantize(x, "e4m3")
    gs.mx.quantize(x, "mxfp4")
    gs.mx.matmul(x, w.mT, "fp32", a_format="mxfp8_e4m3")
    gs.mx.matmul(gs.mx.to_mx(x, "mxfp4"), w.mT, "fp32")
    gs.tensor_quant.int_matmul(x.round(), w.mT.round())
    gs.compat.torchao.to_mx(x, torch.float8_e4m3fn, 32)
    gs.compat.torchmx
assert not compiler(), "something imports torch._dynamo"

# The compiler comes now, and knows the functions that it must not look into.
from gemmsim.mx import NoopFwToMXBw, ToMX
from gemmsim.ops import lazy_dynamo
assert lazy_dynamo._waiting
finders = len(sys.meta_path)
compiled = torch.compile(lambda t: gs.mx.to_mx(t * 2, "mxfp8_e4m3").dequantize() + 1, fullgraph=True, backend="eager")
assert torch.equal(compiled(x), gs.mx.to_mx(x * 2, "mxfp8_e4m3").dequantize() + 1)
assert compiler() and not lazy_dynamo._waiting and len(sys.meta_path) == finders - 1
assert torch.equal(
    torch.compile(lambda a, b: gs.qmatmul(a, b, "e4m3 : e5m10"), fullgraph=True, backend="eager")(x, w.mT),
    gs.qmatmul(x, w.mT, "e4m3 : e5m10"),
)

# Our mark is the one that PyTorch's own decorator makes, which is asked where the compiler is there.
def mine(): return 1
def theirs(): return 1
loaded = sys.modules.pop("torch._dynamo")
lazy_dynamo.assume_constant_result(mine)
sys.modules["torch._dynamo"] = loaded
torch.compiler.assume_constant_result(theirs)
assert vars(mine) == vars(theirs), (vars(mine), vars(theirs))
print("done")
"""


def test_the_first_operators_of_a_process_load_no_compiler():
    done = run_python(FIRST)
    assert done.stdout.strip().endswith("done"), done.stderr[-3000:]
