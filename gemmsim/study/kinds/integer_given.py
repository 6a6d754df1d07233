"""Operands of integer products from files: two tensors, or the products of a model that ``gemmsim.capture`` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import gemmsim as gs

from ..capture import is_of_products, operands_of, products_in
from ..errors import StudyError
from ..tensor_files import TensorFile, file_digest, tensor_file
from .gemm import evenly, matrix
from .integer_operands import integers

__all__ = ["Given", "GivenProduct", "as_integers"]


@dataclass(frozen=True)
class GivenProduct:
    """One product of given operands: what a row calls it, and M, K and N of what is computed.

    ``layer`` and ``role`` are "" for two tensors by name; ``pair`` is the product's name in a captured file.
    """

    a: str
    b: str
    layer: str
    role: str
    shape: tuple[int, int, int]
    pair: str = ""


@dataclass(frozen=True)
class Given:
    """Where operands come from: ``a`` and ``b``, each a file or FILE:KEY, or ``captured``, a file of products.

    transpose: which of a and b are transposed first, as the kind gemm has it; most: at most this many rows and columns
    of each result, evenly spaced; 0: all.
    """

    a: str = ""
    b: str = ""
    transpose: str = ""
    captured: str = ""
    layers: tuple[str, ...] = ("*",)
    roles: tuple[str, ...] = ("fprop",)
    most: int = 0

    def products(self) -> Iterator[GivenProduct]:
        """What there is; of files only the headers are read.

        Raises:
            StudyError: what is wrong with the files, shapes that do not multiply.
        """
        if self.captured:
            path = Path(self.captured)
            if not is_of_products(path):
                raise StudyError(f"'{path}' holds no products; allowed: files that gemmsim.capture wrote.")
            for (layer, role), (pair, m, k, n) in products_in(path, self.roles, self.layers).items():
                yield GivenProduct(path.name, "", layer, role, self._shape(m, k, n), pair)
            return
        first, second = self._files()
        (m, k), (k2, n) = matrix(first, "a" in self.transpose), matrix(second, "b" in self.transpose)
        if k != k2:
            raise StudyError(
                f"{first.name} is {m} x {k} and {second.name} {k2} x {n}: they do not multiply; allowed: M x K and "
                "K x N, dimensions before the last counted as rows. --transpose a, b or ab turns them."
            )
        yield GivenProduct(first.name, second.name, "", "", self._shape(m, k, n))

    def load(self, product: GivenProduct) -> tuple[Tensor, Tensor]:
        """Both matrices of ``product``, rows of a and columns of b chosen; integers as they are.

        Raises:
            StudyError: files that cannot be read, or hold NaN or infinities.
        """
        if self.captured:
            a, b = operands_of(Path(self.captured), product.pair, whole=True)
            names = (f"{product.pair}/a", f"{product.pair}/b")
        else:
            first, second = self._files()
            a, b = (
                values.reshape(-1, values.shape[-1]).mT
                if side in self.transpose
                else values.reshape(-1, values.shape[-1])
                for side, values in (("a", first.load(whole=True)), ("b", second.load(whole=True)))
            )
            names = (first.name, second.name)
        for name, values in zip(names, (a, b), strict=True):
            if values.is_floating_point() and not bool(values.isfinite().all()):
                raise StudyError(f"{name} has NaN or infinite numbers; allowed: finite ones. Replace them first.")
        return a[evenly(a.shape[0], self.most)], b[:, evenly(b.shape[1], self.most)]

    def digest(self) -> str:
        """Digest of the files: other values in the same files are other rows."""
        paths = [Path(self.captured)] if self.captured else [one.path for one in self._files()]
        return "-".join(dict.fromkeys(file_digest(path) for path in paths))

    def _files(self) -> tuple[TensorFile, TensorFile]:
        return tensor_file(self.a), tensor_file(self.b)

    def _shape(self, m: int, k: int, n: int) -> tuple[int, int, int]:
        return min(m, self.most or m), k, min(n, self.most or n)


def as_integers(x: Tensor, fmt: str, name: str, scaled: str) -> Tensor:
    """``x`` as integers of ``fmt`` in float32.

    Tensors of an integer type, and all with ``scaled`` "none", are taken as they are; others are scaled so that their
    largest magnitude is the format's largest value, and rounded.

    Raises:
        StudyError: numbers taken as they are that are no integers, or outside of the format.
    """
    if x.is_floating_point() and scaled != "none":
        return integers(x, fmt)
    parsed = gs.formats.parse_scalar(fmt)
    values = x.double()
    if x.is_floating_point() and not bool((values == values.round()).all()):
        raise StudyError(f"{name} has numbers that are not integers; allowed with --scaled none: integers. Scale it.")
    low, high = int(parsed.min), int(parsed.max)
    if x.numel() and not low <= int(values.min()) <= int(values.max()) <= high:
        raise StudyError(
            f"{name} holds {int(values.min())} to {int(values.max())}; allowed by {fmt}: {low} to {high}. Give a wider "
            "format with --operands."
        )
    return values.to(torch.float32)
