"""Products on the CPU whose terms come from a table of products of codes."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Lookup
from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.lowering.abi_constants import Method, Site
from gemmsim.lowering.cast_numbers import described
from gemmsim.lowering.refusal import Refusal

from ..dtypes import NUMBERS
from ..product import Ran
from ..product_tables import facts_of, values_of
from .ctypes_structs import GEMM_CALL, Extras, GemmSpecPart, LookupRecord, packed
from .gemm import batch_record, failure
from .kernel_report import ran
from .quantize import quantize
from .shared_library import library
from .spec_cache import Prepared, prepare, refuses

__all__ = ["count_lookup_overflows", "lookup_gemm", "lookup_refuses"]


def lookup_refuses(spec: GemmSpec) -> Refusal | None:
    """Return why ``lookup_gemm`` does not compute ``spec``, or ``None``."""
    assert isinstance(spec.accumulator, Lookup)
    return refuses(GemmSpec(accumulator=spec.accumulator.inner, out=spec.out))


@lru_cache(maxsize=1024)
def _prepared(spec: GemmSpec) -> Prepared:
    """Return the spec's part of each call. The operands are described as 1 and as the table's products."""
    one = spec.accumulator
    assert isinstance(one, Lookup)
    known = prepare(GemmSpec(accumulator=one.inner, out=spec.out))
    part = GemmSpecPart.from_buffer_copy(known.part)
    facts = facts_of(one.products)
    part.cast_a = packed(described(1, 0, 0, -1.0, 1.0))
    part.cast_b = packed(described(facts.p, facts.quantum, facts.emax, facts.low, facts.high))
    return Prepared(bytes(part), known.call, known.programs, known.members, known.init, known.shuffles)


def lookup_gemm(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int = 0, row: int = 0) -> Ran:
    """Write to ``out`` (\\*B, M, N) the product of codes ``a`` (\\*B, M, K) and ``b`` (\\*B, K, N), int16, any strides.

    The codes are those of the table's formats. 2**bits stands for a NaN that a format has no code for. Everything after
    the products is as in ``cpu.gemm``.

    Raises:
        UnsupportedSpec: if ``lookup_refuses(spec)`` gives a reason.
        ValueError: for an ``int(...)`` register that meets NaN.
        MemoryError: if the packed panels cannot be allocated.
    """
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    if spec.out is not None and spec.out.is_stochastic:
        raw = torch.empty(out.shape, dtype=torch.float64)
        run = _call(_prepared(spec), a, b, spec, raw, seed, None, row)
        quantize(raw, spec.out, out, seed, Site.OUTPUT)
        return run
    return _call(_prepared(spec), a, b, spec, out, seed, None, row)


def count_lookup_overflows(a: Tensor, b: Tensor, spec: GemmSpec, counts: Tensor, seed: int = 0) -> Ran:
    """Add to ``counts`` how often each element's register left its range.

    ``counts`` is contiguous int64. The other arguments are as for ``lookup_gemm``.

    Raises:
        UnsupportedSpec: for an accumulator without a register that counts.
    """
    known = _prepared(spec)
    if known.programs[0].method not in (Method.INTEGER, Method.FIXED):
        raise UnsupportedSpec(
            f"no overflows of {str(spec)!r} are counted; allowed: int(...), fixed(...) and accumulators made of them."
            "\n  Use fixed(bits, frac, rounding=...) for an accumulator that counts overflows."
        )
    return _call(known, a, b, spec, counts, seed if spec.fixed_seed is None else spec.fixed_seed, counts)


def _call(
    known: Prepared,
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    out: Tensor,
    seed: int,
    counts: Tensor | None,
    row: int = 0,
) -> Ran:
    one = spec.accumulator
    assert isinstance(one, Lookup) and a.dtype == b.dtype == torch.int16
    values = values_of(one.products)
    record = LookupRecord(values.data_ptr(), *values.shape)
    sa, sb, sc = a.stride(), b.stride(), out.stride()
    dims = len(sc) - 2
    batch = batch_record(a, b, out, dims) if dims else None
    extras = None if counts is None else Extras(overflows=counts.data_ptr())
    m, n = out.shape[-2:]
    args = GEMM_CALL.pack(
        a.data_ptr(), b.data_ptr(), out.data_ptr() if counts is None else 0,
        NUMBERS[torch.float32], NUMBERS[torch.float64], NUMBERS[out.dtype] if counts is None else 0, dims,
        m, n, a.shape[-1], sa[-2], sa[-1], sb[-2], sb[-1], sc[-2], sc[-1],
        ctypes.addressof(batch) if batch is not None else 0, ctypes.addressof(extras) if extras is not None else 0,
        seed, torch.get_num_threads(), row,
    )  # fmt: skip
    part, _alive = known.of(a.shape[-1]) if known.shuffles else (known.part, None)
    code = library().gemmsim_lookup_gemm(args + part, ctypes.byref(record))
    if code < 0:
        raise failure(code, a.shape[-1], n)
    return ran(code)
