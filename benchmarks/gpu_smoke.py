"""Smoke: one small product or cast of each kernel family on the GPU, compared with the CPU. Seconds.

What is likeliest to fault comes last. ``gpu_check.py`` runs it by itself and once more under compute-sanitizer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpu_results import Results
from gpu_trace import launched

import gemmsim as gs
from gemmsim import tensor_quant
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cuda
from gemmsim.backends.encoded_operand import Coded
from gemmsim.formats import parse_block
from gemmsim.hardware.devices import architecture_of

__all__ = ["smoke"]

_SOFTMAX = gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10")

#: By kernel family: what is computed of x (40, 64) on both devices.
CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cast": lambda x: gs.quantize(x, "e4m3"),
    "block_float": lambda x: gs.quantize(x, "bfp(8,16)"),
    "scaled_cast": lambda x: tensor_quant.fake_tensor_quant(x, 2.5),
    "mx_cast": lambda x: gs.mx.quantize(x, "mxfp8_e4m3"),
    "rows": lambda x: gs.functional.qsoftmax(x, -1, _SOFTMAX),
    "gemm": lambda x: gs.qmatmul(x, x.t(), ":e5m10"),
    "gemm, packed": lambda x: gs.qmatmul(x, x.t(), "e4m3 : e5m10"),
    "gemm, random bits": lambda x: gs.qmatmul(x, x.t(), ":bf16/sr8", seed=1),
    "gemm, windows": lambda x: gs.qconv2d(x.view(1, 4, 16, 40), x.view(-1)[:288].view(8, 4, 3, 3), spec=":e6m9"),
    "gemm, scales": lambda x: gs.qmatmul(x, x.t(), "mxfp8_e4m3 : scaled(fp32)"),
}


def _compare(name: str, x: torch.Tensor) -> str:
    """The kernels that gave the CPU's bits. ``AssertionError`` names those that did not."""
    with launched() as names:
        got = CALLS[name](x.cuda()).cpu()
    want = CALLS[name](x)
    different = got.view(torch.int32) != want.view(torch.int32)
    assert not bool(different.any()), f"{int(different.sum())} of {want.numel()} results differ from the CPU's: {names}"
    return str(names)


def _instruction() -> str:
    """The verdict on an instruction of each unit of this GPU that there is a kernel for; a difference is no failure."""
    own = architecture_of(torch.cuda.get_device_capability())
    units: dict[str, GemmSpec] = {}
    for spec in () if own is None else cuda.instruction_specs(own):
        accumulator = getattr(spec.accumulator, "inner", spec.accumulator)
        units.setdefault(accumulator.instruction.unit, spec)
    x = torch.randn(64, 64, device="cuda")
    for spec in units.values():
        gs.qmatmul(x, x, spec)
        torch.cuda.synchronize()
    found = [f"{name}: {verdict.words}" for (_, name), verdict in cuda.verdicts().items()]
    return "; ".join(found) or "this GPU has no instruction that there is a kernel for"


def _tensor_cores() -> str:
    """A product of MXFP8 on tensor cores is near the exact one: no sum of 64 terms is off by 2^-12 of its size."""
    fmt = parse_block("mxfp8_e4m3")
    a, b = torch.randn(128, 64, device="cuda"), torch.randn(128, 64, device="cuda")
    left, right = gs.mx.encode(a, fmt), gs.mx.encode(b, fmt)
    out = torch.empty(128, 128, device="cuda")
    with launched() as names:
        one, two = (Coded(t.codes, t.scales, fmt, -1, 64) for t in (left, right))
        cuda.gemm_tensor_cores(one, two.transposed, out)
    x, y = (gs.mx.decode(t, fmt).double() for t in (left, right))
    worst = float(((out.double() - x @ y.t()).abs() / (x.abs() @ y.abs().t())).max())
    assert worst <= 2.0**-12, f"off by {worst:.3g} of the sum's size: {names}"
    return str(names)


def smoke(results: Results, part: str = "smoke") -> None:
    """A finding of ``part`` for each family; a failure ends it, since the next one may be its consequence."""
    x = torch.randn(40, 64, generator=torch.Generator().manual_seed(1))
    works: dict[str, Callable[[], str]] = {name: (lambda name=name: _compare(name, x)) for name in CALLS}  # type: ignore[misc]
    works |= {"gemm_instruction": _instruction, "gemm_tensor": _tensor_cores}
    for name, work in works.items():
        results.measure(part, name, work)
        if not results.run.findings[part, name].ok:
            return
