"""A call in PyTorch's own decomposition, in the net that replaces its leaf products, beside the call under emulation."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import torch
from emulation.net import net
from torch.nn.attention import SDPBackend, sdpa_kernel

from gemmsim.emulation import emulate
from support import assert_bitwise_equal


@contextmanager
def leaves(spec):
    """``net`` where PyTorch takes no fused kernel: mathematical attention, LSTM step by step, no inference path."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False), net(spec) as replaced:
            yield
        assert replaced.calls, "no product at the leaves: a fused kernel ran"
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
        assert_bitwise_equal(a, b, nan_is_nan=True)
    assert torch.equal(state, after)
