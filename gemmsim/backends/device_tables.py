"""Tables that kernels read through raw pointers, kept on their device between calls.

PyTorch's allocator does not track such pointers. It returns freed memory to the stream on which the memory was made. So
any other stream that may still be reading a table must be recorded with it. A captured graph reads the addresses of its
capture at each replay, whether or not the tables still exist.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

__all__ = ["Table", "Tables", "is_capturing"]

#: Tables to which a captured graph has pointers. Nothing reports when a graph ends, so they are kept for good: a few
#: bytes for each term of a product, or for each position and term of a convolution.
_of_graphs: set[Table] = set()


def _is_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def is_capturing(device: torch.device) -> bool:
    """Whether ``device`` is a GPU whose current stream is being captured, so that the host must not wait for it."""
    if not _is_gpu(device):
        return False
    if device.index in (None, torch.cuda.current_device()):
        return torch.cuda.is_current_stream_capturing()
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


class Table:
    """Tensors on one device.

    ``lasting``: whether callers may store pointers to them. Tables that are made while a graph is captured belong to
    the graph. They have their contents when the graph is replayed, and later operations reuse their memory.
    """

    __slots__ = ("_device", "_streams", "lasting", "tensors")

    def __init__(self, tensors: tuple[Tensor, ...], lasting: bool = True) -> None:
        self.tensors, self.lasting = tensors, lasting
        self._device = tensors[0].device
        #: Streams that the allocator tracks: the one on which the tensors were made, and the recorded ones.
        self._streams: set[int] = set()
        if _is_gpu(self._device):
            self._streams.add(torch.cuda.current_stream(self._device).cuda_stream)

    def read(self) -> None:
        """Declare that the device's current stream reads the tensors; call this before each launch with pointers to
        them.

        When the tensors are freed, the allocator waits for all work of a recorded stream. So it suffices to record each
        stream once.
        """
        if not self.lasting or not _is_gpu(self._device):
            return
        if is_capturing(self._device):
            _of_graphs.add(self)
            return
        stream = torch.cuda.current_stream(self._device)
        if stream.cuda_stream not in self._streams:
            for tensor in self.tensors:
                tensor.record_stream(stream)
            self._streams.add(stream.cuda_stream)


class Tables:
    """The most recently used tables, at most ``most`` of them. Safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Table] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, what: Hashable, device: torch.device, make: Callable[[torch.device], tuple[Tensor, ...]]) -> Table:
        """Return the table of ``what`` on ``device``, for a launch on its current stream that follows.

        ``make`` returns the tensors on the device that it gets. As a rule they are made on the host and copied, and the
        host waits for the copy; after that any stream may read them. While a stream is captured, the host cannot wait.
        A table that is not stored yet is then made on the device, by operations that become part of the graph, and is
        not stored.
        """
        key = (what, device)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
        if found is None:
            if _is_gpu(device) and is_capturing(device):
                return Table(make(device), lasting=False)
            found = Table(tuple(t.to(device) for t in make(torch.device("cpu"))))
            self._keep(key, found)
        found.read()
        return found

    def _keep(self, key: Hashable, table: Table) -> None:
        with self._lock:
            self._kept[key] = table
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        """Forget all tables. Those to which graphs have pointers stay in memory."""
        with self._lock:
            self._kept.clear()
