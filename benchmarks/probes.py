"""The probes of ``gemmsim.hardware``, answered by the model or by a GPU.

    python benchmarks/probes.py                          what the model gives
    python benchmarks/probes.py --on cuda                what the GPU gives (most probes: compute capability 9.0)
    python benchmarks/probes.py --on cuda --undecided    what no recording has settled, on any GPU from Turing on

Probes of ``mma.sync`` are one instruction with its C, and the model is that of the GPU at hand. The others go through
torch's own products, where c goes in as the product of an earlier instruction of the same chain: a dot of K + k
elements whose first k hold c alone. A library may also split or reorder K, or use ``mma`` in place of ``wgmma``: a
probe that differs calls for a look at the kernel that ran, before the model is blamed.
Exit code 1 if an answer differs from what the model expects.
"""

from __future__ import annotations

import argparse
import math
import struct
import sys

import torch

from gemmsim import hardware
from gemmsim.backends import cuda
from gemmsim.hardware import Instruction, Probe
from gemmsim.hardware.devices import architecture_of

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


def on_model(probe: Probe, arch: str | None = None) -> int:
    """The code of D by ``hardware.mma``, of ``arch`` instead of the probe's own."""
    row = hardware.instruction(arch or probe.arch, probe.instruction)
    a, b, c = probe.codes()
    dtypes = [CODES[kind.width] for kind in row.operands]
    left, right = torch.tensor([a], dtype=dtypes[0]), torch.tensor([[code] for code in b], dtype=dtypes[1])
    d = hardware.mma(row.arch, row.name, left, right, torch.tensor([[c]], dtype=dtypes[2]))
    return int(d.to(torch.int64))


def by_one_instruction(probe: Probe) -> tuple[int, int] | None:
    """The codes of D by the GPU's own mma.sync and by the model of that GPU; None where it has no such row."""
    arch = architecture_of(torch.cuda.get_device_capability())
    rows = {} if arch is None else {row.name: row for row in hardware.instructions(arch)}
    row = rows.get(probe.instruction)
    if row is None:
        return None
    return cuda.one_mma(row, *probe.codes(), device=torch.cuda.current_device()), on_model(probe, arch)


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


def on_cuda(probe: Probe) -> tuple[int, int] | None:
    """The codes of D on the GPU and by the model, or None if this cannot be asked here."""
    if probe in hardware.UNDECIDED:
        return by_one_instruction(probe)
    code = by_torch(probe)
    return None if code is None else (code, probe.expect)


def by_torch(probe: Probe) -> int | None:
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


def answer_of(probe: Probe, where: str) -> tuple[str, int | None]:
    """How the answer stands to what the model expects, and its code."""
    found = (on_model(probe), probe.expect) if where == "model" else on_cuda(probe)
    if found is None:
        return "not askable", None
    return "as expected" if found[0] == found[1] else "DIFFERENT", found[0]


def main(argv: list[str] | None = None) -> int:
    """Prints one line per probe; 0 if all answers are as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--on", choices=("model", "cuda"), default="model")
    parser.add_argument("--undecided", action="store_true", help="only what no recording has settled")
    options = parser.parse_args(argv)
    where = options.on
    if where == "cuda" and not torch.cuda.is_available():
        parser.error("no GPU that torch can use; allowed: --on model")
    different = 0
    for probe in hardware.UNDECIDED if options.undecided else hardware.PROBES:
        verdict, code = answer_of(probe, where)
        different += verdict == "DIFFERENT"
        answer = "" if code is None else f": {show(code, probe)}"
        print(f"{probe.number:2} {verdict}{answer}  [{probe.instruction}; {probe.question}; else {probe.otherwise}]")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
