"""Products of operands in block formats, for accumulators that separate scales from elements: kernels and launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.arithmetic.scaled import Scaled
from gemmsim.formats import BlockFormat, BlockMode, Cast, FixedFormat, Format
from gemmsim.lowering.abi_constants import Site

from ...encoded_operand import Coded
from ...epilogue import Finish
from ...product import Ran
from ..casts.cast import quantize
from ..codes import CodeFormat, code_format
from ..jit.launch import launch
from ..jit.source import KernelSource
from ..ran import ran
from .gemm import (
    blocks_of,
    cast_operands,
    check_counts,
    check_devices,
    check_finish,
    check_product,
    fill_orders,
    is_beforehand,
    kernel_for,
    operands_of,
)
from .gemm_args import GemmArgs, fill_bias, gemm_args
from .gemm_operands import Operands
from .gemm_source import gemm_source
from .tile_candidates import tiles_of

__all__ = ["PACKINGS", "count_overflows_blocks", "element_format", "gemm_blocks", "own_scale", "sources"]

#: The packings of codes that kernels of products can read.
PACKINGS = ("bytes", "lo_first")


def code_format_of(x: Coded) -> CodeFormat:
    """Return the code format with which kernels read the elements of ``x``."""
    return replace(code_format(element_format(x.format)), packed=int(x.packing == "lo_first"))


def own_scale(x: Coded) -> Tensor | None:
    """Return the tensor's own scale as kernels read it, float32 on its device; ``None`` if its format has none."""
    return x.tensor_scale if isinstance(x.tensor_scale, Tensor) else None


def element_format(fmt: BlockFormat) -> Format:
    """Return the format of the elements without their scales. torchmx elements are integers, not fractions."""
    if fmt.mode is BlockMode.TORCHMX and isinstance(fmt.element, FixedFormat):
        return replace(fmt.element, frac=0)
    return fmt.element


@lru_cache(maxsize=4096)
def _elements_spec(spec: GemmSpec) -> GemmSpec:
    """Return ``spec`` for elements without scales, for casts and innermost sums: with the accumulator of a group."""
    casts = [Cast(element_format(x)) if isinstance(x, BlockFormat) else x for x in (spec.a, spec.b)]
    inner = spec.accumulator.inner if isinstance(spec.accumulator, Scaled) else spec.accumulator
    return replace(spec, a=casts[0], b=casts[1], accumulator=inner, product=None)


def gemm_blocks(
    a: Tensor | Coded,
    b: Tensor | Coded,
    spec: GemmSpec,
    out: Tensor,
    seed: int = 0,
    finish: Finish | None = None,
    row: int = 0,
) -> Ran:
    """Write the product of ``a`` (\\*B, M, K) and ``b`` (\\*B, K, N) that ``spec`` means into ``out``.

    The bits are those of ``gemmsim.backends.cpu.gemm`` with scales. Operands must be as ``encoded.readable`` returns
    them. Codes are decoded while they are loaded. Scales, and those of whole tensors, are read on the device, so that
    nothing waits. A plain operand has scale 1 and is cast as ``spec`` says. ``finish`` is as in ``gemm``.

    Raises:
        UnsupportedSpec: for an accumulator that takes no scales, or if ``refuses(spec)`` gives a reason, or
            ``finishes(spec, finish.cast)`` is False.
        ValueError: for more than 2^31 - 1 terms or 16 batch dimensions, or tensors on several devices.
        CudaError: if a kernel cannot be compiled or launched.
    """
    _check(a, b, spec, out, finish)
    if out.numel() == 0:
        return ran()
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    if spec.out is not None and is_beforehand(spec.out) and finish is None:
        raw = torch.empty(out.shape, dtype=torch.float64, device=out.device)
        run = gemm_blocks(a, b, replace(spec, out=None), raw, seed, row=row)
        quantize(raw, spec.out, out, seed, Site.OUTPUT)
        return run
    return _launched(a, b, spec, out, seed, finish, False, row)


def count_overflows_blocks(a: Tensor | Coded, b: Tensor | Coded, spec: GemmSpec, counts: Tensor, seed: int = 0) -> Ran:
    """Add to ``counts`` (\\*B, M, N), int64, how often each element's register left its range, over all groups.

    This is ``gemmsim.backends.cuda.count_overflows`` for operands and errors as in ``gemm_blocks``.

    Raises:
        UnsupportedSpec: also if ``spec`` has no register that counts.
    """
    check_counts(spec)
    _check(a, b, spec, counts, None)
    if counts.numel() == 0 or _terms(a, b) == 0:
        return ran()
    return _launched(a, b, replace(spec, out=None), counts, seed, None, True)


