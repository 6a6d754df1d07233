"""Products on NVIDIA GPUs that count the events of their additions (cutlass_kernels/gemm/simt/count_events.h)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.lowering.abi_constants import Site
from gemmsim.lowering.events import SUPPORTED, refuses

from ...product import Ran
from ..casts.cast import quantize
from ..jit.launch import launch
from ..jit.source import KernelSource
from ..ran import ran
from .gemm import (
    blocks_of,
    cast_operands,
    check_devices,
    check_product,
    fill_orders,
    is_beforehand,
    kernel_for,
    operands_of,
)
from .gemm_args import gemm_args
from .gemm_operands import Operands
from .gemm_source import gemm_source
from .tile_candidates import tiles_of

__all__ = ["count_events", "sources"]


def count_events(
    a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, counts: Tensor, seed: int = 0, c: Tensor | None = None
) -> Ran:
    """``gemmsim.backends.cpu.count_events`` with the same bits and counts, on one GPU and torch's current stream.

    Raises:
        UnsupportedSpec: for a spec whose additions the kernels cannot count.
        SpecError: for ``c`` without a place in ``spec``.
        ValueError: for more than 2^31 - 1 terms or 16 batch dimensions.
        CudaError: if a kernel cannot be compiled or launched.
    """
    refusal = refuses(spec, "CUDA backend")
    if refusal is not None:
        raise UnsupportedSpec(f"count_events of {str(spec)!r}: {refusal}; allowed: {SUPPORTED}.\n  Use one of these.")
    check_product(spec, a.shape[-1], c, None)
    check_devices(a, b, out, counts, c)
    if out.numel() == 0:
        return ran()
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    a, b, done = cast_operands(a, b, spec, seed)
    target, plain = out, spec
    if spec.out is not None and is_beforehand(spec.out):
        target = torch.empty(out.shape, dtype=torch.float64, device=out.device)
        plain = replace(spec, out=None)
    operands = replace(operands_of(a, b, target, spec.accumulator, c, None, done), events=True)
    kernel = kernel_for(plain, spec.accumulator, operands, target, a.shape[-1])
    args = gemm_args(a, b, target, seed, c)
    args.select = counts.data_ptr()  # GemmArgs::events
    keep = fill_orders(args, spec.accumulator, out.device)
    launch(kernel.source, out.device, (blocks_of(args, kernel), 1, 1), args)
    if target is not out:
        assert spec.out is not None
        quantize(target, spec.out, out, seed, Site.OUTPUT)
    del keep  # the caching allocator reuses memory of this stream only for later work of the same stream
    return ran(kernel.source)


#: The products that CI compiles: every kind of innermost sum, an order of each kind, sums in float, double and
#: integers of 128 bits.
_LISTED = (
    ("e4m3 : e5m10", torch.bfloat16), (":e5m10", torch.float32), (":e5m10/sr16", torch.float32),
    (":fp64", torch.float64), (":pairwise(e5m10)", torch.float32), (":two_sum(e5m10)", torch.float32),
)  # fmt: skip


def sources() -> Iterator[KernelSource]:
    """Yield a kernel for each of ``_LISTED``, with its largest tile."""
    for text, dtype in _LISTED:
        spec = GemmSpec.of(text)
        out = dtype if dtype == torch.float64 else torch.float32
        done = spec.cast_a is not None
        operands = Operands(dtype, dtype, out, None, False, done, done, 1, 1, events=True)
        yield gemm_source(spec, spec.accumulator, operands, tiles_of(spec, spec.accumulator, operands)[0]).source
