"""Computes carrier-exact products: decides which products to try, and runs a proved product by an ordinary GEMM."""

from __future__ import annotations

import os
from typing import Final

import torch
from torch import Tensor

from gemmsim.arithmetic import Binned, Exact, GemmSpec, Hardware, Palette
from gemmsim.formats import Cast, FloatFormat, Format
from gemmsim.lowering.abi_constants import Site, holds
from gemmsim.lowering.refusal import Refusal

from ..convert import FORMATS, cast_into, cast_operand
from ..dtypes import DTYPES
from ..product import Ran
from .exactness_proof import Proof, exact, parts
from .operand_bounds import facts_of_data, facts_of_formats, hopeless

__all__ = ["gemm", "is_candidate", "proof_for"]

#: Multiply-adds from which a native product beats kernels that run one operation at a time (0.1 GMAC/s on a processor
#: that does 25 in float64), and kernels with random bits (3 GMAC/s). Below these the overhead of the calls is larger.
_SCALAR_WORK: Final = 1 << 15
_STOCHASTIC_WORK: Final = 1 << 24
#: Rows of a and columns of b in the sample. Most products without a proof already fail on it.
_SAMPLE_ROWS: Final = 16
#: Multiply-adds for each element of an operand from which the cost of a pass over the operands is negligible.
_REUSE: Final = 8

#: Rows for each thread, and elements of a and of the result, from which a product of a part of the rows is as fast as
#: one of all rows.
_ROWS_AT_LEAST: Final = 64
_TOGETHER: Final = 1 << 18

#: Dtypes of operands that matrix instructions multiply.
_NARROW: Final = (torch.bfloat16, torch.float16)

_TOO_SMALL: Final = Refusal("it is too small to gain from a library's product")
_UNBOUNDED: Final = Refusal("an operand's format has no bounds, or float64 does not hold it")
_NOT_FINITE: Final = Refusal("an operand holds NaN or infinities, or float64 does not sum its magnitudes")
_TOO_WIDE: Final = Refusal("products of the first elements need more bits than an accumulator of the spec holds")
_EMULATED: Final = Refusal("cuBLAS is set to compose float64 products from narrower ones")


def is_candidate(spec: GemmSpec) -> bool:
    """Whether it may pay to search for a proof: the kernels for ``spec`` are slow, and a predicate exists for it.

    Example:
        >>> from gemmsim.backends import exact_blas
        >>> [exact_blas.is_candidate(gs.GemmSpec.parse(text)) for text in ("e4m3 : exact(fp32)", ":fp32")]
        [True, False]
    """
    accumulator = spec.accumulator
    if any(isinstance(part, (Hardware, Palette)) for part in parts(accumulator)):
        return False
    return accumulator.is_stochastic or isinstance(parts(accumulator)[-1], (Exact, Binned))


def _refuses_size(spec: GemmSpec, a: Tensor, out: Tensor) -> Refusal | None:
    """Return why a native product plus a pass over the operands would not be faster, or ``None``."""
    work = out.numel() * a.shape[-1]
    least = _SCALAR_WORK if not spec.accumulator.is_stochastic else _STOCHASTIC_WORK
    m, n = out.shape[-2:]
    if work >= least and m * n >= _REUSE * (m + n):
        return None
    return _TOO_SMALL


def _format(x: Tensor, cast: Cast | None) -> Format:
    return FORMATS[x.dtype] if cast is None else cast.format


def _refuses_sample(a: Tensor, b: Tensor, spec: GemmSpec) -> Refusal | None:
    """Return why a sample of rows and columns, cast as the product casts them, has no proof, or ``None``.

    The facts of a part bound less than those of the whole. So a product whose part is refused would be refused as a
    whole. Casts with random bits draw other bits for a part; this affects only the estimate.
    """
    if spec.cast_a is None and spec.cast_b is None and hopeless(a, b, _bits(spec)):
        return _TOO_WIDE
    first = (0,) * (a.dim() - 2)
    left = cast_operand(a[first][:_SAMPLE_ROWS], spec.cast_a, torch.float64, 0, Site.OPERAND_A)
    right = cast_operand(b[first][:, :_SAMPLE_ROWS], spec.cast_b, torch.float64, 0, Site.OPERAND_B)
    if hopeless(left, right, _bits(spec)):
        return _TOO_WIDE
    found = _proof_of_data(left, right, spec)
    return found if isinstance(found, Refusal) else None


