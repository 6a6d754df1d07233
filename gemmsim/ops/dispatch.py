"""When a call may skip PyTorch's dispatcher.

A call on ordinary tensors of one device with nothing watching goes straight to the kernel, which saves two to ten
microseconds. Anything else (subclasses, functorch, tracing, modes, profiling, lazily negated views, other devices) goes
through ``torch.ops.gemmsim``, which knows what to do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = [
    "is_batch_of_gradients",
    "is_direct",
    "needs_autograd",
    "transforms_active",
    "unobserved",
]

transforms_active = torch._C._are_functorch_transforms_active
_dispatch_keys = torch._C._dispatch_keys
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_mode = torch._C._is_torch_function_mode_enabled
_profiling = torch.autograd._profiler_enabled
_tracing = torch._C._get_tracing_state
_TYPES = (Tensor, torch.nn.Parameter)


def _plain_key_sets(device: str) -> frozenset[int]:
    """Dispatch keys of an ordinary tensor of ``device``, made outside and inside ``torch.inference_mode``."""
    key, key_set = torch._C.DispatchKey, torch._C.DispatchKeySet
    inference = key_set(getattr(key, device)) | key_set(getattr(key, f"Autocast{device}"))
    ordinary = inference | key_set(key.ADInplaceOrView) | key_set(getattr(key, f"Autograd{device}"))
    return frozenset({inference.raw_repr(), ordinary.raw_repr()})


_PLAIN, _PLAIN_CUDA = _plain_key_sets("CPU"), _plain_key_sets("CUDA")


def is_direct(t: Any) -> bool:
    """Whether ``t`` is an ordinary CPU tensor or parameter."""
    return type(t) in _TYPES and _dispatch_keys(t).raw_repr() in _PLAIN


def unobserved(*tensors: Any) -> bool:
    """Whether a call on these tensors (None: not given) may go straight to the kernel.

    So it is outside compiled code where no mode, transform, profiler or tracer (``torch.jit.trace``) has to see the
    call, and all tensors are ordinary ones of one device, the CPU or a GPU.
    """
    if torch.compiler.is_compiling() or transforms_active() or _dispatch_modes():
        return False
    if _function_mode() or _profiling() or _tracing():
        return False
    cpu, device = False, None
    for t in tensors:
        if t is None:
            continue
        if type(t) not in _TYPES:
            return False
        keys = _dispatch_keys(t).raw_repr()
        if keys in _PLAIN:
            cpu = True
        elif keys not in _PLAIN_CUDA or (device is not None and t.device != device):
            return False
        else:
            device = t.device
    return not (cpu and device is not None)


def is_batch_of_gradients(t: Tensor) -> bool:
    """Whether ``t`` stands for the gradients of a batch (``is_grads_batched``): it has no values and no views."""
    return not torch.compiler.is_compiling() and torch._C._functorch.is_legacy_batchedtensor(t)


def needs_autograd(*tensors: Tensor | None) -> bool:
    """Whether a gradient may be asked of these tensors. Compiled and transformed code decides that later."""
    if not torch.is_grad_enabled():
        return False
    if torch.compiler.is_compiling() or transforms_active():
        return True
    for t in tensors:
        if t is not None and t.requires_grad:
            return True
    return False
