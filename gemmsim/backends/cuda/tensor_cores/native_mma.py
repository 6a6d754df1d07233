"""Kernels of family ``gemm_instruction``: products by a chip's own matrix instruction, in the order of ``hw(...)``.

The kernels are in cutlass_kernels/gemm/tensor_cores (native_mma.h, wgmma.h, tcgen05.h). This module does not know the
bits of the hardware; ``route`` compares them with the model before any other use.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from ctypes import c_int64, c_void_p
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic import Accumulator, Chunked, GemmSpec, Hardware, Promote
from gemmsim.formats import FP32, Cast
from gemmsim.hardware import OPERANDS, Instruction
from gemmsim.lowering.abi_constants import Site
from gemmsim.lowering.refusal import Refusal

from ..casts.cast import cast_into, cast_operand
from ..jit.launch import launch
from ..jit.source import KernelSource
from .wgmma import GroupArgs, Groups, group_args, group_source, refuses_sizes

__all__ = [
    "Chain",
    "InstructionArgs",
    "chain_of",
    "element_name",
    "gemm_instruction",
    "instruction_source",
    "operand",
    "operand_lines",
    "refuses_shape",
    "sources",
    "without_first",
]

#: The last is gemmsim::INSTRUCTION_STAGES, the chunks in shared memory. There are two where sums lie in tensor memory.
_THREADS, _TILE, _LINE, _STAGES = 256, 128, 128, 3
#: Bytes of a chunk of both operands, and those that align the first; barriers of gemmsim::InstructionTmem.
_CHUNK, _ALIGNING, _BARRIERS = 2 * _TILE * _LINE, 1024, 64
#: For each operand: gemmsim::Element, and the dtype whose bits the instruction reads.
_ELEMENTS = {
    "f16": ("F16", torch.float16),
    "bf16": ("BF16", torch.bfloat16),
    "tf32": ("TF32", torch.float32),
    "e4m3": ("E4M3", torch.float8_e4m3fn),
    "e5m2": ("E5M2", torch.float8_e5m2),
}
#: gemmsim::Issue of each unit.
_ISSUES = {"mma": "WARP", "wgmma": "WARP_GROUP", "tcgen05mma": "BLOCK"}
#: The op of ``hw``, where it differs from the unit's name.
_OPS = {"tcgen05mma": "tcgen05"}
_UNIT_ARCHS = {"wgmma": ("sm_90a",), "tcgen05mma": ("sm_100a", "sm_103a")}
_FP8 = ("e4m3", "e5m2")
#: Architectures that have mma.sync on FP8, by a unit of its own or through binary16.
_FP8_ARCHS = ("sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")
_MOST_COLUMNS = 65535 * _TILE
_MOST_BLOCKS = 2**31 - 1


class InstructionArgs(ctypes.Structure):
    """gemmsim::InstructionArgs, field by field."""

    _fields_ = [
        ("a", c_void_p), ("b", c_void_p), ("out", c_void_p),
        ("m", c_int64), ("n", c_int64), ("k", c_int64),
        ("a_row", c_int64), ("b_row", c_int64), ("a_batch", c_int64), ("b_batch", c_int64),
        ("out_row", c_int64), ("out_batch", c_int64), ("tiles_m", c_int64),
    ]  # fmt: skip


@dataclass(frozen=True)
class Chain:
    """A chain of one instruction.

    After ``promoted`` terms its register is added to one of binary32 and zeroed; 0 means one chain over all of K.
    """

    instruction: Instruction
    promoted: int = 0

    @property
    def accumulator(self) -> Hardware | Promote:
        """The accumulator that the chain computes."""
        one = self.instruction
        inner = Hardware(one.arch, _OPS.get(one.unit, one.unit), one.a, one.b, out=str(OPERANDS[one.d].format))
        return Promote(inner, self.promoted) if self.promoted else inner

    @property
    def dtypes(self) -> tuple[torch.dtype, torch.dtype]:
        """Dtypes of the operands as the kernel reads them."""
        return _ELEMENTS[self.instruction.a][1], _ELEMENTS[self.instruction.b][1]

    def __str__(self) -> str:
        return self.instruction.name + (f", promoted every {self.promoted} terms" if self.promoted else "")


def element_name(operand: str) -> str:
    """Return the name in gemmsim::Element of an instruction's operand that a kernel takes."""
    return _ELEMENTS[operand][0]


