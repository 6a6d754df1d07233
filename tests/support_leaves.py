"""PyTorch's own decompositions with only the products at their leaves replaced, below autograd."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

import gemmsim as gs
from gemmsim.emulation import emulate

_aten = torch.ops.aten


class Leaves(TorchDispatchMode):
    """Every mm, bmm, addmm and baddbmm computed by ``spec``, forward and backward.

    For specs without operand formats: nodes of PyTorch's graph multiply what they saved.
    """

    def __init__(self, spec):
        super().__init__()
        self.spec, self.seen = spec, []

    def product(self, a, b):
        wide = torch.float64 if a.dtype is torch.float64 else torch.float32
        return gs.qmatmul(a, b, self.spec, out_dtype=wide)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (_aten.mm.default, _aten.bmm.default):
            self.seen.append(func)
            return self.product(*args).to(args[0].dtype)
        if func in (_aten.addmm.default, _aten.baddbmm.default):
            self.seen.append(func)
            assert not kwargs
            c, a, b = args
            return (self.product(a, b) + c).to(a.dtype)
        assert not any(name in str(func) for name in ("attention", "rnn_layer", "encoder_layer")), func
        return func(*args, **kwargs)


@contextmanager
def leaves(spec):
    """``Leaves`` where PyTorch takes no fused kernel: mathematical attention, LSTM step by step, no inference path."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False), Leaves(spec) as mode:
            yield mode
        assert mode.seen
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def tensors(found):
    """All tensors of a result, in order."""
    if isinstance(found, torch.Tensor):
        return [found]
    if isinstance(found, (tuple, list)):
        return [t for part in found for t in tensors(part)]
    return []


def passes(call, *inputs, parameters=(), seed=0, within=nullcontext, all_within=nullcontext):
    """Results of ``call``, gradients of inputs and parameters, and torch's generator afterwards.

    ``within``: a context for the forward pass alone. ``all_within``: one for both passes.
    """
    given = [t.detach().requires_grad_() for t in inputs]
    torch.manual_seed(seed)
    with all_within():
        with within():
            out = tensors(call(*given))
        state = torch.get_rng_state()
        loss = sum((t.double() * torch.linspace(-1, 1, t.numel()).reshape(t.shape)).sum() for t in out)
        grads = torch.autograd.grad(loss, [*given, *parameters], allow_unused=True)
    return [*(t.detach() for t in out), *(g for g in grads if g is not None)], state


def compare(call, *inputs, parameters=(), spec=":e5m6", config=None):
    """Asserts that ``call`` under emulation has the bits, dtypes and random stream of PyTorch's decomposition."""
    expected, after = passes(call, *inputs, parameters=parameters, all_within=lambda: leaves(spec))
    asked = spec if config is None else config
    with torch.backends.mkldnn.flags(enabled=False):  # gelu's bits depend on it
        found, state = passes(call, *inputs, parameters=parameters, within=lambda: emulate(asked))
    assert [t.dtype for t in found] == [t.dtype for t in expected]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(state, after)
