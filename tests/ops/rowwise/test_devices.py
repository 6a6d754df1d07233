"""Row operations away from the CPU, forward and backward: every tensor that an operator is given is on one device.

Runs without a GPU: tensors of device meta have no memory, and what is made on the CPU by mistake shows beside them.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import gemmsim as gs
from gemmsim import functional as f
from gemmsim.ops.errors import DeviceError
from gemmsim.ops.rowwise import embedding
from gemmsim.ops.rowwise import operators as row_operators

SOFTMAX = gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10", bwd_add="e5m10", bwd_mul="e5m10")
LOGARITHMS = gs.QSoftmaxFormats("e5m10", fwd_lse="e5m10", output_quant="e4m3", masked_rows="zero")
NORM = gs.QLayerNormFormats("e5m10", "e5m10", "e5m10", "e5m10", "e5m10", "e5m10", "e5m10", order="tree(64)")
GATE = gs.QGELUFormats("e5m10", "e5m10", "e4m3", "e5m2")
WHOLE = {"fwd_quant": "e5m10", "bwd_quant": "e5m10"}


class OneDevice(TorchDispatchMode):
    """Fails where an operator of ours is given tensors of two devices."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if func.namespace == "gemmsim":
            self.seen.add(func._opname)
            assert {t.device.type for t in tensors} == {"meta"}, func
        return func(*args, **(kwargs or {}))


CALLS = {
    "softmax": lambda x, w, b: f.qsoftmax(x, -1, SOFTMAX),
    "log_softmax": lambda x, w, b: f.qsoftmax(x, 1, LOGARITHMS),
    "layernorm": lambda x, w, b: f.qlayernorm(x, (8,), w, b, spec=NORM),
    "rmsnorm": lambda x, w, b: f.qrmsnorm(x, (8,), w, spec=NORM),
    "groupnorm": lambda x, w, b: f.qgroupnorm(x, 2, w, b, spec=NORM),
    "batchnorm": lambda x, w, b: f.qbatchnorm(x, None, None, w, b, True, **WHOLE),
    "gelu": lambda x, w, b: f.qgelu(x, GATE),
    "gelu_tanh": lambda x, w, b: f.qgelu(x, GATE, "tanh"),
    "silu": lambda x, w, b: f.qsilu(x, GATE),
    "relu": lambda x, w, b: f.qrelu(x, **WHOLE),
    "add": lambda x, w, b: f.qadd(x, w, **WHOLE),
    "mul": lambda x, w, b: f.qmul(x, w, **WHOLE),
    "div": lambda x, w, b: f.qdiv(x, w, **WHOLE),
    "sqrt": lambda x, w, b: f.qsqrt(x, **WHOLE),
    "pow": lambda x, w, b: f.qpow(x, "e5m10", "e5m10", n=3.0),
    "sum": lambda x, w, b: f.qsum(x, (0, 2), quant="e5m10"),
    "mean": lambda x, w, b: f.qmean(x, dim=(0, 2), **WHOLE),
    "avgpool": lambda x, w, b: f.qavgpool2d(x, 2, padding=1, count_include_pad=False, **WHOLE),
    "attention": lambda x, w, b: f.qattention(x, x, x, is_causal=True),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_tensors_stay_on_their_device(name, dtype):
    x = torch.ones(2, 8, 8, device="meta", dtype=dtype, requires_grad=True)
    w, b = (torch.ones(8, device="meta", dtype=dtype, requires_grad=True) for _ in range(2))
    with OneDevice() as mode:
        out = CALLS[name](x, w, b)
        assert out.device.type == "meta" and out.dtype == dtype
        out.sum().backward()
    assert x.grad is not None and x.grad.device.type == "meta"
    assert mode.seen or name == "attention"


def test_operators_are_registered_for_both_devices():
    assert embedding._row_gather_sum_op is not None
    for name in ("map", "sum", "softmax", "softmax_grad", "norm", "norm_grad", "gather_sum"):
        for key in ("CPU", "CUDA"):
            assert torch._C._dispatch_has_kernel_for_dispatch_key(f"gemmsim::row_{name}", key)


def test_tensors_of_two_devices_are_refused():
    with pytest.raises(DeviceError, match="cpu and meta"):
        row_operators._run(
            "sum", "e5m10", (torch.ones(2, 2, device="meta"),), (torch.ones(2),), None, 0, rows=2, cols=2
        )
