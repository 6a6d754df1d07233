"""The kernel families, and for each the kernels that are compiled ahead of time and watched by CI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from . import block_float, cast, gemm_collective, gemm_instruction, gemm_tensor, mx_cast, rows, scaled_casts
from .counted import sources as watched_kernels
from .errors import CudaError, message
from .gathered import sources as gathered_kernels
from .jit.source import KernelSource
from .lookup import sources as lookup_kernels
from .one_instruction import sources as one_instruction_kernels
from .scaled_groups import sources as scaled_group_kernels
from .simt_blocks import sources as scaled_kernels
from .simt_sources import sources as gemm_kernels

__all__ = ["FAMILIES", "Family", "family_sources"]


@dataclass(frozen=True)
class Family:
    """A template of ``cutlass_kernels`` and the kernels made of it that stand for all others."""

    name: str
    summary: str
    sources: Callable[[], Iterable[KernelSource]]


def _gemm_kernels() -> Iterator[KernelSource]:
    yield from gemm_kernels()
    yield from scaled_kernels()
    yield from gathered_kernels()
    yield from lookup_kernels()
    yield from watched_kernels()


def _instruction_kernels() -> Iterator[KernelSource]:
    yield from gemm_instruction.sources()
    yield from scaled_group_kernels()
    yield from one_instruction_kernels()


FAMILIES = {
    family.name: family
    for family in (
        Family("cast", "element-wise rounding: quantize, operand and output casts", cast.sources),
        Family("block_float", "block floating point casts", block_float.sources),
        Family("scaled_cast", "integer and float casts under scales: calibrated, affine, blocks", scaled_casts.sources),
        Family("mx_cast", "block formats: encode, decode, fake-quantise", mx_cast.sources),
        Family("gemm_tensor", "matrix products of block formats on tensor cores", gemm_tensor.sources),
        Family("gemm_instruction", "matrix products by a chip's own instruction", _instruction_kernels),
        Family("gemm_collective", "matrix products by CUTLASS' own mainloop (Hopper)", gemm_collective.sources),
        Family("gemm", "matrix products of every accumulator on ordinary arithmetic units", _gemm_kernels),
        Family("rows", "softmax, normalisation, sums and element-wise steps", rows.sources),
    )
}


def family_sources(names: Sequence[str] = ()) -> Iterator[KernelSource]:
    """The kernels of the families ``names``, of all families if empty.

    Raises:
        CudaError: for an unknown name.
    """
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        asked = f"kernel famil{'ies' if len(unknown) > 1 else 'y'} {', '.join(unknown)}"
        raise CudaError(message(asked, ", ".join(FAMILIES), "Name one of these."))
    for name in names or FAMILIES:
        yield from FAMILIES[name].sources()
