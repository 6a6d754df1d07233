"""What instructions alone would allow: those of a method for each vector of MACs, times what the processor can issue.

    python benchmarks/limits.py [--only TEXT] [--quick] [--out FILE]

counts what AVX2 executes for every class of kernel, by valgrind, and puts it beside its method's instructions and the
limit that these set (limits_avx2.py). AVX-512's methods are in limits_avx512.py; valgrind knows none of its
instructions. 64-bit Arm's loops are counted in the machine code (limits_aarch64.py). Loads, loop control, copies and
spills are the distance to the method.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import limits_avx2
import limits_avx512
from counted import counted, is_counting, start
from harness import Report

from gemmsim import GemmSpec
from gemmsim.backends.cpu import Kernels

__all__ = ["clock_ghz", "limit_gmacs"]

#: Vector instructions a cycle of 256 bits (AVX2): of any kind, multiplications alone.
VECTOR_WIDTH, FMA_WIDTH = limits_avx512.VECTOR_WIDTH, limits_avx512.FMA_WIDTH


def limit_gmacs(isa: str, spec: GemmSpec, run: Kernels, k: int, ghz: float | None) -> float | None:
    """GMAC/s at which what the method counts issues without a gap; None where count or clock is unknown.

    ``run``: what ran, in vectors of 512 bits (``isa`` "avx512", "avx512fp16") or, for specs of limits_avx2.py, 256
    ("avx2").
    """
    if ghz is None:
        return None
    if isa == "avx2":
        row = limits_avx2.method_of(spec.key)
        return None if row is None else 8 * _width(row) * ghz / row.method
    found = limits_avx512.instructions(spec.accumulator, run, k) if isa.startswith("avx512") else None
    if found is None:
        return None
    per, width = found
    kernel = run.names[0]
    one_by_one = kernel in limits_avx512.SCALAR_KERNELS
    lanes = 1 if one_by_one else next((n for name, n in {"float64": 8, "binary16": 32}.items() if name in kernel), 16)
    return lanes * width * ghz / per


def _width(row: limits_avx2.Row) -> int:
    return FMA_WIDTH if row.only_multiplies else VECTOR_WIDTH


_CHAIN = """
#include <stdio.h>
#include <time.h>
int main(void) {
    unsigned long x = 3, n = 40000000;
    clock_t start = clock();
    for (unsigned long i = 0; i < n; ++i)
        __asm__ volatile("imul %0, %0\\n imul %0, %0\\n imul %0, %0\\n imul %0, %0" : "+r"(x));
    printf("%.6f\\n", 4e-9 * 3 * n / ((double)(clock() - start) / CLOCKS_PER_SEC));
    return 0;
}
"""


def clock_ghz() -> float | None:
    """The clock at which a chain of dependent multiplications (three cycles each on x86) runs; None without a compiler
    or on another machine, with a note on standard error."""
    compiler = shutil.which("cc")
    if compiler is None:
        print("no limits: measuring the clock needs a C compiler", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "chain.c", Path(folder) / "chain"
        source.write_text(_CHAIN)
        built = subprocess.run([compiler, "-O2", "-o", str(program), str(source)], capture_output=True)
        if built.returncode:
            print("no limits: the clock is measured on x86 only", file=sys.stderr)
            return None
        run = [str(program)]
        return max(float(subprocess.run(run, capture_output=True, text=True, check=True).stdout) for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser(description="AVX2: instructions counted beside those of methods")
    parser.add_argument("--only", default="", help="rows whose class or text has this in it")
    parser.add_argument("--quick", action="store_true", help="the first row alone: does it run at all")
    parser.add_argument("--out", help="file for the JSON lines (default: standard output)")
    args = parser.parse_args()
    if not is_counting():
        with tempfile.TemporaryDirectory() as folder:
            start(str(Path(__file__)), Path(folder), *sys.argv[1:])
        return
    import torch

    torch.set_num_threads(1)
    report = Report(args.out)
    for row, count, ran in limits_avx2.Counting(counted).rows(args.only):
        # plain multiply-adds go two a cycle: a vector's share of them
        share = _width(row) / FMA_WIDTH / row.method if ":" in row.text else None
        report.add(
            bench="limits", kind=row.kind, what=row.text, operands=row.operands or "fp32",
            counted=count, method=row.method, limit_of_fma=share, ran=ran,
        )  # fmt: skip
        if args.quick:
            break
    report.close()


if __name__ == "__main__":
    main()
