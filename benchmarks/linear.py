"""A training step of QLinear against its three products alone, 1024 x 1024 x 1024, one thread and all.

What a layer adds: the graph, the operands kept for the gradients, the bias and its gradient. The step's output and both
gradients are compared bit for bit with the products before anything is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from harness import Report, measure, options, ratio
from torch import Tensor

import gemmsim as gs
from gemmsim import nn as qnn

#: spec, most time a step may take over its products (None: nothing asked).
SPECS = [(":e5m10", 1.15), ("e4m3 : e5m10", 1.15), (":fp32", None), ("mxfp8_e4m3 : fp32", None)]

Products = Callable[[], tuple[Tensor, ...]]


def products_of(spec: str, x: Tensor, weight: Tensor, g: Tensor) -> Products:
    """The three products of a step: backward ones take the operands as forward multiplied them, the gradient uncast.

    Blocks lie along the contraction, so that every product of a block spec casts its own operands.
    """
    if spec.startswith("mx"):
        return lambda: (gs.qmatmul(x, weight.mT, spec), gs.qmatmul(g, weight, spec), gs.qmatmul(g.mT, x, spec))
    operand, register = (part.strip() for part in spec.split(":"))
    saved = [gs.quantize(t, operand) if operand else t for t in (x, weight)]
    back = ":" + register
    return lambda: (
        gs.qmatmul(x, weight.mT, spec),
        gs.qmatmul(g, saved[1], back),
        gs.qmatmul(g.mT, saved[0], back),
    )


def measured(spec: str, x: Tensor, g: Tensor, rounds: int) -> dict[str, list[float]]:
    """Seconds of a step and of its products, after both gave the same bits."""
    n = x.shape[1]
    layer = qnn.QLinear(n, n, spec=spec, bias=False)
    timed = qnn.QLinear(n, n, spec=spec)
    leaf = x.clone().requires_grad_()
    products = products_of(spec, x, layer.weight.detach(), g)

    def step(module: qnn.QLinear = timed) -> Tensor:
        module.zero_grad()
        leaf.grad = None
        out = module(leaf)
        out.backward(g)
        return out

    got = [step(layer).detach(), leaf.grad, layer.weight.grad]
    if not all(torch.equal(a, b) for a, b in zip(got, products(), strict=True)):
        raise AssertionError(f"QLinear and its products differ under {spec}")
    return measure({"step": step, "products": products}, rounds=rounds, clock=time.perf_counter)


def main() -> None:
    args = options(__doc__ or "")
    report = Report(args.out)
    n = 128 if args.quick else 1024
    generator = torch.Generator().manual_seed(0)
    x, g = (torch.randn(n, n, generator=generator) for _ in range(2))
    for threads in sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(threads)
        for spec, asked in SPECS:
            times = measured(spec, x, g, args.rounds)
            report.add(
                bench="linear",
                spec=spec,
                n=n,
                threads=threads,
                step_over_products=1 / ratio(times, "products", "step"),
                milliseconds=1e3 * sorted(times["step"])[len(times["step"]) // 2],
                asked=asked,
            )
    report.close()


if __name__ == "__main__":
    main()
