"""A kernel as text: the few generated lines that instantiate a template of ``cutlass_kernels``."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field, fields
from typing import Literal

from gemmsim.lowering.cast_numbers import CastNumbers

__all__ = ["ENTRY", "KernelSource", "cast_literal", "double_literal"]

#: Name of the entry point of every kernel. One kernel a program, so that no mangled name has to be looked up.
ENTRY = "gemmsim_kernel"


@dataclass(frozen=True)
class KernelSource:
    """One kernel: what it is called, its text, and the facts its launch depends on.

    ``text`` defines ``extern "C" __global__ void gemmsim_kernel(const Args args)``: one record by value, whatever the
    kernel. Two sources are equal when their texts are.
    """

    family: str = field(compare=False)
    name: str = field(compare=False)
    text: str
    threads: int = field(compare=False)  # of a block
    shared_bytes: int = field(default=0, compare=False)  # dynamic shared memory of a block
    #: What instructions are counted for: results (products, elements) of one thread in one pass of its innermost loop,
    #: or in the whole kernel where it has no loop worth counting.
    work: int = field(default=1, compare=False)
    hot: Literal["loop", "whole"] = field(default="whole", compare=False)
    #: Of a kernel with a loop over chunks: products of a thread in a chunk, and its reads of global memory for one.
    chunk: int = field(default=0, compare=False)
    loads: int = field(default=0, compare=False)
    #: Architectures with the kernel's instructions; empty: all.
    archs: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.family}<{self.name}>"

    def runs_on(self, arch: str) -> bool:
        """Whether ``arch`` has the kernel's instructions."""
        return not self.archs or arch in self.archs


def double_literal(x: float) -> str:
    """C++ text of exactly ``x``; infinities and NaN by their bits."""
    if math.isfinite(x):
        return x.hex()
    return f"gemmsim::number({struct.unpack('<Q', struct.pack('<d', x))[0]:#018x}ull)"


def cast_literal(numbers: CastNumbers) -> str:
    """Initializer of a ``gemmsim::Cast`` by field names."""
    values = ((one, getattr(numbers, one.name)) for one in fields(numbers))
    texts = (f".{one.name} = {double_literal(x) if one.type == 'float' else x}" for one, x in values)
    return "{" + ", ".join(texts) + "}"
