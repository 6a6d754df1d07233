"""Matrix products on the CPU."""

from __future__ import annotations

from ctypes import byref
from typing import Final

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Sequential
from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.formats import Cast, FixedFormat, FloatFormat

from .library import library
from .params import cast_record
from .quantize import DTYPES, quantize
from .records import MAX_BATCH_DIMS, GemmArgs, Report
from .run import Run

__all__ = ["SITE_A", "SITE_B", "SITE_OUT", "gemm", "supported"]

#: Where random bits belong (docs/reference/random_bits.md).
SITE_A: Final = 0
SITE_B: Final = 1
SITE_OUT: Final = 4

_templates: dict[GemmSpec, GemmArgs] = {}


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
    accumulator = spec.accumulator
    if not isinstance(accumulator, Sequential):
        return f"accumulator {accumulator} is not a sequential one"
    if accumulator.init != "zero":
        return f"init={accumulator.init!r}: the register starts from zero here"
    roles = (("operand a", spec.a, False), ("operand b", spec.b, False), ("product", accumulator.mul, True))
    roles += (("accumulator", accumulator.add, True), ("output", spec.out, False))
    for role, cast, register in roles:
        if cast is None:
            continue
        reason = _cast_reason(role, cast, register)
        if reason is None and spec.arithmetic == "fp32" and register:
            reason = _fp32_reason(role, cast)
        if reason is not None:
            return reason
    return None


def _template(spec: GemmSpec) -> GemmArgs:
    """The part of the call that only depends on the spec."""
    reason = supported(spec)
    if reason is not None:
        raise UnsupportedSpec(
            f"The CPU backend cannot run {str(spec)!r}: {reason}. gemmsim.reference computes every spec (slowly)."
        )
    accumulator = spec.accumulator
    assert isinstance(accumulator, Sequential)
    args = GemmArgs()
    casts = (("cast_a", spec.a), ("cast_b", spec.b), ("cast_mul", accumulator.mul))
    casts += (("cast_add", accumulator.add), ("cast_out", spec.out))
    for field, cast in casts:
        if cast is not None and (field in ("cast_mul", "cast_add") or not cast.is_stochastic):
            setattr(args, field, cast_record(cast))
    args.fused = int(accumulator.mul is None)
    args.arithmetic = int(spec.arithmetic == "fp32")
    return args


def _strides(args: GemmArgs, a: Tensor, b: Tensor, out: Tensor) -> None:
    dims = out.dim() - 2
    if dims > MAX_BATCH_DIMS:
        raise ValueError(f"{dims} batch dimensions: at most {MAX_BATCH_DIMS} are supported. Flatten some of them.")
    sa, sb, sc = a.stride(), b.stride(), out.stride()
    args.batch_dims = dims
    for d in range(dims):
        args.batch_size[d] = out.shape[d]
        args.a_batch[d] = sa[d]
        args.b_batch[d] = sb[d]
        args.c_batch[d] = sc[d]
    args.a_row, args.a_col = sa[-2], sa[-1]
    args.b_row, args.b_col = sb[-2], sb[-1]
    args.c_row, args.c_col = sc[-2], sc[-1]


def _unbroadcast(x: Tensor) -> Tensor:
    """``x`` with expanded (stride 0) batch dimensions cut to size 1: each stored element once."""
    for d in range(x.dim() - 2):
        if x.stride(d) == 0 and x.shape[d] > 1:
            x = x.narrow(d, 0, 1)
    return x


def _rounded(x: Tensor, cast: Cast, seed: int, site: int) -> Tensor:
    """Operand rounded stochastically, in a tensor of its own: the bits belong to its elements, not to their uses."""
    base = _unbroadcast(x)
    wide = torch.empty(base.shape, dtype=torch.float64 if base.dtype == torch.float64 else torch.float32)
    quantize(base, cast, wide, seed, site)
    return wide.expand(x.shape)


def gemm(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int = 0) -> Run:
    """Write ``spec``'s product of ``a`` (\\*B, M, K) and ``b`` (\\*B, K, N) into ``out`` (\\*B, M, N); strides are free.

    Broadcast batch dimensions come expanded (stride 0). Results are rounded to ``out``'s dtype (nearest even) after the
    spec's own output rounding. ``seed`` matters only for stochastic specs. Returns what ran.
    Extra memory: B packed once (K x N in the carrier, float32 or float64) and half a megabyte per thread for A.

    Raises:
        UnsupportedSpec: if ``supported(spec)`` gives a reason.
        MemoryError: if the packed panels cannot be allocated.
    """
    template = _templates.get(spec)
    if template is None:
        if len(_templates) > 4096:
            _templates.clear()
        template = _templates[spec] = _template(spec)
    if spec.is_stochastic:
        seed = seed if spec.fixed_seed is None else spec.fixed_seed
        if spec.a is not None and spec.a.is_stochastic:
            a = _rounded(a, spec.a, seed, SITE_A)
        if spec.b is not None and spec.b.is_stochastic:
            b = _rounded(b, spec.b, seed, SITE_B)
        if spec.out is not None and spec.out.is_stochastic:
            raw = torch.empty(out.shape, dtype=torch.float64)
            run = _call(template, a, b, raw, seed)
            quantize(raw, spec.out, out, seed, SITE_OUT)
            return run
    return _call(template, a, b, out, seed)


def _call(template: GemmArgs, a: Tensor, b: Tensor, out: Tensor, seed: int) -> Run:
    args = GemmArgs.from_buffer_copy(template)
    args.a, args.b, args.c = a.data_ptr(), b.data_ptr(), out.data_ptr()
    args.a_dtype, args.b_dtype, args.c_dtype = DTYPES[a.dtype], DTYPES[b.dtype], DTYPES[out.dtype]
    args.m, args.n, args.k = out.shape[-2], out.shape[-1], a.shape[-1]
    _strides(args, a, b, out)
    args.seed = seed
    args.threads = torch.get_num_threads()
    report = Report()
    if library().gemmsim_gemm(byref(args), byref(report)):
        raise MemoryError(
            f"Packing b ({args.k} x {args.n}) needs about {args.k * args.n * 4 / 2**30:.1f} GiB or more. Split the product along N."
        )
    return Run(report)
