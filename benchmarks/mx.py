"""Conversions to and from block formats against copy_, in bytes moved a second, into memory that is already there.

copy_ reads and writes 4 bytes an element; a conversion moves 4 bytes, the codes and the scales. The ratio is of bytes
per second. The bits are compared with the exact reference before anything is timed.
"""

from __future__ import annotations

import torch
from harness import Report, measure, options

import gemmsim as gs
from gemmsim.formats import parse
from gemmsim.reference import decode_block, encode_block

#: block format, least ratio to copy_ (both ways), None where nothing is asked.
FORMATS = [
    ("mxfp8_e4m3", 0.6),
    ("mxfp8_e5m2", None),
    ("mxfp6_e3m2", None),
    ("mxint8", None),
    ("mxfp4", 0.4),
    ("nvfp4", None),
]


def check(x: torch.Tensor, name: str) -> None:
    """Assertion that the first blocks have the reference's codes and values."""
    fmt = parse(name)
    part = x[: 64 * fmt.block_size]
    encoded = gs.mx.encode(part, name, packing="bytes")
    values = gs.mx.decode(encoded, name, packing="bytes").view(-1, fmt.block_size)
    for row, block in enumerate(part.view(-1, fmt.block_size).tolist()):
        codes, scale = encode_block(block, fmt)
        at = slice(row * fmt.block_size, (row + 1) * fmt.block_size)
        assert encoded.codes[at].tolist() == codes and encoded.scales[row].item() == scale, name
        assert values[row].tolist() == decode_block(codes, scale, fmt), name


def main() -> None:
    args = options(__doc__ or "")
    torch.set_num_threads(1)
    report = Report(args.out)
    n = 1 << (16 if args.quick else 24)
    x = torch.randn(n, generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(x)
    for name, asked in FORMATS:
        check(x, name)
        encoded = gs.mx.encode(x, name)
        moved = 4 * n + encoded.codes.numel() + encoded.scales.numel()
        runs = {
            "copy_": lambda: out.copy_(x),
            "encode": lambda: gs.mx.encode(x, name, out=encoded),
            "decode": lambda: gs.mx.decode(encoded, name, out=out),
            "quantize": lambda: gs.mx.quantize(x, name, out=out),
        }
        times = {key: sorted(found)[len(found) // 2] for key, found in measure(runs, rounds=args.rounds).items()}
        copied = 8 * n / times["copy_"]
        for way, size in (("encode", moved), ("decode", moved), ("quantize", 8 * n)):
            speed = size / times[way]
            report.add(
                bench="mx", format=name, way=way, elements=n, threads=1, gbytes_per_s=speed / 1e9,
                of_copy=speed / copied, asked=None if way == "quantize" else asked,
            )  # fmt: skip
    report.close()


if __name__ == "__main__":
    main()
