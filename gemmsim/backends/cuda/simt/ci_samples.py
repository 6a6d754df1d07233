"""A sample of products on ordinary arithmetic units, whose kernels CI compiles and whose instructions it counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import E4M3, Cast

from ..codes import code_format
from ..jit.source import KernelSource
from .gemm_operands import FinishText, Operands
from .gemm_source import gemm_source
from .split_k import join_source, part_source
from .tile_candidates import tiles_of

__all__ = ["sources"]

#: (Spec, dtype of operands, layouts, whether operands are cast already). They cover every method, order and mode.
_F32, _BF16, _F16, _F64 = torch.float32, torch.bfloat16, torch.float16, torch.float64
_LISTED = (
    ("e4m3 : e6m9", _BF16, (1, 1), True), ("e4m3 : e5m10", _BF16, (1, 2), True), (":e5m10", _F16, (1, 1), False),
    (":e5m10", _F32, (1, 1), False), (":bf16", _F32, (1, 1), False), (":e5m10, arithmetic=fp32", _F32, (1, 1), False),
    ("e4m3 : e4m3/sat", _F32, (0, 0), False), (":e6m9/rtz", _F32, (1, 1), False), (":e6m9/ru", _F32, (1, 1), False),
    (":e6m9/rna", _F32, (1, 1), False), ("e4m3 : bf16/sr8", _BF16, (1, 1), True),
    (":e5m10/sr16", _F32, (1, 1), False), ("e4m3 : mul=e5m10, add=e6m9", _BF16, (1, 1), True),
    (":fp32", _F32, (1, 1), False), (":fp64", _F64, (1, 1), False), (":e8m22", _F32, (1, 1), False),
    (":binary8p1", _F32, (1, 1), False), (":chunked(16, e5m10, fp32)", _F32, (1, 1), False),
    ("e4m3 : pairwise(e5m10, 8)", _BF16, (1, 1), True), (":interleaved(4, bf16)", _F32, (0, 0), False),
    (":splitk(4, bf16, fp32)", _F32, (1, 1), False), (":kahan(bf16)", _F32, (1, 1), False),
    (":neumaier(e5m10)", _F32, (1, 1), False), (":two_sum(e5m10)", _F32, (1, 1), False),
    (":exact(fp32)", _F32, (1, 1), False), (":binned(fp32)", _F32, (1, 1), False),
    (":binned(fp32)", _F64, (1, 1), False), ("int8 : int(24)", _BF16, (1, 1), True),
    ("int8 : int(12, saturate)", _BF16, (1, 1), True), (":fixed(16, 8)", _F32, (1, 1), False),
    (":fixed(16, 8, rounding=rtz)", _F32, (1, 1), False),
    (":hw(hopper, wgmma, e4m3)", _F32, (1, 1), False), (":hw(cdna3, mfma, fp16)", _F32, (1, 1), False),
    (":hw(cdna2, mfma, bf16)", _F32, (1, 1), False),
    (":interleaved(32, fp32, combine=halves, width=4)", _F16, (0, 0), False),
    (":splitk(3, hw(hopper, mma, fp16, first=64), fp16/via(fp32), grain=8, partial=fp32)", _F16, (1, 1), False),
    (":chunked(64, fp16, kahan(fp16))", _F32, (1, 1), False),
)  # fmt: skip
#: The specs of ``_LISTED`` whose tiles of few rows are compiled, too. All tiles of the first spec are compiled.
_FEW_ROWS = ("e4m3 : e5m10", ":e5m10", ":e5m10/sr16", ":chunked(16, e5m10, fp32)")
#: The specs whose K is also split over blocks.
_SPLIT = ("e4m3 : pairwise(e5m10, 8)", ":chunked(16, e5m10, fp32)", ":exact(fp32)", "int8 : int(24)")
#: Products with an epilogue: a bias, or a bias and a cast.
_FINISHED = (
    ("e4m3 : e5m10", _BF16, FinishText(_F32, _BF16)),
    ("e4m3 : bf16/sr8", _F32, FinishText(_F32, _F32, Cast(E4M3))),
    (":fp64", _F64, FinishText(_F64, _F64)),
)
#: The specs of ``_LISTED`` with a kernel that counts overflows, too.
_COUNTED = ("int8 : int(12, saturate)", ":fixed(16, 8, rounding=rtz)")


def sources() -> Iterator[KernelSource]:
    """Yield a kernel for each method, order and mode with the tile of large products, and all tiles of one of them."""
    for text, dtype, layouts, done in _LISTED:
        spec = GemmSpec.of(text)
        out = dtype if dtype == torch.float64 else torch.float32
        operands = Operands(dtype, dtype, out, None, False, done, done, *layouts)
        tiles = tiles_of(spec, spec.accumulator, operands)
        for tile in tiles if text == "e4m3 : e6m9" else [tiles[0], *tiles[-2:]] if text in _FEW_ROWS else tiles[:1]:
            yield gemm_source(spec, spec.accumulator, operands, tile).source
        if text in _SPLIT:
            yield part_source(spec, spec.accumulator, operands, tiles[-2]).source
            yield join_source(spec, spec.accumulator, operands).source
        if text in _COUNTED:
            counting = replace(operands, out=torch.float64, count=True)
            yield gemm_source(spec, spec.accumulator, counting, tiles_of(spec, spec.accumulator, counting)[0]).source
    for text, dtype, finish in _FINISHED:
        spec = GemmSpec.of(text)
        operands = Operands(dtype, dtype, dtype, None, False, True, True, 1, 1, finish=finish)
        yield gemm_source(spec, spec.accumulator, operands, tiles_of(spec, spec.accumulator, operands)[0]).source
    for text, layouts in (("e4m3 : e6m9", (1, 1)), ("e2m1 : e6m9", (0, 0))):
        spec = GemmSpec.of(text)
        assert spec.cast_a is not None
        code = code_format(spec.cast_a.format)
        coded = Operands(torch.uint8, torch.uint8, _F32, None, False, True, True, *layouts, False, code, code)
        yield gemm_source(spec, spec.accumulator, coded, tiles_of(spec, spec.accumulator, coded)[0]).source
