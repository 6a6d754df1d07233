"""Instruction sets of the machine that runs the tests, and operands that reach every kernel."""

from __future__ import annotations

import random

import torch

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu
from support import assert_bitwise_equal

#: Data that the planner tells apart: bounded or not, on a coarse grid or not, finite or not.
KINDS = ["normal", "wide", "tiny", "small", "huge", "special", "relu"]
SPECIALS = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e30, -1e-40, 3e38]


def isas() -> list[str]:
    """Instruction sets this machine has."""
    found = []
    for name in cpu.ISAS:
        try:
            cpu.set_isa(name)
        except cpu.LibraryError:
            continue
        found.append(name)
    cpu.set_isa(found[0])
    return found


def operand(rng: random.Random, rows: int, cols: int, dtype: torch.dtype, kind: str | None = None) -> torch.Tensor:
    """Random matrix of one kind (default: a random one of ``KINDS``)."""
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    x = torch.randn(rows, cols, dtype=torch.float64, generator=g)
    kind = rng.choice(KINDS) if kind is None else kind
    if kind == "wide":
        x = x * torch.exp2(torch.randint(-20, 20, (rows, cols), generator=g).double())
    elif kind == "tiny":
        x = x * 2.0**-12
    elif kind == "small":
        x = torch.randint(-8, 9, (rows, cols), generator=g).double() / 4
    elif kind == "huge":
        x = x * torch.exp2(torch.randint(-140, 120, (rows, cols), generator=g).double())
    elif kind == "relu":
        x = x.clamp(min=0)
    elif kind == "special":
        for value in SPECIALS:
            if rng.random() < 0.3:
                x.view(-1)[rng.randrange(x.numel())] = value
    return x.to(dtype)


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def shortened(x: torch.Tensor, share: float, seed: int) -> torch.Tensor:
    """``x``, of which so many lose a random number of their lowest bits."""
    g = torch.Generator().manual_seed(seed)
    bits = torch.randint(0, 24, x.shape, generator=g, dtype=torch.int32)
    mask = torch.bitwise_left_shift(torch.full_like(bits, -1), bits)
    here = torch.rand(x.shape, generator=g) < share
    return torch.where(here, (x.view(torch.int32) & mask).view(torch.float32), x)


def any_operands(seed: int, k: int, kind: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Eight rows and 18 columns of ``k`` terms: normal numbers, half of them zero (1), of many magnitudes (2), sums that
    come back to zero (3)."""
    a, b = normal(8, k, seed=seed), normal(k, 18, seed=seed + 1)
    if kind == 1:
        a = a * (normal(8, k, seed=seed + 2) > 0.5)
    elif kind == 2:
        a = a * torch.exp2(torch.round(4 * normal(8, k, seed=seed + 2)))
    elif kind == 3:
        a[:, k // 2 :] = -a[:, : k - k // 2].flip(1)
        b[k // 2 :] = b[: k - k // 2].flip(0)
    return a, b


def assert_equals_reference(spec, a, b, seed=0, c=None):
    """``a @ b`` by ``spec`` has the reference's bits, signs of zeros included, on every instruction set."""
    addend = None if c is None else c.tolist()
    want = torch.tensor(reference.gemm(a.tolist(), b.tolist(), spec, c=addend, seed=seed), dtype=torch.float64)
    for name in isas():
        cpu.set_isa(name)
        out = torch.full((a.shape[0], b.shape[1]), 7.0, dtype=torch.float64)
        run = cpu.gemm(a, b, spec, out, seed) if c is None else cpu.gemm(a, b, spec, out, seed, c=c)
        what = f"{spec}, seed {seed}, {a.dtype} {tuple(a.shape)}x{tuple(b.shape)} on {name}: {run}"
        assert_bitwise_equal(out, want, context=what)


def assert_isas_agree(spec: str, a: torch.Tensor, b: torch.Tensor) -> None:
    """Where there are too many sums for the reference: what processors without vectors of ours compute."""
    outs = {}
    for name in isas():
        cpu.set_isa(name)
        outs[name] = torch.empty(*a.shape[:-1], b.shape[-1], dtype=torch.float64)
        cpu.gemm(a, b, GemmSpec.of(spec), outs[name], 3)
    for name in isas():
        assert_bitwise_equal(outs[name], outs["baseline"], context=f"{spec}, {name}")


def compensated_operands(kind: str, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of compensated sums: as named, ``k`` terms."""
    a, b = normal(5, k, seed=len(kind)), normal(k, 18, seed=k)
    if kind == "large":
        a *= 40
        a[0] = a[0].abs()
    elif kind == "small":
        a, b = a * 2.0**-9, b * 2.0**-5
    elif kind == "huge":
        a, b = a * 2.0**57, b * 2.0**55
    elif kind == "cancelling":
        a[:, k // 2 :] = -a[:, : k - k // 2].flip(1)
        b[k // 2 :] = b[: k - k // 2].flip(0)
        a[2] = 0
    elif kind == "short":
        a, b = (a * 4).round() / 4, (b * 4).round() / 8
    return a, b


def frequent_operands(kind: str, k: int = 90) -> tuple[torch.Tensor, torch.Tensor]:
    """Whose sums are often on midpoints, small, large or exactly zero, as named."""
    a, b = normal(9, k, seed=len(kind)), normal(k, 17, seed=k)
    if kind == "ties":
        a, b = (a * 8).round() / 8, (b * 4).round() / 16
    elif kind == "small":
        a, b = a * 2.0**-7, b * 2.0**-5
    elif kind == "large":
        a *= 50
    elif kind == "late":  # large terms that cancel, then small ones: kernels change on the way
        a[:, k // 2 :] *= 2.0**-12
        a[:, : k // 2 // 2 * 2 : 2] = -a[:, 1 : k // 2 // 2 * 2 : 2]
        b[: k // 2 // 2 * 2 : 2] = b[1 : k // 2 // 2 * 2 : 2]
    elif kind == "zeros":  # every second sum is an exact one of unlike signs; some start at -0
        a[:, 1::2] = -a[:, : k // 2 * 2 : 2]
        b[1::2] = b[: k // 2 * 2 : 2]
        a[3, :8], a[4] = -0.0, 0
    return a, b
