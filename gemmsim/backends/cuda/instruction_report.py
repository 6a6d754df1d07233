"""Verdicts on every matrix instruction of a GPU that there is a kernel for, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemmsim.arithmetic import Chunked, GemmSpec, Hardware, Promote
from gemmsim.formats import parse_block
from gemmsim.hardware import families
from gemmsim.hardware.catalogue import OPS
from gemmsim.hardware.devices import architecture_of
from gemmsim.hardware.operands import OPERANDS

from . import scaled_instruction as scaled
from .gemm_instruction import Chain, chain_of, instruction_source
from .launch import device_arch
from .self_check import Verdict, verdict_for
from .tensor_cores import plain_checks

__all__ = ["instruction_specs", "instruction_verdicts"]

_BLOCKS = {"mxf8f6f4": "mxfp8_{}", "mxf4": "mxfp4", "mxf4nvf4": "nvfp4"}


def instruction_specs(arch: str) -> tuple[GemmSpec, ...]:
    """A spec for each instruction of ``arch`` (as ``gemmsim.hardware`` names it) that a kernel issues; promoted FP8."""
    found: dict[str, GemmSpec] = {}
    for one in (row for family in families(arch) for row in family.instructions()):
        for op in (name for name, op in OPS.items() if op.takes_in(one)):
            if one.c != one.d or one.d not in ("f32", "f16"):
                continue
            accumulator = Hardware(arch, op, one.a, one.b, out=str(OPERANDS[one.d].format))
            if accumulator.instruction.scale is not None:
                a, b = (parse_block(_BLOCKS[op].format(name)) for name in (one.a, one.b))
                spec = GemmSpec(a, b, accumulator=accumulator)
                if isinstance(scaled.chain_of(spec), scaled.ScaledChain):
                    found[spec.key] = spec
            elif isinstance(chain_of(accumulator), Chain):
                found.setdefault(str(accumulator), GemmSpec(accumulator=accumulator))
                if one.a == one.b == "e4m3" and one.d == "f32":
                    found.setdefault(f"promoted {accumulator}", GemmSpec(accumulator=Promote(accumulator, 128)))
    return tuple(found.values())


def _device(index: int) -> torch.device:
    return torch.device("cuda", index)


def instruction_verdicts(device: int = 0) -> Iterator[tuple[str, Verdict]]:
    """The spec and the verdict of each instruction of GPU ``device``: is it what its model says? Nothing on a GPU that
    the tables do not have.

    Compiles the kernels that are not compiled yet, seconds each.
    """
    own = architecture_of(torch.cuda.get_device_capability(device))
    arch = device_arch(device)
    with torch.cuda.device(device):
        for spec in instruction_specs(own) if own is not None else ():
            where = _device(device)
            if isinstance(spec.accumulator, (Promote, Chunked)) or not spec.has_blocks:
                chain = chain_of(spec.accumulator)
                assert isinstance(chain, Chain)
                source, problems = instruction_source(chain), plain_checks(chain, where)
            else:
                blocks = scaled.chain_of(spec)
                assert isinstance(blocks, scaled.ScaledChain)
                source, problems = scaled.source_of(blocks), scaled.problems(blocks, where)
            if source.runs_on(arch):
                yield spec.key, verdict_for(device, arch, source, problems)
