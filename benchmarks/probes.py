"""The thirteen probes of ``gemmsim.hardware``, answered by the model or by a GPU.

    python benchmarks/probes.py              what the model gives
    python benchmarks/probes.py --on cuda    what the GPU gives, through torch's own products (compute capability 9.0)

On a GPU there is no addend c of one instruction, so c goes in as the product of an earlier instruction of the same
chain: a dot of K + k elements whose first k hold c alone. A library may also split or reorder K, or use ``mma`` in
place of ``wgmma``: a probe that differs calls for a look at the kernel that ran, before the model is blamed.
Exit code 1 if an answer differs from what the model expects.
"""

from __future__ import annotations

import argparse
import math
import struct
import sys

import torch

from gemmsim import hardware
from gemmsim.hardware import Instruction, Probe

#: Rows and columns of the GPU's product: the least that every library takes. The probe sits in the first of each.
EDGE = 64
GPU_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
CODES = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32}


def named() -> dict[str, Probe]:
    """The probes by a name of their own: their number, which several may have, and a letter."""
    found: dict[str, Probe] = {}
    for probe in hardware.PROBES:
        letter = next(letter for letter in "abcdefgh" if f"{probe.number:02}{letter}" not in found)
        found[f"{probe.number:02}{letter}"] = probe
    return found


def on_model(probe: Probe) -> int:
    """The code of D by ``hardware.mma``."""
    row = hardware.instruction(probe.arch, probe.instruction)
    a, b, c = probe.codes()
    dtypes = [CODES[kind.width] for kind in row.operands]
    left, right = torch.tensor([a], dtype=dtypes[0]), torch.tensor([[code] for code in b], dtype=dtypes[1])
    d = hardware.mma(probe.arch, probe.instruction, left, right, torch.tensor([[c]], dtype=dtypes[2]))
    return int(d.to(torch.int64))


def c_as_product(probe: Probe, row: Instruction) -> tuple[int, int] | None:
    """Codes of two factors whose product is c, or None if the operand formats have none (or c is -0)."""
    if probe.c == 0:
        return None if math.copysign(1.0, probe.c) < 0 else (0, 0)
    significand, exponent = math.frexp(probe.c)
    try:
        half = exponent // 2
        kinds = row.operands
        return (
            kinds[0].storage.encode(math.ldexp(significand, half)),
            kinds[1].storage.encode(math.ldexp(1.0, exponent - half)),
        )
    except ValueError:
        return None


def on_cuda(probe: Probe) -> int | None:
    """The code of D by torch's product on the GPU, or None if torch cannot be made to ask this."""
    row = hardware.instruction(probe.arch, probe.instruction)
    factors = c_as_product(probe, row)
    if factors is None or row.a not in GPU_DTYPES or (row.d == "f16" and row.a != "f16"):
        return None
    a, b, _ = probe.codes()
    pad = [0] * (row.k - 1)
    left = gpu_operand([factors[0], *pad, *a], row.a)
    right = gpu_operand([factors[1], *pad, *b], row.b).t()  # column-major, as FP8 products want it
    if row.a in ("e4m3", "e5m2"):
        one = torch.ones((), device="cuda")
        d = torch._scaled_mm(left, right, one, one, out_dtype=torch.float32, use_fast_accum=True)
    elif row.d == "f16":
        d = torch.mm(left, right)
    else:
        d = torch.mm(left, right, out_dtype=torch.float32)
    value = d[0, 0].cpu()
    code = int(value.view(torch.int16 if value.dtype == torch.float16 else torch.int32))
    return code & ((1 << row.operands[3].width) - 1)


def gpu_operand(codes: list[int], name: str) -> torch.Tensor:
    """(EDGE, K) on the GPU: ``codes`` in the first row, +0 in the others."""
    dtype = GPU_DTYPES[name]
    raw = torch.zeros(EDGE, len(codes), dtype=torch.uint8 if dtype.itemsize == 1 else torch.int16)
    signed = codes if dtype.itemsize == 1 else [code - (code >> 15 << 16) for code in codes]
    raw[0] = torch.tensor(signed, dtype=raw.dtype)
    return raw.view(dtype).cuda()


def show(code: int, probe: Probe) -> str:
    """A code and its value."""
    width = hardware.instruction(probe.arch, probe.instruction).operands[3].width
    value = struct.unpack("<f" if width == 32 else "<e", code.to_bytes(width // 8, "little"))[0]
    return f"0x{code:0{width // 4}x} = {value!r}"


def main(argv: list[str] | None = None) -> int:
    """Prints one line per probe; 0 if all answers are as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--on", choices=("model", "cuda"), default="model")
    where = parser.parse_args(argv).on
    if where == "cuda" and not torch.cuda.is_available():
        parser.error("no GPU that torch can use; allowed: --on model")
    different = 0
    for probe in hardware.PROBES:
        code = on_model(probe) if where == "model" else on_cuda(probe)
        verdict = "not askable" if code is None else "as expected" if code == probe.expect else "DIFFERENT"
        different += verdict == "DIFFERENT"
        answer = "" if code is None else f": {show(code, probe)}"
        print(f"{probe.number:2} {verdict}{answer}  [{probe.instruction}; {probe.question}; else {probe.otherwise}]")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
