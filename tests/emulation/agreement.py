"""What tests of overrides share: a call under the emulation and in the net, and bits compared."""

from __future__ import annotations

import torch
from emulation.net import net
from torch import Tensor

from gemmsim.emulation.context import emulate

#: A spec whose every addition loses bits of random operands, in all roles alike.
NARROW = ": e6m5"


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers of a few magnitudes."""
    generator = torch.Generator().manual_seed(seed + 7919 * len(shape) + sum(shape))
    found = torch.randn(shape, generator=generator, dtype=torch.float64)
    return found.to(dtype)


def bits(t: Tensor) -> Tensor:
    """The numbers' bits; all NaN alike."""
    t = t.detach()
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    return torch.where(t.isnan(), torch.full_like(t, torch.nan), t).contiguous().view(whole)


def same(found: Tensor | None, expected: Tensor | None, what: str = "") -> None:
    """Equal dtypes, shapes and bits."""
    if found is None or expected is None:
        assert found is None and expected is None, what
        return
    assert found.dtype == expected.dtype and found.shape == expected.shape, (what, found, expected)
    if not torch.equal(bits(found), bits(expected)):
        raise AssertionError(f"{what}: {found} instead of {expected}")


def with_gradients(call, *tensors: Tensor) -> tuple[Tensor, list[Tensor | None]]:
    """The result of ``call`` and the gradients of its tensors, for a gradient of random numbers."""
    leaves = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_(True) for t in tensors]
    out = call(*leaves)
    grad = numbers(*out.shape, seed=5, dtype=out.dtype)
    return out, list(torch.autograd.grad(out, leaves, grad, allow_unused=True))


def agree(call, *tensors: Tensor, spec: str = NARROW, gradients: bool = True) -> Tensor:
    """Asserts that ``call`` under the emulation has the net's bits, its gradients too; the result."""
    with torch.no_grad():
        with net(spec):
            expected = call(*tensors)
        with emulate(spec):
            found = call(*tensors)
    same(found, expected, "result")
    if gradients:
        with net(spec):
            expected, wanted = with_gradients(call, *tensors)
        with emulate(spec):
            found, grads = with_gradients(call, *tensors)
        same(found, expected, "result")
        for i, (g, w) in enumerate(zip(grads, wanted, strict=True)):
            same(g, w, f"gradient {i}")
    return found
