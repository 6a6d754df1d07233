"""Products whose arithmetic nobody has published, beside what it could be: how many of their bits each guess gives.

Every experiment returns ``{"outputs": n, "equal": {guess: count}, ...}``. Epilogues get sums that are exact in any
order, so that only their own roundings show; sums get random operands, and all orders that are known as guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import gemmsim as gs

__all__ = ["SHAPES", "closest", "experiments", "matches"]

Guesses = Mapping[str, Tensor]


def matches(got: Tensor, guesses: Guesses) -> dict[str, Any]:
    """How many outputs have the bits of each guess, and how many outputs tell guesses apart."""
    raw = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[got.element_size()]
    bits = got.contiguous().view(raw)
    equal, alike = {}, torch.ones_like(bits, dtype=torch.bool)
    first = next(iter(guesses.values())).contiguous().view(raw)
    for name, guess in guesses.items():
        of_guess = guess.contiguous().view(raw)
        equal[name] = int((bits == of_guess).sum())
        alike &= of_guess == first
    return {"outputs": bits.numel(), "equal": equal, "telling": int((~alike).sum())}


def _exact(size: int, dtype: torch.dtype, K: int = 64, most: int = 15) -> tuple[Tensor, Tensor, Tensor]:
    """Operands (size, K), (K, size) of integers, whose sums every order gives, and the sums in float32."""
    g = torch.Generator().manual_seed(1)
    a, b = (torch.randint(-most, most + 1, shape, generator=g).float() for shape in ((size, K), (K, size)))
    return a.to(dtype).cuda(), b.to(dtype).cuda(), (a.double() @ b.double()).float().cuda()


def _noise(size: tuple[int, ...], dtype: torch.dtype, scale: float, seed: int = 2) -> Tensor:
    return (torch.randn(size, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype).cuda()


def _single(x: Tensor) -> Tensor:
    """float64 to float32."""
    return x.float()


def bias(dtype: torch.dtype, size: int) -> dict[str, Any]:
    """``linear`` with a bias: added to the sum, or to the rounded sum?"""
    a, b, acc = _exact(size, dtype)
    vector = _noise((size,), dtype, 300.0)
    wide = vector.float()
    got = torch.nn.functional.linear(a, b.t().contiguous(), vector)
    return matches(
        got,
        {
            "added in fp32, then rounded": (acc + wide).to(dtype),
            "rounded, added in fp32, rounded": (acc.to(dtype).float() + wide).to(dtype),
        },
    )


def addend(dtype: torch.dtype, size: int) -> dict[str, Any]:
    """``addmm`` with alpha, beta and a matrix: which products are rounded before the sum?"""
    a, b, acc = _exact(size, dtype)
    c, alpha, beta = _noise((size, size), dtype, 300.0), 0.7, 1.3
    got = torch.addmm(c, a, b, beta=beta, alpha=alpha)
    s, t = torch.tensor(alpha, device="cuda"), torch.tensor(beta, device="cuda")
    left, right = acc * s, c.float() * t
    wide = acc.double() * s.double(), c.double() * t.double()
    return matches(
        got,
        {
            "both products rounded to fp32": (left + right).to(dtype),
            "fma(alpha, sum, fp32(beta * c))": _single(wide[0] + right.double()).to(dtype),
            "fma(beta, c, fp32(alpha * sum))": _single(wide[1] + left.double()).to(dtype),
            "exact, rounded to fp32": _single(wide[0] + wide[1]).to(dtype),
            "sum rounded to the output first": (acc.to(dtype).float() * s + right).to(dtype),
        },
    )


def activation(dtype: torch.dtype, size: int, gelu: bool) -> dict[str, Any]:
    """The epilogue with bias and relu or gelu."""
    a, b, acc = _exact(size, dtype)
    acc, a = acc / 256, a / 256
    vector = _noise((size,), dtype, 1.0)

    def act(x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x, approximate="tanh") if gelu else torch.relu(x)

    got = torch._addmm_activation(vector, a, b, use_gelu=gelu)
    before = acc + vector.float()
    return matches(
        got,
        {
            "of the fp32 sum, then rounded": act(before).to(dtype),
            "of the rounded sum": act(before.to(dtype).float()).to(dtype),
            "bias added to the rounded sum": act(acc.to(dtype).float() + vector.float()).to(dtype),
        },
    )


def _fp8(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """FP8 operands for torch._scaled_mm whose sums are exact in registers of 13 fraction bits, and the sums."""
    a, b, acc = _exact(size, torch.float8_e4m3fn, K=32, most=7)
    return a, b.t().contiguous().t(), acc


def fp8_bias(size: int) -> dict[str, Any]:
    """``_scaled_mm`` with a bias: before or after the rounding of alpha * sum?"""
    a, b, acc = _fp8(size)
    one, other = torch.tensor(0.7, device="cuda"), torch.tensor(1.3, device="cuda")
    vector = _noise((size,), torch.bfloat16, 300.0)
    got = torch._scaled_mm(a, b, one, other, bias=vector, out_dtype=torch.bfloat16)
    alpha, wide = one * other, vector.float()
    return matches(
        got,
        {
            "fp32(alpha * sum) + bias": (acc * alpha + wide).bfloat16(),
            "fma(alpha, sum, bias)": _single(acc.double() * alpha.double() + wide.double()).bfloat16(),
            "bf16(alpha * sum) + bias": ((acc * alpha).bfloat16().float() + wide).bfloat16(),
        },
    )


def row_scales(size: int) -> dict[str, Any]:
    """``_scaled_mm`` with a scale for each row and column: in which order they are applied."""
    a, b, acc = _fp8(size)
    rows = _noise((size, 1), torch.float32, 1.0).abs() + 0.1
    columns = _noise((1, size), torch.float32, 1.0, seed=3).abs() + 0.1
    got = torch._scaled_mm(a, b, rows, columns, out_dtype=torch.bfloat16)
    exact = acc.double() * rows.double() * columns.double()
    return matches(
        got,
        {
            "(sum * row) * column": (acc * rows * columns).bfloat16(),
            "(sum * column) * row": (acc * columns * rows).bfloat16(),
            "sum * (row * column)": (acc * (rows * columns)).bfloat16(),
            "exact, rounded to fp32": _single(exact).bfloat16(),
        },
    )


def closest(got: Tensor, a: Tensor, b: Tensor, specs: Iterable[str]) -> dict[str, Any]:
    """How many bits of ``got`` each spec gives, computed on the host; the ten closest."""
    host, left, right = got.cpu(), a.float().cpu(), b.float().cpu()
    guesses = {spec: gs.qmatmul(left, right, spec).to(host.dtype) for spec in specs}
    found = matches(host, guesses)
    order = sorted(found["equal"], key=lambda spec: -found["equal"][spec])
    return {**found, "equal": {spec: found["equal"][spec] for spec in order[:10]}, "guesses": len(guesses)}


def tensor_core_specs(fmt: str, operands: str, slices: int) -> list[str]:
    """One chain of each instruction, whole K, residue first, or in slices that meet by each scheme that is known."""
    units = [f"hw(hopper, wgmma, {fmt})", f"hw(hopper, mma, {fmt})", f"fused(8, 25, a={fmt})", f"fused(4, 25, a={fmt})"]
    units += [f"hw(hopper, mma, {fmt}, first={block})" for block in (16, 32, 64, 128)]
    units += [f"fused(8, 25, a={fmt}, first={block})" for block in (16, 32, 64)]
    found = list(units)
    for s in range(2, slices + 1):
        found += [f"splitk({s}, {unit}, fp32, grain={grain})" for unit in units for grain in (8, 32, 64)]
        if fmt in ("fp16", "bf16"):
            found += [f"splitk({s}, {unit}, fp32, grain=64, partial={fmt})" for unit in units]
            found += [f"splitk({s}, {unit}, {fmt}/via(fp32), grain=64, partial=fp32)" for unit in units]
    return [f"{operands} : {one}" for one in found]


def single_precision_specs() -> list[str]:
    """Chains, runs, lanes and slices of fp32 multiply-adds."""
    found = ["fp32"]
    found += [f"chunked({n}, fp32)" for n in (4, 8, 16, 32, 64, 128, 256, 512)]
    found += [f"interleaved({n}, fp32{word})" for n in (2, 4, 8, 16, 32) for word in ("", ", halves", ", pairwise")]
    for s in range(2, 17):
        found += [f"splitk({s}, fp32, fp32, grain={grain})" for grain in (1, 4, 8, 16, 32, 64)]
    return found


def _sum_of(product: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype, shape: tuple[int, int, int],
            specs: list[str]) -> dict[str, Any]:  # fmt: skip
    """``product`` of random operands beside all specs."""
    M, N, K = shape
    a, b = _noise((M, K), dtype, 1.0, seed=4), _noise((K, N), dtype, 1.0, seed=5)
    return {"shape": [M, N, K], **closest(product(a, b), a, b, specs)}


def _tf32(a: Tensor, b: Tensor) -> Tensor:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return a @ b
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _ieee(a: Tensor, b: Tensor) -> Tensor:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        return a @ b
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _wide_mm(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b, out_dtype=torch.float32)


def _wide_bmm(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(torch.stack([a] * 4), torch.stack([b] * 4), out_dtype=torch.float32)[3]


def _row_scaled(a: Tensor, b: Tensor) -> Tensor:
    ones = torch.ones(a.shape[0], 1, device=a.device), torch.ones(1, b.shape[1], device=a.device)
    return torch._scaled_mm(a, b.t().contiguous().t(), *ones, out_dtype=torch.bfloat16)


#: M, N, K of products with random operands.
SHAPES = ((64, 64, 512), (128, 128, 4096), (16, 256, 8200), (256, 64, 1000))
_FP8_SPECS = ["e4m3 : hw(hopper, wgmma, e4m3)"] + [
    f"e4m3 : promote(hw(hopper, wgmma, e4m3), {n})" for n in (32, 64, 128, 256)
]


def experiments(
    edge: int = 3072, sums: Sequence[tuple[int, int, int]] = SHAPES, slices: int = 12
) -> dict[str, Callable[[], dict[str, Any]]]:
    """Name -> what measures it.

    Args:
        edge: rows and columns of products with exact sums.
        sums: shapes of products of random operands, which stand beside known orders of up to so many ``slices``.
    """
    found: dict[str, Callable[[], dict[str, Any]]] = {}
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        found[f"bias, {name}"] = lambda dtype=dtype: bias(dtype, edge)
        found[f"alpha and beta, {name}"] = lambda dtype=dtype: addend(dtype, edge)
        found[f"relu, {name}"] = lambda dtype=dtype: activation(dtype, edge, False)
        found[f"gelu, {name}"] = lambda dtype=dtype: activation(dtype, edge, True)
    found["bias, FP8"] = lambda: fp8_bias(edge)
    found["scales of rows and columns, FP8"] = lambda: row_scales(edge)
    for shape in sums:
        words = "x".join(map(str, shape))
        tf32 = [one for fmt in ("tf32", "tf32/rna", "") for one in tensor_core_specs("tf32", fmt, slices // 3)]
        wide = tensor_core_specs("bf16", "bf16", slices)
        found[f"torch.mm in bf16, {words}"] = lambda s=shape, w=wide: _sum_of(_wide_mm, torch.bfloat16, s, w)
        found[f"torch.bmm in bf16, {words}"] = lambda s=shape, w=wide: _sum_of(_wide_bmm, torch.bfloat16, s, w)
        found[f"tf32, {words}"] = lambda s=shape, w=tf32: _sum_of(_tf32, torch.float32, s, w)
        found[f"fp32, {words}"] = lambda s=shape: _sum_of(_ieee, torch.float32, s, single_precision_specs())
        if shape[2] % 16 == 0:
            found[f"FP8 with scales of rows, {words}"] = lambda s=shape: _sum_of(
                _row_scaled, torch.float8_e4m3fn, s, _FP8_SPECS
            )
    return found
