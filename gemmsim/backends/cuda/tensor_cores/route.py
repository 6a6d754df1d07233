"""Products that a spec defines by a chip's matrix instruction, on a device that has this very instruction.

A spec's bits are those of the published model, and hardware may differ from it. So the instruction is used only after a
comparison of both on this device in this process (``self_check``) gave equal bits. Otherwise the model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Hardware
from gemmsim.arithmetic.scaled import Scaled
from gemmsim.hardware import FusedBlock
from gemmsim.hardware.devices import architecture_of
from gemmsim.lowering.instructions import named_instruction
from gemmsim.lowering.refusal import Refusal

from ... import environment
from ...device_tables import is_capturing
from ...epilogue_passes import followed
from ...product import Product, Ran
from ..casts.cast import cast_into
from ..jit.launch import device_arch
from ..jit.source import KernelSource
from ..ran import ran
from ..simt.encoded import operands_of
from ..simt.gemm import check_devices, check_finish, check_product
from ..simt.gemm import gemm as simt
from . import native_mma_block_scaled as scaled
from . import wgmma_block_scaled
from .cutlass_mainloop import LARGE, Collective, collective_of, collective_source, gemm_collective, refuses_collective
from .native_mma import Chain, chain_of, gemm_instruction, instruction_source, refuses_shape, without_first
from .native_mma_block_scaled import ScaledChain
from .self_check import Problem, Verdict, known_verdict, verdict_for
from .self_check_inputs import long_problem, plain_problems
from .wgmma_block_scaled import ScaledGroups

__all__ = [
    "allow_tensor_cores",
    "collective_checks",
    "exact_sums",
    "instruction",
    "names_instruction",
    "plain_checks",
    "tensor_core_words",
    "tensor_cores_allowed",
]

#: "0" (no, off, false) excludes matrix instructions from every product that names one.
ENVIRONMENT = environment.ALLOW_TENSOR_CORES
_NEAR_ONE = 24
#: Rows and columns of the check of a mainloop: more tiles than run at once on a GPU, in swizzled order, ragged ends.
_CHECK_ROWS, _CHECK_COLUMNS = 2037, 4093
_OTHERWISE = Refusal("no instruction computes products of this kind")
_allowed: bool | None = None


def allow_tensor_cores(enabled: bool) -> None:
    """Set whether products of ``hw(...)`` may use the device's own instruction, once it was found equal to its model.

    This applies to the whole process. It is True at first, unless the variable GEMMSIM_ALLOW_TENSOR_CORES says no (0,
    false, no, off; any word that is no answer raises ``VariableError``). No bit depends on it.
    """
    global _allowed
    _allowed = bool(enabled)


def tensor_cores_allowed() -> bool:
    """Whether ``allow_tensor_cores``, or else the environment, allows matrix instructions.

    Example:
        >>> from gemmsim.backends import cuda
        >>> isinstance(cuda.tensor_cores_allowed(), bool)
        True
    """
    return environment.flag(ENVIRONMENT, True) if _allowed is None else _allowed


def names_instruction(spec: GemmSpec) -> bool:
    """Whether ``spec`` names a chip's instruction, this one's or another's.

    Example:
        >>> from gemmsim.backends import cuda
        >>> specs = gs.GemmSpec.parse("e4m3 : hw(hopper, wgmma, e4m3)"), gs.GemmSpec.parse("e4m3 : fp32")
        >>> [cuda.names_instruction(spec) for spec in specs]
        [True, False]
    """
    return named_instruction(spec.accumulator) is not None


def instruction(product: Product) -> Ran | Refusal:
    """Write ``product`` to its ``out`` by the device's own instruction, where the spec names it and it was found equal.

    The instruction is compared with its model now if it was not before. ``finish`` must be an epilogue for which
    ``finishes`` is true.

    Raises:
        UnsupportedSpec, ValueError, CudaError: as ``multiply``.
    """
    if product.windows is not None or product.count or product.out.numel() == 0:
        return _OTHERWISE
    if product.is_coded:
        return _scaled(product)
    a, b, spec, out, finish = product.a, product.b, product.spec, product.out, product.finish
    assert isinstance(a, Tensor) and isinstance(b, Tensor)
    chain = chain_of(without_first(spec.accumulator, a.shape[-1]))
    if not isinstance(chain, Chain):
        return _not_used(chain)
    refusal = _device_refuses(chain.instruction.arch, out)
    if product.c is not None or product.select is not None:
        refusal = Refusal("it does not take an addend or a choice of accumulators")
    mainloop = _mainloop(chain, a, out) if refusal is None else refusal
    if not isinstance(mainloop, Collective):
        refusal = refusal or _refuses(chain, out, a.shape[-1])
    if refusal is not None:
        return _not_used(refusal)
    check_product(spec, a.shape[-1], product.c, product.select)
    check_devices(a, b, out, None if finish is None else finish.bias)
    check_finish(spec, finish)
    if isinstance(mainloop, Collective):
        source = followed(lambda raw: gemm_collective(a, b, spec, raw, product.seed, mainloop), finish, out, cast_into)
    else:
        source = followed(lambda raw: gemm_instruction(a, b, spec, raw, product.seed, chain), finish, out, cast_into)
    made = ran(source).noted(_equal_words(out.device, source))
    return made.noted(mainloop.note) if isinstance(mainloop, Refusal) and mainloop.of else made


def _mainloop(chain: Chain, a: Tensor, out: Tensor) -> Collective | Refusal:
    """Return CUTLASS' mainloop for a product by ``chain``, where the product is large and the mainloop has its bits."""
    found = collective_of(chain)
    if isinstance(found, Refusal):
        return found
    if out.numel() * a.shape[-1] < LARGE:
        return Refusal("it is too small to gain from CUTLASS' mainloop")
    refusal = refuses_collective(a, out) or _verdict_refuses(
        out, collective_source(found), lambda: collective_checks(found, chain, out.device)
    )
    return found if refusal is None else Refusal(refusal.reason, f"{found} not used")


