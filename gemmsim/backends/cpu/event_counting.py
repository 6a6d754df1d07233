"""Products on the CPU that count the events of their additions."""

from __future__ import annotations

import ctypes
from ctypes import byref

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.lowering.abi_constants import Site
from gemmsim.lowering.events import SUPPORTED, least_normals, refuses

from ..dtypes import NUMBERS
from ..product import Ran
from .ctypes_structs import EventRecord
from .gemm import _check_extras, _extras, _known, _pack, _rounded_operands, batch_record, failure
from .kernel_report import ran
from .quantize import quantize
from .shared_library import library

__all__ = ["count_events"]


def count_events(
    a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, counts: Tensor, seed: int = 0, c: Tensor | None = None
) -> Ran:
    r"""``gemm``, which also adds to ``counts`` how many of each element's additions had each event.

    ``counts`` (4, \*B, M, N) is contiguous int64. The events are: swamped, inexact, underflowed and overflowed
    (``gemmsim.count_events`` defines them). The other arguments are as for ``gemm``.

    Extra memory: as ``gemm``, and 16 kB per thread.

    Raises:
        UnsupportedSpec: for a spec whose additions the kernels cannot count.
        SpecError: for ``c`` without a place in ``spec``.
        MemoryError: if the packed panels cannot be allocated.

    Example:
        >>> from gemmsim.backends import cpu
        >>> a, out, counts = torch.ones(1, 4096), torch.empty(1, 1), torch.zeros(4, 1, 1, dtype=torch.int64)
        >>> ran = cpu.count_events(a, a.mT, gs.GemmSpec.parse(":e5m10"), out, counts); counts.flatten()
        tensor([2048, 2048,    0,    0])
    """
    refusal = refuses(spec, "CPU backend")
    if refusal is not None:
        raise UnsupportedSpec(f"count_events of {str(spec)!r}: {refusal}; allowed: {SUPPORTED}.\n  Use one of these.")
    known = _known(spec)
    if c is not None:
        _check_extras(spec, known, c, None)
    if out.numel() == 0:
        return ran(0)
    target = out
    if spec.is_stochastic:
        seed = seed if spec.fixed_seed is None else spec.fixed_seed
        a, b = _rounded_operands(a, b, spec, seed)
        if spec.out is not None and spec.out.is_stochastic:
            target = torch.empty(out.shape, dtype=torch.float64)
    sa, sb, sc = a.stride(), b.stride(), target.stride()
    dims = len(sc) - 2
    batch = batch_record(a, b, target, dims) if dims else None
    extras = None if c is None else _extras(c, None, None, dims, None)
    m, n = out.shape[-2:]
    args = _pack(
        a.data_ptr(), b.data_ptr(), target.data_ptr(), NUMBERS[a.dtype], NUMBERS[b.dtype], NUMBERS[target.dtype], dims,
        m, n, a.shape[-1], sa[-2], sa[-1], sb[-2], sb[-1], sc[-2], sc[-1],
        ctypes.addressof(batch) if batch is not None else 0, ctypes.addressof(extras[0]) if extras is not None else 0,
        seed, torch.get_num_threads(), 0,
    )  # fmt: skip
    part = known.part
    if known.shuffles:
        part, _alive = known.of(a.shape[-1])
    record = EventRecord(counts.data_ptr())
    least = least_normals(known.programs[0])
    record.least[: len(least)] = least
    code = library().gemmsim_counted_gemm(args + part, byref(record))
    if code < 0:
        raise failure(code, a.shape[-1], n)
    if target is not out:
        assert spec.out is not None
        quantize(target, spec.out, out, seed, Site.OUTPUT)
    return ran(code)
