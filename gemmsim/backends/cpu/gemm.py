"""Matrix products on the CPU."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, SpecError
from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.formats import Cast, FixedFormat, FloatFormat

from .library import library
from .params import cast_record
from .program import FIXED, Program, member_record, permutation, program
from .quantize import DTYPES, quantize
from .records import GEMM_CALL, MAX_BATCH_DIMS, Extras, GemmSpecPart
from .run import Run

__all__ = ["SITE_A", "SITE_B", "SITE_OUT", "gemm", "supported"]

#: Where random bits belong (docs/reference/random_bits.md).
SITE_A: Final = 0
SITE_B: Final = 1
SITE_OUT: Final = 4

_spec_parts: dict[GemmSpec, tuple[bytes, Program]] = {}
_pack = GEMM_CALL.pack


def _cast_reason(role: str, cast: Cast, register: bool) -> str | None:
    fmt = cast.format
    if isinstance(fmt, FloatFormat) and not fmt.fits_float64:
        return f"{role} {cast}: its values do not fit float64, the widest carrier of the CPU backend"
    if isinstance(fmt, FixedFormat) and not fmt.clamp and register:
        return f"{role} {cast}: a register needs bounds; give it bits, fixed(bits,frac) with bits <= 53"
    return None


def _fp32_reason(role: str, cast: Cast) -> str | None:
    fmt = cast.format
    if isinstance(fmt, FloatFormat) and (fmt.p > 24 or fmt.emin < -126 or fmt.emax > 127):
        return f'{role} {cast} is wider than fp32, which arithmetic="fp32" computes in; use arithmetic="exact"'
    return None


def supported(spec: GemmSpec) -> str | None:
    """None if this backend computes ``spec``, else the reason why not."""
    found = program(spec.accumulator)
    if isinstance(found, str):
        return found
    roles: list[tuple[str, Cast | None, bool]] = [
        ("operand a", spec.a, False),
        ("operand b", spec.b, False),
        ("product", found.mul, found.method != FIXED),
        ("accumulator", found.add, True),
        *(("totals", wrapper.cast, True) for wrapper in found.wrappers),
        ("output", spec.out, False),
    ]
    for role, cast, register in roles:
        if cast is None:
            continue
        reason = _cast_reason(role, cast, register)
        if reason is None and spec.arithmetic == "fp32" and register:
            reason = _fp32_reason(role, cast)
        if reason is not None:
            return reason
    return None


def _spec_part(spec: GemmSpec) -> tuple[bytes, Program]:
    """The part of the call that only depends on the spec."""
    reason = supported(spec)
    if reason is not None:
        raise UnsupportedSpec(
            f"The CPU backend cannot run {str(spec)!r}: {reason}. gemmsim.reference computes every spec (slowly)."
        )
    found = program(spec.accumulator)
    assert isinstance(found, Program)
    args = GemmSpecPart()
    # stochastic operand and output casts are passes of their own (gemm below)
    for field, cast in (("cast_a", spec.a), ("cast_b", spec.b), ("cast_out", spec.out)):
        if cast is not None and not cast.is_stochastic:
            setattr(args, field, cast_record(cast))
    args.arithmetic = int(spec.arithmetic == "fp32")
    args.member = member_record(found)
    return bytes(args), found


def _batch(a: Tensor, b: Tensor, out: Tensor, dims: int) -> ctypes.Array[ctypes.c_int64]:
    """Sizes and strides of the batch dimensions, as the library reads them."""
    if dims > MAX_BATCH_DIMS:
        raise ValueError(f"{dims} batch dimensions: at most {MAX_BATCH_DIMS} are supported. Flatten some of them.")
    rows = (*out.shape[:dims], *a.stride()[:dims], *b.stride()[:dims], *out.stride()[:dims])
    return (ctypes.c_int64 * len(rows))(*rows)


def _unbroadcast(x: Tensor) -> Tensor:
    """``x`` with expanded (stride 0) batch dimensions cut to size 1: each stored element once."""
    for d in range(x.dim() - 2):
        if x.stride(d) == 0 and x.shape[d] > 1:
            x = x.narrow(d, 0, 1)
    return x


def _rounded(x: Tensor, cast: Cast, seed: int, site: int) -> Tensor:
    """Operand rounded stochastically, in a tensor of its own: the bits belong to its elements, not to their uses."""
    base = _unbroadcast(x)
    fmt = cast.format
    narrow = base.dtype != torch.float64 and (isinstance(fmt, FixedFormat) or fmt.emax <= 127)
    wide = torch.empty(base.shape, dtype=torch.float32 if narrow else torch.float64)
    quantize(base, cast, wide, seed, site)
    return wide.expand(x.shape)


def gemm(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int = 0, c: Tensor | None = None) -> Run:
    """Write the product of ``a`` (\\*B, M, K) and ``b`` (\\*B, K, N) that ``spec`` means into ``out`` (\\*B, M, N).

    Strides are free.

    ``c`` is an addend of ``out``'s shape, which the accumulator's ``init`` gives a place; without it C is absent.
    Broadcast dimensions come expanded (stride 0). Results are rounded to ``out``'s dtype (nearest even) after the
    spec's own output rounding. ``seed`` matters only for stochastic specs. Returns what ran.
    Extra memory: B packed once (K x N in the carrier, float32 or float64) and half a megabyte per thread for A.

    Raises:
        UnsupportedSpec: if ``supported(spec)`` gives a reason.
        SpecError: for ``c`` without a place in ``spec``.
        MemoryError: if the packed panels cannot be allocated.
    """
    part = _spec_parts.get(spec)
    if part is None:
        if len(_spec_parts) > 4096:
            _spec_parts.clear()
        part = _spec_parts[spec] = _spec_part(spec)
    if c is not None and part[1].init == "zero":
        raise SpecError(
            f"c with {str(spec)!r}; allowed: init=c_first or init=c_last.\n  Say where C enters, or drop c."
        )
    if spec.is_stochastic:
        seed = seed if spec.fixed_seed is None else spec.fixed_seed
        if spec.a is not None and spec.a.is_stochastic:
            a = _rounded(a, spec.a, seed, SITE_A)
        if spec.b is not None and spec.b.is_stochastic:
            b = _rounded(b, spec.b, seed, SITE_B)
        if spec.out is not None and spec.out.is_stochastic:
            raw = torch.empty(out.shape, dtype=torch.float64)
            run = _call(part, a, b, raw, seed, c)
            quantize(raw, spec.out, out, seed, SITE_OUT)
            return run
    return _call(part, a, b, out, seed, c)


def _extras(c: Tensor) -> Extras:
    """The record of an addend. It must outlive the call, and so must its ``strides``."""
    record = Extras(addend=c.data_ptr(), addend_row=c.stride(-2), addend_col=c.stride(-1), addend_dtype=DTYPES[c.dtype])
    strides = c.stride()[:-2]
    record.strides = (ctypes.c_int64 * (2 * len(strides)))(*strides)  # kept alive by the record
    record.batch = ctypes.addressof(record.strides)
    return record


def _call(known: tuple[bytes, Program], a: Tensor, b: Tensor, out: Tensor, seed: int, c: Tensor | None) -> Run:
    part, found = known
    sa, sb, sc = a.stride(), b.stride(), out.stride()
    dims = len(sc) - 2
    batch = _batch(a, b, out, dims) if dims else None
    extras = None if c is None else _extras(c)
    m, n = out.shape[-2:]
    args = _pack(
        a.data_ptr(), b.data_ptr(), out.data_ptr(), DTYPES[a.dtype], DTYPES[b.dtype], DTYPES[out.dtype], dims,
        m, n, a.shape[-1], sa[-2], sa[-1], sb[-2], sb[-1], sc[-2], sc[-1],
        ctypes.addressof(batch) if batch is not None else 0, ctypes.addressof(extras) if extras is not None else 0,
        seed, torch.get_num_threads(), 0,
    )  # fmt: skip
    if found.shuffle is not None:  # the field before the last of the spec's part is the permutation of this K
        order = permutation(found.shuffle, a.shape[-1])
        part = part[:-16] + ctypes.addressof(order).to_bytes(8, sys.byteorder) + part[-8:]
    code = library().gemmsim_gemm(args + part)
    if code == -2:
        raise ValueError(
            "int(...) adds whole numbers; an operand has fractions, NaN or infinities after its cast.\n  Cast the "
            'operands to integers ("int8 : int(24)"), or use fixed(P, frac).'
        )
    if code < 0:
        k = a.shape[-1]
        size = f"{k * n * 4 / 2**30:.1f} GiB"
        raise MemoryError(f"Packing b ({k} x {n}) needs {size} or more, which is not there. Split the product along N.")
    return Run(code)
