"""Scaled casts against copy_, into memory that is already there, one thread.

copy_ and every cast here read and write 4 bytes an element, so a ratio of times is one of bytes a second. The bits are
compared with the exact reference (in parts) and with the arithmetic written out in tensor operations (in full) before
anything is timed. With nvidia-modelopt importable its functions are timed beside, allocating as they do; "clone" shows
what allocating alone costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from harness import Report, measure, options, ratio

from gemmsim import tensor_quant as tq
from gemmsim.reference import scaled_element, scaled_integer
from gemmsim.tensor_quant import torch_fallback
from gemmsim.tensor_quant.grids import ELEMENTS, IntegerGrid

Call = Callable[[], torch.Tensor]

#: name, least ratio to copy_ (None: nothing asked), the call, the same written out.
Row = tuple[str, float | None, Call, Call]
INT8 = IntegerGrid(8)


def rows(x: torch.Tensor, out: torch.Tensor) -> list[Row]:
    side = 1 << (x.numel().bit_length() // 2)
    m, o = x.view(-1, side), out.view(-1, side)
    amax, channel, column = x.abs().amax(), m.abs().amax(1, keepdim=True), m.abs().amax(0, keepdim=True)
    b, bo = x.view(-1, 32), out.view(-1, 32)
    block = b.abs().amax(1, keepdim=True)
    fake, e4m3, dynamic = tq.fake_tensor_quant, tq.scaled_e4m3, tq.dynamic_block_quant
    return [
        ("int8 per tensor", 0.8, lambda: fake(x, amax, out=out), lambda: torch_fallback.fake_quantize(x, amax, INT8)),
        (
            "int8 per channel",
            0.7,
            lambda: fake(m, channel, out=o),
            lambda: torch_fallback.fake_quantize(m, channel, INT8),
        ),
        ("int8 last axis", None, lambda: fake(m, column, out=o), lambda: torch_fallback.fake_quantize(m, column, INT8)),
        (
            "int8 block 32 static",
            None,
            lambda: fake(b, block, out=bo),
            lambda: torch_fallback.fake_quantize(b, block, INT8),
        ),
        (
            "int8 block 32 dynamic",
            0.5,
            lambda: dynamic(x, 32, None, None, 8, None, out=out),
            lambda: torch_fallback.blocks(x, INT8, 32, "amax", None),
        ),
        (
            "e4m3 per tensor",
            0.8,
            lambda: e4m3(x, amax, 4, 3, out=out),
            lambda: torch_fallback.fake_quantize(x, amax, ELEMENTS[4, 3]),
        ),
        (
            "mxfp8 block 32",
            None,
            lambda: dynamic(x, 32, out=out),
            lambda: torch_fallback.blocks(x, ELEMENTS[4, 3], 32, "e8m0", None),
        ),
        (
            "nvfp4 block 16",
            None,
            lambda: dynamic(x, 16, amax, None, (2, 1), (4, 3), out=out),
            lambda: torch_fallback.blocks(x, ELEMENTS[2, 1], 16, "e4m3", amax),
        ),
    ]


def check(x: torch.Tensor, table: list[Row]) -> None:
    """Assertion that every row has the bits of the tensor operations, and those the bits of the reference."""
    for name, _, call, written in table:
        assert torch.equal(call().flatten(), written().flatten()), name
    part, amax = x[:500], float(x.abs().amax())
    assert tq.fake_tensor_quant(part, amax).tolist() == [scaled_integer(v, amax)[0] for v in part.tolist()]
    assert tq.scaled_e4m3(part, amax, 4, 3).tolist() == [scaled_element(v, amax) for v in part.tolist()]


def competitors(x: torch.Tensor) -> dict[str, Call]:
    """ModelOpt's functions, by our row's name, where it is installed."""
    try:
        from modelopt.torch.quantization import tensor_quant as theirs
    except ImportError:
        return {}
    amax = x.abs().amax()
    return {
        "int8 per tensor": lambda: theirs.fake_tensor_quant(x, amax, None, 8, False, True),
        "e4m3 per tensor": lambda: theirs.scaled_e4m3(x, amax, None, 4, 3),
    }


def main() -> None:
    args = options(__doc__ or "")
    torch.set_num_threads(1)
    report = Report(args.out)
    n = 1 << (16 if args.quick else 24)
    x = torch.randn(n, generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(x)
    table, others = rows(x, out), competitors(x)
    check(x, table)
    runs: dict[str, Callable[[], object]] = {"copy_": lambda: out.copy_(x), "clone": x.clone}
    runs |= {name: call for name, _, call, _ in table}
    times = measure(runs, rounds=args.rounds, clock=time.process_time)
    report.add(bench="tensor_quant", cast="clone", elements=n, threads=1, of_copy=ratio(times, "copy_", "clone"))
    for name, asked, _, _ in table:
        middle = sorted(times[name])[len(times[name]) // 2]
        report.add(
            bench="tensor_quant", cast=name, elements=n, threads=1, gbytes_per_s=8 * n / middle / 1e9,
            of_copy=ratio(times, "copy_", name), asked=asked,
        )  # fmt: skip
    for name, call in others.items():
        pair = measure(
            {"modelopt": call, "gemmsim": runs[name]}, rounds=max(args.rounds // 3, 3), clock=time.process_time
        )
        report.add(
            bench="tensor_quant", cast=name, elements=n, threads=1, of_modelopt=ratio(pair, "modelopt", "gemmsim")
        )
    report.close()


if __name__ == "__main__":
    main()
