"""Describes in words how products of operands in block formats run on a GPU: which kernels and tensor cores compute
them.

Nothing is run or compiled.
"""

from __future__ import annotations

from functools import lru_cache

from gemmsim.arithmetic import GemmSpec, Hardware, SpecError
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.arithmetic.scaled import Scaled
from gemmsim.formats import TENSOR_FORMATS, BlockFormat

from . import native_mma_block_scaled
from .block_scaled_mma import route_of

__all__ = ["block_core_words", "block_words"]

#: The architecture whose tables have ops with scales, and these ops.
_ARCH, _OPS = "blackwell", ("mxf4", "mxf4nvf4", "mxf8f6f4")
#: The instructions that ``gemm_tensor_cores`` uses, by the names of ``route_of``.
_ROUTES = {
    "WARP": "warps' instructions on values in bfloat16",
    "WARP_GROUP": "wgmma on values in bfloat16",
    "TENSOR_MEMORY": "the block-scaled instruction",
}


def block_words(spec: GemmSpec) -> str | None:
    """Say how codes and scales are read on a GPU, and what computes the product; ``None`` without block formats.

    Example:
        >>> from gemmsim.backends import cuda
        >>> "decoded once (mx_cast)" in cuda.block_words(gs.GemmSpec.parse("mxfp8_e4m3 : fp32"))
        True
    """
    blocks = _blocks(spec)
    if not blocks:
        tensors = [name for name, fmt in (("a", spec.a), ("b", spec.b)) if isinstance(fmt, TENSOR_FORMATS)]
        how = "rounded in a pass beforehand (block_float); ordinary units multiply (gemm)"
        return f"{' and '.join(tensors)} {how}" if tensors else None
    if not takes_scales(spec.accumulator):
        second = " * the tensor's scale" if any(fmt.tensor_scale for fmt in blocks.values()) else ""
        return (
            f"codes and scales of {' and '.join(blocks)} are decoded once (mx_cast) to element * scale{second}, in "
            "float32, or float64 where float32 may not hold them; ordinary units multiply these values (gemm)"
        )
    how = f"ordinary units (gemm) read codes and scales of {' and '.join(blocks)} and decode them while they are loaded"
    if isinstance(spec.accumulator, Hardware):
        return f"{how}; they compute the model of the instruction, with scales applied in each step"
    second = "; the tensors' scales multiply the final sum" if any(x.tensor_scale for x in blocks.values()) else ""
    return f"{how}; scales multiply the sum of each group of {spec.group} terms{second}"


def block_core_words(spec: GemmSpec) -> str | None:
    """Say why no tensor core of a Hopper computes ``spec``, and what a Blackwell's do; ``None`` without block formats.

    For a spec that names an instruction, say what runs where the instruction is not used (``tensor_core_words`` says
    whether it is).

    Example:
        >>> from gemmsim.backends import cuda
        >>> cuda.block_core_words(gs.GemmSpec.parse("e4m3 : fp32")) is None  # no block formats
        True
    """
    blocks = _blocks(spec)
    if not blocks:
        return None
    if isinstance(spec.accumulator, Hardware):
        return "Hopper has no block-scaled instruction: there, as on any GPU without it, ordinary units are used"
    inner = spec.accumulator.inner if isinstance(spec.accumulator, Scaled) else None
    if isinstance(inner, Hardware):
        words = f"otherwise the model of {inner} runs"
    else:
        words = f"no, they add and truncate in their own way, not as {spec.accumulator} does"
    words += ", and Hopper has no block-scaled instruction"
    named = _named(spec)
    if named is not None:
        words += f". Blackwell's is another spec, '{named.key}'"
    other = _other_sums(spec)
    return words if other is None else f"{words}. {other}"


def _blocks(spec: GemmSpec) -> dict[str, BlockFormat]:
    """Return the operands in block formats, by name."""
    return {name: fmt for name, fmt in (("a", spec.a), ("b", spec.b)) if isinstance(fmt, BlockFormat)}


@lru_cache(maxsize=1024)
def _named(spec: GemmSpec) -> GemmSpec | None:
    """Return the spec of Blackwell's own instruction on these operands, if a kernel issues one."""
    if not isinstance(spec.a, BlockFormat) or not isinstance(spec.b, BlockFormat):
        return None
    for op in _OPS:
        try:
            accumulator = Hardware(_ARCH, op, str(spec.a.element), str(spec.b.element))
            found = GemmSpec(spec.a, spec.b, accumulator=accumulator, out=spec.out)
        except SpecError:  # an op that does not take these elements, or these scales
            continue
        if isinstance(native_mma_block_scaled.chain_of(found), native_mma_block_scaled.ScaledChain):
            return found
    return None


def _other_sums(spec: GemmSpec) -> str | None:
    """Say how ``gemm_tensor_cores`` computes these operands; ``None`` where it does not take them."""
    a, b = spec.a, spec.b
    if not isinstance(a, BlockFormat) or not isinstance(b, BlockFormat) or a.block_size % 16 or b.block_size % 16:
        return None
    packing = "lo_first" if a.element.bits == b.element.bits == 4 else "bytes"
    hopper, blackwell = (_ROUTES[route_of(arch, a, b, packing, packing)] for arch in ("sm_90a", "sm_100a"))
    return f"backends.cuda.gemm_tensor_cores gives their sums: Hopper's by {hopper}, Blackwell's by {blackwell}"
