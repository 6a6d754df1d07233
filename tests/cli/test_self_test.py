"""``gemmsim env --check``: it passes here, reaches every kind of kernel, and says what is wrong where something is."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim.backends import cpu
from gemmsim.cli import self_test
from gemmsim.cli.app import app

KINDS = ("native", "round", "round+subnormals", "round+saturate", "round+overflow", "round+flush", "any mode", "stochastic",
         "directed", "directed+overflow", "fma", "fma to odd", "mul, add", "mul, add to odd", "float32 lanes", "float64 lanes",
         "scalar", "speculative", "short runs", "matrix unit")  # fmt: skip


def test_it_passes_on_this_machine():
    done = CliRunner().invoke(app, ["env", "--check"])
    assert done.exit_code == 0, done.output
    assert "all bits equal" in done.output and cpu.isa() in done.output and "cpu instruction set" in done.output


def test_products_reach_every_kind_of_kernel():
    ran = ""
    for case in self_test.cases():
        if case.name.startswith("product"):
            case.run()
            ran += f"; {gs.last_backend()}"
    assert not [kind for kind in KINDS if kind not in ran]


@pytest.mark.parametrize("what", ["the reference", "each other"])
def test_a_difference_is_named_and_the_exit_code_tells(monkeypatch, what):
    case = next(self_test.cases())
    sets = self_test.instruction_sets()
    if what == "the reference":
        case = dataclasses.replace(case, expect=lambda: torch.zeros(self_test.CORNER))
    elif len(sets) < 2:
        pytest.skip("needs two instruction sets")
    else:
        case = dataclasses.replace(
            case,
            run=lambda run=case.run: (
                run() + (cpu.isa() == sets[0]) * torch.eye(27, 37)[:, [*range(27, 37), *range(27)]]
            ),
        )
    monkeypatch.setattr(self_test, "cases", lambda: iter([case]))
    done = CliRunner().invoke(app, ["env", "--check"])
    assert done.exit_code == 1 and case.name in done.output and "report" in done.output
    assert ("differs from the reference" in done.output) == (what == "the reference")
    assert cpu.isa() == sets[0]
