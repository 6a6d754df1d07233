"""The interface of a device's backend, and the choice of the backend for a tensor's device.

A backend is a package of functions: ``gemmsim.backends.cpu`` or ``gemmsim.backends.cuda``. ``Backend`` lists the
functions that both have. They have the same meaning and give the same bits; the docstrings in each package give the
details.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import BlockFormat, Cast, TensorFormat
from gemmsim.lowering.refusal import Refusal

from .product import Product, Ran

if TYPE_CHECKING:  # for annotations only: a backend is loaded when the first tensor needs it
    import torch
    from torch import Tensor

    from .cpu.scaled_cast import GridNumbers

__all__ = ["Backend", "backend_name", "backend_of"]


class Backend(Protocol):
    """The operations of a backend. Each writes its results to ``out`` and rounds each value to ``out``'s dtype last."""

    def gemm(
        self, a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int = 0, c: Tensor | None = None,
        select: Tensor | None = None,
    ) -> Ran:  # fmt: skip
        """Compute the product of values that ``spec`` casts: ``multiply`` without a record, for small products."""

    def multiply(self, product: Product) -> Ran:
        """Compute any product by kernels: of values, of codes with scales, from a table, or by implicit im2col.

        With ``product.count`` the function counts overflows instead.
        """

    def count_events(
        self, a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, counts: Tensor, seed: int = 0, c: Tensor | None = None
    ) -> Ran:  # fmt: skip
        """Compute a product of values and count the events of its additions."""

    def names_instruction(self, spec: GemmSpec) -> bool:
        """Whether ``spec`` names a matrix instruction that a device of this kind may have."""

    def instruction(self, product: Product) -> Ran | Refusal:
        """Compute a product by the device's own instruction, if a self-check found it equal to the spec's."""

    def finishes(self, spec: GemmSpec, cast: Cast | None) -> bool:
        """Whether kernels of products of ``spec`` apply a bias and ``cast`` in their epilogue."""

    def quantize(
        self, x: Tensor, cast: Cast, out: Tensor, seed: int = 0, site: int = 16, start: int = 0
    ) -> None:  # fmt: skip
        """Apply ``cast`` to each element, with the random bits of the elements from ``start`` on."""

    def quantize_tensor(self, x: Tensor, fmt: TensorFormat, out: Tensor, seed: int = 0, site: int = 16) -> None:
        """Round a tensor to a format that its elements share."""

    def encode_blocks(
        self, x: Tensor, fmt: BlockFormat, codes: Tensor, scales: Tensor, dim: int, packing: str,
        tensor_scale: Tensor | float | None = None,
    ) -> None:  # fmt: skip
        """Write codes and scales of blocks along ``dim``. ``tensor_scale`` None means 1."""

    def decode_blocks(
        self, codes: Tensor, scales: Tensor, fmt: BlockFormat, out: Tensor, dim: int, packing: str,
        tensor_scale: Tensor | float | None = None,
    ) -> None:  # fmt: skip
        """Write the values that codes and scales stand for."""

    def quantize_blocks(
        self, x: Tensor, fmt: BlockFormat, out: Tensor, dim: int, tensor_scale: Tensor | float | None = None
    ) -> None:  # fmt: skip
        """Write the values that encoding and decoding ``x`` gives."""

    def run_rows(
        self, op: str, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], steps: Sequence[Cast | None], *,
        rows: int, cols: int, function: str = "copy", order: int = 1, centered: bool = True, eps: float = 0.0,
        seed: int = 0,
    ) -> torch.dtype:  # fmt: skip
        """Run an operation on rows, step by step, in float32, or in float64 if a tensor has that dtype.

        Return the dtype in which the first result left the kernel.
        """

    def scaled_cast(
        self, x: Tensor, grid: GridNumbers, out: Tensor, *, amax: Tensor | None = None, bias: Tensor | None = None,
        integers: bool = False,
    ) -> int:  # fmt: skip
        """Cast between scalings by the largest magnitude. The returned status says which values were invalid."""

    def affine_cast(self, x: Tensor, low: Tensor, high: Tensor, num_bits: int, out: Tensor) -> int:
        """Cast to equal steps between two bounds, and return a status as ``scaled_cast`` does."""


_loaded: dict[bool, Backend] = {}


def backend_of(x: Tensor) -> Backend:
    """Return the backend of the tensor's device. The first CUDA tensor loads the CUDA backend."""
    try:
        return _loaded[x.is_cuda]
    except KeyError:
        return _load(x.is_cuda)


def backend_name(x: Tensor) -> str:
    """Return what records call the backend of the tensor's device."""
    return "cuda" if x.is_cuda else "cpu"


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
