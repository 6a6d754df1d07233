"""What gemmsim and other packages both compute: a function for each package yields cases with the same operands.

A case has two calls without arguments. ``exact`` says how their results are compared before anything is timed; random
roundings of two packages cannot be equal, and their case says so.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gemmsim as gs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


@dataclass(frozen=True)
class Case:
    """One task. ``work``: elements of a cast, or rows, sums and columns (M, K, N) of a product."""

    task: str
    spec: str
    theirs: str
    ours: Callable[[], Any]
    peer: Callable[[], Any]
    work: int | tuple[int, int, int]
    exact: bool = True
    note: str = ""

    @property
    def unit(self) -> str:
        return "elements" if isinstance(self.work, int) else "multiply-adds"

    @property
    def amount(self) -> int:
        return self.work if isinstance(self.work, int) else math.prod(self.work)

    def limit(self) -> Callable[[], Any]:
        """What the machine does with as much work and no rounding: a copy in float32, or ``torch.mm``."""
        if isinstance(self.work, int):
            x = _numbers(self.work)
            out = torch.empty_like(x)
            return lambda: out.copy_(x)
        a, b = _operands(*self.work)
        return lambda: torch.mm(a, b)


def _numbers(count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(0))


def _operands(m: int, k: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(m + k + n)
    return torch.randn(m, k, generator=generator), torch.randn(k, n, generator=generator)


def qtorch(quick: bool) -> Iterator[Case]:
    from qtorch.quant import block_quantize, fixed_point_quantize, float_quantize

    x = _numbers(1 << (14 if quick else 20))
    count = x.numel()
    yield Case(
        "cast, nearest, ties away", "e5m10/rna", "float_quantize(x, 5, 10, rounding='nearest')",
        lambda: gs.quantize(x, "e5m10/rna"), lambda: float_quantize(x, 5, 10, rounding="nearest"), count,
    )  # fmt: skip
    yield Case(
        "cast, stochastic", "e5m10/sr23", "float_quantize(x, 5, 10)",
        lambda: gs.quantize(x, "e5m10/sr23"), lambda: float_quantize(x, 5, 10, rounding="stochastic"), count,
        exact=False, note="random bits of two packages differ",
    )  # fmt: skip
    yield Case(
        "cast, nearest", "fixed(8,4)", "fixed_point_quantize(x, 8, 4, rounding='nearest')",
        lambda: gs.quantize(x, "fixed(8,4)"), lambda: fixed_point_quantize(x, 8, 4, rounding="nearest"), count,
        note="ties: gemmsim to even, qtorch up",
    )  # fmt: skip
    rows = x.reshape(-1, 64)
    yield Case(
        "block floating point", "bfp(8,64)", "block_quantize(x, 8, dim=0, rounding='nearest')",
        lambda: gs.quantize(rows, "bfp(8,64)"), lambda: block_quantize(rows, 8, dim=0, rounding="nearest"), count,
        note="qtorch rounds some numbers next to midpoints the other way",
    )  # fmt: skip


def pychop(quick: bool) -> Iterator[Case]:
    import pychop

    pychop.backend("torch")
    x = _numbers(1 << (14 if quick else 20))
    for mode, rounding in ((1, ""), (4, "/rtz"), (5, "/sr23")):
        chop = pychop.Chop(exp_bits=5, sig_bits=10, rmode=mode)
        spec = f"e5m10{rounding}"
        yield Case(
            "cast, stochastic" if mode == 5 else "cast, truncated" if mode == 4 else "cast, nearest",
            spec, f"Chop(5, 10, rmode={mode})(x)",
            lambda spec=spec: gs.quantize(x, spec), lambda chop=chop: chop(x), x.numel(),
            exact=mode != 5, note="random bits of two packages differ" if mode == 5 else "",
        )  # fmt: skip


def gfloat(quick: bool) -> Iterator[Case]:
    from gfloat import RoundMode, round_ndarray
    from gfloat.formats import format_info_binary16, format_info_ocp_e4m3

    x = _numbers(1 << (12 if quick else 18))
    values = x.double().numpy()
    for info, spec in ((format_info_binary16, "e5m10"), (format_info_ocp_e4m3, "e4m3")):
        yield Case(
            "cast, nearest", spec, f"round_ndarray({info.name}, x)",
            lambda spec=spec: gs.quantize(x, spec),
            lambda info=info: round_ndarray(info, values, RoundMode.TiesToEven), x.numel(),
        )  # fmt: skip


def ml_dtypes(quick: bool) -> Iterator[Case]:
    import ml_dtypes

    x = _numbers(1 << (14 if quick else 20))
    values = x.numpy()
    for name, spec in (("float8_e4m3fn", "e4m3"), ("float8_e5m2", "e5m2"), ("float4_e2m1fn", "e2m1/sat")):
        dtype = getattr(ml_dtypes, name)
        yield Case(
            "cast and back, nearest", spec, f"x.astype({name}).astype(float32)",
            lambda spec=spec: gs.quantize(x, spec),
            lambda dtype=dtype: values.astype(dtype).astype(np.float32), x.numel(),
        )  # fmt: skip


def torchao(quick: bool) -> Iterator[Case]:
    from mx_torchao import compiled, teach_inductor
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    teach_inductor()
    x = _numbers(1 << (14 if quick else 22)).reshape(-1, 1024)
    for spec, dtype in (("mxfp8_e4m3", torch.float8_e4m3fn), ("mxfp4", torch.float4_e2m1fn_x2)):
        encode, how = compiled(lambda x, dtype=dtype: to_mx(x, dtype, 32), x)
        yield Case(
            "encode in blocks of 32", spec, f"to_mx(x, {dtype}, 32), {how}",
            lambda spec=spec: _codes(gs.mx.encode(x, spec)),
            lambda encode=encode: tuple(t.view(torch.uint8) for t in encode(x)), x.numel(),
        )  # fmt: skip


def _codes(encoded: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return encoded.scales.view(torch.uint8), encoded.codes.view(torch.uint8)


def modelopt(quick: bool) -> Iterator[Case]:
    from modelopt.torch.quantization.tensor_quant import fp8_eager

    x = _numbers(1 << (14 if quick else 20))
    amax = x.abs().max()
    yield Case(
        "scaled cast", "e4m3, scale amax / 448", "fp8_eager(x, amax)",
        lambda: gs.tensor_quant.scaled_e4m3(x, amax, None, 4, 3), lambda: fp8_eager(x, amax), x.numel(),
    )  # fmt: skip


def dmx(quick: bool) -> Iterator[Case]:
    from dmx.compressor.numerical.format import Format

    from gemmsim.compat import dmx as ours

    x = _numbers(1 << (14 if quick else 20)).reshape(-1, 1024)
    for name in ("BFP[8|8]{64}(SN)", "FP[1|5|10,15](FN)", "XP[8,0](CSN)"):
        theirs, fmt = Format.from_shorthand(name), ours.Format.from_shorthand(name)
        yield Case(
            "cast", name, f"Format.from_shorthand({name!r}).cast(x, -1)",
            lambda fmt=fmt: fmt.cast(x, -1), lambda theirs=theirs: theirs.cast(x, -1), x.numel(),
            note="dmx rounds some numbers next to midpoints the other way" if name.startswith("BFP") else "",
        )  # fmt: skip


def apytypes(quick: bool) -> Iterator[Case]:
    from apytypes import APyFloatAccumulatorContext, APyFloatArray

    m, k, n = (8, 32, 8) if quick else (128, 256, 128)
    a, b = (gs.quantize(x, "e5m10") for x in _operands(m, k, n))
    left, right = (APyFloatArray.from_float(x.double().numpy(), 5, 10) for x in (a, b))

    def product(mantissa: int) -> Any:
        with APyFloatAccumulatorContext(exp_bits=5, man_bits=mantissa):
            return left @ right

    for mantissa in (10, 7):
        spec = f":mul=e5m{mantissa}, add=e5m{mantissa}"
        yield Case(
            "product, each step rounded", spec, f"A @ B, accumulator of 5 and {mantissa} bits",
            lambda spec=spec: gs.qmatmul(a, b, spec), lambda mantissa=mantissa: product(mantissa),
            (m, k, n),
        )  # fmt: skip


def mmasim(quick: bool) -> Iterator[Case]:
    from mmasim import nv_ptx

    for name, dtype, k, spec in (
        ("m64n8k32.f32.e4m3.e4m3", torch.float8_e4m3fn, 32, "hw(h100, wgmma, e4m3)"),
        ("m64n8k16.f32.bf16.bf16", torch.bfloat16, 16, "hw(h100, wgmma, bf16)"),
    ):
        a, b = _operands(64, k, 8)
        a, b = a.to(dtype), b.to(dtype)
        c = torch.zeros(64, 8)
        instruction = nv_ptx.WGMMA("Hopper", name)
        left, right = a.float(), b.float()
        yield Case(
            "one instruction of an H100", spec, f"WGMMA('Hopper', '{name}')(A, B, C)",
            lambda left=left, right=right, spec=spec: gs.qmatmul(left, right, spec),
            lambda instruction=instruction, a=a, b=b, c=c: instruction(a, b, c), (64, k, 8),
        )  # fmt: skip


def mmaemu(quick: bool) -> Iterator[Case]:
    import mmaemu
    from libraries import operands

    m, n, k = (64, 64, 512) if quick else (256, 256, 1024)
    given, options = operands(m, n, k), {"out_dtype": torch.bfloat16, "use_fast_accum": True}
    for gpu, profile in (("h100-pcie", "hopper"), ("rtx4060", "ada")):
        library = gs.libraries.cublaslt(gpu, version="12.8", workspace=1 << 20)
        yield Case(
            f"torch._scaled_mm of {gpu}", "e4m3 -> bf16, one slice", f"scaled_mm(..., profile='{profile}')",
            lambda library=library: gs.scaled_mm(*given, **options, library=library, split=1).view(torch.int16),
            lambda profile=profile: mmaemu.scaled_mm(*given, **options, profile=profile, splitk=1).view(torch.int16),
            (m, k, n),
        )  # fmt: skip


#: Distribution name on the package index: its cases.
PEERS: dict[str, Callable[[bool], Iterator[Case]]] = {
    "qtorch": qtorch,
    "pychop": pychop,
    "gfloat": gfloat,
    "ml_dtypes": ml_dtypes,
    "torchao": torchao,
    "nvidia-modelopt": modelopt,
    "dmx-compressor": dmx,
    "apytypes": apytypes,
    "mmasim": mmasim,
    "mmaemu": mmaemu,
}
