"""Stores prepared launches: kernel, blocks, and arguments except pointers and seed, for tensors of equal layout.

Choosing a kernel and filling its record take longer than a small product. A second call looks both up.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from torch import Tensor

from gemmsim.arithmetic import GemmSpec

from ...device_tables import Table
from ...product import Ran
from ..jit.source import KernelSource
from .gemm_args import GemmArgs

if TYPE_CHECKING:
    from ...epilogue import Finish

__all__ = ["Joining", "Ready", "key_of", "ready", "remember"]

#: Largest number of stored products; some have a table of K integers on the device.
_MOST: Final = 1024
_ready: dict[Hashable, Ready] = {}


@dataclass(frozen=True, eq=False)
class Joining:
    """A second launch with the same arguments, and the bytes of memory that both launches use for partial sums."""

    source: KernelSource
    blocks: tuple[int, int, int]
    memory: int


@dataclass(frozen=True, eq=False)
class Ready:
    """One launch, and the one that follows it, if any.

    ``args`` are those of the first call. ``keep`` is the table that they point to, if any.
    """

    source: KernelSource
    blocks: tuple[int, int, int]
    args: GemmArgs
    keep: Table | None
    run: Ran
    then: Joining | None = None

    def args_for(
        self, a: Tensor, b: Tensor, out: Tensor, seed: int, bias: Tensor | None, row: int = 0
    ) -> GemmArgs:  # fmt: skip
        """Return the arguments for these tensors, which must have the layout of the first call; the caller launches
        them next.
        """
        if self.keep is not None:
            self.keep.read()
        args = GemmArgs.from_buffer_copy(self.args)  # another thread may be launching the same product
        args.a, args.b, args.out, args.seed, args.row = a.data_ptr(), b.data_ptr(), out.data_ptr(), seed, row
        if bias is not None:
            args.bias = bias.data_ptr()
        return args


def key_of(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, finish: Finish | None) -> Hashable:
    """Return everything on which a launch depends except pointers, seed and row."""
    last: Hashable = None
    if finish is not None:
        bias = finish.bias
        last = (finish.work, finish.cast, None if bias is None else (bias.dtype, bias.stride(), bias.device))
    return (
        spec, a.dtype, b.dtype, out.dtype, a.shape, b.shape, out.shape, a.stride(), b.stride(), out.stride(),
        a.data_ptr() % 16, b.data_ptr() % 16, a.device, b.device, out.device, last,
    )  # fmt: skip


def ready(key: Hashable) -> Ready | None:
    """Return the stored launch of ``key``, or None."""
    return _ready.get(key)


def remember(key: Hashable, made: Ready) -> None:
    """Store ``made`` for calls with this key, unless it points to a table that belongs to a graph."""
    if made.keep is not None and not made.keep.lasting:
        return
    if len(_ready) >= _MOST:
        _ready.clear()
    _ready[key] = made
