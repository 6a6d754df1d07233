"""Compares every matrix instruction of a GPU for which a kernel exists with its model, and returns the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import torch

from gemmsim.arithmetic import GemmSpec, Hardware, Promote
from gemmsim.arithmetic.scaled import Scaled
from gemmsim.formats import parse_block
from gemmsim.hardware import families
from gemmsim.hardware.catalogue import OPS
from gemmsim.hardware.devices import architecture_of
from gemmsim.hardware.operands import OPERANDS

from ..jit.cache import kernel_cache
from ..jit.launch import device_arch
from ..jit.source import KernelSource
from . import native_mma_block_scaled as scaled
from . import wgmma_block_scaled
from .cutlass_mainloop import Collective, collective_of, collective_source, sources
from .native_mma import Chain, chain_of, instruction_source
from .route import collective_checks, plain_checks
from .self_check import Problem, Verdict, verdict_for

__all__ = ["collective_questions", "instruction_questions", "instruction_specs", "instruction_verdicts"]

#: The block format of each element format in a block-scaled kind.
_BLOCKS = {"e4m3": "mxfp8_e4m3", "e5m2": "mxfp8_e5m2", "e3m2": "mxfp6_e3m2", "e2m3": "mxfp6_e2m3", "e2m1": "mxfp4"}


def instruction_specs(arch: str) -> tuple[GemmSpec, ...]:
    """Return a spec for each instruction of ``arch`` (as ``gemmsim.hardware`` names it) that a kernel issues.

    For FP8 there are also specs with promotion, and with scales on the partial sums.

    Example:
        >>> from gemmsim.backends import cuda
        >>> print(cuda.instruction_specs("hopper")[0])
        e5m10 : hw(hopper, mma, e5m10)
    """
    found: dict[str, GemmSpec] = {}
    for one in (row for family in families(arch) for row in family.instructions()):
        for op in (x for x, kind in OPS.items() if kind.takes_in(one)):
            if one.c != one.d or one.d not in ("f32", "f16"):
                continue
            accumulator = Hardware(arch, op, one.a, one.b, out=str(OPERANDS[one.d].format))
            name = accumulator.instruction.name
            if accumulator.instruction.scale is not None:
                a, b = (parse_block("nvfp4" if op == "mxf4nvf4" else _BLOCKS[x]) for x in (one.a, one.b))
                spec = GemmSpec(a, b, accumulator=accumulator)
                if isinstance(scaled.chain_of(spec), scaled.ScaledChain):
                    found[spec.key] = spec
            elif isinstance(chain_of(accumulator), Chain):
                found.setdefault(name, GemmSpec(accumulator=accumulator))
                if one.a == one.b == "e4m3" and one.d == "f32":
                    found.setdefault(f"promoted {name}", GemmSpec(accumulator=Promote(accumulator, 128)))
                if one.d == "f32" and {one.a, one.b} <= {"e4m3", "e5m2"}:
                    a, b = (parse_block(_BLOCKS[x]) for x in (one.a, one.b))
                    spec = GemmSpec(a, b, accumulator=Scaled(accumulator))
                    if isinstance(wgmma_block_scaled.groups_of(spec), wgmma_block_scaled.ScaledGroups):
                        found.setdefault(f"scaled {name}", spec)
    return tuple(found.values())


def _device(index: int) -> torch.device:
    return torch.device("cuda", index)


def instruction_questions(device: int = 0) -> dict[str, Callable[[], Verdict]]:
    """Return, for each instruction of GPU ``device`` by its spec, a function that compares it with its model.

    The result is empty for a GPU that the tables do not have. Kernels that are not compiled yet are compiled in the
    background, several at a time, 2 to 15 s of CPU each.
    """
    own = architecture_of(torch.cuda.get_device_capability(device))
    arch = device_arch(device)
    sources = {spec: _source(spec) for spec in (() if own is None else instruction_specs(own))}
    pool = ThreadPoolExecutor(max_workers=8)
    compiled = {spec: pool.submit(_compiled, source, arch) for spec, source in sources.items() if source.runs_on(arch)}
    pool.shutdown(wait=False)

    def ask(spec: GemmSpec) -> Verdict:
        compiled[spec].result()
        with torch.cuda.device(device):
            return verdict_for(device, arch, sources[spec], _problems(spec, _device(device)))

    return {spec.key: partial(ask, spec) for spec in compiled}


def collective_questions(device: int = 0) -> dict[str, Callable[[], Verdict]]:
    """Return, for each of a few specs that a mainloop of CUTLASS computes on GPU ``device``, a function that compares
    the two.

    The result is empty for a GPU that is no Hopper. The functions compile when called, 9 to 15 s of CPU each.
    """
    own, arch = architecture_of(torch.cuda.get_device_capability(device)), device_arch(device)
    listed = list(sources())
    found: dict[str, Callable[[], Verdict]] = {}
    for spec in () if own is None else instruction_specs(own):
        chain = None if spec.has_blocks else chain_of(spec.accumulator)
        one = collective_of(chain) if isinstance(chain, Chain) else None
        if isinstance(chain, Chain) and isinstance(one, Collective) and collective_source(one) in listed:
            found[spec.key] = partial(_ask_collective, one, chain, device, arch)
    return found


def _ask_collective(one: Collective, chain: Chain, device: int, arch: str) -> Verdict:
    with torch.cuda.device(device):
        return verdict_for(device, arch, collective_source(one), collective_checks(one, chain, _device(device)))


def instruction_verdicts(device: int = 0) -> Iterator[tuple[str, Verdict]]:
    """Yield the spec and the verdict of each instruction of GPU ``device``."""
    for spec, ask in instruction_questions(device).items():
        yield spec, ask()


def _compiled(source: KernelSource, arch: str) -> None:
    """Compile ``source`` into the cache; if it does not compile, the comparison reports why."""
    with suppress(RuntimeError):  # a CudaError, or an error of cuda-core or torch
        kernel_cache().get(source, arch)


def _chain(spec: GemmSpec) -> Chain | scaled.ScaledChain | wgmma_block_scaled.ScaledGroups:
    """Return what a kernel issues for a spec of ``instruction_specs``."""
    if isinstance(spec.accumulator, Scaled):
        groups = wgmma_block_scaled.groups_of(spec)
        assert isinstance(groups, wgmma_block_scaled.ScaledGroups)
        return groups
    chain = scaled.chain_of(spec) if spec.has_blocks else chain_of(spec.accumulator)
    assert isinstance(chain, (Chain, scaled.ScaledChain))
    return chain


def _source(spec: GemmSpec) -> KernelSource:
    chain = _chain(spec)
    if isinstance(chain, wgmma_block_scaled.ScaledGroups):
        return wgmma_block_scaled.source_of(chain)
    return instruction_source(chain) if isinstance(chain, Chain) else scaled.source_of(chain)


def _problems(spec: GemmSpec, device: torch.device) -> Iterator[Problem]:
    chain = _chain(spec)
    if isinstance(chain, wgmma_block_scaled.ScaledGroups):
        return wgmma_block_scaled.problems(chain, device)
    return plain_checks(chain, device) if isinstance(chain, Chain) else scaled.problems(chain, device)
