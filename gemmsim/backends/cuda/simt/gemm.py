"""Matrix products on NVIDIA GPUs, with the bits of the CPU backend and the reference (gemm/simt/simt.h).

It casts operands, chooses kernel and tile, fills the arguments and launches.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic import Accumulator, GemmSpec, Sequential, SpecError
from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.arithmetic.palette import Palette
from gemmsim.formats import Cast, FixedFormat
from gemmsim.lowering.abi_constants import CastFlag, Site, holds
from gemmsim.lowering.casts import cast_numbers, stays_in_float32
from gemmsim.lowering.refusal import Refusal
from gemmsim.lowering.supported import refuses as lowering_refuses

from ...device_tables import Table
from ...dtypes import DTYPES
from ...epilogue import Finish
from ...product import Ran
from ...stored_elements import stored
from ..casts.cast import needs_exact as needs_integers
from ..casts.cast import quantize
from ..codes import CodeFormat
from ..jit.launch import launch
from ..jit.source import KernelSource
from ..ran import ran
from .gemm_args import GemmArgs, fill_bias, gemm_args
from .gemm_operands import ANY_STRIDES, LINES_CONTIGUOUS, TERMS_CONTIGUOUS, FinishText, Operands, program_of
from .gemm_source import GemmKernel, gemm_source, is_permuted
from .k_permutation import schedule_table, term_order
from .launch_cache import Joining, Ready, key_of, ready, remember
from .split_k import join_source, part_source, slices_of
from .tile_candidates import slots_of, tiles_of
from .tile_heuristic import Problem, Tile, cheapest, multiprocessors_of

__all__ = [
    "blocks_of",
    "cast_operand",
    "cast_operands",
    "check_counts",
    "check_devices",
    "check_finish",
    "check_product",
    "count_overflows",
    "fill_orders",
    "finish_of",
    "finishes",
    "gemm",
    "is_beforehand",
    "kernel_for",
    "layout_of",
    "operands_of",
    "product",
    "refuses",
    "terms_of",
    "tile_for",
]

_MOST_BLOCKS = 2**31 - 1
_MOST_TERMS = 2**31 - 1


def finishes(spec: GemmSpec, cast: Cast | None) -> bool:
    """Whether a kernel of ``spec`` applies a bias and ``cast`` in its epilogue.

    It does not if the result has a stochastic cast. Its random bits belong to elements of a tensor, so it is a separate
    pass.

    Example:
        >>> from gemmsim.backends import cuda
        >>> spec = gs.GemmSpec.parse("e4m3 : fp32")
        >>> [cuda.finishes(spec, gs.formats.parse_cast(text)) for text in ("e4m3", "e4m3/sr16")]
        [True, False]
    """
    return not any(x is not None and x.is_stochastic for x in (spec.out, cast))


def check_finish(spec: GemmSpec, finish: Finish | None) -> None:
    if finish is not None and not finishes(spec, finish.cast):
        asked = f"{str(spec)!r} with a bias" + ("" if finish.cast is None else f" and {finish.cast}")
        raise UnsupportedSpec(
            f"{asked} in one kernel; allowed: output casts without random bits.\n  Add the bias to the result."
        )


def _members(spec: GemmSpec) -> tuple[Accumulator, ...]:
    accumulator = spec.accumulator
    return accumulator.members if isinstance(accumulator, Palette) else (accumulator,)


@lru_cache(maxsize=4096)
def refuses(spec: GemmSpec) -> Refusal | None:
    """Return why this backend does not compute ``spec``, or ``None``.

    Example:
        >>> from gemmsim.backends import cuda
        >>> cuda.refuses(gs.GemmSpec.parse("e4m3 : fp32")) is None
        True
    """
    for member in _members(spec):
        plain = replace(member, init="zero") if isinstance(member, Sequential) else member
        refusal = lowering_refuses(replace(spec, accumulator=plain, product=None), "CUDA backend")
        if refusal is not None:
            return refusal
    return None


def is_beforehand(cast: Cast | None) -> bool:
    """Whether a cast is a separate pass: its bits belong to tensor elements, or no lemma covers its rounding."""
    if cast is None:
        return False
    return cast.is_stochastic or needs_integers(cast) or cast_numbers(cast).has(CastFlag.CODE_PARITY)


def _rounded(x: Tensor, cast: Cast, seed: int, site: int) -> Tensor:
    base = stored(x, x.dim() - 2)
    rounded = torch.empty(base.shape, dtype=_holding(cast, base.dtype), device=x.device)
    quantize(base, cast, rounded, seed, site)
    return rounded.expand(x.shape)


def _holding(cast: Cast, dtype: torch.dtype) -> torch.dtype:
    """Return the smallest dtype that represents every result of ``cast`` of ``dtype`` values."""
    fmt = cast.format
    for small in (torch.bfloat16, torch.float16):
        if holds(DTYPES[small], fmt):
            return small
    if isinstance(fmt, FixedFormat) and not fmt.clamp:
        return torch.float32 if dtype != torch.float64 else dtype
    return torch.float32 if dtype != torch.float64 and stays_in_float32(cast) else torch.float64


def _is_read_often(x: Tensor, others: int) -> bool:
    """Whether casting an operand once costs less than casting it in every tile.

    ``others`` is the number of lines of the other operand that it is multiplied by.
    """
    return others >= 512 and x.numel() >= 2**16


def gemm(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    out: Tensor,
    seed: int = 0,
    c: Tensor | None = None,
    select: Tensor | None = None,
    finish: Finish | None = None,
    row: int = 0,
) -> Ran:
    """Write the product of ``a`` (\\*B, M, K) and ``b`` (\\*B, K, N) that ``spec`` means into ``out`` (\\*B, M, N).

    This is ``gemmsim.backends.cpu.gemm`` with the same bits. All tensors must be on one GPU; the kernels run on torch's
    current stream there.

    Nothing waits for the GPU, so errors that depend on the data are NaN instead. NaN are elements of an ``int(...)``
    register whose operands are not whole numbers, and elements whose index in ``select`` is no member's.

    ``finish`` is an epilogue in the same kernel. The product is converted to its dtype ``work``. Its bias (N,) or
    (\\*B, N) is rounded to that dtype and added there, to nearest even. Its cast follows, then ``out``'s dtype (from
    float64 to 16 bits by way of float32).

    Raises:
        UnsupportedSpec: if ``refuses(spec)`` gives a reason, or ``finishes(spec, finish.cast)`` is False.
        SpecError: for ``c`` or ``select`` without a place in ``spec``, or a palette without ``select``.
        ValueError: for more than 2^31 - 1 terms or 16 batch dimensions.
        CudaError: if a kernel cannot be compiled or launched.
    """
    return product(a, b, spec, out, seed, c, select, finish=finish, row=row)


def product(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    out: Tensor,
    seed: int,
    c: Tensor | None,
    select: Tensor | None,
    codes: tuple[CodeFormat | None, CodeFormat | None] = (None, None),
    finish: Finish | None = None,
    row: int = 0,
) -> Ran:
    """``gemm`` for operands that may be codes: ``codes`` has the formats, to which ``spec`` casts those operands."""
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    bias = None if finish is None else finish.bias
    key = None
    if c is None and select is None and codes == (None, None):
        key = key_of(a, b, spec, out, finish)
        found = ready(key)
        if found is not None:
            args = found.args_for(a, b, out, seed, bias, row)
            _launch(found.source, out.device, found.blocks, args, found.then)
            return found.run
    check_product(spec, terms_of(a, codes[0]), c, select)
    check_devices(a, b, out, c, select, bias)
    check_finish(spec, finish)
    if out.numel() == 0:
        return ran()
    given = a, b
    a, b, done = cast_operands(a, b, spec, seed, codes)
    if a is not given[0] or b is not given[1]:
        key = None  # a cast ran as a separate pass before the product
    if spec.out is not None and is_beforehand(spec.out) and finish is None:
        raw = torch.empty(out.shape, dtype=torch.float64, device=out.device)
        run = _members_run(a, b, replace(spec, out=None), raw, seed, c, select, done, codes, row=row)
        quantize(raw, spec.out, out, seed, Site.OUTPUT)
        return run
    return _members_run(a, b, spec, out, seed, c, select, done, codes, finish, key, row)


def count_overflows(a: Tensor, b: Tensor, spec: GemmSpec, counts: Tensor, seed: int = 0) -> Ran:
    """Add to ``counts`` (\\*B, M, N), int64, how often each element's ``int`` or ``fixed`` register left its range.

    This is ``gemmsim.backends.cpu.count_overflows`` with the same counts. It adds -1 for elements of an ``int(...)``
    register whose operands are not whole numbers. Everything else is as in ``gemm``; the output cast has no influence.

    Raises:
        UnsupportedSpec: if ``refuses(spec)`` gives a reason, or ``spec`` has no such register.
        ValueError, CudaError: as ``gemm``.
    """
    check_counts(spec)
    check_product(spec, a.shape[-1], None, None)
    check_devices(a, b, counts)
    if counts.numel() == 0 or a.shape[-1] == 0:
        return ran()
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    a, b, done = cast_operands(a, b, spec, seed)
    layouts = operands_of(a, b, counts, spec.accumulator, None, None, done)
    operands = replace(layouts, out=torch.float64, count=True)  # int64 has eight bytes per element, too
    plain = replace(spec, out=None)
    kernel = kernel_for(plain, spec.accumulator, operands, counts, a.shape[-1])
    args = gemm_args(a, b, counts, seed)
    keep = fill_orders(args, spec.accumulator, counts.device)
    launch(kernel.source, counts.device, (blocks_of(args, kernel), 1, 1), args)
    del keep  # the caching allocator reuses memory of this stream only for later work of the same stream
    return ran(kernel.source)


def check_counts(spec: GemmSpec) -> None:
    if not spec.accumulator.counts_overflows or isinstance(spec.accumulator, Palette):
        raise UnsupportedSpec(
            f"The CUDA backend cannot count overflows of {str(spec)!r}; allowed: int(...), fixed(...) and accumulators "
            "made of them.\n  Use fixed(bits, frac, rounding=...) for an accumulator that counts overflows."
        )


def cast_operands(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    seed: int,
    codes: tuple[CodeFormat | None, CodeFormat | None] = (None, None),
) -> tuple[Tensor, Tensor, tuple[bool, bool]]:
    """Return the operands, cast where the cast is a separate pass, and whether they are results of their casts.

    Codes are always results of their casts.
    """
    m, n = a.shape[-2], b.shape[-1]
    done_a, done_b = codes[0] is not None, codes[1] is not None
    if not done_a:
        a, done_a = cast_operand(a, spec.cast_a, n, seed, Site.OPERAND_A)
    if not done_b:
        b, done_b = cast_operand(b, spec.cast_b, m, seed, Site.OPERAND_B)
    return a, b, (done_a, done_b)


def cast_operand(
    x: Tensor, cast: Cast | None, others: int, seed: int, site: Site = Site.OPERAND_B
) -> tuple[Tensor, bool]:
    """Return an operand, cast if the cast is a separate pass, and whether it was cast.

    ``others`` is the number of lines of the other operand that it is multiplied by.
    """
    done = cast is not None and (is_beforehand(cast) or _is_read_often(x, others))
    return (_rounded(x, cast, seed, site), True) if cast is not None and done else (x, False)


def check_devices(*tensors: Tensor | None) -> None:
    devices = {x.device for x in tensors if x is not None}
    if len(devices) > 1:
        raise ValueError(
            f"tensors on {', '.join(sorted(map(str, devices)))}; allowed: one GPU.\n  Move them with .to(device)."
        )


def check_product(spec: GemmSpec, terms: int, c: Tensor | None, select: Tensor | None) -> None:
    refusal = refuses(spec)
    if refusal is not None:
        raise UnsupportedSpec(
            f"The CUDA backend cannot run {str(spec)!r}: {refusal}. gemmsim.reference computes every spec (slowly)."
        )
    if terms > _MOST_TERMS:
        raise ValueError(f"a product over {terms} terms; allowed: {_MOST_TERMS}.\n  Split it along K.")
    palette = isinstance(spec.accumulator, Palette)
    if c is not None and getattr(spec.accumulator, "init", "zero") == "zero":
        raise SpecError(
            f"c with {str(spec)!r}; allowed: init=c_first or init=c_last.\n  State where C enters, or drop c."
        )
    if palette != (select is not None):
        asked = f"{str(spec)!r} without select" if palette else f"select with {str(spec)!r}"
        raise SpecError(f"{asked}; allowed: select only with palette(...).\n  Give select for a palette.")


def _members_run(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    out: Tensor,
    seed: int,
    c: Tensor | None,
    select: Tensor | None,
    done: tuple[bool, bool],
    codes: tuple[CodeFormat | None, CodeFormat | None] = (None, None),
    finish: Finish | None = None,
    key: Hashable = None,
    row: int = 0,
) -> Ran:
    """Launch one kernel for each member of a palette; each writes the elements that chose the member.

    ``key`` is the key under which the launch is stored.
    """
    if select is not None:
        select = _bytes_of(select, len(_members(spec)))
        out.fill_(float("nan"))  # remains where no member is chosen
    used = []
    for index, member in enumerate(_members(spec)):
        operands = operands_of(a, b, out, member, c, select, done, codes, finish=finish)
        args = gemm_args(a, b, out, seed, c, select, row)
        fill_bias(args, None if finish is None else finish.bias)
        args.k = terms_of(a, codes[0])
        args.member = index
        keep = fill_orders(args, member, out.device)
        source, blocks, then = _kernels_of(spec, member, operands, out, args)
        _launch(source, out.device, blocks, args, then)
        used += [source] if then is None else [source, then.source]
        if key is not None:
            remember(key, Ready(source, blocks, args, keep, ran(*used), then))
        del keep  # the caching allocator reuses memory of this stream only for later work of the same stream
    return ran(*used)


def _kernels_of(
    spec: GemmSpec, member: Accumulator, operands: Operands, out: Tensor, args: GemmArgs
) -> tuple[KernelSource, tuple[int, int, int], Joining | None]:
    """Return the kernel for ``args``, its blocks and, where K is split, the launch that combines the partial sums.

    A split of K is also written to ``args``.
    """
    batches, m, n, k = args.batches, args.m, args.n, args.k
    tile = tile_for(spec, member, operands, out.device, batches, m, n, k)
    problem = Problem(m, n, k, batches, multiprocessors=multiprocessors_of(out.device))
    slices = slices_of(spec, member, operands, tile, problem)
    if slices is None:
        kernel = gemm_source(spec, member, operands, tile)
        return kernel.source, (blocks_of(args, kernel), 1, 1), None
    kernel, join = part_source(spec, member, operands, tile), join_source(spec, member, operands)
    args.slices, args.slice = slices.count, slices.each
    parts = min(blocks_of(args, kernel) * slices.count, _MOST_BLOCKS)
    memory = slices.total_bytes * batches * m * n
    return kernel.source, (parts, 1, 1), Joining(join.source, (blocks_of(args, join), 1, 1), memory)


def _launch(
    source: KernelSource, device: torch.device, blocks: tuple[int, int, int], args: GemmArgs, then: Joining | None
) -> None:
    if then is None:
        launch(source, device, blocks, args)
        return
    totals = torch.empty(then.memory, dtype=torch.uint8, device=device)  # freed only for later work of this stream
    args.totals = totals.data_ptr()
    launch(source, device, blocks, args)
    launch(then.source, device, then.blocks, args)


def _bytes_of(select: Tensor, members: int) -> Tensor:
    """Return ``select`` as uint8. Indices that do not fit become 255, which is no member."""
    if select.dtype == torch.uint8:
        return select
    return torch.where((select >= 0) & (select < members), select, 255).to(torch.uint8)


def operands_of(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    member: Accumulator,
    c: Tensor | None,
    select: Tensor | None,
    done: tuple[bool, bool],
    codes: tuple[CodeFormat | None, CodeFormat | None] = (None, None),
    group: int | None = None,
    finish: Finish | None = None,
) -> Operands:
    for name, x, known in (("a", a, codes[0]), ("b", b, codes[1])):
        if x.dtype == torch.uint8 and known is None:
            raise ValueError(f"{name} of torch.uint8; allowed: float tensors.\n  Give codes to gemm_codes.")
    layout_a = layout_b = ANY_STRIDES
    if not is_permuted(member, group):
        if codes[0] is None or not codes[0].packed:
            layout_a = layout_of(a, a.dim() - 2, a.dim() - 1)
        if codes[1] is None or not codes[1].packed:
            layout_b = layout_of(b, b.dim() - 1, b.dim() - 2)
    dtype_c = None if c is None else c.dtype
    last = finish_of(finish)
    return Operands(
        a.dtype, b.dtype, out.dtype, dtype_c, select is not None, *done, layout_a, layout_b, False, *codes, finish=last
    )


def finish_of(finish: Finish | None) -> FinishText | None:
    """Return the properties of ``finish`` on which the kernel depends."""
    if finish is None:
        return None
    return FinishText(finish.work, None if finish.bias is None else finish.bias.dtype, finish.cast)


def terms_of(a: Tensor, codes: CodeFormat | None, dim: int = -1) -> int:
    """Return the number of terms of an operand along ``dim``."""
    return a.shape[dim] * (2 if codes is not None and codes.packed else 1)


def layout_of(x: Tensor, lines: int, terms: int) -> int:
    """Return the gemmsim::Layout of an operand with these dimensions of lines and terms."""
    strides, shape = x.stride(), x.shape
    vector = 16 // x.element_size()
    if x.data_ptr() % 16:
        return ANY_STRIDES
    for along, layout in ((terms, TERMS_CONTIGUOUS), (lines, LINES_CONTIGUOUS)):
        others = (s for d, s in enumerate(strides) if d != along and shape[d] > 1)
        if strides[along] == 1 and shape[along] % vector == 0 and all(s % vector == 0 for s in others):
            return layout
    return ANY_STRIDES


def kernel_for(spec: GemmSpec, member: Accumulator, operands: Operands, out: Tensor, terms: int) -> GemmKernel:
    """Return the kernel for ``out`` (\\*B, M, N), with the best tile for a product of ``terms`` terms on its device."""
    batches, m, n = out.shape[:-2].numel(), *out.shape[-2:]
    tile = tile_for(spec, member, operands, out.device, batches, m, n, terms)
    return gemm_source(spec, member, operands, tile)


def tile_for(
    spec: GemmSpec, member: Accumulator, operands: Operands, device: torch.device, batches: int, m: int, n: int, k: int
) -> Tile:
    """Return the cheapest of the tiles for which kernels exist."""
    slots = slots_of(spec, member, operands)
    return cheapest(tiles_of(spec, member, operands), Problem(m, n, k, batches, slots, multiprocessors_of(device)))


def blocks_of(args: GemmArgs, kernel: GemmKernel) -> int:
    return int(min(args.batches * -(-args.m // kernel.rows) * -(-args.n // kernel.cols), _MOST_BLOCKS))


def fill_orders(args: GemmArgs, member: Accumulator, device: torch.device, group: int | None = None) -> Table | None:
    """Fill the sizes of the wrappers and, where terms are permuted, their order on the device.

    Return the table that must outlive the launch, if any.
    """
    what = program_of(member, group)
    for level, wrapper in enumerate(what.wrappers):
        args.size[level] = wrapper.n
    if what.scheduled is not None:
        table = schedule_table(what.scheduled, what.shuffle, args.k, device)
        operations, *orders = table.tensors
        args.schedule, args.schedule_count = operations.data_ptr(), len(operations) // 4
        args.term, args.key = [*(x.data_ptr() for x in orders), 0, 0][:2]
        return table
    order = term_order(what.wrappers, what.shuffle, args.k, device)
    if order is not None:
        args.term, args.key = ([x.data_ptr() for x in order.tensors] + [0])[:2]
    return order
