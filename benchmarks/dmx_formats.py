"""Casts to d-Matrix's formats against copy_, into memory that is there, and against dmx-compressor where it is there.

Each reads and writes 4 bytes an element, as copy_ does, so the ratio is one of times. The bits of the first elements
are compared with the exact reference before anything is timed. ``cast`` rows are the facade's, which allocates: run
with MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 to have memory reused there too.
Of dmx-compressor its modules ``numerical.format``, ``numerical.onnx`` and ``quant`` are enough.
"""

from __future__ import annotations

import importlib.util

import torch
from harness import Report, measure, options

import gemmsim as gs
from gemmsim.compat import dmx
from gemmsim.reference import quantize_tensor

#: shorthand, least ratio to copy_, None where nothing is asked; least ratio to dmx-compressor.
FORMATS = [
    ("BFP[8|8]{64}(SN)", 0.5, 20),
    ("BFP[8|8]{16}(SN)", None, 20),
    ("BFP[8|8]{64}(_N)", None, 20),
    ("MXINT8{32}", None, 20),
    ("SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}", None, 20),
    ("SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{64}", None, 20),
    ("MXFP8[E4M3]{32}", None, 20),
    ("MXFP4[E2M1]{32}", None, 20),
    ("FP[1|4|3,7](_N)", None, None),
    ("FP[1|5|10,15](FN)", None, None),
    ("FP[1|4|3,7](_S)", None, None),
]


def check(x: torch.Tensor, name: str) -> None:
    """Assertion that the first elements have the reference's values."""
    part, fmt = x[:2048], dmx.Format.from_shorthand(name).operand
    got = gs.quantize(part, fmt, seed=1).double().tolist()
    assert got == quantize_tensor(part.tolist(), part.shape, fmt, gs.ops.derive_seed(1, 0)), name


def peer(name: str):
    """dmx-compressor's format, or None where it is not installed."""
    if importlib.util.find_spec("dmx") is None:
        return None
    from dmx.compressor.numerical.format import Format

    return Format.from_shorthand(name)


def main() -> None:
    args = options(__doc__ or "")
    torch.set_num_threads(1)
    report = Report(args.out)
    n = 1 << (16 if args.quick else 24)
    x = torch.randn(n // 4096, 4096, generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(x)
    for name, asked, times_peer in FORMATS:
        check(x.view(-1), name)
        fmt, theirs = dmx.Format.from_shorthand(name), peer(name)
        runs = {
            "copy_": lambda: out.copy_(x),
            "quantize": lambda target=fmt.operand: gs.quantize(x, target, out=out),
            "clone": lambda: x.clone(),
            "cast": lambda fmt=fmt: fmt.cast(x, -1),
        }
        if theirs is not None:
            runs["dmx"] = lambda theirs=theirs: theirs.cast(x, -1)
        times = measure(runs, rounds=args.rounds)
        ratios = sorted(a / b for a, b in zip(times["copy_"], times["quantize"], strict=True))
        middle = {key: sorted(found)[len(found) // 2] for key, found in times.items()}
        row = {"of_copy": ratios[len(ratios) // 2], "asked": asked, "cast_of_clone": middle["clone"] / middle["cast"]}
        if theirs is not None:
            row |= {"times_dmx": middle["dmx"] / middle["cast"], "asked_of_dmx": times_peer}
        speed = 8 * n / middle["quantize"] / 1e9
        report.add(bench="dmx", format=name, elements=n, threads=1, gbytes_per_s=speed, **row)
    report.close()


if __name__ == "__main__":
    main()
