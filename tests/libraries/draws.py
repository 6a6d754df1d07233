"""Random library calls: their specs as texts, written by hand for each family, and the slow reading of one element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from libraries.readings.ada import ada
from libraries.readings.cutlass import cutlass, grain
from libraries.readings.dot import dot
from libraries.readings.gemmsn import gemmsn
from libraries.readings.gemv import OPTIONS, gemv
from libraries.readings.linear import linear
from libraries.readings.nvjet import nvjet
from numpy.random import Generator

__all__ = ["FAMILIES", "Call", "Draw"]

#: Architecture of a library's GPU by the names that gemmsim and the readings have.
ARCHITECTURES = {"h100": "sm_90", "gb200": "sm_100", "gb300": "sm_103"}


@dataclass(frozen=True)
class Call:
    """What a library is asked for: its GPU, M and N, the configuration's fields, and whether FP8 sums fast."""

    gpu: str
    M: int
    N: int
    out: str
    config: tuple[int, ...]
    fast: bool = False


@dataclass(frozen=True)
class Draw:
    """One dot product of K terms: ``spec`` gives the register, ``read`` the same by the slow reading.

    ``call``: the library's call that has it, None where the library is another.
    """

    spec: str
    formats: tuple[str, str]
    K: int
    read: Callable[[Sequence[Any], Sequence[Any]], np.float32]
    call: Call | None = None


