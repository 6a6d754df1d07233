"""Arithmetic that users write stands in a study's cells like ours."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from rich.table import Table

import gemmsim as gs
from gemmsim.arithmetic import constructors
from gemmsim.arithmetic.accumulator import forget
from gemmsim.study import Cell, Study, register, run


class Halving(gs.acc.Custom):
    """s = s / 2 + a * b"""

    def step(self, s, a, b, k):
        return s / 2 + a * b


class OwnStudy(Study):
    name = "test_own_arithmetic"
    title = "sums of ones"

    def cells(self):
        products = gs.acc.table([[0.0, 1.0, 2.0, 3.0]] * 4, "uint2", name="test_second_factor")
        specs = [":test_halving()", f":lookup({products}, fp32)", ":codebook(0,1,2)"]
        return [Cell(self.name, "ones", spec, 0, (), stochastic=False, macs=4) for spec in specs]

    def prepare(self, folder):
        return SimpleNamespace(fingerprint="ones")

    def evaluate(self, cell, inputs):
        return {"value": gs.qmatmul(torch.ones(1, 4), 2 * torch.ones(4, 1), cell.spec).item()}

    def table(self, rows):
        return Table("spec")

    def plot(self, rows, path):
        path.write_bytes(b"")


def test_a_study_runs_a_users_own_arithmetic(tmp_path):
    gs.acc.define("test_halving")(Halving)
    try:
        register(OwnStudy.name, OwnStudy)
        rows = run(OwnStudy.name, str(tmp_path)).rows
    finally:
        del constructors()["test_halving"]
        forget()
    assert [row["value"] for row in rows] == [2 * (1 + 0.5 + 0.25 + 0.125), 8.0, 2.0]
