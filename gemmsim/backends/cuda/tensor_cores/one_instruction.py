"""Runs one ``mma.sync`` of the device on a row of A, a column of B and an element of C as codes, for probes of a chip.

Products use other kernels (``gemm_instruction``), whose sums start from +0. Here C is given.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_uint32, c_void_p
from functools import lru_cache

import torch

from gemmsim.hardware import UNDECIDED, Instruction, instruction

from ..errors import CudaError, message
from ..jit.cache import kernel_cache
from ..jit.launch import LoadedKernel, device_arch
from ..jit.source import KernelSource

__all__ = ["OneInstructionArgs", "one_instruction_source", "one_mma", "sources"]

#: Number of 32-bit registers of a lane for A and for B, by the bytes of a row.
_REGISTERS = {8: (2, 2), 16: (2, 1), 32: (4, 2)}
#: Architectures that have mma.sync on FP8, and one older than those for which other kernels are compiled.
_FP8_ARCHS = ("sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")
_TURING = "sm_75"


class OneInstructionArgs(ctypes.Structure):
    """gemmsim::OneInstructionArgs, field by field."""

    _fields_ = [("a", c_void_p), ("b", c_void_p), ("d", c_void_p), ("c", c_uint32), ("reserved", c_uint32)]


@lru_cache(maxsize=64)
def one_instruction_source(row: Instruction) -> KernelSource:
    """Return the kernel of one instruction without scales.

    Raises:
        CudaError: for another unit than mma, or operands that it has no kernel for.
    """
    size = row.k * row.operands[0].container // 8
    if row.unit != "mma" or row.kind is not None or size not in _REGISTERS or row.d == "f64":
        raise CudaError(message(f"one {row.name}", "mma of f16, bf16, tf32, e4m3, e5m2", "Name one of these."))
    shape, few = row.name.split(".")[1], row.k == 4 and row.a == "f16"
    a, b = _REGISTERS[size]
    cd = (8 if few else 4) // (2 if row.d == "f16" else 1)
    places = [f"%{i}" for i in range(cd + a + b + 1)]
    parts = (places[:cd], places[cd : cd + a], places[cd + a : cd + a + b], [places[-1]] * cd)
    operands = ", ".join("{" + ", ".join(part) + "}" for part in parts)
    ptx = f"mma.sync.aligned.{shape}.row.col.{row.d}.{row.a}.{row.b}.{row.c} {operands};"
    outputs = ", ".join(f'"=r"(d[{i}])' for i in range(cd))
    inputs = ", ".join([f'"r"({x}[{i}])' for x, count in (("a", a), ("b", b)) for i in range(count)] + ['"r"(args.c)'])
    text = (
        '#include "gemm/tensor_cores/one_instruction.h"\n'
        'extern "C" __global__ void gemmsim_kernel(const gemmsim::OneInstructionArgs args) {\n'
        f"    uint32_t a[{a}], b[{b}], d[{cd}];\n"
        f"    gemmsim::fragments<{'true' if few else 'false'}>(args, (int)threadIdx.x, a, b);\n"
        f'    asm volatile("{ptx}" : {outputs} : {inputs});\n'
        "    if (threadIdx.x == 0) *args.d = d[0];\n"
        "}\n"
    )
    archs = _FP8_ARCHS if row.operands[0].width == 8 else (_TURING,) if few else ()
    return KernelSource("one_instruction", row.name, text, 32, archs=archs)


def _words(codes: Sequence[int], width: int, device: torch.device) -> torch.Tensor:
    """Pack codes into words, the first in the lowest bits."""
    packed = b"".join(code.to_bytes(width // 8, "little") for code in codes)
    return torch.frombuffer(bytearray(packed), dtype=torch.int32).to(device)


def one_mma(row: Instruction, a: Sequence[int], b: Sequence[int], c: int, device: int = 0) -> int:
    """Return the code of D = A @ B + C by ``row`` on GPU ``device``; a and b have k codes each, c is a code.

    Raises:
        CudaError: if there is no kernel for ``row``, or it cannot be compiled or launched; a GPU older than Turing.
    """
    source = one_instruction_source(row)
    a_kind, b_kind, c_kind, d_kind = row.operands
    here = torch.device("cuda", device)
    left, right = _words(a, a_kind.width, here), _words(b, b_kind.width, here)
    d = torch.zeros(1, dtype=torch.int32, device=here)
    args = OneInstructionArgs(left.data_ptr(), right.data_ptr(), d.data_ptr(), c | c << 16 if c_kind.width == 16 else c)
    arch = _TURING if torch.cuda.get_device_capability(device) == (7, 5) else device_arch(device)
    LoadedKernel(source, device, kernel_cache().get(source, arch).cubin)((1, 1, 1), args)
    return int(d.item()) & ((1 << d_kind.width) - 1)


def sources() -> Iterator[KernelSource]:
    """Yield the kernels of the instructions that undecided probes use."""
    for arch, name in dict.fromkeys((probe.arch, probe.instruction) for probe in UNDECIDED):
        yield one_instruction_source(instruction(arch, name))
