"""Libraries with one rule for every shape, and Transformer Engine's use of cuBLASLt."""

from __future__ import annotations

from typing import Any

from ..formats.errors import shown, suggestion
from ..hardware import CHIPS, HardwareError, largest
from ..hardware.chips import chip_key
from .call import Call
from .cublas import CublasLt, cublaslt
from .errors import LibraryError, UnknownPlan, library_error
from .evidence import INFERRED, UNVERIFIED
from .library import Library
from .partition import slice_count, slice_length
from .plan import Plan
from .profile import load

__all__ = ["BatchInvariant", "CutlassSplitK", "batch_invariant", "cutlass_splitk", "transformer_engine"]

_MIB = 1 << 20
#: The unit that multiplies matrices on each architecture, as kernels of a compiler use it.
_UNITS = {"hopper": "wgmma", "blackwell": "tcgen05"}
_HALF = ("fp16", "bf16")
_BY = {
    "vllm": "vLLM with VLLM_BATCH_INVARIANT=1",
    "thinking-machines": "batch_invariant_ops by Thinking Machines (commit 3d56b5a9)",
    "triton": "a persistent Triton kernel, as in older versions of vLLM",
}


class BatchInvariant(Library):
    """Kernels whose sums do not depend on the batch: one chain over K for every shape; ``batch_invariant`` makes it.

    Example:
        >>> lib = gs.libraries.batch_invariant("h100", by="triton")
        >>> lib.plan(1, 64, 4096, "bf16").text == lib.plan(99, 64, 4096, "bf16").text, lib.calls_cublas
        (True, False)
    """

    __slots__ = ("arch", "by", "gpu")

    def __init__(self, gpu: str, by: str) -> None:
        super().__init__()
        self.gpu, self.by, self.arch = gpu, by, _architecture(gpu)

    def _identity(self) -> tuple[Any, ...]:
        return self.gpu, self.by

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchInvariant, (self.gpu, self.by)

    def __str__(self) -> str:
        return f"batch_invariant({self.gpu!r}, by={self.by!r})"

    def __repr__(self) -> str:
        return f"gemmsim.libraries.{self}"

    @property
    def calls_cublas(self) -> bool:
        """Whether the products are cuBLAS's, configured not to split: vLLM from Hopper on."""
        return self.by == "vllm" and self.arch in _UNITS

    def _find(self, call: Call, config: Any, split: Any) -> Plan:
        _check_no_configuration(self, config, split)
        known = "fp16 or bf16 operands of one format, output of the same format or fp32"
        if call.a not in _HALF or call.b != call.a or call.out not in (call.a, "fp32", *self._more_outputs):
            raise UnknownPlan(f"{call} by {self}", known, "Emulate the product with a spec of your own.")
        if self.calls_cublas and (min(call.M, call.N) <= 16 or call.M % 8 or call.N % 8 or call.K % 8):
            raise UnknownPlan(
                f"{call} by {self}, which lets cuBLAS choose the kernel",
                "M and N above 16, M, N and K multiples of 8: one chain",
                "Record the configurations with workspace 0 (gemmsim library record), or ask for assume='chain'.",
            )
        return self._chain(call, INFERRED, "rule")

    def _assumed(self, call: Call) -> Plan | None:
        return self._chain(call, UNVERIFIED, "assumed") if call.a in _HALF and call.b == call.a else None

    @property
    def _more_outputs(self) -> tuple[str, ...]:
        return (*_HALF, "e4m3") if self.by == "thinking-machines" else ()

    def _chain(self, call: Call, evidence: str, source: str) -> Plan:
        twice = self.by == "thinking-machines" and call.out not in ("fp16", "e4m3")
        out = f"fp16 -> {call.out}" if twice else call.out
        text = f"{call.a} : hw({self.arch}, {_UNITS.get(self.arch, 'mma')}, {call.a}) -> {out}"
        rounded = "then rounded to fp16 first, above 65504 to infinity" if twice else f"then rounded to {call.out}"
        words = ("one chain over K, blocks of k ascending, in fp32", rounded)
        sources = (f"{_BY[self.by]}: from its source code; not compared on a chip",)
        changes = ("may change with: another GPU or version; not with the shape",)
        return Plan(text, "chain", None, evidence, source, 0, call, str(self), words, sources, changes)


