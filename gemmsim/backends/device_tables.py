"""Tables that kernels read through raw pointers, kept on their device between calls.

PyTorch's allocator knows nothing of such pointers. Memory that is freed goes back to the stream it was made on, so a
stream that may still be reading a table has to be recorded with it. And a captured graph reads at each replay what it
was shown when it was captured, whether or not that still exists.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

__all__ = ["Table", "Tables", "is_capturing"]

#: Tables that a captured graph has pointers to. Nothing says when a graph ends, so that they are kept for good: a few
#: bytes for each term of a product, or for each position and term of a convolution.
_of_graphs: set[Table] = set()


def _is_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def is_capturing(device: torch.device) -> bool:
    """Whether ``device`` is a GPU whose current stream is being captured: then nothing may wait for it."""
    if not _is_gpu(device):
        return False
    if device.index in (None, torch.cuda.current_device()):
        return torch.cuda.is_current_stream_capturing()
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


class Table:
    """Tensors on one device.

    ``lasting``: whether pointers to them may be remembered. Those that are made while a graph is captured are the
    graph's own: they have their contents when it is replayed, and their memory is used again by what comes after.
    """

    __slots__ = ("_device", "_streams", "lasting", "tensors")

    def __init__(self, tensors: tuple[Tensor, ...], lasting: bool = True) -> None:
        self.tensors, self.lasting = tensors, lasting
        self._device = tensors[0].device
        #: Streams that the allocator knows of: the one that the tensors were made on, and those that were recorded.
        self._streams: set[int] = set()
        if _is_gpu(self._device):
            self._streams.add(torch.cuda.current_stream(self._device).cuda_stream)

    def read(self) -> None:
        """To be called before each launch on the device's current stream that is given pointers to the tensors.

        When the tensors are freed the allocator waits for all work of a recorded stream: once for each is enough.
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
    """The tables that were used last, at most ``most`` of them. Safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Table] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, what: Hashable, device: torch.device, make: Callable[[torch.device], tuple[Tensor, ...]]) -> Table:
        """The table of ``what`` on ``device``, about to be read by a launch on its current stream.

        ``make`` gives the tensors on a device of its choice. They are made on the host and copied, for which the host
        waits: after that any stream may read them. While a stream is captured nothing can be waited for, so that a
        table which is not kept yet is made on the device, by operations that become part of the graph, and not kept.
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
        """Forget all of them; those that graphs have pointers to stay where they are."""
        with self._lock:
            self._kept.clear()
