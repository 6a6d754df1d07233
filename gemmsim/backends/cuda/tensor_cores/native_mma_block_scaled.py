"""Products of a spec that names a block-scaled instruction, by that instruction: kernel, operands and checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Hardware
from gemmsim.formats import E4M3, E8M0, BlockFormat
from gemmsim.hardware import Instruction
from gemmsim.hardware.operands import OPERANDS
from gemmsim.lowering.abi_constants import Site
from gemmsim.lowering.refusal import Refusal

from ...encoded_operand import Coded
from ..casts.cast import cast_into
from ..jit.source import KernelSource
from ..simt.block_scaled import element_format
from ..simt.block_scaled import gemm_blocks as simt
from .block_scaled_mma import run_tensor, tensor_source
from .self_check import Problem
from .self_check_inputs import block_problems

__all__ = ["ScaledChain", "chain_of", "gemm", "problems", "refuses", "source_of"]

#: gemmsim::TensorRoute by the unit of the instruction.
_ROUTES = {"mma_block_scale": "BLOCK_SCALED", "tcgen05mma_block_scale": "TENSOR_MEMORY"}
#: Kinds whose operands are packed two per byte.
_PACKED = ("mxf4", "mxf4nvf4")
#: Scale format and block size of the kinds for which kernels exist.
_KINDS = ((E8M0, 32), (E4M3, 16))
_MOST_LINES = 2**31 - 1


@dataclass(frozen=True)
class ScaledChain:
    """A chain of one block-scaled instruction on operands in these formats."""

    instruction: Instruction
    a: BlockFormat
    b: BlockFormat

    @property
    def packing(self) -> str:
        """Packing of the codes as the kernel reads them."""
        return "lo_first" if self.instruction.kind in _PACKED else "bytes"

    def __str__(self) -> str:
        return self.instruction.name


@lru_cache(maxsize=4096)
def chain_of(spec: GemmSpec) -> ScaledChain | Refusal:
    """Return the chain that ``spec`` means, if a kernel exists for it, else why there is none."""
    accumulator, a, b = spec.accumulator, spec.a, spec.b
    if not isinstance(accumulator, Hardware) or accumulator.instruction.scale is None:
        return Refusal(f"{accumulator} is not a chain of block-scaled instructions")
    if not isinstance(a, BlockFormat) or not isinstance(b, BlockFormat):
        return Refusal("one operand is not in a block format")
    one = accumulator.scaled_instruction(a, b)
    elements = tuple(OPERANDS[name].format for name in (one.a, one.b))
    kinds = {(x.scale, x.block_size) for x in (a, b)}
    if one.unit not in _ROUTES or len(kinds) > 1 or not kinds <= set(_KINDS):
        return Refusal(f"no kernel issues {one.arch} {one.name}")
    if (element_format(a), element_format(b)) != elements:
        return Refusal(f"elements of {a} and {b} are not stored as {one.name} reads them")
    found = ScaledChain(one, a, b)
    if one.unit == "tcgen05mma_block_scale" and found.packing == "bytes" and min(x.bits for x in elements) < 8:
        return Refusal(f"no kernel issues {one.arch} {one.name}: its operands have fewer than 8 bits")
    return found


@lru_cache(maxsize=1024)
def source_of(chain: ScaledChain) -> KernelSource:
    """Return the kernel of a chain."""
    route = _ROUTES[chain.instruction.unit]
    return tensor_source(route, chain.a, chain.b, chain.packing, chain.packing, torch.float32)


def refuses(a: Tensor | Coded, b: Tensor | Coded, out: Tensor) -> Refusal | None:
    """Return why the kernel does not take these operands, or ``None``."""
    if not isinstance(a, Coded) or not isinstance(b, Coded):
        return Refusal("one operand is not in a block format")
    if out.dim() > 2 and not _is_one(b.codes):
        return Refusal("batches of both operands: it takes two matrices")
    if out.shape[-1] > 65535 * 128 or out.shape[:-1].numel() > _MOST_LINES:
        return Refusal("more tiles than its grid holds")
    return None


def _is_one(x: Tensor) -> bool:
    """Whether a batch is one matrix, repeated."""
    return all(size == 1 or stride == 0 for size, stride in zip(x.shape[:-2], x.stride()[:-2], strict=True))


def gemm(
    a: Tensor | Coded, b: Tensor | Coded, spec: GemmSpec, out: Tensor, seed: int, chain: ScaledChain
) -> KernelSource:
    """Write the product to ``out``, and return the kernel that ran. Call ``refuses`` first.

    The sums are those of the device's instruction. They are multiplied by the tensors' own scales and rounded once, and
    the output cast of ``spec`` is applied.

    Raises:
        CudaError: if the kernel cannot be compiled or launched.
    """
    assert isinstance(a, Coded) and isinstance(b, Coded)
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    matrix = (0,) * (b.codes.dim() - 2)
    left = _lines(a, chain.packing)
    one = replace(b, codes=b.codes[matrix], scales=b.scales[matrix])
    right = _lines(one.transposed, chain.packing).transposed
    rows, n = left.codes.shape[0], out.shape[-1]
    direct = out.dtype == torch.float32 and spec.out is None and out.is_contiguous()
    sums = out.view(rows, n) if direct else torch.empty(rows, n, dtype=torch.float32, device=out.device)
    source = source_of(chain)
    run_tensor(source, left, right, sums)
    if not direct:
        cast_into(sums.view(out.shape), spec.out, out, seed, Site.OUTPUT)
    return source


def _lines(x: Coded, packing: str) -> Coded:
    """Return ``x`` (\\*B, lines, terms) as (lines, terms), codes in ``packing``, lines at multiples of 16 bytes."""
    codes = x.codes.reshape(-1, x.codes.shape[-1])
    if x.packing == "bytes" and packing == "lo_first":
        even = codes if codes.shape[-1] % 2 == 0 else torch.nn.functional.pad(codes, (0, 1))
        codes = even[:, ::2] & 15 | even[:, 1::2] << 4
    elif x.packing == "lo_first" and packing == "bytes":
        codes = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)[:, : x.size].contiguous()
    if codes.stride(1) != 1 or codes.stride(0) % 16 or codes.data_ptr() % 16:
        wide = torch.zeros(codes.shape[0], -(-codes.shape[1] // 16) * 16, dtype=torch.uint8, device=codes.device)
        wide[:, : codes.shape[1]] = codes
        codes = wide[:, : codes.shape[1]]
    scales = x.scales.reshape(-1, x.scales.shape[-1]).contiguous()
    return replace(x, codes=codes, scales=scales, packing=packing)


def problems(chain: ScaledChain, device: torch.device) -> Iterator[Problem]:
    """Yield products by the chain's kernel and by the kernel of its model; tensors' own scales are numbers of 24
    bits.
    """
    one = chain.instruction
    assert one.kind is not None
    spec = GemmSpec(chain.a, chain.b, accumulator=Hardware(one.arch, one.kind, one.a, one.b, out=one.d))
    seconds = [torch.tensor(x, dtype=torch.float32, device=device) for x in (0.7, 1.3)]
    for sides in block_problems(one):
        left, right = (
            Coded(codes.to(device), scales.to(device), fmt, dim, k, "bytes", second if fmt.tensor_scale else 1.0)
            for (codes, scales), fmt, second, dim, k in zip(
                sides, (chain.a, chain.b), seconds, (-1, -2), (sides[0][0].shape[1],) * 2, strict=True
            )
        )
        yield _problem(left, right, spec, chain)


def _problem(a: Coded, b: Coded, spec: GemmSpec, chain: ScaledChain) -> Problem:
    def native() -> Tensor:
        out = torch.full((a.codes.shape[0], b.codes.shape[1]), 7.0, device=a.codes.device)
        gemm(a, b, spec, out, 0, chain)
        return out

    def model() -> Tensor:
        out = torch.empty(a.codes.shape[0], b.codes.shape[1], device=a.codes.device)
        simt(a, b, spec, out)
        return out

    def factors(i: int, j: int) -> tuple[Tensor, Tensor]:
        return _numbers(a.codes[i], a.scales[i], chain.a), _numbers(b.codes[:, j], b.scales[:, j], chain.b)

    return Problem(native, model, factors)


def _numbers(codes: Tensor, scales: Tensor, fmt: BlockFormat) -> Tensor:
    """Return element times scale in float64."""
    element, scale = element_format(fmt), fmt.scale
    values = [element.decode(int(c)) * scale.decode(int(scales[i // fmt.block_size])) for i, c in enumerate(codes)]
    return torch.tensor(values, dtype=torch.float64)