def _proof_of_data(a: Tensor, b: Tensor, spec: GemmSpec) -> Proof | Refusal:
    """Return the proof for these operands, which are already cast and in float64."""
    facts = facts_of_data(a, b)
    return _NOT_FINITE if facts is None else exact(spec, facts)


def _bits(spec: GemmSpec) -> int:
    """Return the bits of the narrowest register that a sum passes through."""
    if isinstance(spec.accumulator, Exact):
        return 53
    formats = [cast.format for cast in spec.accumulator.casts()]
    return min([fmt.p for fmt in formats if isinstance(fmt, FloatFormat)], default=53)


def proof_for(a: Tensor, b: Tensor, spec: GemmSpec) -> Proof | Refusal:
    """Return the proof that formats and K alone give for this product, on any device, or a refusal.

    The function does not read the operands.

    Example:
        >>> from gemmsim.backends import exact_blas
        >>> a, b, spec = torch.ones(2, 64), torch.ones(64, 2), gs.GemmSpec.parse("e4m3 : exact(fp32)")
        >>> exact_blas.proof_for(a, b, spec).carrier
        'float64'
    """
    facts = facts_of_formats(a.shape[-1], _format(a, spec.cast_a), _format(b, spec.cast_b))
    return _UNBOUNDED if facts is None else exact(spec, facts)


def gemm(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int, named: GemmSpec | None = None) -> Ran | Refusal:
    """Write the product to ``out`` if a native GEMM provably gives its bits and is faster, else return why not.

    Arguments and result are as for ``gemmsim.backends.cpu.gemm``. ``named`` is the spec of casts that were already
    applied to the operands, where ``spec`` has none. If the formats prove nothing, operands on the CPU are read.
    Operands on other devices are not, because that would have to wait for the device.

    Example:
        >>> from gemmsim.backends import exact_blas
        >>> spec, out = gs.GemmSpec.parse("e4m3 : exact(fp32)"), torch.empty(4, 4)
        >>> exact_blas.gemm(torch.ones(4, 8), torch.ones(8, 4), spec, out, 0).reason
        "it is too small to gain from a library's product"
    """
    refusal = _refuses_size(spec, a, out)
    if refusal is not None:
        return refusal
    proof = proof_for(a, b, spec if named is None else named)
    on_cpu = _on_cpu(a)
    if not on_cpu and isinstance(proof, Proof):
        how = _by_instruction(a, b, spec, out, seed, named or spec, proof)
        if isinstance(how, str):
            return Ran("cuda", f"carrier-exact: {how}", (proof,))
    if isinstance(proof, Refusal):
        refusal = _refuses_sample(a, b, spec) if on_cpu else proof
        if refusal is not None:
            return refusal
    carrier = torch.float64
    if isinstance(proof, Proof) and proof.carrier == "float32" and _float32_is_exact(a.device.type):
        carrier = torch.float32
    if not _gemm_is_exact(a.device.type):
        return _EMULATED
    right = cast_operand(b, spec.cast_b, carrier, seed, Site.OPERAND_B)
    if on_cpu and isinstance(proof, Proof) and (rows := _rows_together(a, spec, out)):
        _by_rows(a, right, proof, spec, out, seed, rows)
    else:
        left = cast_operand(a, spec.cast_a, carrier, seed, Site.OPERAND_A)
        if isinstance(proof, Refusal):
            proof = _proof_of_data(left, right, spec)
        if isinstance(proof, Refusal):
            return proof
        _finish(torch.matmul(left, right), proof, spec, out, seed)
    how = f"torch.matmul in {str(carrier).removeprefix('torch.')}"
    return Ran("blas" if on_cpu else "cublas", f"carrier-exact: {how}", (proof,))


