"""What ran last: the record behind ``gemmsim.last_backend()``."""

from __future__ import annotations

import threading
from dataclasses import dataclass

__all__ = ["BackendRecord", "last_backend", "record"]


@dataclass(frozen=True)
class BackendRecord:
    """One executed operator.

    ``op``: "matmul" or "quantize". ``backend``: "cpu" or "cuda" (this library); "blas" and "cublas" for a native
    product, on the CPU and on CUDA, entered by asking (``cublas_acceleration``) or by proof; "cutlass" for one by its
    mainloop, entered by asking (``cutlass_acceleration``); "torch" where formats ask for PyTorch's own product.
    ``spec``: the spec or cast as a string, empty for "torch". ``plan``: what the backend chose and what it proved
    unnecessary, and why a native product that was asked for was refused, one line.
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
    """The operator that ran last in this thread and how, or ``None`` before the first one.

    A call on an empty tensor counts, a compiled call counts when it runs. A backward pass on the CPU runs in the
    thread that called ``backward()``.
    """
    if _STATE.last is None:
        return None
    op, backend, spec, plan = _STATE.last
    return BackendRecord(op, getattr(plan, "backend", backend), spec, str(plan))
