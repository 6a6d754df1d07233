"""Matrix products of block formats on the CPU, decoding included, as ratios to ``torch.mm`` of float32.

Asked of fp32 accumulation at 1024^3: 0.5. Before timing, a corner of each is compared bit for bit with the exact
reference.
"""

from __future__ import annotations

import torch
from harness import Report, measure, options

import gemmsim as gs
from gemmsim.reference import gemm

#: (format of both operands, accumulator, least ratio asked for)
CASES = [
    ("mxfp8_e4m3", "fp32", 0.5),
    ("mxfp4", "fp32", 0.5),
    ("nvfp4", "fp32", None),
    ("nvfp4/tensor", "fp32", None),
    ("mxfp8_e4m3", "chunked(32, fp32)", None),
    ("mxfp8_e4m3", "scaled(fp32)", None),
    ("mxfp8_e4m3", "scaled(fp32, n=2)", None),
    ("nvfp4/tensor", "scaled(fp32)", None),
    ("mxfp4", "scaled(e5m10, fp32)", None),
    ("mxfp8_e4m3", "hw(blackwell, mxf8f6f4, e4m3)", None),
    ("mxfp4", "hw(blackwell, mxf4, e2m1)", None),
    ("nvfp4", "hw(blackwell, mxf4nvf4, e2m1)", None),
    ("nvfp4/tensor", "hw(blackwell, mxf4nvf4, e2m1)", None),
]


def check(a: torch.Tensor, b: torch.Tensor, name: str, accumulator: str) -> None:
    """Assertion that a small product has the reference's bits."""
    x, y = a[:6, :96], b[:96, :6]
    want = torch.tensor(gemm(x, y, f"{name} : {accumulator}"), dtype=torch.float64).to(torch.float32)
    assert torch.equal(gs.qmatmul(x, y, f"{name} : {accumulator}"), want), (name, accumulator)


def main() -> None:
    args = options(__doc__ or "")
    report = Report(args.out)
    n = 128 if args.quick else 1024
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(n, n, generator=generator), torch.randn(n, n, generator=generator)
    for threads in sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(threads)
        for name, accumulator, asked in CASES:
            check(a, b, name, accumulator)
            left, right = gs.mx.encode(a, name), gs.mx.encode(b, name, dim=-2)

            def product(
                left: gs.mx.Encoded = left, right: gs.mx.Encoded = right, name: str = name, which: str = accumulator
            ) -> torch.Tensor:
                return gs.mx.matmul(left, right, which, a_format=name, b_format=name)

            runs = {"torch.mm": lambda: torch.mm(a, b), "mx.matmul": product}
            times = {key: sorted(found)[len(found) // 2] for key, found in measure(runs, rounds=args.rounds).items()}
            report.add(
                bench="mx_matmul", format=name, accumulator=accumulator, size=n, threads=threads,
                gmacs=n**3 / times["mx.matmul"] / 1e9, of_torch_mm=times["torch.mm"] / times["mx.matmul"], asked=asked,
            )  # fmt: skip
    report.close()


if __name__ == "__main__":
    main()
