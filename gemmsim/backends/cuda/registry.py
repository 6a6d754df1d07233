"""The kernel families, and for each the sample of kernels that CI compiles and whose instructions it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from . import rows
from .casts import block_float, cast, mx_cast, scaled_casts
from .errors import CudaError, message
from .jit.source import KernelSource
from .simt.block_scaled import sources as scaled_kernels
from .simt.ci_samples import sources as gemm_kernels
from .simt.event_counting import sources as counting_kernels
from .simt.implicit_im2col import sources as gathered_kernels
from .simt.lookup import sources as lookup_kernels
from .tensor_cores import block_scaled_mma, cutlass_mainloop, native_mma
from .tensor_cores.one_instruction import sources as one_instruction_kernels
from .tensor_cores.wgmma_block_scaled import sources as scaled_group_kernels

__all__ = ["FAMILIES", "Family", "family_sources"]


@dataclass(frozen=True)
class Family:
    """A template of ``cutlass_kernels``, and a sample of the kernels made of it.

    Example:
        >>> from gemmsim.backends import cuda
        >>> family = cuda.FAMILIES["cast"]
        >>> family.name, next(iter(family.sources())).name
        ('cast', 'e4m3, f32 to f32, contiguous')
    """

    name: str
    summary: str
    sources: Callable[[], Iterable[KernelSource]]


def _gemm_kernels() -> Iterator[KernelSource]:
    yield from gemm_kernels()
    yield from scaled_kernels()
    yield from gathered_kernels()
    yield from lookup_kernels()
    yield from counting_kernels()


def _instruction_kernels() -> Iterator[KernelSource]:
    yield from native_mma.sources()
    yield from scaled_group_kernels()
    yield from one_instruction_kernels()


FAMILIES = {
    family.name: family
    for family in (
        Family("cast", "element-wise rounding: quantize, operand and output casts", cast.sources),
        Family("block_float", "block floating point casts", block_float.sources),
        Family("scaled_cast", "integer and float casts under scales: calibrated, affine, blocks", scaled_casts.sources),
        Family("mx_cast", "block formats: encode, decode, fake-quantise", mx_cast.sources),
        Family("gemm_tensor", "matrix products of block formats on tensor cores", block_scaled_mma.sources),
        Family("gemm_instruction", "matrix products by a chip's own instruction", _instruction_kernels),
        Family("gemm_collective", "matrix products by CUTLASS' own mainloop (Hopper)", cutlass_mainloop.sources),
        Family("gemm", "matrix products of every accumulator on ordinary arithmetic units", _gemm_kernels),
        Family("rows", "softmax, normalisation, sums and element-wise steps", rows.sources),
    )
}


def family_sources(names: Sequence[str] = ()) -> Iterator[KernelSource]:
    """Yield the kernels of the families ``names``, or of all families if empty.

    Raises:
        CudaError: for an unknown name.

    Example:
        >>> from gemmsim.backends import cuda
        >>> next(cuda.family_sources(["gemm"])).family
        'gemm'
    """
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        asked = f"kernel famil{'ies' if len(unknown) > 1 else 'y'} {', '.join(unknown)}"
        raise CudaError(message(asked, ", ".join(FAMILIES), "Name one of these."))
    for name in names or FAMILIES:
        yield from FAMILIES[name].sources()