@lru_cache(maxsize=4096)
def chain_of(accumulator: Accumulator) -> Chain | Refusal:
    """Return the chain of instructions that ``accumulator`` means, if a kernel exists for it, else why there is
    none.
    """
    if isinstance(accumulator, Hardware):
        return _plain_chain(accumulator)
    if not isinstance(accumulator, (Promote, Chunked)) or not isinstance(accumulator.inner, Hardware):
        return Refusal(f"{accumulator} is not a chain of matrix instructions")
    if accumulator.add_cast != Cast(FP32):
        return Refusal(f"promotion to {accumulator.add_cast}; the kernel adds in fp32, to nearest even")
    found = _plain_chain(accumulator.inner)
    if isinstance(found, Refusal):
        return found
    chunk, one = _LINE // found.dtypes[0].itemsize, found.instruction.k
    groups = found.instruction.unit == "wgmma"
    if accumulator.n % chunk and not (groups and accumulator.n % one == 0 and chunk % accumulator.n == 0):
        also = f"{one}, {chunk // 2} and " if groups else ""
        return Refusal(f"promotion every {accumulator.n} terms; the kernel promotes at {also}multiples of {chunk}")
    return Chain(found.instruction, accumulator.n)


def without_first(accumulator: Accumulator, k: int) -> Accumulator:
    """Return ``accumulator`` without ``first`` where a sum of ``k`` terms leaves none over for a step of their own."""
    if isinstance(accumulator, Hardware) and accumulator.first and k % accumulator.first == 0:
        return replace(accumulator, first=None)
    return accumulator


def _plain_chain(accumulator: Hardware) -> Chain | Refusal:
    one = accumulator.instruction
    if accumulator.first:
        return Refusal(f"the remainder modulo {accumulator.first} comes first; the kernel adds it last")
    if one.unit not in _ISSUES or one.a not in _ELEMENTS or one.b not in _ELEMENTS:
        return Refusal(f"no kernel issues {one.arch} {one.name}")
    found = Chain(one)
    halves = one.unit == "tcgen05mma" and one.d == "f16"
    other = one.unit == "mma" and one.kind is not None  # the kernel issues only the plain instruction
    if one.k * found.dtypes[0].itemsize != 32 or one.arch in ("volta", "turing") or halves or other:
        return Refusal(f"no kernel issues {one.arch} {one.name}")
    return found


def _archs(chain: Chain) -> tuple[str, ...]:
    """Return the architectures that have the instruction; empty for all."""
    if chain.instruction.unit in _UNIT_ARCHS:
        return _UNIT_ARCHS[chain.instruction.unit]
    return _FP8_ARCHS if chain.instruction.a in _FP8 else ()


