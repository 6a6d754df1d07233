"""The request for a product (``Product``), and the record of what computed it, for ``gemmsim.last_backend()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemmsim.arithmetic import GemmSpec

from .encoded_operand import Coded

if TYPE_CHECKING:
    from torch import Tensor

    from .epilogue import Finish
    from .implicit_im2col import Gathered

__all__ = ["Product", "Ran"]


class Product:
    """The product of ``a`` (\\*B, M, K) and ``b`` (\\*B, K, N) that ``spec`` means, to be written to ``out``.

    Attributes:
        a, b: values, which ``spec`` casts, or codes with their scales.
        out: (\\*B, M, N), of the dtype that results are rounded to last.
        seed: of random bits; 0 where there are none.
        c: an addend of ``out``'s shape. select: the member of a palette for each element of ``out``.
        finish: the epilogue of the product.
        named: the spec of casts that were already applied to the operands, which therefore have values of its formats;
            ``spec`` if there are none.
        windows: where elements of ``a`` and of ``out`` lie, if not where their strides say.
        row: index of ``out``'s first row among those for which the accumulator's random bits are drawn.
        count: ``out`` is int64; the product adds to it how often each element's register left its range.
    """

    __slots__ = ("a", "b", "c", "count", "finish", "named", "out", "row", "seed", "select", "spec", "windows")

    def __init__(
        self,
        a: Tensor | Coded,
        b: Tensor | Coded,
        spec: GemmSpec,
        out: Tensor,
        seed: int = 0,
        c: Tensor | None = None,
        select: Tensor | None = None,
        finish: Finish | None = None,
        named: GemmSpec | None = None,
        windows: Gathered | None = None,
        count: bool = False,
        row: int = 0,
    ) -> None:
        self.a, self.b, self.spec, self.out, self.seed = a, b, spec, out, seed
        self.c, self.select, self.finish = c, select, finish
        self.named = spec if named is None else named
        self.windows, self.count, self.row = windows, count, row

    @property
    def is_coded(self) -> bool:
        """Whether at least one operand is given as codes."""
        return isinstance(self.a, Coded) or isinstance(self.b, Coded)

    @property
    def is_alone(self) -> bool:
        """Whether the request is only a product of matrices at the locations that their strides say."""
        return self.c is None and self.select is None and self.windows is None and not self.count

    def changed(self, **fields: Any) -> Product:
        """Return the same product with other ``fields``."""
        made = Product(
            self.a, self.b, self.spec, self.out, self.seed, self.c, self.select, self.finish, self.named, self.windows,
            self.count, self.row,
        )  # fmt: skip
        for name, value in fields.items():
            setattr(made, name, value)
        return made


class Ran:
    """The record of what computed a product.

    Attributes:
        backend: "cpu" or "cuda" (this library's kernels), "blas", "cublas" or "cutlass" (a library's product),
            "stepwise".
        how: the kernels or the call, as a text or an object that makes it when it is printed.
        notes: why it ran there, and why it did not run where that was requested.
    """

    __slots__ = ("backend", "how", "notes")

    def __init__(self, backend: str, how: object, notes: tuple[object, ...] = ()) -> None:
        self.backend, self.how, self.notes = backend, how, notes

    def noted(self, note: object) -> Ran:
        """Return the same record with one more note."""
        return Ran(self.backend, self, (note,))

    def __str__(self) -> str:
        return "; ".join(str(part) for part in (self.how, *self.notes))

    def __repr__(self) -> str:
        return f"<{self}>"
