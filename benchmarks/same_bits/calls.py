"""Seeded calls of public functions: what they return, bit for bit, and on what they ran."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim import mx, tensor_quant
from gemmsim.arithmetic import GemmSpec

from . import specs

__all__ = ["Call", "accelerated", "calls", "matrices", "operand"]

#: What it is called, the call, and whether the record of what ran is asked for, too.
Call = tuple[str, Callable[[], object], bool]
KINDS = ["normal", "wide", "tiny", "small", "huge", "special", "relu"]
SPECIALS = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e30, -1e-40, 3e38]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SHAPES = [(5, 19, 7), (8, 32, 8), (33, 70, 18), (1, 64, 3), (16, 1, 16)]


def operand(rng: random.Random, rows: int, cols: int, dtype: torch.dtype, kind: str) -> Tensor:
    """A random matrix of one kind."""
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    x = torch.randn(rows, cols, dtype=torch.float64, generator=g)
    if kind == "wide":
        x = x * torch.exp2(torch.randint(-20, 20, (rows, cols), generator=g).double())
    elif kind == "tiny":
        x = x * 2.0**-12
    elif kind in ("small", "integer"):
        x = torch.randint(-8, 9, (rows, cols), generator=g).double() / (4 if kind == "small" else 1)
    elif kind == "huge":
        x = x * torch.exp2(torch.randint(-140, 120, (rows, cols), generator=g).double())
    elif kind == "relu":
        x = x.clamp(min=0)
    elif kind == "special":
        for value in SPECIALS:
            x.view(-1)[rng.randrange(x.numel())] = value
    return x.to(dtype)


def matrices(spec: GemmSpec, rng: random.Random, kind: str | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Two operands and, for a palette, a choice of its members."""
    m, k, n = rng.choice(SHAPES)
    text = str(spec.accumulator)
    kind = "integer" if "int(" in text else kind or rng.choice(KINDS)
    a, b = operand(rng, m, k, rng.choice(DTYPES), kind), operand(rng, k, n, rng.choice(DTYPES), kind)
    if spec.accumulator.name != "palette":
        return a, b, None
    return a, b, torch.arange(m * n).view(m, n) % len(spec.accumulator.members)  # type: ignore[attr-defined]


def _product(spec: GemmSpec, turn: int) -> Callable[[], Tensor]:
    rng = random.Random(f"{spec} {turn}")  # its own: a part of the calls must have the data of all of them
    a, b, select = matrices(spec, rng)
    c = operand(rng, a.shape[0], b.shape[1], torch.float32, "normal") if "init=c_" in str(spec) else None
    return lambda: gs.qmatmul(a, b, spec, seed=11, select=select, c=c)


def _products(every: int) -> Iterator[Call]:
    chosen = [s for text in (*specs.LISTED, *specs.BLOCKS) if (s := specs.named(text)) is not None]
    for spec in (*chosen, *specs.hardware()):
        for turn in range(1 if every > 1 else 3):
            yield f"product/{spec}/{turn}", _product(spec, turn), True
    for at, spec in enumerate((*specs.grid(), *specs.random_specs(400))):
        if at % (3 * every) == 0:
            yield f"product/{spec}/0", _product(spec, 0), True
    for spec in chosen:
        if spec.accumulator.counts_overflows and not spec.has_blocks and spec.accumulator.name != "palette":
            a, b, _ = matrices(spec, random.Random(str(spec)))
            yield f"overflows/{spec}", lambda a=a, b=b, s=spec: gs.count_overflows(a, b, s, seed=3), False


def _tables() -> Iterator[Call]:
    values = [[float((x * 7 + y * y * 3) % 31 - 15) for y in range(16)] for x in range(16)]
    table = gs.acc.table(values, "int4", name="same_bits_table")
    rng = random.Random(2)
    for inner in ("int(20)", "fp32", "e5m10/sr8", "kahan(bf16)", "exact(fp32)", "chunked(8, e5m10)", "fixed(12, 2)"):
        spec = GemmSpec(product=table, accumulator=inner)
        a, b = operand(rng, 9, 40, torch.float32, "integer"), operand(rng, 40, 17, torch.float32, "integer")
        yield f"lookup/{inner}", lambda a=a, b=b, s=spec: gs.qmatmul(a, b, s, seed=4), True


