"""Random accumulators made of orders inside orders, with totals that are combined in every way."""

from __future__ import annotations

import random

import torch

from gemmsim.arithmetic import GemmSpec, SpecError

__all__ = ["operands", "random_order", "specs"]

_CASTS = ("fp32", "fp16", "bf16", "e5m10/rtz", "e4m3", "fp16/via(fp32)", "bf16/via(fp32)", "fixed(16,8)")
_OWN_CASTS = (*_CASTS, "e5m10/ru", "fp32/sr8", "bf16/sr4")
_INNERMOST = (
    "fp32", "fp16", "bf16", "hw(hopper, mma, fp16)", "hw(hopper, wgmma, fp16, first=64)", "hw(hopper, wgmma, e4m3)",
    "fused(8, 25, a=fp16)", "fused(4, 12, a=fp16, first=8)", "kahan(fp16)", "exact(fp16)", "sequential(bf16, mul=bf16)",
    "neumaier(bf16)", "fp16/sr5", "hw(cdna2, mfma, fp16, first=32)", "binned(fp32)",
    "hw(ampere, mma, fp64, out=fp64, first=8)", "int(20)", "fixed(16,8)",
)  # fmt: skip
_COMPENSATED = ("kahan(fp16)", "neumaier(fp32)", "two_sum(bf16)", "fast_two_sum(fp16)", "two_sum(e5m10/rtz)")


def _tree(rng: random.Random, leaves: int) -> str:
    nodes = [str(i) for i in range(leaves)]
    while len(nodes) > 1:
        x, y = (nodes.pop(rng.randrange(len(nodes))) for _ in range(2))
        nodes.append(f"({x}+{y})")
    return f"tree({nodes[0]})" if rng.random() < 0.6 else f"tree({nodes[0]}, {rng.choice(('fp32', 'fp16'))})"


def _totals(rng: random.Random, count: int | None = None, depth: int = 0) -> str:
    """How ``count`` totals are combined (None: their number is not fixed)."""
    kind = rng.random()
    if kind < 0.35 or depth > 2:
        return rng.choice(_CASTS if depth else _OWN_CASTS)
    if kind < 0.5 and count is not None:
        return _tree(rng, count)
    if kind < 0.6:
        return rng.choice(_COMPENSATED)
    inner = rng.choice(("fp32", "fp16"))
    if kind < 0.75:
        combine = rng.choice(("sequential", "pairwise", "halves", _totals(rng, None, depth + 1)))
        return f"interleaved({rng.choice((2, 3, 8))}, {inner}, combine={combine}, width={rng.choice((1, 1, 2, 3))})"
    if kind < 0.85:
        return f"chunked({rng.choice((2, 3, 5))}, {inner}, {_totals(rng, None, depth + 1)})"
    if kind < 0.93:
        return f"pairwise({inner}, {rng.choice((1, 2, 3))}, pairs={rng.choice(('halves', 'adjacent'))})"
    partial = rng.choice(("none", "fp16", "bf16/via(fp32)"))
    return f"splitk({rng.choice((2, 3))}, fp32, {_totals(rng, None, depth + 1)}, grain=2, partial={partial})"


def random_order(rng: random.Random, depth: int = 0) -> str:
    """An accumulator as text, of one to three orders around an innermost one."""
    kind = rng.random()
    inner = rng.choice(_INNERMOST) if depth >= 2 or rng.random() < 0.5 else random_order(rng, depth + 1)
    if kind < 0.3:
        n = rng.choice((1, 2, 3, 4, 7, 16))
        combine = rng.choice(("sequential", "pairwise", "halves", "halves", _totals(rng, n), _totals(rng, n)))
        return f"interleaved({n}, {inner}, combine={combine}, width={rng.choice((1, 1, 2, 4, 5))})"
    if kind < 0.4:
        return f"pairwise({inner}, {rng.choice((1, 2, 3, 8))}, pairs={rng.choice(('halves', 'adjacent'))})"
    if kind < 0.7:
        return f"chunked({rng.choice((1, 3, 8, 16))}, {inner}, {_totals(rng)})"
    if kind < 0.78:
        lengths = [rng.choice((1, 3, 8, 20)) for _ in range(rng.randrange(1, 4))]
        return f"splitk({lengths}, {inner}, {rng.choice(_OWN_CASTS)})"
    n, partial = rng.choice((1, 2, 3, 5)), rng.choice(("none", "none", "fp32", "fp16", "bf16"))
    more = f"grain={rng.choice((1, 2, 8, 16))}, partial={partial}, share={rng.choice(('ceil', 'floor'))}"
    return f"splitk({n}, {inner}, {_totals(rng, n)}, {more})"


def specs(rng: random.Random, count: int) -> list[GemmSpec]:
    """``count`` specs that have a meaning."""
    found: list[GemmSpec] = []
    while len(found) < count:
        text = random_order(rng)
        if rng.random() < 0.1:
            text = f"shuffled({text}, {rng.randrange(5)})"
        operand = (
            "int8 : " if "int(" in text else ":" if "hw" in text or "fused" in text else rng.choice(("fp16 : ", ":"))
        )
        try:
            found.append(GemmSpec.parse(operand + text))
        except SpecError:
            continue
    return found


def operands(rng: random.Random, spec: GemmSpec, shape: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands of ``spec``: integers where it takes them, else some of very different size and with specials."""
    m, k, n = shape
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    a, b = torch.randn(m, k, generator=g), torch.randn(k, n, generator=g)
    if spec.accumulator.integer_operands:
        return (a * 20).round().clamp(-127, 127), (b * 20).round().clamp(-127, 127)
    if rng.random() < 0.4:
        a = a * torch.exp2(torch.randint(-12, 9, a.shape, generator=g).float())
    if rng.random() < 0.2 and k:
        a[0, rng.randrange(k)] = rng.choice((float("inf"), float("nan"), -0.0, float("-inf")))
    return (-0.0 * a.abs(), b.abs()) if rng.random() < 0.1 else (a, b)