def _up(x: int, y: int) -> int:
    """The quotient, rounded up."""
    return -(-x // y)


def _config(algo: int, splits: int = 1, scheme: int = 0, option: int = 0, stages: int = 0) -> tuple[int, ...]:
    return (algo, 0, splits, scheme, 0, option, stages, 0, 0)


def _terms(rng: Generator, most: int, step: int = 1) -> int:
    """A multiple of ``step``, short ones as likely as long ones."""
    return step * max(1, int(math.exp(rng.uniform(0, math.log(most / step)))))


def _one_of(rng: Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _split(splits: int, inner: str, grain: int) -> str:
    return inner if splits == 1 else f"splitk({splits}, {inner}, fp32, grain={grain}, share=floor)"


def _splits_of_blocks(rng: Generator, K: int, block: int, most: int) -> int:
    """A number of splits for which each slice is a block at least and shorter than K."""
    blocks = _up(K, block)
    allowed = [s for s in range(2, most + 1) if block * _up(blocks, s) < K]
    return int(rng.choice(allowed)) if allowed and rng.random() < 0.8 else 1


def nvjet_16(rng: Generator) -> Draw:
    gpu, fmt = _one_of(rng, "h100", "gb200", "gb300"), _one_of(rng, "fp16", "bf16")
    if rng.random() < 0.3:  # more splits than terms in the tail, of which the library forgets some
        splits = int(rng.integers(2, 13))
        K = 64 * splits * int(rng.integers(1, 3)) + int(rng.integers(1, splits + 3))
    else:
        K = _terms(rng, 2000)
        splits = _splits_of_blocks(rng, K, 64, 12)
    unit = "hw(hopper, wgmma, {})" if gpu == "h100" else "hw(blackwell, tcgen05, {})"
    arch = "hopper" if gpu == "h100" else "blackwell"
    spec = f"{fmt} : {_split(splits, unit.format(fmt), 64)}"
    call = Call(gpu, 64, 64, fmt, _config(66, splits, 2 if splits > 1 else 0, stages=35))
    return Draw(spec, (fmt, fmt), K, lambda a, b: nvjet(a, b, (fmt, fmt), arch, splits), call)


def nvjet_fp8(rng: Generator) -> Draw:
    gpu, fast = _one_of(rng, "h100", "h100", "gb200"), bool(rng.random() < 0.5)
    a, b = _one_of(rng, ("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))
    if rng.random() < 0.15:
        splits = int(rng.integers(17, 20))
        K = 128 * splits + 16
    else:
        K = _terms(rng, 2000, 16)
        splits = _splits_of_blocks(rng, K, 128, 8)
    unit = f"hw(hopper, wgmma, {a}, {b})" if gpu == "h100" else f"hw(blackwell, tcgen05, {a}, {b})"
    inner = f"promote({unit}, 128)" if gpu == "h100" and not fast else unit
    arch = "hopper" if gpu == "h100" else "blackwell"
    call = Call(gpu, 64, 64, "bf16", _config(66, splits, 2 if splits > 1 else 0, stages=36), fast)
    spec = f"{a} * {b} : {_split(splits, inner, 128)}"
    return Draw(spec, (a, b), K, lambda x, y: nvjet(x, y, (a, b), arch, splits, fast), call)


_CUTLASS_STAGES = {
    (32, 8): (0,),
    (32, 16): (7, 9, 10, 12),
    (64, 16): (13, 14, 15, 16, 18),
    (128, 16): (19, 20),
}


def cutlass_kernels(rng: Generator) -> Draw:
    gpu, fmt, K = _one_of(rng, "h100", "gb200", "gb300"), _one_of(rng, "fp16", "bf16"), _terms(rng, 2000)
    block, products = _one_of(rng, *_CUTLASS_STAGES)
    K += K == 1  # of one product there is no order, and another kernel
    g = grain(K)
    allowed = [s for s in range(2, 9) if _up(_up(K, g), s) * g <= K]
    splits = int(rng.choice(allowed)) if allowed and rng.random() < 0.75 else 1
    scheme = _one_of(rng, 0, 1, 2, 4) if splits > 1 else 0
    arch = "hopper" if gpu == "h100" else "blackwell"
    inner = f"fused(8, 25, a={fmt}, first=32)" if products == 8 else f"hw({arch}, mma, {fmt}, first={block})"
    if splits == 1:
        spec = inner
    elif scheme == 2:
        spec = f"splitk({splits}, {inner}, fp32, grain={g})"
    elif scheme == 4:
        spec = f"splitk({splits}, {inner}, fp32, grain={g}, partial={fmt})"
    else:
        spec = f"splitk({splits}, {inner}, {fmt}/via(fp32), grain={g}, partial=fp32)"
    stages = _one_of(rng, *_CUTLASS_STAGES[block, products])
    call = Call(gpu, 65, 63, fmt, _config(_one_of(rng, 21, 23, 24), splits, scheme, stages=stages))

    def read(a: Sequence[Any], b: Sequence[Any]) -> np.float32:
        return cutlass(a, b, fmt, block, products, splits, scheme, fmt)

    return Draw(f"{fmt} : {spec}", (fmt, fmt), K, read, call)


def gemmsn_kernels(rng: Generator) -> Draw:
    fmt, (algo, option) = _one_of(rng, "fp16", "bf16"), _one_of(rng, (11, 0), (11, 1), (16, 0))
    K = _terms(rng, 2000)
    spec = {0: "splitk(2, chunked(256, fp32), fp32)", 1: "splitk(4, chunked(128, fp32), fp32)"}[option]
    call = Call(_one_of(rng, *ARCHITECTURES), 6, 100, fmt, _config(algo, option=option))
    spec = spec if algo == 11 else "fp32"
    return Draw(f"{fmt} : {spec}", (fmt, fmt), K, lambda a, b: gemmsn(a, b, algo, option), call)


def gemv_kernels(rng: Generator) -> Draw:
    gpu, fmt, K = _one_of(rng, *ARCHITECTURES), _one_of(rng, "fp16", "bf16"), _terms(rng, 40000)
    options = OPTIONS[ARCHITECTURES[gpu]]
    option = int(rng.choice([5, *[10] * 4, *options]))
    splits = int(rng.integers(1, 7)) if option != 5 and rng.random() < 0.5 else 1
    splits = min(splits, K)
    if option == 5:
        spec = "splitk(32, chunked(16, fp32), fp32)"
    else:
        width, lanes, chunk, halves = options[option]
        width = width if width > 0 else min(-width, _up(_up(K, splits), lanes))
        spec = f"chunked({chunk}, fp32)" if chunk else "fp32"
        if lanes > 1:
            spec = f"interleaved({lanes}, {spec}{', halves' * halves}{f', width={width}' * (width > 1)})"
        if splits > 1:
            spec = f"splitk({splits}, {spec}, fp32)"
    call = Call(gpu, 1, 100, fmt, _config(13, splits, option=option))
    arch = ARCHITECTURES[gpu]
    return Draw(f"{fmt} : {spec}", (fmt, fmt), K, lambda a, b: gemv(a, b, option, arch, splits), call)


def dot_kernels(rng: Generator) -> Draw:
    fmt, K = _one_of(rng, "fp16", "bf16"), _terms(rng, 40000)
    M, N = _one_of(rng, (1, 100), (100, 1), (1, 1))
    blocks = int(rng.integers(2, 200)) if rng.random() < 0.3 else int(rng.integers(1, 41))
    thread = "interleaved(2, fp32), halves, width=2" if N == 1 else "fp32, halves"
    second = "interleaved(128, fp32, interleaved(64, fp32, interleaved(32, fp32, interleaved(4, fp32))))"
    width = 256 if N == 1 else 128
    spec = f"{fmt} : interleaved({blocks}, interleaved(128, {thread}), {second}, width={width})"
    call = Call(_one_of(rng, *ARCHITECTURES), M, N, fmt, _config(14, blocks))
    return Draw(spec, (fmt, fmt), K, lambda a, b: dot(a, b, blocks, N), call)


def _tree(s: int) -> str:
    """The last total first, then sums of totals half of them apart, in order."""
    half = (s + 1) // 2
    text = str(s - 1)
    for i in range(half):
        slot = f"({i}+{i + half})" if i + half < s - 1 else str(i)
        text = f"({text}+{slot})"
    return text


def ada_fp8(rng: Generator) -> Draw:
    fast, by_pairs, K = bool(rng.random() < 0.5), bool(rng.random() < 0.6), _terms(rng, 2000, 16)
    a, b = _one_of(rng, ("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))
    splits = int(rng.integers(1, 13)) if rng.random() < 0.85 else int(rng.integers(13, 30))
    inner = f"hw(ada, mma, {a}, {b})"
    inner = inner if fast else f"promote({inner}, 128)"
    combine = f"tree({_tree(splits)}, fp32)" if by_pairs else "fp32"
    spec = inner if splits == 1 else f"interleaved({splits}, {inner}, {combine}, width=64)"
    option = 1 if by_pairs else _one_of(rng, 0, 2)
    call = Call("rtx4060", 64, 64, "bf16", _config(60 if fast else 35, splits, 2 * (splits > 1), option, 15), fast)
    return Draw(f"{a} * {b} : {spec}", (a, b), K, lambda x, y: ada(x, y, (a, b), splits, by_pairs, fast), call)


def linear_kernels(rng: Generator) -> Draw:
    """As A100, L40S and H100 have them: no profile of cuBLASLt's, so no call."""
    arch, recipe, K = _one_of(rng, "ampere", "ada", "hopper"), _one_of(rng, *_RECIPES), _terms(rng, 2000, 8)
    splits = int(rng.integers(1, 7))
    inner = f"hw({arch}, mma, bf16)"
    spec = _RECIPES[recipe].format(splits=splits, inner=inner)
    return Draw(f"bf16 : {spec}", ("bf16", "bf16"), K, lambda a, b: linear(a, b, arch, recipe, splits))


_RECIPES = {
    "single": "{inner}",
    "serial": "splitk({splits}, {inner}, bf16/via(fp32), grain=64, partial=fp32)",
    "sliced": "splitk({splits}, interleaved(2, {inner}, width=32), bf16/via(fp32), grain=64, partial=fp32)",
    "workspace": "splitk({splits}, {inner}, fp32, grain=64, partial=bf16)",
}

FAMILIES: dict[str, Callable[[Generator], Draw]] = {
    "nvjet, 16 bits": nvjet_16,
    "nvjet, FP8": nvjet_fp8,
    "cutlass": cutlass_kernels,
    "gemmsn": gemmsn_kernels,
    "gemv": gemv_kernels,
    "dot": dot_kernels,
    "Ada FP8": ada_fp8,
    "linear layers": linear_kernels,
}
