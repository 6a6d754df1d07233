"""Lowers matrix instructions of chips, and the accumulator ``fused``, which is their step by itself."""

from __future__ import annotations

from gemmsim.arithmetic import Accumulator
from gemmsim.arithmetic.chunked import Chunked, Promote
from gemmsim.arithmetic.fused import Fused
from gemmsim.arithmetic.hardware import Hardware
from gemmsim.arithmetic.scaled import Scaled
from gemmsim.formats import FP16, FP32, Cast, Rounding, parse_cast
from gemmsim.hardware import ExactSum, FlooredSum, FmaChain, FusedBlock, PairwiseTree, ScaledGroups, TwoBlocks
from gemmsim.hardware.step_parameters import LEAST_EXPONENT

from .abi_constants import HARDWARE_OUTS, HardwareKind, Method
from .program import HardwareStep, Run, runs

__all__ = ["named_instruction"]


def named_instruction(accumulator: Accumulator) -> Hardware | None:
    """Return the instruction whose chain ``accumulator`` is, or ``None``.

    The chain may be a single one or divided into segments whose sums are added, with scales or without.
    """
    inner = accumulator.inner if isinstance(accumulator, (Promote, Chunked, Scaled)) else accumulator
    return inner if isinstance(inner, Hardware) else None


@runs(Hardware)
def _hardware(one: Hardware) -> Run:
    step = _step(one)
    method = Method.REGISTER if step.kind == HardwareKind.FMA else Method.HARDWARE
    return Run(method, one.add_cast, hardware=step)


#: Conversions for which kernels have code of their own, and the largest number of kept bits that this code supports.
_OWN_OUTS = {Cast(FP32, Rounding.RTZ): "rz23", parse_cast("e8m13/rtz"): "e8m13", Cast(FP16): "rne10"}
_OWN_KEPT = 36


@runs(Fused)
def _fused(one: Fused) -> Run:
    a, b = one.operand_formats
    out = "cast_inf" if one.is_unbounded_past_the_end else "cast"
    if one.kept is not None and one.kept <= _OWN_KEPT:
        out = _OWN_OUTS.get(one.out, out)
    step = HardwareStep(
        kind=HardwareKind.FUSED,
        products=one.n,
        kept=-1 if one.kept is None else one.kept,
        out=HARDWARE_OUTS[out],
        k=one.n,
        least=LEAST_EXPONENT if one.least is None else one.least,
        window=-1,
        a_emin=a.emin,
        b_emin=b.emin,
        first=one.first or 0,
    )
    return Run(Method.HARDWARE, one.out, hardware=step)


def _step(accumulator: Hardware) -> HardwareStep:
    one = accumulator.instruction
    model = one.model
    if isinstance(model, FmaChain):
        return HardwareStep(kind=HardwareKind.FMA, products=1, k=one.k, first=accumulator.first or 0)
    a, b = (operand.storage.emin for operand in one.operands[:2])
    own: dict[str, int] = {"window": -1, "out": HARDWARE_OUTS[model.out], "first": accumulator.first or 0}
    if isinstance(model, FusedBlock):
        own |= {"kind": HardwareKind.FUSED, "kept": model.kept, "least": model.least}
    if isinstance(model, TwoBlocks):
        own["kind"] = HardwareKind.TWO_BLOCKS
        a = b = FP16.emin
    elif isinstance(model, ScaledGroups):
        own |= {"kind": HardwareKind.GROUPS, "group": model.group}
    elif isinstance(model, ExactSum):
        own |= {"kind": HardwareKind.FUSED, "kept": -1}
    elif isinstance(model, PairwiseTree):
        own["kind"] = HardwareKind.TREE
    elif isinstance(model, FlooredSum):
        own |= {"kind": HardwareKind.FLOORED, "kept": model.kept, "halves": int(model.halves), "least": FP32.emin}
        own |= {"total_bits": model.total_bits, "addend_bits": model.addend_bits}
        own["window"] = -1 if model.window is None else model.window
    return HardwareStep(products=model.products, k=one.k, a_emin=a, b_emin=b, **own)