@lru_cache(maxsize=1024)
def instruction_source(chain: Chain) -> KernelSource:
    """Return the kernel of a chain."""
    one = chain.instruction
    name = one.name + (f", promoted {chain.promoted}" if chain.promoted else "")
    if one.unit == "wgmma":
        names = element_name(one.a), element_name(one.b)
        return group_source(Groups(*names, one.d == "f16", chain.promoted // one.k, False), name)
    half = "true" if one.d == "f16" else "false"
    config = (
        f".issue = gemmsim::Issue::{_ISSUES[one.unit]}, .a = gemmsim::Element::{_ELEMENTS[one.a][0]}, "
        f".b = gemmsim::Element::{_ELEMENTS[one.b][0]}, .half_register = {half}, "
        f".promoted = {chain.promoted // one.k}"
    )
    in_memory = one.unit == "tcgen05mma"
    text = (
        f'#include "gemm/tensor_cores/{"tcgen05" if in_memory else "native_mma"}.h"\n'
        f"constexpr gemmsim::InstructionConfig kConfig{{{config}}};\n"
        f'extern "C" __global__ void __launch_bounds__({_THREADS}) '
        "gemmsim_kernel(const gemmsim::InstructionArgs args) {\n"
        "    gemmsim::instruction_body<kConfig>(args, threadIdx.x, blockIdx.x, blockIdx.y);\n"
        "}\n"
    )
    shared = (2 if in_memory else _STAGES) * _CHUNK + _ALIGNING + _BARRIERS * in_memory
    return KernelSource("gemm_instruction", name, text, _THREADS, shared, archs=_archs(chain))


def gemm_instruction(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int, chain: Chain) -> KernelSource:
    """Write the product of ``a`` (\\*B, M, K) and ``b`` (\\*B, K, N) to ``out`` (\\*B, M, N); return the kernel that
    ran.

    Operand and output casts are those of ``spec``, bit for bit. The sums are those of the device's instruction in the
    chain's order: instructions for ascending k from +0, the last one padded with zeros.

    Raises:
        CudaError: if the kernel cannot be compiled or launched.
    """
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    left = operand_lines(operand(a, spec.cast_a, chain.dtypes[0], seed, Site.OPERAND_A))
    right = operand_lines(operand(b, spec.cast_b, chain.dtypes[1], seed, Site.OPERAND_B).mT)
    batches, n = math.prod(out.shape[:-2]), out.shape[-1]
    direct = out.dtype == torch.float32 and spec.out is None and out.is_contiguous()
    register = out if direct else torch.empty(out.shape, dtype=torch.float32, device=out.device)
    source = instruction_source(chain)
    args, kept = _args_of(left, right, a.shape[-1], register, chain)
    launch(source, out.device, (batches * args.tiles_m, -(-n // _TILE), 1), args)
    del kept  # the caching allocator reuses memory of this stream only for later work of the same stream
    if not direct:
        cast_into(register, spec.out, out, seed, Site.OUTPUT)
    return source


def _args_of(
    a: Tensor, b: Tensor, k: int, register: Tensor, chain: Chain
) -> tuple[InstructionArgs | GroupArgs, tuple[Tensor, Tensor]]:
    """Return the record of the product of two operands' lines, and the tensors that it points to."""
    if chain.instruction.unit == "wgmma":
        return group_args(a, b, k, chain.dtypes[0].itemsize, register)
    m, n = register.shape[-2:]
    args = InstructionArgs(m=m, n=n, k=k, out=register.data_ptr(), out_row=n, out_batch=m * n, tiles_m=-(-m // _TILE))
    args.a, args.a_row, args.a_batch = a.data_ptr(), a.stride(1), _batch_stride(a)
    args.b, args.b_row, args.b_batch = b.data_ptr(), b.stride(1), _batch_stride(b)
    return args, (a, b)


def refuses_shape(out: Tensor, k: int, chain: Chain) -> Refusal | None:
    """Return why the grid, or TMA, cannot represent this product of ``k`` terms, or ``None``."""
    m, n = out.shape[-2:]
    if n > _MOST_COLUMNS:
        return Refusal(f"more than {_MOST_COLUMNS} columns")
    if math.prod(out.shape[:-2]) * -(-m // _TILE) > _MOST_BLOCKS:
        return Refusal(f"more than {_MOST_BLOCKS} tiles of rows")
    return refuses_sizes(out, k * chain.dtypes[0].itemsize) if chain.instruction.unit == "wgmma" else None


def operand(x: Tensor, cast: Cast | None, dtype: torch.dtype, seed: int, site: int) -> Tensor:
    """Return ``x`` after its cast in the instruction's own dtype, which represents every value of it."""
    wide = torch.float32 if dtype.itemsize == 1 else dtype
    return cast_operand(x, cast, wide, seed, site).to(dtype)


def operand_lines(x: Tensor) -> Tensor:
    """Return ``x`` (\\*B, lines, terms) as bytes of (batch, lines, bytes).

    Each line starts at a multiple of 16 bytes, and its length is such a multiple.
    """
    if x.dim() > 2 and all(s == 0 for s in x.stride()[:-2]):
        x = x[(0,) * (x.dim() - 2)]
    x = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
    size, terms = x.element_size(), x.shape[-1]
    row, batch = x.stride(1) * size, x.stride(0) * size
    aligned = x.stride(2) == 1 and row % 16 == 0 and batch % 16 == 0 and terms * size % 16 == 0
    if not aligned or x.data_ptr() % 16:
        filled = torch.zeros(*x.shape[:-1], -(-terms * size // 16) * 16 // size, dtype=x.dtype, device=x.device)
        filled[..., :terms].copy_(x)
        x = filled
    return x.view(torch.uint8)


def _batch_stride(x: Tensor) -> int:
    return x.stride(0) if x.shape[0] > 1 else 0


#: The chains that CI compiles: each kind of issue, operand and register, and one that promotes. mma.sync is slow to
#: compile, so it has few architectures.
_LISTED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("hw(ampere, mma, bf16)", ("sm_80", "sm_120a")),
    ("hw(ampere, mma, tf32)", ("sm_80",)),
    ("hw(rtx_blackwell, mma, e4m3, e5m2)", ("sm_120a",)),
    ("hw(hopper, mma, e4m3)", ("sm_90a",)),
    ("hw(hopper, wgmma, bf16)", ("sm_90a",)),
    ("hw(hopper, wgmma, fp16, out=fp16)", ("sm_90a",)),
    ("promote(hw(hopper, wgmma, e4m3), 128)", ("sm_90a",)),
    ("hw(blackwell, tcgen05, bf16)", ("sm_100a",)),
    ("hw(blackwell, tcgen05, tf32)", ("sm_100a",)),
    ("promote(hw(blackwell, tcgen05, e4m3, e5m2), 128)", ("sm_100a",)),
)


def sources() -> Iterator[KernelSource]:
    """Yield a kernel for each of a few chains."""
    for text, archs in _LISTED:
        found = chain_of(Accumulator.parse(text))
        assert isinstance(found, Chain), found
        yield replace(instruction_source(found), archs=archs)
