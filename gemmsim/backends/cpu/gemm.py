"""Matrix products on the CPU: packs the arguments, calls the C library and translates its status codes."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, SpecError
from gemmsim.arithmetic.accumulator import remembers
from gemmsim.arithmetic.errors import SelectError, UnsupportedSpec
from gemmsim.formats import Cast
from gemmsim.lowering.abi_constants import MAX_BATCH_DIMS, Method, Site
from gemmsim.lowering.casts import stays_in_float32

from ..dtypes import NUMBERS
from ..product import Ran
from ..stored_elements import stored
from . import signals
from .ctypes_structs import GEMM_CALL, Extras
from .kernel_report import ran
from .palette_index import indices
from .quantize import quantize
from .scales import Scales, scales_record
from .shared_library import library
from .spec_cache import Prepared, prepare, refuses

__all__ = ["count_overflows", "gemm", "refuses"]

#: Prepared specs by their canonical text, whose hash Python stores: looked up at every product.
_prepared: dict[str, Prepared] = {}
remembers(_prepared.clear)
_pack = GEMM_CALL.pack


def batch_record(a: Tensor, b: Tensor, out: Tensor, dims: int) -> ctypes.Array[ctypes.c_int64]:
    """Return sizes and strides of the batch dimensions, as the library reads them."""
    if dims > MAX_BATCH_DIMS:
        raise ValueError(f"{dims} batch dimensions: at most {MAX_BATCH_DIMS} are supported. Flatten some of them.")
    rows = (*out.shape[:dims], *a.stride()[:dims], *b.stride()[:dims], *out.stride()[:dims])
    return (ctypes.c_int64 * len(rows))(*rows)


def _rounded(x: Tensor, cast: Cast, seed: int, site: int) -> Tensor:
    """Return an operand rounded stochastically, in a new tensor.

    The random bits belong to the stored elements, not to their uses.
    """
    base = stored(x, x.dim() - 2)
    narrow = base.dtype != torch.float64 and stays_in_float32(cast)
    wide = torch.empty(base.shape, dtype=torch.float32 if narrow else torch.float64)
    quantize(base, cast, wide, seed, site)
    return wide.expand(x.shape)


def _rounded_operands(a: Tensor, b: Tensor, spec: GemmSpec, seed: int) -> tuple[Tensor, Tensor]:
    if spec.cast_a is not None and spec.cast_a.is_stochastic:
        a = _rounded(a, spec.cast_a, seed, Site.OPERAND_A)
    if spec.cast_b is not None and spec.cast_b.is_stochastic:
        b = _rounded(b, spec.cast_b, seed, Site.OPERAND_B)
    return a, b


def _known(spec: GemmSpec) -> Prepared:
    known = _prepared.get(spec.key)
    if known is None:
        if len(_prepared) > 4096:
            _prepared.clear()
        known = _prepared[spec.key] = prepare(spec)
    return known


def gemm(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    out: Tensor,
    seed: int = 0,
    c: Tensor | None = None,
    select: Tensor | None = None,
    scales: Scales | None = None,
    row: int = 0,
) -> Ran:
    r"""Write the product of ``a`` (\*B, M, K) and ``b`` (\*B, K, N) that ``spec`` means into ``out`` (\*B, M, N).

    Strides are free. Broadcast dimensions come expanded (stride 0).

    ``c`` is an addend of ``out``'s shape; the accumulator's ``init`` says where it enters. Without ``c`` there is no
    addend. ``select`` has integers of ``out``'s shape: the member of a palette for each element. ``scales`` are those
    of block formats, for an accumulator that separates them; ``a`` and ``b`` then have the elements alone.

    Results are rounded to ``out``'s dtype (nearest even) after the spec's own output rounding. ``seed`` matters only
    for stochastic specs. ``row`` is the index of the first row among those for which the accumulator's bits are drawn.
    Casts draw from the first element of their tensors on. The function returns what ran.

    Extra memory: B packed once (K x N in the carrier, float32 or float64), and half a megabyte per thread for A.
    Products with few outputs of many terms need less (docs/design/cpu.md#memory). Where a palette's member permutes
    terms, (8 + 32) x K more per thread.

    Signal handlers run during the call. A handler that raises ends the call while ``out`` is partly
    written.

    Raises:
        UnsupportedSpec: if ``refuses(spec)`` gives a reason.
        SpecError: for ``c`` or ``select`` without a place in ``spec``.
        SelectError: for a palette without ``select``, or with indices of no member.
        MemoryError: if the packed panels cannot be allocated.
        KeyboardInterrupt: at Ctrl-C, in the main thread.

    Example:
        >>> from gemmsim.backends import cpu
        >>> out, spec = torch.empty(1, 1), gs.GemmSpec.parse(":e5m10")
        >>> ran = cpu.gemm(torch.ones(1, 4096), torch.ones(4096, 1), spec, out); out  # 2048 + 1 is 2048
        tensor([[2048.]])
    """
    known = _prepared.get(spec.key) or _known(spec)
    if known.has_blocks and scales is None:
        raise _not_decoded(spec)
    if c is not None or select is not None:
        select = _check_extras(spec, known, c, select)
    if spec.is_stochastic:
        seed = seed if spec.fixed_seed is None else spec.fixed_seed
        a, b = _rounded_operands(a, b, spec, seed)
        if spec.out is not None and spec.out.is_stochastic:
            raw = torch.empty(out.shape, dtype=torch.float64)
            run = _call(known, a, b, raw, seed, c, select, None, scales, row)
            quantize(raw, spec.out, out, seed, Site.OUTPUT)
            return run
    return _call(known, a, b, out, seed, c, select, None, scales, row)


def count_overflows(
    a: Tensor, b: Tensor, spec: GemmSpec, counts: Tensor, seed: int = 0, scales: Scales | None = None
) -> Ran:
    r"""Add to ``counts`` how often the ``int`` or ``fixed`` register of each element of the product left its range.

    ``counts`` (\*B, M, N) is contiguous int64. A register counts before it wraps or saturates. The other arguments are
    as for ``gemm``.

    Raises:
        UnsupportedSpec: if ``refuses(spec)`` gives a reason, or ``spec`` has no such register.

    Example:
        >>> from gemmsim.backends import cpu
        >>> a, counts = torch.full((1, 8), 100.0), torch.zeros(1, 1, dtype=torch.int64)
        >>> ran = cpu.count_overflows(a, a.mT, gs.GemmSpec.parse(":int(16, wrap)"), counts); counts
        tensor([[1]])
    """
    known = _known(spec)
    if known.has_blocks and scales is None:
        raise _not_decoded(spec)
    if known.members is not None or known.programs[0].method not in (Method.INTEGER, Method.FIXED):
        raise UnsupportedSpec(
            f"The CPU backend cannot count overflows of {str(spec)!r}; allowed: int(...), fixed(...) and accumulators "
            "made of them.\n  Use fixed(bits, frac, rounding=...) for an accumulator that counts overflows."
        )
    if spec.is_stochastic:
        seed = seed if spec.fixed_seed is None else spec.fixed_seed
        a, b = _rounded_operands(a, b, spec, seed)
    return _call(known, a, b, counts, seed, counts=counts, scales=scales)


def _not_decoded(spec: GemmSpec) -> UnsupportedSpec:
    return UnsupportedSpec(
        f"The CPU backend multiplies values or elements, not tensors as given, for {str(spec)!r}.\n  Call "
        "gemmsim.qmatmul or gemmsim.mx.matmul, which encode operands."
    )


def _check_extras(spec: GemmSpec, known: Prepared, c: Tensor | None, select: Tensor | None) -> Tensor | None:
    """Return ``select`` as the library reads it.

    Raises SpecError for an addend or ``select`` without a place in the spec.
    """
    if c is not None and known.init == "zero":
        raise SpecError(
            f"c with {str(spec)!r}; allowed: init=c_first or init=c_last.\n  State where C enters, or drop c."
        )
    if select is None:
        return None
    if known.members is None:
        raise SpecError(f"select with {str(spec)!r}; allowed: select for palette(...) only.\n  Drop select.")
    return indices(select, len(known.programs))


def _extras(
    c: Tensor | None, select: Tensor | None, counts: Tensor | None, dims: int, scales: Scales | None
) -> tuple[Extras, object]:
    """Return the record of the tensors other than a, b and the result, and the objects that must outlive the call."""
    record = Extras()
    strides = (ctypes.c_int64 * (2 * dims))()
    if counts is not None:
        record.overflows = counts.data_ptr()
    if c is not None:
        record.addend, record.addend_dtype = c.data_ptr(), NUMBERS[c.dtype]
        record.addend_row, record.addend_col = c.stride()[-2:]
        strides[:dims] = list(c.stride()[:-2])
    if select is not None:
        record.select = select.data_ptr()
        record.select_row, record.select_col = select.stride()[-2:]
        strides[dims:] = list(select.stride()[:-2])
    record.batch = ctypes.addressof(strides)
    if scales is None:
        return record, strides
    found, alive = scales_record(scales)
    record.scales = ctypes.addressof(found)
    return record, (strides, found, alive)


def _call(
    known: Prepared,
    a: Tensor,
    b: Tensor,
    out: Tensor,
    seed: int,
    c: Tensor | None = None,
    select: Tensor | None = None,
    counts: Tensor | None = None,
    scales: Scales | None = None,
    row: int = 0,
) -> Ran:
    """Call the library. With ``counts``, ``out`` gives only the shape."""
    sa, sb, sc = a.stride(), b.stride(), out.stride()
    dims = len(sc) - 2
    batch = batch_record(a, b, out, dims) if dims else None
    rare = c is not None or select is not None or counts is not None or scales is not None
    extras = _extras(c, select, counts, dims, scales) if rare else None
    m, n = out.shape[-2:]
    args = _pack(
        a.data_ptr(), b.data_ptr(), out.data_ptr() if counts is None else 0,
        NUMBERS[a.dtype], NUMBERS[b.dtype], NUMBERS[out.dtype] if counts is None else 0, dims,
        m, n, a.shape[-1], sa[-2], sa[-1], sb[-2], sb[-1], sc[-2], sc[-1],
        ctypes.addressof(batch) if batch is not None else 0, ctypes.addressof(extras[0]) if extras is not None else 0,
        seed, torch.get_num_threads(), row,
    )  # fmt: skip
    part = known.part
    if known.shuffles:
        part, _alive = known.of(a.shape[-1])
    code = known.call(args + part)
    if code < 0:
        raise failure(code, a.shape[-1], n)
    return ran(code)


def failure(code: int, k: int, n: int) -> Exception:
    """Return the exception for a status of the library.

    If a signal handler ended the product, this function raises what the handler raised (KeyboardInterrupt at Ctrl-C).
    """
    if code == -4:
        signals.raise_pending(library())
    if code == -3:
        return SelectError(
            "a palette without select; allowed: one index for each element of the result.\n"
            "  Give select=, integers that broadcast to the result (gemmsim.qmatmul, gemmsim.qmm)."
        )
    if code == -2:
        return ValueError(
            "int(...) adds whole numbers; an operand has fractions, NaN or infinities after its cast.\n  Cast the "
            'operands to integers ("int8 : int(24)"), or use fixed(P, frac).'
        )
    size = f"{k * n * 4 / 2**30:.1f} GiB"
    return MemoryError(f"Packing b ({k} x {n}) needs {size} or more, which is not available. Split it along N.")
