"""Which calls go straight to the kernels: ordinary tensors of one device, CPU or GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gemmsim.ops import dispatch


def keys_of(device: str, inference: bool = False, more: str | None = None) -> int:
    """Dispatch keys as PyTorch gives them to tensors of ``device``."""
    key, key_set = torch._C.DispatchKey, torch._C.DispatchKeySet
    found = key_set(getattr(key, device)) | key_set(getattr(key, f"Autocast{device}"))
    if not inference:
        found = found | key_set(key.ADInplaceOrView) | key_set(getattr(key, f"Autograd{device}"))
    return (found | key_set(getattr(key, more)) if more else found).raw_repr()


class Fake:
    """A tensor as far as ``unobserved`` looks at it; there may be no GPU."""

    def __init__(self, device: str, **how):
        self.device, self.keys = torch.device(device), keys_of("CUDA" if "cuda" in device else "CPU", **how)


@pytest.fixture
def fakes(monkeypatch):
    monkeypatch.setattr(dispatch, "_TYPES", (Fake,))
    monkeypatch.setattr(dispatch, "_dispatch_keys", lambda t: SimpleNamespace(raw_repr=lambda: t.keys))


def test_real_tensors():
    x = torch.ones(2, 2)
    assert dispatch.unobserved(x, None, torch.nn.Parameter(x)) and dispatch.unobserved()
    with torch.inference_mode():
        assert dispatch.unobserved(torch.ones(1), x)
    assert not dispatch.unobserved(x, x.to("meta")) and not dispatch.unobserved(x, torch._neg_view(x))
    assert not dispatch.unobserved(x, 3.0) and not dispatch.unobserved(x.to_sparse())


def test_tensors_of_one_device(fakes):
    first, second, cpu = Fake("cuda:0"), Fake("cuda:0", inference=True), Fake("cpu")
    assert dispatch.unobserved(first, second) and dispatch.unobserved(cpu, cpu, None)
    assert not dispatch.unobserved(first, cpu) and not dispatch.unobserved(cpu, first)
    assert not dispatch.unobserved(first, Fake("cuda:1"))
    assert not dispatch.unobserved(first, Fake("cuda:0", more="Negative"))
