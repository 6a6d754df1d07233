"""What a device's backend offers, and which one a tensor's device has.

A backend is a package of functions, ``gemmsim.backends.cpu`` and ``gemmsim.backends.cuda``; ``Backend`` lists those
that both have, with one meaning and the same bits. Their docstrings say the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import BlockFormat, Cast, TensorFormat
from gemmsim.lowering.refusal import Refusal

from .product import Product, Ran

if TYPE_CHECKING:  # only where it is in the program already: a backend is loaded when a tensor asks for it
    import torch
    from torch import Tensor

    from .cpu.scaled_cast import GridNumbers

__all__ = ["Backend", "backend_of"]


class Backend(Protocol):
    """The verbs. Results are written to ``out``, whose dtype each value is rounded to last."""

    def gemm(
        self, a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int = 0, c: Tensor | None = None,
        select: Tensor | None = None,
    ) -> Ran:  # fmt: skip
        """The product of values that ``spec`` casts: ``multiply`` without a record, for products that are small."""

    def multiply(self, product: Product) -> Ran:
        """A product of any kind, by kernels: of values, codes with scales or of a table, windows; or its overflows."""

    def count_events(
        self, a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, counts: Tensor, seed: int = 0, c: Tensor | None = None
    ) -> Ran:  # fmt: skip
        """A product of values, and what happened at its additions."""

    def names_instruction(self, spec: GemmSpec) -> bool:
        """Whether ``spec`` names a matrix instruction that a device of this kind may have."""

    def instruction(self, product: Product) -> Ran | Refusal:
        """A product by the device's own instruction, if it was found equal to the one that the spec names."""

    def finishes(self, spec: GemmSpec, cast: Cast | None) -> bool:
        """Whether kernels of products of ``spec`` take a bias and ``cast`` as their last steps."""

    def quantize(
        self, x: Tensor, cast: Cast, out: Tensor, seed: int = 0, site: int = 16, start: int = 0
    ) -> None:  # fmt: skip
        """``cast`` of each element, with the random bits of elements ``start`` and on."""

    def quantize_tensor(self, x: Tensor, fmt: TensorFormat, out: Tensor, seed: int = 0, site: int = 16) -> None:
        """A tensor in a format that its elements share."""

    def encode_blocks(
        self, x: Tensor, fmt: BlockFormat, codes: Tensor, scales: Tensor, dim: int, packing: str,
        tensor_scale: Tensor | float | None = None,
    ) -> None:  # fmt: skip
        """Codes and scales of blocks along ``dim``; ``tensor_scale`` None is 1."""

    def decode_blocks(
        self, codes: Tensor, scales: Tensor, fmt: BlockFormat, out: Tensor, dim: int, packing: str,
        tensor_scale: Tensor | float | None = None,
    ) -> None:  # fmt: skip
        """The values that they stand for."""

    def quantize_blocks(
        self, x: Tensor, fmt: BlockFormat, out: Tensor, dim: int, tensor_scale: Tensor | float | None = None
    ) -> None:  # fmt: skip
        """Both at once."""

    def run_rows(
        self, op: str, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], steps: Sequence[Cast | None], *,
        rows: int, cols: int, function: str = "copy", order: int = 1, centered: bool = True, eps: float = 0.0,
        seed: int = 0,
    ) -> torch.dtype:  # fmt: skip
        """An operation on rows, step by step, in float32, or in float64 if a tensor has that. The dtype in which the
        first result left the kernel."""

    def scaled_cast(
        self, x: Tensor, grid: GridNumbers, out: Tensor, *, amax: Tensor | None = None, bias: Tensor | None = None,
        integers: bool = False,
    ) -> int:  # fmt: skip
        """A cast between scalings by the largest magnitude; the status says what was wrong with the data."""

    def affine_cast(self, x: Tensor, low: Tensor, high: Tensor, num_bits: int, out: Tensor) -> int:
        """A cast to equal steps between two bounds; status likewise."""


_loaded: dict[bool, Backend] = {}


def backend_of(x: Tensor) -> Backend:
    """The backend of the tensor's device; that of GPUs is loaded by the first tensor there."""
    try:
        return _loaded[x.is_cuda]
    except KeyError:
        return _load(x.is_cuda)


def _load(on_gpu: bool) -> Backend:
    backend: Backend
    if on_gpu:
        from . import cuda

        backend = cuda
    else:
        from . import cpu

        backend = cpu
    _loaded[on_gpu] = backend
    return backend