def _convolutions() -> Iterator[Call]:
    rng = random.Random(3)
    texts = [
        *(":e5m10", "e4m3 : bf16", ":e5m2/sr8", "e4m3/sr8 : fp32 -> bf16/sr8", ":chunked(8, e5m10)", ":kahan(bf16)"),
        *(":shuffled(bf16, 3)", "mxfp8_e4m3 : fp32", "int8 : int(16, saturate)", ":fp64", ":exact()", ":fixed(16, 8)"),
    ]
    for text in texts:
        for rank in (1, 2, 3):
            kind = "integer" if "int(" in text else "normal"
            size, window = [7] * rank, [3] * rank
            x = operand(rng, 2, 4 * 7**rank, torch.float32, kind).view(2, 4, *size)
            w = operand(rng, 6, 2 * 3**rank, torch.float32, kind).view(6, 2, *window)
            t = operand(rng, 4, 3 * 3**rank, torch.float32, kind).view(4, 3, *window)
            bias = operand(rng, 1, 6, torch.float32, kind)[0]
            how = {"stride": 2, "padding": 1, "groups": 2, "spec": text, "seed": 9}
            forward, back = getattr(gs, f"qconv{rank}d"), getattr(gs, f"qconv_transpose{rank}d")
            yield f"conv{rank}d/{text}", lambda f=forward, x=x, w=w, b=bias, h=how: f(x, w, b, **h), True
            yield f"conv_transpose{rank}d/{text}", lambda f=back, x=x, w=t, b=bias, h=how: f(x, w, b, **h), True
        x = operand(rng, 11, 24, torch.float32, kind)
        w, bias = operand(rng, 6, 24, torch.float32, kind), operand(rng, 1, 6, torch.float32, kind)[0]
        yield f"linear/{text}", lambda x=x, w=w, b=bias, t=text: gs.qlinear(x, w, b, t, seed=8), True
        yield f"gradients/{text}", lambda x=x, w=w, b=bias, t=text: _gradients(x, w, b, t), False


def _gradients(x: Tensor, w: Tensor, b: Tensor, text: str) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in (x, w, b)]
    gs.qlinear(*leaves, text, seed=8).square().sum().backward()
    return [t.grad for t in leaves if t.grad is not None]


def _rows(every: int) -> Iterator[Call]:
    kinds = [
        "e5m10",
        "bf16",
        "e4m3",
        "e5m2/sr8",
        "fixed(12,6)",
        "bf16/ru",
        "fp32",
        "binary8p3",
        "supernormal(4,3)",
        "fp64",
    ]
    for f in kinds[:: min(every, 3)]:
        for dtype in DTYPES:
            rng = random.Random(f"{f} {dtype}")
            x, y = operand(rng, 6, 37, dtype, "normal"), operand(rng, 6, 37, dtype, "wide")
            w = operand(rng, 1, 37, dtype, "normal")[0]
            soft = gs.QSoftmaxFormats(f, f, f, None, f, f, seed=2)
            norm, gelu = gs.QLayerNormFormats(*[f] * 7, seed=2), gs.QGELUFormats(None, f, f, f, seed=2)
            found: dict[str, Callable[[], object]] = {
                "softmax": lambda x=x, s=soft: gs.qsoftmax(x, -1, s),
                "layernorm": lambda x=x, w=w, n=norm: gs.qlayernorm(x, 37, w, w, 1e-5, n),
                "rmsnorm": lambda x=x, w=w, n=norm: gs.qrmsnorm(x, 37, w, 1e-5, n),
                "gelu": lambda x=x, g=gelu: gs.qgelu(x, g),
                "silu": lambda x=x, g=gelu: gs.qsilu(x, g),
                "sum": lambda x=x, f=f: gs.qsum(x, 1, f, seed=2),
                "sum columns": lambda x=x, f=f: gs.qsum(x, 0, f, seed=2),
                "add": lambda x=x, y=y, f=f: gs.qadd(x, y, f, f, seed=2),
                "div": lambda x=x, y=y, f=f: gs.qdiv(x, y, f, f, seed=2),
                "pow": lambda x=x, f=f: gs.qpow(x.abs(), f, f, 2.5, seed=2),
                "tanh": lambda y=y, f=f: gs.qtanh(y, f, f, seed=2),
                "sigmoid": lambda y=y, f=f: gs.qsigmoid(y, f, f, seed=2),
            }
            for name, call in found.items():
                yield f"rows/{name}/{f}/{dtype}", call, False