class CutlassSplitK(Library):
    """CUTLASS's GEMM with K split into slices; ``cutlass_splitk`` makes it.

    Example:
        >>> gs.libraries.cutlass_splitk(4) == gs.libraries.cutlass_splitk(4, "serial", gpu="a100")
        True
    """

    __slots__ = ("arch", "block", "gpu", "mode", "slices", "workspace")

    def __init__(self, slices: int, mode: str, workspace: str | None, gpu: str, block: int) -> None:
        super().__init__()
        self.slices, self.mode, self.workspace, self.gpu, self.block = slices, mode, workspace, gpu, block
        self.arch = _architecture(gpu)

    def _identity(self) -> tuple[Any, ...]:
        return self.slices, self.mode, self.workspace, self.gpu, self.block

    def __reduce__(self) -> tuple[Any, ...]:
        return CutlassSplitK, self._identity()

    def __str__(self) -> str:
        space = f", workspace={self.workspace!r}" if self.workspace else ""
        return f"cutlass_splitk({self.slices}, {self.mode!r}{space}, gpu={self.gpu!r}, block={self.block})"

    def __repr__(self) -> str:
        return f"gemmsim.libraries.{self}"

    def _find(self, call: Call, config: Any, split: Any) -> Plan:
        _check_no_configuration(self, config, split)
        if call.a not in _HALF or call.b != call.a or call.out not in (call.a, "fp32"):
            known = "fp16 or bf16 operands of one format, output of the same format or fp32"
            raise UnknownPlan(f"{call} by {self}", known, "Emulate the product with a spec of your own.")
        chain = f"hw({self.arch}, mma, {call.a}, first={self.block})"
        words: tuple[str, ...] = (f"one chain over K; the remainder modulo blocks of {self.block} comes first",)
        if self.slices > 1:
            grain = 64 if call.K % 64 == 0 else 8
            length = slice_length(call.K, self.slices, grain)
            partial = self.workspace or ("fp32" if self.mode == "parallel" else call.out)
            chain = f"splitk({self.slices}, {chain}, {_arguments(self.mode, partial)}, grain={grain})"
            cut = f"{slice_count(call.K, self.slices, length)} contiguous slices of up to {length} terms"
            words = (cut, *words, _MEETING[self.mode].format(partial=partial))
        sources = ("CUTLASS: the order is from its source code; not compared on a chip",)
        changes = ("may change with: another K, tile, number of slices or workspace; stream-K uses another order",)
        text = f"{call.a} : {chain} -> {call.out}"
        return Plan(text, "cutlass", None, INFERRED, "rule", 0, call, str(self), words, sources, changes)

    def _assumed(self, call: Call) -> Plan | None:
        return None


_MEETING = {
    "parallel": "partial sums rounded to {partial}, added in fp32 in the order of the slices",
    "serial": "a serial chain: each partial sum is added in fp32, and the sum rounded to {partial} every time",
}


def _arguments(mode: str, partial: str) -> str:
    """Reduction and partial format of splitk."""
    if partial == "fp32":
        return "fp32"
    return f"fp32, partial={partial}" if mode == "parallel" else f"{partial}/via(fp32), partial=fp32"


def batch_invariant(gpu: str = "h100", by: str = "vllm") -> BatchInvariant:
    """Kernels whose results do not depend on the other rows of the batch.

    Args:
        gpu: a chip with matrix instructions, such as "a100", "h100", "gb200".
        by: "vllm" (before Hopper a Triton kernel; from Hopper on cuBLAS, configured not to split, where small and
            unaligned shapes are left to its choice and unknown), "thinking-machines" (rounds to fp16 before the
            output's format, except for e4m3), or "triton".

    Raises:
        LibraryError: for a chip without matrix instructions of fp16, and for another author.

    Source: docs/reference/libraries.md.

    Example:
        >>> gs.libraries.batch_invariant("h100", by="thinking-machines").plan(1, 64, 4096, "bf16").text
        'bf16 : hw(hopper, wgmma, bf16) -> fp16 -> bf16'
    """
    if by not in _BY:
        near = suggestion(str(by), _BY)
        raise library_error(f"batch_invariant: by={shown(by)}", ", ".join(_BY), f"{near}Give one of them.")
    return BatchInvariant(gpu, by)


