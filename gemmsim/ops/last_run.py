"""What ran last: the record behind ``gemmsim.last_backend()``."""

from __future__ import annotations

import threading
from dataclasses import dataclass

__all__ = ["BackendRecord", "last_backend", "record"]


@dataclass(frozen=True)
class BackendRecord:
    """One executed operator, as ``gemmsim.last_backend`` returns it.

    ``op``: "matmul" or "quantize". ``backend``: "cpu" or "cuda" (this library); "blas" (on the CPU) and "cublas" (on
    CUDA) for a native product, requested by ``cublas_acceleration`` or proved to give the same bits; "cutlass" for its
    mainloop, requested by ``cutlass_acceleration``; "torch" where formats say PyTorch's own product. ``spec``: the spec
    or cast as a string, empty for "torch". ``plan``: one line with the kernel that the backend chose, the steps that it
    proved unnecessary, and why a requested native product was refused.

    Example:
        >>> result = gs.qmatmul(torch.ones(2, 3), torch.ones(3, 2), "e4m3 : fp16")
        >>> record = gs.last_backend()
        >>> record.op, record.backend, record.spec
        ('matmul', 'cpu', 'e4m3 : e5m10')
    """

    op: str
    backend: str
    spec: str
    plan: str

    def __str__(self) -> str:
        return f"{self.op} [{self.spec}] on {self.backend}: {self.plan}"


class _State(threading.local):
    last: tuple[str, str, str, object] | None = None


_STATE = _State()


def record(op: str, backend: str, spec: str, plan: object) -> None:
    """Remember what ran, for this thread. A tuple and no text yet: this is on the path of every call."""
    _STATE.last = (op, backend, spec, plan)


def last_backend() -> BackendRecord | None:
    """The operator that ran last in this thread, and which kernel computed it; ``None`` before the first one.

    A call on an empty tensor counts; a compiled call counts when it runs. A backward pass on the CPU runs in the thread
    that called ``backward()``.

    Example:
        >>> result = gs.quantize(torch.ones(2), "e4m3")
        >>> print(gs.last_backend().op, gs.last_backend().spec)
        quantize e4m3
    """
    if _STATE.last is None:
        return None
    op, backend, spec, plan = _STATE.last
    return BackendRecord(op, getattr(plan, "backend", backend), spec, str(plan))