def _scaled(product: Product) -> Ran | Refusal:
    """``instruction`` for operands in block formats: a block-scaled instruction, or one whose partial sums are
    scaled.
    """
    spec, out = product.spec, product.out
    if isinstance(spec.accumulator, Scaled):
        return _scaled_groups(product)
    if type(spec.accumulator) is not Hardware:
        return _OTHERWISE
    chain = scaled.chain_of(spec)
    if not isinstance(chain, ScaledChain):
        return _not_used(chain)
    a, b = operands_of(product.a, product.b, spec, product.seed, out.shape[:-2])
    refusal = (
        scaled.refuses(a, b, out)
        or _device_refuses(chain.instruction.arch, out)
        or _verdict_refuses(out, scaled.source_of(chain), lambda: scaled.problems(chain, out.device))
    )
    if refusal is not None:
        return _not_used(refusal)
    source = followed(lambda raw: scaled.gemm(a, b, spec, raw, product.seed, chain), product.finish, out, cast_into)
    return ran(source).noted(_equal_words(out.device, source))


def _scaled_groups(product: Product) -> Ran | Refusal:
    """``instruction`` for operands in block formats whose scales multiply partial sums of an instruction without
    scales.
    """
    spec, out = product.spec, product.out
    groups = wgmma_block_scaled.groups_of(spec)
    if not isinstance(groups, ScaledGroups):
        return _not_used(groups)
    a, b = operands_of(product.a, product.b, spec, product.seed, out.shape[:-2])
    refusal = (
        wgmma_block_scaled.refuses(a, b, out, groups)
        or _device_refuses(groups.instruction.arch, out)
        or _verdict_refuses(
            out, wgmma_block_scaled.source_of(groups), lambda: wgmma_block_scaled.problems(groups, out.device)
        )
    )
    if refusal is not None:
        return _not_used(refusal)
    source = followed(
        lambda raw: wgmma_block_scaled.gemm(a, b, spec, raw, product.seed, groups), product.finish, out, cast_into
    )
    return ran(source).noted(_equal_words(out.device, source))


