"""Kernels of family ``gemm_collective``: products by CUTLASS' own mainloop for Hopper (collective/kernel.h).

This module does not know the bits of the hardware. Where a spec names its bits, ``route`` compares them with the model
before any other use. ``gemmsim.cutlass_acceleration`` uses the results as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.lowering.abi_constants import Site
from gemmsim.lowering.refusal import Refusal

from ..casts.cast import cast_into
from ..errors import CudaError
from ..jit.cache import kernel_cache
from ..jit.launch import device_arch, launch
from ..jit.source import KernelSource
from .cutlass_params import Lines, Tiling, check_layout, grid_of, params_of
from .native_mma import Chain, operand, operand_lines

__all__ = [
    "LARGE",
    "Collective",
    "collective_of",
    "collective_source",
    "gemm_collective",
    "refuses_collective",
    "sources",
]

_THREADS = 384
ARCH = "sm_90a"
#: For each format: gemmsim::Element, the dtype, and CUtensorMapDataType.
_ELEMENTS = {
    "f16": ("F16", torch.float16, "UINT16"),
    "bf16": ("BF16", torch.bfloat16, "UINT16"),
    "e4m3": ("E4M3", torch.float8_e4m3fn, "UINT8"),
    "e5m2": ("E5M2", torch.float8_e5m2, "UINT8"),
}
_FP8 = ("e4m3", "e5m2")
#: Number of terms between promotions.
PROMOTION = 128
#: Bytes of a line in a tile, which are the period of the swizzle.
_LINE = 128
_MOST = 2**31 - 1
#: Multiply-adds from which the mainloop is worth the 9 to 15 s of CPU time for compiling it once.
LARGE = 1 << 33


@dataclass(frozen=True)
class Collective:
    """One mainloop: the names of the operands' formats, and the number of terms between promotions.

    After ``promoted`` terms a sum is added to a register of binary32 (FP8 only). 0 means one register of the
    instruction for all terms.
    """

    a: str
    b: str
    promoted: int = 0

    @property
    def dtypes(self) -> tuple[torch.dtype, torch.dtype]:
        """Dtypes of the operands as the kernel reads them."""
        return _ELEMENTS[self.a][1], _ELEMENTS[self.b][1]

    @property
    def tiling(self) -> Tiling:
        """Tiles, stages and shared memory as CUTLASS' builder chooses them; the machine code is compared with them."""
        size = self.dtypes[0].itemsize
        n, stages, shared = (128, 7, 230528) if self.promoted else (256, 4, 197760)
        return Tiling(128, n, _LINE // size, stages, shared, size, self.promoted)

    def __str__(self) -> str:
        promoted = f", promoted every {self.promoted} terms" if self.promoted else ""
        return f"CUTLASS mainloop {self.a} by {self.b}{promoted}"


def collective_of(chain: Chain) -> Collective | Refusal:
    """Return the mainloop that computes what ``chain`` means, as far as its tables say, or why there is none."""
    one = chain.instruction
    if one.unit != "wgmma" or one.d != "f32" or one.a not in _ELEMENTS or one.b not in _ELEMENTS:
        return Refusal(f"no mainloop of CUTLASS is built for {chain}")
    if chain.promoted and (chain.promoted != PROMOTION or one.a not in _FP8):
        return Refusal(f"CUTLASS promotes FP8 every {PROMOTION} terms, not {chain}")
    return Collective(one.a, one.b, chain.promoted)


@lru_cache(maxsize=64)
def collective_source(collective: Collective) -> KernelSource:
    """Return the kernel of a mainloop."""
    config = (
        f".a = gemmsim::Element::{_ELEMENTS[collective.a][0]}, .b = gemmsim::Element::{_ELEMENTS[collective.b][0]}, "
        f".promoted = {collective.promoted}"
    )
    cluster = ", ".join(map(str, (*Tiling.CLUSTER, 1)))
    text = (
        '#include "collective/layout.h"\n'
        f"using Gemm = gemmsim::CollectiveGemm<gemmsim::CollectiveConfig{{{config}}}>;\n"
        'extern "C" __device__ const gemmsim::CollectiveLayout gemmsim_layout = gemmsim::collective_layout<Gemm>();\n'
        'extern "C" __device__ const Gemm::Problem gemmsim_problem{1, 2, 3, 4};\n'
        f'extern "C" __global__ void __launch_bounds__({_THREADS}, 1) __cluster_dims__({cluster}) '
        "gemmsim_kernel(const __grid_constant__ Gemm::Params params) {\n"
        "    Gemm::run(params);\n"
        "}\n"
    )
    name = f"{collective.a} {collective.b}" + (f", promoted {collective.promoted}" if collective.promoted else "")
    return KernelSource("gemm_collective", name, text, _THREADS, collective.tiling.shared, archs=(ARCH,))


@lru_cache(maxsize=64)
def check_kernel(collective: Collective, arch: str) -> None:
    """Check that the compiled kernel reads its parameters in the layout that this package writes.

    Raises:
        CudaError: if not, or if it cannot be compiled.
    """
    source = collective_source(collective)
    check_layout(kernel_cache().get(source, arch).cubin, collective.tiling, str(source))


def refuses_collective(a: Tensor, out: Tensor) -> Refusal | None:
    """Return why no mainloop computes a product of ``a`` (\\*B, M, K) to ``out`` (\\*B, M, N), or ``None``."""
    if out.numel() == 0:
        return Refusal("the result has no elements")
    if a.shape[-1] == 0:
        return Refusal("K = 0: there is nothing to multiply")
    batch = out[..., 0, 0].numel()
    if max(*out.shape[-2:], a.shape[-1], batch) > _MOST or out.stride(-1) > _MOST:
        return Refusal(f"a size beyond {_MOST}")
    return None


def device_refuses(device: torch.device) -> Refusal | None:
    """Return why this device runs no mainloop of CUTLASS, or ``None``."""
    if not _is_gpu(device):
        return Refusal(f"CUTLASS runs on GPUs of compute capability 9.0, not on {device.type}")
    index = torch.cuda.current_device() if device.index is None else device.index
    try:
        arch = device_arch(index)
    except CudaError as error:
        return Refusal(str(error).splitlines()[0])
    if arch != ARCH:
        return Refusal(f"its mainloops are built for {ARCH} (Hopper); {device} is {arch}")
    return None


def _is_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def gemm_collective(
    a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int, collective: Collective
) -> KernelSource:
    """Write the product of ``a`` (\\*B, M, K) and ``b`` (\\*B, K, N) to ``out`` (\\*B, M, N); return the kernel that
    ran.

    Operand and output casts are those of ``spec``, bit for bit. The sums are those of the mainloop over whole tiles of
    K, padded with zeros. Call ``refuses_collective`` first.

    Raises:
        CudaError: if the kernel cannot be compiled or launched, or is laid out otherwise than this version expects.
    """
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    left = operand_lines(operand(a, spec.cast_a, collective.dtypes[0], seed, Site.OPERAND_A))
    right = operand_lines(operand(b, spec.cast_b, collective.dtypes[1], seed, Site.OPERAND_B).mT)
    direct = out.dtype == torch.float32 and spec.out is None and out.is_contiguous()
    register = out if direct else torch.empty(out.shape, dtype=torch.float32, device=out.device)
    (m, n), k, index = out.shape[-2:], a.shape[-1], _index(out)
    batch = register.numel() // (m * n)
    processors = torch.cuda.get_device_properties(index).multi_processor_count
    one, two = _mapped(left, k, batch, collective.a), _mapped(right, k, batch, collective.b)
    check_kernel(collective, device_arch(index))
    args = params_of(one[1], two[1], register.data_ptr(), (n, m * n), collective.tiling, processors)
    source = collective_source(collective)
    launch(source, out.device, grid_of(m, n, batch, collective.tiling, processors), args)
    if not direct:
        cast_into(register, spec.out, out, seed, Site.OUTPUT)
    return source


def _index(out: Tensor) -> int:
    return torch.cuda.current_device() if out.device.index is None else out.device.index


def _mapped(x: Tensor, terms: int, batch: int, name: str) -> tuple[Tensor, Lines]:
    """Return the bytes of (1 or ``batch``, lines, bytes) as TMA reads them, and the tensor that stores them.

    TMA accepts no stride of 0, so shared batches or lines are written once for each use.
    """
    lines, size = x.shape[1:]
    x = x.expand(batch, lines, size)
    if (batch > 1 and x.stride(0) == 0) or (lines > 1 and x.stride(1) == 0):
        x = x.contiguous()
    line = x.stride(1) if lines > 1 else size
    whole = x.stride(0) if batch > 1 else line * lines
    return x, Lines(x.data_ptr(), terms, lines, batch, line, whole, _ELEMENTS[name][2])


#: The mainloops that CI compiles: for elements of two bytes, and of one byte with promotion.
_LISTED = (Collective("bf16", "bf16"), Collective("e4m3", "e4m3", PROMOTION))


def sources() -> Iterator[KernelSource]:
    """Yield a kernel for each of a few mainloops."""
    for one in _LISTED:
        yield collective_source(one)