def _casts(every: int) -> Iterator[Call]:
    for at, text in enumerate(specs.casts()):
        if at % min(every, 3) == 0:
            rng = random.Random(text)
            dtype = rng.choice(DTYPES)
            x = operand(rng, 7, 45, dtype, rng.choice(KINDS))
            yield f"cast/{text}/{dtype}", lambda x=x, t=text: gs.quantize(x, t, seed=6), True
    for text in specs.TENSOR_FORMATS:
        for dtype in DTYPES:
            for strided in (False, True):
                rng = random.Random(f"{text} {dtype} {strided}")
                x = operand(rng, 48, 70, dtype, rng.choice(["normal", "wide", "special"]))
                x = x.T[:, ::2] if strided else x
                yield f"cast/{text}/{dtype}/{strided}", lambda x=x, t=text: gs.quantize(x, t, seed=6), True


def _blocks(every: int) -> Iterator[Call]:
    for text in specs.BLOCK_FORMATS[:: min(every, 3)]:
        for dtype in (torch.float32, torch.bfloat16):
            rng = random.Random(f"{text} {dtype}")
            x = operand(rng, 5, 84, dtype, rng.choice(["normal", "wide", "huge", "special"]))
            scale = 0.25 if text.endswith("/tensor") else None
            yield f"mx/encode/{text}/{dtype}", lambda x=x, t=text, s=scale: list(mx.encode(x, t, tensor_scale=s)), False
            yield f"mx/quantize/{text}/{dtype}", lambda x=x, t=text, s=scale: mx.quantize(x, t, tensor_scale=s), False
    rng = random.Random(6)
    for bits in (2, 4, 8, 16):
        x, wide = operand(rng, 9, 40, torch.float32, "normal"), operand(rng, 9, 40, torch.float32, "wide")
        yield f"tensor_quant/{bits}", lambda x=x, b=bits: tensor_quant.fake_tensor_quant(x, 2.0, None, b), False
        yield (
            f"tensor_quant/wide/{bits}",
            lambda x=wide, b=bits: tensor_quant.fake_tensor_quant(x, 99.0, None, b),
            False,
        )
        low, high = torch.tensor(-1.5), torch.tensor(2.25)
        yield (
            f"tensor_quant/affine/{bits}",
            lambda x=x, b=bits, lo=low, hi=high: tensor_quant.fake_affine_tensor_quant(x, lo, hi, b),
            False,
        )
    x = operand(rng, 9, 40, torch.float32, "normal")
    yield "tensor_quant/e4m3", lambda x=x: tensor_quant.scaled_e4m3(x, 3.0), False


def calls(every: int) -> Iterator[Call]:
    """All calls; with ``every`` > 1 about a part of that size."""
    yield from _products(every)
    yield from _tables()
    yield from _convolutions()
    yield from _rows(every)
    yield from _casts(every)
    yield from _blocks(every)


def accelerated() -> Iterator[Call]:
    """Products that are asked to run on a native library: what ran, or why not."""
    rng = random.Random(7)
    for text in specs.ACCELERATED:
        for dtypes in ((DTYPES[0],) * 2, (DTYPES[1],) * 2, (DTYPES[2],) * 2, (DTYPES[3],) * 2, (DTYPES[0], DTYPES[2])):
            for mode in (None, "tf32", "pedantic"):
                for k in (32, 96):
                    a = operand(rng, 16, k, dtypes[0], "integer")
                    b = operand(rng, k, 16, dtypes[1], "integer")
                    yield f"asked/{text}/{dtypes}/{mode}/{k}", lambda a=a, b=b, t=text, m=mode: _asked(a, b, t, m), True


def _asked(a: Tensor, b: Tensor, text: str, mode: str | None) -> None:
    """Nothing is returned: a native library may sum in another order tomorrow."""
    with gs.cublas_acceleration(True, mode):
        gs.qmatmul(a, b, text, seed=11)