def _not_used(refusal: Refusal) -> Refusal:
    """Return ``refusal`` in the form that is reported to the user together with what ran instead."""
    return Refusal(refusal.reason, "instruction not used")


def exact_sums(a: Tensor, b: Tensor, out: Tensor, units: int, lsbs: tuple[int, int]) -> str | Refusal:
    """Write the products of ``a`` and ``b`` to ``out`` in float32 by the device's instruction, if it truncates none of
    the sums.

    Both operands must be bfloat16, or both float16. The function returns what ran, or why it may not run. Elements are
    multiples of two to ``lsbs``, and no sum of magnitudes exceeds ``units`` of the products' unit. Then every addend
    and every sum is a multiple of that unit, and the largest exponent of a step is below that of ``units``. An
    instruction that keeps as many bits below it as ``units`` has (and converts to as many) truncates nothing.
    """
    own = architecture_of(torch.cuda.get_device_capability(_index(out)))
    if own not in ("ampere", "ada", "hopper", "blackwell", "rtx_blackwell"):
        return Refusal(f"no instruction of {out.device} is known to keep sums exactly")
    accumulator = Hardware(own, "wgmma" if own == "hopper" else "mma", "bf16" if a.dtype == torch.bfloat16 else "fp16")
    model, chain = accumulator.instruction.model, chain_of(accumulator)
    if not isinstance(model, FusedBlock) or not isinstance(chain, Chain):
        return Refusal(f"no kernel issues {accumulator}, or its model truncates differently")
    # Units are far above the least exponent to which an instruction aligns.
    narrow = units <= 1 << min(model.kept, model.conversion.fraction_bits) and all(
        abs(lsb) <= _NEAR_ONE for lsb in lsbs
    )
    if not narrow:
        return Refusal(f"{chain} may truncate sums of {units.bit_length()} bits")
    refusal = _refuses(chain, out, a.shape[-1])
    if refusal is not None:
        return refusal
    source = gemm_instruction(a, b, GemmSpec(accumulator=accumulator), out, 0, chain)
    return f"{source}, which truncates none of these sums; {_equal_words(out.device, source)}"


def _index(out: Tensor) -> int:
    return torch.cuda.current_device() if out.device.index is None else out.device.index


def _arch(out: Tensor) -> str:
    return device_arch(_index(out))


def _refuses(chain: Chain, out: Tensor, k: int) -> Refusal | None:
    return (
        refuses_shape(out, k, chain)
        or _device_refuses(chain.instruction.arch, out)
        or _verdict_refuses(out, instruction_source(chain), lambda: plain_checks(chain, out.device))
    )


def _device_refuses(arch: str, out: Tensor) -> Refusal | None:
    if not tensor_cores_allowed():
        return Refusal(f"switched off (allow_tensor_cores, {ENVIRONMENT})")
    major, minor = torch.cuda.get_device_capability(_index(out))
    own = architecture_of((major, minor))
    if own != arch:
        return Refusal(f"{out.device} is {own or f'of compute capability {major}.{minor}'}, not {arch}")
    return None


def _verdict_refuses(out: Tensor, source: KernelSource, problems: Any) -> Refusal | None:
    """Return why ``source`` may not run: the device lacks the instruction, or the verdict is negative.

    The verdict is made now if there is none.
    """
    index, arch = _index(out), _arch(out)
    if not source.runs_on(arch):
        return Refusal(f"{arch} has no such instruction")
    found = known_verdict(index, source)
    if found is None and is_capturing(out.device):
        return Refusal("not compared with its model yet, which cannot be done while a graph is captured")
    if found is None:
        found = _verdict(index, arch, source, problems)
    return None if found.equal else Refusal(found.words)


def _verdict(index: int, arch: str, source: KernelSource, problems: Any) -> Verdict:
    with torch.cuda.device(index):
        return verdict_for(index, arch, source, problems())


def _equal_words(device: torch.device, source: KernelSource) -> str:
    index = torch.cuda.current_device() if device.index is None else device.index
    found = known_verdict(index, source)
    return "" if found is None else found.words


