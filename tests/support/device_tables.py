"""A GPU made of Python, as far as tables that kernels read through raw pointers see one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gemmsim.backends import device_tables
from gemmsim.backends.cuda.simt import k_permutation, launch_cache
from gemmsim.backends.device_tables import Tables
from gemmsim.ops.conv import im2col_indices as conv_windows


class FakeCuda:
    """What ``torch.cuda`` says; tensors of the CPU pass for those of a GPU."""

    def __init__(self, monkeypatch) -> None:
        self.stream, self.capturing, self.device, self.recorded = 1, False, 0, []
        monkeypatch.setattr(device_tables, "_is_gpu", lambda device: True)
        monkeypatch.setattr(device_tables, "_of_graphs", set())
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.device)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=self.stream))
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)
        record = lambda tensor, stream: self.recorded.append((tensor.data_ptr(), stream.cuda_stream))  # noqa: E731
        monkeypatch.setattr(torch.Tensor, "record_stream", record)

    def of_graphs(self) -> set[int]:
        """Pointers that are kept for graphs."""
        return {tensor.data_ptr() for table in device_tables._of_graphs for tensor in table.tensors}


@pytest.fixture
def gpu(monkeypatch) -> FakeCuda:
    monkeypatch.setattr(conv_windows, "_tables", Tables(256))
    monkeypatch.setattr(k_permutation, "_tables", Tables(64))
    monkeypatch.setattr(launch_cache, "_ready", {})
    return FakeCuda(monkeypatch)
