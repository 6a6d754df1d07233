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