def _rows_together(a: Tensor, spec: GemmSpec, out: Tensor) -> int:
    """Return how many rows of ``a`` at a time to compute in the same memory; 0 for all rows in one call.

    Memory allocated by each call comes fresh from the system. Its cost was a fifth of a product of 512 x 512 matrices.
    """
    if a.dim() != 2 or out.dim() != 2 or (spec.cast_a is not None and spec.cast_a.is_stochastic):
        return 0
    rows = max(_ROWS_AT_LEAST * torch.get_num_threads(), _TOGETHER // (a.shape[1] + out.shape[1]))
    return rows if rows < a.shape[0] else 0


def _by_rows(a: Tensor, right: Tensor, proof: Proof, spec: GemmSpec, out: Tensor, seed: int, rows: int) -> None:
    """Compute the product and apply ``_finish``, ``rows`` rows at a time."""
    some = torch.empty(rows, a.shape[1], dtype=right.dtype)
    total = torch.empty(rows, out.shape[1], dtype=right.dtype)
    for first in range(0, a.shape[0], rows):
        part = a[first : first + rows]
        left, product = some[: part.shape[0]], total[: part.shape[0]]
        cast_into(part, spec.cast_a, left, seed, Site.OPERAND_A)
        torch.matmul(left, right, out=product)
        _finish(product, proof, spec, out[first : first + rows], seed, first * out.shape[1])


def _on_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu"


def _by_instruction(
    a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int, named: GemmSpec, proof: Proof
) -> str | Refusal:
    """Write the product by the device's matrix instruction if that truncates no sum of these formats.

    Return what ran, or why the instruction was not used.
    """
    formats = _format(a, named.cast_a), _format(b, named.cast_b)
    facts = facts_of_formats(a.shape[-1], *formats)
    dtype = next((dtype for dtype in _NARROW if all(holds(DTYPES[dtype], fmt) for fmt in formats)), None)
    if facts is None:
        return _UNBOUNDED
    if dtype is None:
        return Refusal(f"no instruction reads {formats[0]} and {formats[1]} in one dtype of 16 bits")
    from gemmsim.backends import cuda

    total = torch.empty(out.shape, dtype=torch.float32, device=out.device)
    left, right = (
        cast_operand(a, spec.cast_a, dtype, seed, Site.OPERAND_A),
        cast_operand(b, spec.cast_b, dtype, seed, Site.OPERAND_B),
    )
    how = cuda.exact_sums(left, right, total, facts.units, (facts.lsb_a, facts.lsb_b))
    if isinstance(how, str):
        _finish(total, proof, spec, out, seed)
    return how


def _finish(total: Tensor, proof: Proof, spec: GemmSpec, out: Tensor, seed: int, start: int = 0) -> None:
    """Apply the remaining rounding, the output cast and the output dtype, and turn a zero's sign to plus.

    The random bits are those of the elements from ``start`` on. NaN is possible only before a rounding, which turns it
    into the canonical NaN.
    """
    total += 0.0  # -0 becomes +0
    if proof.final is not None and spec.out is not None:
        wide = total.to(torch.float64)
        cast_into(wide, proof.final, wide, seed, Site.OUTPUT)
        total = wide
    last = spec.out if proof.final is None or spec.out is not None else proof.final
    cast_into(total, last, out, seed, Site.OUTPUT, start)


def _float32_is_exact(device: str) -> bool:
    """Whether PyTorch computes float32 products in float32; flags and variables may allow narrower types."""
    if device == "cuda":
        asked = torch.backends.cuda.matmul.fp32_precision
        narrow = os.environ.get("NVIDIA_TF32_OVERRIDE") == "1" or "CUBLAS_EMULATE_SINGLE_PRECISION" in os.environ
    else:
        asked = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
        narrow = any(name in os.environ for name in ("DNNL_DEFAULT_FPMATH_MODE", "ONEDNN_DEFAULT_FPMATH_MODE"))
    return asked in ("none", "ieee") and not narrow


def _gemm_is_exact(device: str) -> bool:
    """Whether PyTorch computes float64 products in float64; cuBLAS may be set to compose them of narrower ones."""
    return device == "cpu" or "CUBLAS_EMULATE_DOUBLE_PRECISION" not in os.environ