def _terms(a: Tensor | Coded, b: Tensor | Coded) -> int:
    return a.size if isinstance(a, Coded) else b.size if isinstance(b, Coded) else a.shape[-1]


def _check(a: Tensor | Coded, b: Tensor | Coded, spec: GemmSpec, out: Tensor, finish: Finish | None) -> None:
    if spec.group is None:
        raise UnsupportedSpec(
            f"gemm_blocks with {spec.accumulator}; allowed: scaled(...) and block-scaled instructions.\n"
            "  Decode the operands for others."
        )
    check_product(spec, _terms(a, b), None, None)
    check_finish(spec, finish)
    tensors = [t for x in (a, b) for t in ((x.codes, x.scales) if isinstance(x, Coded) else (x,))]
    check_devices(*tensors, out, None if finish is None else finish.bias)


def _launched(
    a: Tensor | Coded,
    b: Tensor | Coded,
    spec: GemmSpec,
    out: Tensor,
    seed: int,
    finish: Finish | None,
    count: bool,
    row: int = 0,
) -> Ran:
    """Choose and launch the kernel of a product, or of the overflows in it."""
    left, right = (x.codes if isinstance(x, Coded) else x for x in (a, b))
    codes = tuple(code_format_of(x) if isinstance(x, Coded) else None for x in (a, b))
    plain, formats = _elements_spec(spec), (codes[0], codes[1])
    left, right, done = cast_operands(left, right, plain, seed, formats)
    operands = operands_of(left, right, out, spec.accumulator, None, None, done, formats, spec.group, finish)
    operands = _with_scales(operands, a, b, spec.group)
    if count:
        operands = replace(operands, out=torch.float64, count=True)  # int64 has eight bytes per element, too
    kernel = kernel_for(plain, spec.accumulator, operands, out, _terms(a, b))
    args = gemm_args(left, right, out, seed, row=row)
    fill_bias(args, None if finish is None else finish.bias)
    args.k = _terms(a, b)
    args.block_a = args.block_b = spec.group  # for an operand that is not in a block format
    _fill_scales(args, a, b)
    keep = fill_orders(args, spec.accumulator, out.device, spec.group)
    launch(kernel.source, out.device, (blocks_of(args, kernel), 1, 1), args)
    del keep  # the caching allocator reuses memory of this stream only for later work of the same stream
    return ran(kernel.source)


def _with_scales(operands: Operands, a: object, b: object, group: int | None) -> Operands:
    sides = [(x.format.scale, x.format.tensor_scale) if isinstance(x, Coded) else None for x in (a, b)]
    return replace(operands, scale_a=sides[0], scale_b=sides[1], group=group)


def _fill_scales(args: GemmArgs, a: object, b: object) -> None:
    if isinstance(a, Coded):
        second = own_scale(a)
        args.scale_a, args.block_a = a.scales.data_ptr(), a.format.block_size
        args.scale_a_row, args.scale_a_block = a.scales.stride()[-2:]
        args.scale_a_batch[: a.scales.dim() - 2] = a.scales.stride()[:-2]
        args.second_a = None if second is None else second.data_ptr()
    if isinstance(b, Coded):
        second = own_scale(b)
        args.scale_b, args.block_b = b.scales.data_ptr(), b.format.block_size
        args.scale_b_block, args.scale_b_col = b.scales.stride()[-2:]
        args.scale_b_batch[: b.scales.dim() - 2] = b.scales.stride()[:-2]
        args.second_b = None if second is None else second.data_ptr()


#: The products that CI compiles: partial sums in float and others, scales of both kinds, one scale of the tensor.
_LISTED = (
    "mxfp8_e4m3 : scaled(fp32)",
    "nvfp4/tensor : scaled(e5m10, bf16)",
    "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)",
    "nvfp4/tensor : hw(blackwell, mxf4nvf4, e2m1)",
)


def sources() -> Iterator[KernelSource]:
    """Yield a kernel for each of a few products, with the tile of large ones."""
    for text in _LISTED:
        spec = GemmSpec.of(text)
        fmt = spec.a
        assert isinstance(fmt, BlockFormat)
        plain, code = _elements_spec(spec), code_format(element_format(fmt))
        layouts = (0, 0) if code.packed else (1, 1)
        coded = Operands(torch.uint8, torch.uint8, torch.float32, None, False, True, True, *layouts, False, code, code)
        scale = (fmt.scale, fmt.tensor_scale)
        operands = replace(coded, scale_a=scale, scale_b=scale, group=spec.group)
        yield gemm_source(plain, spec.accumulator, operands, tiles_of(plain, spec.accumulator, operands)[0]).source
