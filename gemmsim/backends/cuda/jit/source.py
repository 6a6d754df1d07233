"""The source text of a kernel: the few generated lines that instantiate a template of ``cutlass_kernels``."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field, fields
from typing import Literal

from gemmsim.lowering.cast_numbers import CastNumbers

__all__ = ["ENTRY", "KernelSource", "cast_literal", "double_literal"]

#: Name of the entry point of every kernel. A program has one kernel, so that no mangled name has to be looked up.
ENTRY = "gemmsim_kernel"


@dataclass(frozen=True)
class KernelSource:
    """One kernel: its name, its text, and the facts on which its launch depends.

    ``text`` defines ``extern "C" __global__ void gemmsim_kernel(const Args args)``: every kernel takes one record by
    value. Two sources are equal when their texts are.

    Example:
        >>> from gemmsim.backends import cuda
        >>> source = next(cuda.family_sources(["cast"]))
        >>> source.family, source.name, source.threads
        ('cast', 'e4m3, f32 to f32, contiguous', 256)
    """

    family: str = field(compare=False)
    name: str = field(compare=False)
    text: str
    threads: int = field(compare=False)  # threads of a block
    shared_bytes: int = field(default=0, compare=False)  # dynamic shared memory of a block
    #: The divisor of counted instructions: results (products, elements) of one thread in one pass of its innermost
    #: loop, or in the whole kernel if it has no such loop.
    work: int = field(default=1, compare=False)
    hot: Literal["loop", "whole"] = field(default="whole", compare=False)
    #: For a kernel with a loop over chunks: products of a thread in a chunk, and its reads of global memory per chunk.
    chunk: int = field(default=0, compare=False)
    loads: int = field(default=0, compare=False)
    #: Architectures that have the kernel's instructions; empty means all.
    archs: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.family}<{self.name}>"

    def runs_on(self, arch: str) -> bool:
        """Whether ``arch`` has the kernel's instructions.

        Example:
            >>> from gemmsim.backends import cuda
            >>> next(cuda.family_sources(["cast"])).runs_on("sm_80")
            True
        """
        return not self.archs or arch in self.archs


def double_literal(x: float) -> str:
    """Return C++ text for exactly ``x``; infinities and NaN are written by their bits."""
    if math.isfinite(x):
        return x.hex()
    return f"gemmsim::number({struct.unpack('<Q', struct.pack('<d', x))[0]:#018x}ull)"


def cast_literal(numbers: CastNumbers) -> str:
    """Return the initializer of a ``gemmsim::Cast`` by field names."""
    values = ((one, getattr(numbers, one.name)) for one in fields(numbers))
    texts = (f".{one.name} = {double_literal(x) if one.type == 'float' else x}" for one, x in values)
    return "{" + ", ".join(texts) + "}"
