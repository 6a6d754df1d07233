"""Products of block formats by Hopper's instruction with scaled partial sums: ``scaled(hw(hopper, wgmma, ...))``.

The sum of each group starts from +0. It is multiplied by both scales and added to a register of binary32 with one
rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Hardware
from gemmsim.arithmetic.scaled import Scaled
from gemmsim.formats import E4M3, E5M2, FP32, BlockFormat, Cast
from gemmsim.hardware import Instruction
from gemmsim.lowering.abi_constants import Site
from gemmsim.lowering.refusal import Refusal

from ...encoded_operand import Coded
from ...encoded_values import elements_of, factors_of
from ..casts.cast import cast_into
from ..casts.mx_cast import decode_blocks
from ..jit.launch import launch
from ..jit.source import KernelSource
from ..simt.block_scaled import gemm_blocks as simt
from .native_mma import Chain, chain_of, element_name, operand_lines, refuses_shape
from .self_check import Problem
from .self_check_inputs import plain_problems, power_scales
from .wgmma import COUNT, Groups, group_args, group_source, refuses_sizes, set_scales

__all__ = ["ScaledGroups", "gemm", "groups_of", "problems", "refuses", "source_of", "sources"]

#: Largest ratio of the terms of padded groups to their own terms; largest number of bits of a scale, such that binary32
#: represents the product of two.
_FILLED, _SCALE_BITS = 2, 12
_TILE = 128
#: Formats whose codes are those of the instruction, with their dtypes.
_FP8 = {"e4m3": (E4M3, torch.float8_e4m3fn), "e5m2": (E5M2, torch.float8_e5m2)}


@dataclass(frozen=True)
class ScaledGroups:
    """Chains of one instruction on operands in these formats, for groups of ``n`` terms."""

    chain: Chain
    a: BlockFormat
    b: BlockFormat
    n: int

    @property
    def instruction(self) -> Instruction:
        """The instruction."""
        return self.chain.instruction

    @property
    def period(self) -> int:
        """Number of instructions of a group; the last one is padded with zeros."""
        return -(-self.n // self.instruction.k)

    def __str__(self) -> str:
        return f"{self.chain}, scaled every {self.n} terms"


@lru_cache(maxsize=4096)
def groups_of(spec: GemmSpec) -> ScaledGroups | Refusal:
    """Return the chains that ``spec`` means, if a kernel exists for it, else why there is none."""
    accumulator, a, b, n = spec.accumulator, spec.a, spec.b, spec.group
    if not isinstance(accumulator, Scaled) or not isinstance(accumulator.inner, Hardware) or n is None:
        return Refusal(f"{accumulator} does not scale sums of instructions")
    chain = chain_of(accumulator.inner)
    if not isinstance(chain, Chain):
        return chain
    if chain.instruction.unit != "wgmma":
        return Refusal(f"no kernel scales sums of {chain}; only those of Hopper's wgmma")
    if accumulator.outer != Cast(FP32):
        return Refusal(f"scaled sums added in {accumulator.outer}; the kernel adds in fp32, to nearest even")
    if not isinstance(a, BlockFormat) or not isinstance(b, BlockFormat):
        return Refusal("one operand is not in a block format")
    if a.tensor_scale or b.tensor_scale:
        return Refusal("the kernel does not take a scale of a whole tensor")
    if max(a.scale.p, b.scale.p) > _SCALE_BITS:
        return Refusal(f"scales of more than {_SCALE_BITS} bits")
    found = ScaledGroups(chain, a, b, n)
    if COUNT % found.period or found.period * chain.instruction.k > _FILLED * n:
        k = chain.instruction.k
        return Refusal(
            f"groups of {n} terms; the kernel has groups of 1, 2 or 4 instructions of {k}, at least half full"
        )
    return found


@lru_cache(maxsize=1024)
def source_of(groups: ScaledGroups) -> KernelSource:
    """Return the kernel of these groups. It reads formats and block sizes as data."""
    one = groups.instruction
    config = Groups(element_name(one.a), element_name(one.b), one.d == "f16", groups.period, True)
    return group_source(config, f"{one.name}, scaled every {groups.period * one.k}")


def refuses(a: Tensor | Coded, b: Tensor | Coded, out: Tensor, groups: ScaledGroups) -> Refusal | None:
    """Return why the kernel does not take these operands, or ``None``."""
    if not isinstance(a, Coded) or not isinstance(b, Coded):
        return Refusal("one operand is not in a block format")
    width = _width(a.size, groups)
    size = groups.chain.dtypes[0].itemsize
    return refuses_shape(out, width, groups.chain) or refuses_sizes(out, width * size)


def _width(terms: int, groups: ScaledGroups) -> int:
    """Return the number of terms of a line whose groups are padded, except the last."""
    whole = max(terms - 1, 0) // groups.n
    return whole * groups.period * groups.instruction.k + terms - whole * groups.n


def gemm(
    a: Tensor | Coded, b: Tensor | Coded, spec: GemmSpec, out: Tensor, seed: int, groups: ScaledGroups
) -> KernelSource:
    """Write the product of ``a`` (\\*B, M, K) and ``b`` (\\*B, K, N) to ``out`` (\\*B, M, N); return the kernel that
    ran.

    The sums are those of the device's instruction; the output cast of ``spec`` follows. Call ``refuses`` first.
    Elements are decoded once to the instruction's format, which represents them.

    Raises:
        CudaError: if the kernel cannot be compiled or launched.
    """
    assert isinstance(a, Coded) and isinstance(b, Coded)
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    batches, n = out.shape[:-2].numel(), out.shape[-1]
    dtypes = groups.chain.dtypes
    left, right = (_lines(x, dtype, groups) for x, dtype in ((a, dtypes[0]), (b.transposed, dtypes[1])))
    scales = [_scales(x, groups) for x in (a, b.transposed)]
    direct = out.dtype == torch.float32 and spec.out is None and out.is_contiguous()
    register = out if direct else torch.empty(out.shape, dtype=torch.float32, device=out.device)
    args, kept = group_args(left, right, _width(a.size, groups), dtypes[0].itemsize, register)
    set_scales(args, scales[0], scales[1])
    source = source_of(groups)
    launch(source, out.device, (batches * args.tiles_m, -(-n // _TILE), 1), args)
    del kept  # the caching allocator reuses memory of this stream only for later work of the same stream
    if not direct:
        cast_into(register, spec.out, out, seed, Site.OUTPUT)
    return source


def _one(x: Coded) -> Coded:
    """Return ``x`` without batch dimensions if it is repeated along all of them."""
    if x.codes.dim() > 2 and all(s == 0 for s in x.codes.stride()[:-2]):
        matrix = (0,) * (x.codes.dim() - 2)
        return replace(x, codes=x.codes[matrix], scales=x.scales[matrix])
    return x


def _lines(x: Coded, dtype: torch.dtype, groups: ScaledGroups) -> Tensor:
    """Return the elements (1 or B, lines, bytes) as the instruction reads them, each group padded with zeros."""
    elements = elements_of(_one(x), decode_blocks).to(dtype)
    full = groups.period * groups.instruction.k
    if full != groups.n:
        count = -(-x.size // groups.n)
        wide = torch.zeros(*elements.shape[:-1], count, full, dtype=torch.float32, device=elements.device).to(dtype)
        even = torch.nn.functional.pad(elements.view(_WORDS[dtype.itemsize]), (0, count * groups.n - x.size))
        wide.view(_WORDS[dtype.itemsize])[..., : groups.n] = even.unflatten(-1, (count, groups.n))
        elements = wide.flatten(-2)[..., : _width(x.size, groups)]
    return operand_lines(elements)


#: Integer dtypes by the size of an element. Every operation supports them.
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def _scales(x: Coded, groups: ScaledGroups) -> Tensor:
    """Return the scales (1 or B, lines, groups) in float32."""
    found = factors_of(_one(x)).float()
    if x.format.block_size != groups.n:
        found = found.repeat_interleave(x.format.block_size // groups.n, -1)
    return found.reshape(found.shape[:-2].numel(), *found.shape[-2:]).contiguous()


def problems(groups: ScaledGroups, device: torch.device) -> Iterator[Problem]:
    """Yield products by the kernel of ``groups`` and by that of its model, on operands that test the instruction.

    Their scales are ones that the kernel multiplies in binary32, and arbitrary ones, NaN included. Elements of two
    bytes and more are numbers of FP8, because codes have no more bits.
    """
    one = groups.instruction
    names = tuple(name if name in _FP8 else fp8 for name, fp8 in ((one.a, "e4m3"), (one.b, "e5m2")))
    block = groups.period * one.k
    formats = [BlockFormat(_FP8[name][0], block_size=block) for name in names]
    tried = replace(groups, a=formats[0], b=formats[1], n=block)
    spec = GemmSpec(formats[0], formats[1], accumulator=Scaled(groups.chain.accumulator))
    for left, right in plain_problems(Hardware(one.arch, "wgmma", *names).instruction):
        for near in (True, False):
            sides = []
            for side, (values, name, fmt) in enumerate(zip((left, right.mT), names, formats, strict=True)):
                codes = values.to(_FP8[name][1]).view(torch.uint8)
                scales = power_scales(-(-codes.shape[1] // block), side, near)[: len(codes)]
                sides.append(Coded(codes.to(device), scales.to(device), fmt, -1, codes.shape[1]))
            yield _problem(sides[0], sides[1].transposed, spec, tried)


def _problem(a: Coded, b: Coded, spec: GemmSpec, groups: ScaledGroups) -> Problem:
    def native() -> Tensor:
        out = torch.full((a.codes.shape[0], b.codes.shape[1]), 7.0, device=a.codes.device)
        gemm(a, b, spec, out, 0, groups)
        return out

    def model() -> Tensor:
        out = torch.empty(a.codes.shape[0], b.codes.shape[1], device=a.codes.device)
        simt(a, b, spec, out)
        return out

    def factors(i: int, j: int) -> tuple[Tensor, Tensor]:
        return _numbers(a, i), _numbers(b.transposed, j)

    return Problem(native, model, factors)


def _numbers(x: Coded, line: int) -> Tensor:
    """Return element times scale of a line, in float64."""
    one = replace(x, codes=x.codes[line : line + 1], scales=x.scales[line : line + 1])
    factors = factors_of(one).repeat_interleave(x.format.block_size, -1)[..., : x.size]
    return (elements_of(one, decode_blocks).double() * factors)[0]


#: The products that CI compiles: one instruction per group, and two.
_LISTED = ("mxfp8_e4m3 : scaled(hw(hopper, wgmma, e4m3))", "mxfp8_e4m3 : scaled(hw(hopper, wgmma, bf16))")


def sources() -> Iterator[KernelSource]:
    """Yield a kernel for each of a few products."""
    for text in _LISTED:
        found = groups_of(GemmSpec.of(text))
        assert isinstance(found, ScaledGroups), found
        yield source_of(found)
