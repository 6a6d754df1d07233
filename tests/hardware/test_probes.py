"""The probes, as the model answers them: by ``mma`` and by the fractions of ``trace``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from support import ROOT

from gemmsim import hardware

DTYPES = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32, 64: torch.uint64}


def answer(arch: str, name: str, a: list[int], b: list[int], c: int) -> int:
    kinds = hardware.instruction(arch, name).operands
    dtypes = [DTYPES[kind.width] for kind in kinds]
    return int(
        hardware.mma(
            arch,
            name,
            torch.tensor([a], dtype=dtypes[0]),
            torch.tensor([[code] for code in b], dtype=dtypes[1]),
            torch.tensor([[c]], dtype=dtypes[2]),
        ).to(torch.int64)
    )


@pytest.mark.parametrize("probe", hardware.PROBES, ids=lambda probe: f"{probe.number}-{probe.question}")
def test_the_model_answers_as_the_sheet_says(probe):
    a, b, c = probe.codes()
    assert answer(probe.arch, probe.instruction, a, b, c) == probe.expect
    assert hardware.trace(hardware.instruction(probe.arch, probe.instruction), a, b, c).result == probe.expect


def test_all_are_there():
    assert sorted({probe.number for probe in hardware.PROBES}) == list(range(1, 17))
    assert {probe.number for probe in hardware.UNDECIDED} == {9, 14, 15, 16}


def test_the_undecided_ones_tell_rules_apart():
    """Each has an outcome of its own under the rule that it asks about: the neighbours' rules give another."""
    turing = next(probe for probe in hardware.UNDECIDED if probe.number == 15)
    f16 = "mma.m16n8k8.f32.f16.f16.f32"
    a, b, c = turing.codes()
    assert answer("turing", f16, [*a, 0, 0, 0, 0], [*b, 0, 0, 0, 0], c) == 0x33800000 != turing.expect
    for probe in hardware.UNDECIDED:
        if probe.number == 16:
            blackwell = answer("rtx_blackwell", probe.instruction, *probe.codes())
            assert blackwell != probe.expect or probe.instruction.startswith("mma.m16n8k32.f16")


def test_probe_10_tells_hopper_from_ampere():
    probe = next(probe for probe in hardware.PROBES if probe.number == 10)
    assert answer("ampere", probe.instruction, *probe.codes()) == 0 != probe.expect


def test_the_script_runs_them_all():
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "probes.py")], capture_output=True, text=True, cwd=ROOT, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as expected") == len(hardware.PROBES)


#: Small sums whose outcomes tell published rules apart: (architecture, instruction, terms, c, what the model gives).
RULES = {
    "a zero of binary16 has no exponent, and the largest counts as -21": ("hopper", "mma.m16n8k16.f16.f16.f16.f16", [(2.0**-12, 2.0**-13), (2.0**-23, 2.0**-24)], 0.0, 0.0),
    "a zero times 2^100 has no exponent": ("hopper", "mma.m16n8k16.f32.bf16.bf16.f32", [(0.0, 2.0**100)], 2.0**-60, 2.0**-60),
    "a zero c of binary32 has no exponent, and the largest counts as -133": ("hopper", "mma.m16n8k16.f32.bf16.bf16.f32", [(2.0**-76, 2.0**-76)] * 8, 0.0, 2.0**-149),
    "CDNA1 sums four products and c exactly": ("cdna1", "mfma.f32_32x32x4f16", [(2.0**12, 2.0**13), (0.5, 0.5), (-(2.0**12), 2.0**13)], 0.0, 0.25),
    "CDNA2 rounds each sum": ("cdna2", "mfma.f32_32x32x4f16", [(2.0**12, 2.0**13), (0.5, 0.5), (-(2.0**12), 2.0**13)], 0.0, 0.0),
    "CDNA3's zero products have no exponent": ("cdna3", "mfma.f32_32x32x8_bf16", [(0.0, 2.0**100)], 2.0**-60, 2.0**-60),
    "CDNA3's zero c has that of subnormals": ("cdna3", "mfma.f32_32x32x8_bf16", [(2.0**-75, 2.0**-75), (-(2.0**-80), 2.0**-80)], 0.0, 0.0),
    "Turing's m8n8k4 keeps 23 bits": ("turing", "mma.m8n8k4.f32.f16.f16.f32", [(-1.0, 1.0), (2.0**-12, 2.0**-12)], 1.0, 0.0),
    "Turing's m16n8k8 keeps 24 bits": ("turing", "mma.m16n8k8.f32.f16.f16.f32", [(-1.0, 1.0), (2.0**-12, 2.0**-12)], 1.0, 2.0**-24),
    "a subnormal binary16 c aligns at -14": ("hopper", "mma.m16n8k16.f16.f16.f16.f16", [(2.0**-12, 2.0**-13), (2.0**-20, 2.0**-21)], 2.0**-23, 2.0**-23),
    "FP8 by mma.sync adds c last": ("hopper", "mma.m16n8k32.f32.e4m3.e4m3.f32", [(1.0, 1.0)], 1.5 * 2.0**-24, 1.0 + 2.0**-23),
    "FP8 by wgmma cuts c with the products": ("hopper", "wgmma.m64n8k32.f32.e4m3.e4m3", [(1.0, 1.0)], 1.5 * 2.0**-24, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_rules_that_sources_have_otherwise(name):
    arch, instruction, terms, c, want = RULES[name]
    row = hardware.instruction(arch, instruction)
    a_kind, b_kind, c_kind, d_kind = row.operands
    a = [a_kind.storage.encode(x) for x, _ in terms] + [0] * (row.k - len(terms))
    b = [b_kind.storage.encode(y) for _, y in terms] + [0] * (row.k - len(terms))
    start = c_kind.storage.encode(c)
    assert d_kind.storage.decode(answer(arch, instruction, a, b, start)) == want
    assert d_kind.storage.decode(hardware.trace(row, a, b, start).result) == want