def cutlass_splitk(
    slices: int, mode: str = "serial", workspace: str | None = None, *, gpu: str = "a100", block: int = 32
) -> CutlassSplitK:
    """CUTLASS's GEMM with split-K.

    Args:
        slices: of K, 1 or more.
        mode: "serial" (the running sum is in the output's format between slices) or "parallel" (partial sums are
            stored, then added).
        workspace: format of the sums between slices; by default the output's for serial, fp32 for parallel.
        gpu: a chip, for its mma instruction.
        block: k of a thread block's tile: 16, 32, 64 or 128.

    Raises:
        LibraryError: for other arguments.

    Source: docs/reference/libraries.md.

    Example:
        >>> gs.libraries.cutlass_splitk(4, "parallel").plan(64, 64, 4096, "fp16").text
        'fp16 : splitk(4, hw(ampere, mma, fp16, first=32), fp32, grain=64) -> fp16'
    """
    if type(slices) is not int or not 1 <= slices <= 65535:
        raise library_error(
            f"cutlass_splitk: slices={shown(slices)}", "an integer from 1 to 65535", "1 means no split."
        )
    if mode not in _MEETING:
        raise library_error(f"cutlass_splitk: mode={shown(mode)}", "'serial' or 'parallel'", "Give one of them.")
    if workspace not in (None, "fp32", *_HALF):
        raise library_error(f"cutlass_splitk: workspace={shown(workspace)}", "'fp32', 'fp16', 'bf16'", "Leave it out.")
    if type(block) is not int or block not in (16, 32, 64, 128):
        raise library_error(f"cutlass_splitk: block={shown(block)}", "16, 32, 64 or 128", "Leave it out for 32.")
    return CutlassSplitK(slices, mode, workspace, gpu, block)


def transformer_engine(gpu: str = "h100-pcie", version: str | None = None, *, table: Any = None) -> CublasLt:
    """cuBLASLt as Transformer Engine 2.3 calls it: with a workspace of 32 MiB, before Hopper 4 MiB.

    Raises:
        LibraryError, TableError: as ``cublaslt``.

    Source: docs/reference/libraries.md.

    Example:
        >>> gs.libraries.transformer_engine("rtx4060")
        gemmsim.libraries.cublaslt('rtx4060', version='12.8.3.14', workspace=4194304)
    """
    plain = cublaslt(gpu, version, workspace=0)
    capability = int(load()[plain.gpu, plain.version].capability.removeprefix("sm_"))
    workspace = (32 if capability >= 90 else 4) * _MIB
    return cublaslt(gpu, version, workspace=workspace, table=table)


def _architecture(gpu: Any) -> str:
    """The architecture of a chip with matrix instructions of fp16.

    Raises:
        LibraryError: for another one.
    """
    key = chip_key(gpu) if isinstance(gpu, str) else ""
    arch = CHIPS.get(key, key)
    try:
        largest(arch, _UNITS.get(arch, "mma"), "fp16")
    except HardwareError:
        near = suggestion(key, CHIPS)
        raise library_error(
            f"GPU {shown(gpu)}", "NVIDIA chips and architectures of gemmsim.hardware", f"{near}Such as 'a100', 'h100'."
        ) from None
    return arch


def _check_no_configuration(library: Library, config: Any, split: Any) -> None:
    """LibraryError for a configuration, which these libraries do not have."""
    if config is not None or split is not None:
        raise LibraryError(
            f"{library} with config or split; allowed: neither.\n  One rule applies to every shape: leave them out."
        )
