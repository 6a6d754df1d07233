"""Conversions to and from block formats beside torchao's compiled ones, where torchao is installed.

    pip install --no-deps torchao==0.18.0        (any version with torchao.prototype.mx_formats)

torchao runs under torch.compile where that compiles its code, else as it is; "torchao_runs" says which. PyTorch 2.13's
compiler for CPUs knows no float8_e8m0fnu, in which torchao only views bytes: it is told so here. torchao allocates its
results, gemmsim writes into memory that is there: run with MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184, so
that torchao's memory is reused, too. One thread, processor time, codes and values compared first.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from harness import Report, measure, options, ratio

import gemmsim as gs

#: block format, torchao's element type, least ratios asked of encoding and of decoding.
FORMATS = [
    ("mxfp8_e4m3", torch.float8_e4m3fn, 2.0, 10.0),
    ("mxfp4", getattr(torch, "float4_e2m1fn_x2", None), 25.0, 25.0),
]


def teach_inductor() -> None:
    """Let generated C++ hold float8_e8m0fnu as the byte that it is."""
    from torch._inductor.codegen import cpp_utils

    cpp_utils.DTYPE_TO_CPP.setdefault(torch.float8_e8m0fnu, "uint8_t")
    cpp_utils.DTYPE_TO_ATEN.setdefault(torch.float8_e8m0fnu, "at::kFloat8_e8m0fnu")


def compiled(function: Callable[..., Any], *args: Any) -> tuple[Callable[..., Any], str]:
    """``function`` compiled, if that works with these arguments, and how it runs."""
    fast = torch.compile(function, fullgraph=True)
    try:
        fast(*args)
    except Exception:  # whatever Inductor raises for what it cannot do
        return function, "eager"
    return fast, "compiled"


def main() -> int:
    args = options(__doc__ or "")
    try:
        import torchao
        from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx
    except ImportError:
        print("mx_torchao: torchao is not installed; nothing measured", file=sys.stderr)
        return 0
    torch.set_num_threads(1)
    teach_inductor()
    report = Report(args.out)
    n = 1 << (16 if args.quick else 24)
    x = torch.randn(n // 4096, 4096, generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(x)
    for name, element, asked_encode, asked_decode in FORMATS:
        encode, runs_encode = compiled(lambda t, e=element: to_mx(t, e, 32), x)
        scales, codes = encode(x)
        decode, runs_decode = compiled(lambda d, s, e=element: to_dtype(d, s, e, 32, torch.float32), codes, scales)
        encoded = gs.mx.encode(x, name)
        assert torch.equal(codes.view(torch.uint8).reshape(encoded.codes.shape), encoded.codes), name
        assert torch.equal(scales.view(torch.uint8).reshape(encoded.scales.shape), encoded.scales), name
        assert torch.equal(decode(codes, scales).view(torch.int32), gs.mx.decode(encoded, name).view(torch.int32)), name
        times = measure(
            {
                "torchao encode": lambda: encode(x),
                "encode": lambda: gs.mx.encode(x, name, out=encoded),
                "torchao decode": lambda: decode(codes, scales),
                "decode": lambda: gs.mx.decode(encoded, name, out=out),
            },
            rounds=args.rounds,
            clock=time.process_time,
        )
        for way, how, asked in (("encode", runs_encode, asked_encode), ("decode", runs_decode, asked_decode)):
            report.add(
                bench="mx_torchao", format=name, way=way, elements=n, threads=1, torchao=torchao.__version__,
                torchao_runs=how, faster=ratio(times, f"torchao {way}", way), asked=asked,
            )  # fmt: skip
    report.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