def plain_checks(chain: Chain, device: torch.device) -> Iterator[Problem]:
    """Yield products by the chain's kernel and by the kernel of its model."""
    spec = GemmSpec(accumulator=chain.accumulator)
    for a, b in plain_problems(chain.instruction):
        yield _plain_check(a.to(device), b.to(device), spec, chain)


def collective_checks(collective: Collective, chain: Chain, device: torch.device) -> Iterator[Problem]:
    """Yield products by CUTLASS' mainloop and by the model of ``chain``.

    They are those of ``plain_checks``, and one with many tiles and more terms than the pipeline has at once. The lines
    of that one repeat those of a small product.
    """
    spec = GemmSpec(accumulator=chain.accumulator)

    def run(a: Tensor, b: Tensor, out: Tensor) -> object:
        return gemm_collective(a, b, spec, out, 0, collective)

    for a, b in plain_problems(chain.instruction):
        yield _check(a.to(device), b.to(device), spec, run)
    a, b = (x.to(device) for x in long_problem(chain.instruction))
    rows = torch.arange(_CHECK_ROWS, device=device) % a.shape[0]
    columns = torch.arange(_CHECK_COLUMNS, device=device) % b.shape[1]
    tiled = _check(a[rows], b[:, columns], spec, run)
    small = _check(a, b, spec, run)
    yield Problem(tiled.native, lambda: small.model()[rows][:, columns], tiled.factors)


def _plain_check(a: Tensor, b: Tensor, spec: GemmSpec, chain: Chain) -> Problem:
    return _check(a, b, spec, lambda left, right, out: gemm_instruction(left, right, spec, out, 0, chain))


def _check(a: Tensor, b: Tensor, spec: GemmSpec, run: Callable[[Tensor, Tensor, Tensor], object]) -> Problem:
    """Return the comparison of ``run``, which writes the product of two tensors to a third, with the kernel of the
    model.
    """

    def native() -> Tensor:
        out = torch.full((a.shape[0], b.shape[1]), 7.0, device=a.device)
        run(a, b, out)
        return out

    def model() -> Tensor:
        out = torch.empty(a.shape[0], b.shape[1], device=a.device)
        simt(a, b, spec, out)
        return out

    return Problem(native, model, lambda i, j: (a[i], b[:, j]))


def tensor_core_words(spec: GemmSpec) -> str | None:
    """Say which instruction may run ``spec`` and what is known of it on the current device; ``None`` if it names none.

    Nothing is run or compiled.

    Example:
        >>> from gemmsim.backends import cuda
        >>> cuda.tensor_core_words(gs.GemmSpec.parse("e4m3 : fp32")) is None
        True
        >>> cuda.tensor_core_words(gs.GemmSpec.parse("e4m3 : hw(hopper, wgmma, e4m3)")).split()[0]
        'wgmma.m64n8k32.f32.e4m3.e4m3'
    """
    inner = named_instruction(spec.accumulator)
    if inner is None:
        return None
    found: Chain | ScaledChain | ScaledGroups | Refusal
    if isinstance(spec.accumulator, Scaled):
        found = wgmma_block_scaled.groups_of(spec)
    else:
        found = scaled.chain_of(spec) if inner.instruction.scale is not None else chain_of(spec.accumulator)
    if isinstance(found, Refusal):
        return f"no, {found.reason}"
    words = f"{found} on {inner.arch}, if a check at its first use gives the same bits as the model"
    if not torch.cuda.is_available():
        return f"{words}; there is no GPU here"
    index = torch.cuda.current_device()
    major, minor = torch.cuda.get_device_capability(index)
    if architecture_of((major, minor)) != inner.arch:
        return f"{words}; this GPU has compute capability {major}.{minor}"
    verdict = known_verdict(index, _source_of(found))
    off = "" if tensor_cores_allowed() else "; switched off"
    return f"{words}; {'not compared yet' if verdict is None else verdict.words}{off}"


def _source_of(chain: Chain | ScaledChain | ScaledGroups) -> KernelSource:
    if isinstance(chain, ScaledGroups):
        return wgmma_block_scaled.source_of(chain)
    return scaled.source_of(chain) if isinstance(chain, ScaledChain) else instruction_source(chain)
