"""Matrix instructions of chips as runs."""

from __future__ import annotations

from gemmsim.arithmetic.hardware import Hardware
from gemmsim.hardware import FlooredSum, FmaChain, FusedBlock, PairwiseTree, ScaledGroups

from .numbers import HARDWARE_OUTS, HardwareKind, Method
from .program import HardwareStep, Run, runs

__all__: list[str] = []


@runs(Hardware)
def _hardware(one: Hardware) -> Run:
    step = _step(one)
    method = Method.REGISTER if step.kind == HardwareKind.FMA else Method.HARDWARE
    return Run(method, one.add_cast, hardware=step)


def _step(accumulator: Hardware) -> HardwareStep:
    one = accumulator.instruction
    model = one.model
    if isinstance(model, FmaChain):
        return HardwareStep(kind=HardwareKind.FMA, products=1, k=one.k)
    a, b = one.operands[:2]
    own: dict[str, int] = {"window": -1}
    if isinstance(model, FusedBlock):
        own |= {"kind": HardwareKind.FUSED, "kept": model.kept}
    if isinstance(model, ScaledGroups):
        own |= {"kind": HardwareKind.GROUPS, "group": model.group}
    elif isinstance(model, PairwiseTree):
        own |= {"kind": HardwareKind.TREE, "flush": int(model.flush)}
    elif isinstance(model, FlooredSum):
        own |= {"kind": HardwareKind.FLOORED, "kept": model.kept, "halves": int(model.halves)}
        own |= {"total_bits": model.total_bits, "addend_bits": model.addend_bits}
        own["window"] = -1 if model.window is None else model.window
    return HardwareStep(
        products=model.products,
        out=HARDWARE_OUTS[model.out],
        k=one.k,
        a_emin=a.storage.emin,
        b_emin=b.storage.emin,
        **own,
    )
