"""What backends give back of a product: the record behind ``gemmsim.last_backend()``."""

from __future__ import annotations

__all__ = ["Ran"]


class Ran:
    """What computed a product.

    Attributes:
        backend: "cpu" or "cuda" (this library's kernels), "blas" or "cublas" (a library's product), "stepwise".
        how: the kernels or the call, as a text or something that has one: it is not made before somebody asks.
        notes: why it ran there, and why it did not run where it was asked for.
    """

    __slots__ = ("backend", "how", "notes")

    def __init__(self, backend: str, how: object, notes: tuple[object, ...] = ()) -> None:
        self.backend, self.how, self.notes = backend, how, notes

    def noted(self, note: object) -> Ran:
        """The same with one more note."""
        return Ran(self.backend, self, (note,))

    def __str__(self) -> str:
        return "; ".join(str(part) for part in (self.how, *self.notes))

    def __repr__(self) -> str:
        return f"<{self}>"
