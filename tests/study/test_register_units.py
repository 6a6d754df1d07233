"""Errors in units of the register: none where the register has no unit roundoff, and a word why."""

from __future__ import annotations

import numpy as np
import pytest

import gemmsim as gs
from gemmsim import study
from gemmsim.study.curves import unit_roundoff
from gemmsim.study.metrics import IN_UNITS, NO_UNIT


@pytest.mark.parametrize(
    ("spec", "unit"),
    [
        (":fp32", 2.0**-24),
        (":bf16", 2.0**-8),
        (":chunked(64, bf16, fp32)", 2.0**-8),
        (":exact(fp32)", 2.0**-24),
        ("int8 : chunked(2, int(18), fp32)", 2.0**-24),
        (":int(16)", None),
        ("int8 : chunked(2, int(18), fixed(24,0))", None),
        (":fixed(16,8)", None),
        (gs.acc.fixed(16, 4), None),
        (":posit(16,1)", None),
    ],
    ids=str,
)
def test_the_unit_roundoff_is_that_of_the_narrowest_floating_point_register(spec, unit):
    assert unit_roundoff(gs.GemmSpec.of(spec)) == unit


def test_rows_of_integer_registers_say_why_nothing_is_in_units(tmp_path):
    kind = study.kind("growth")(
        spec=["whole = int(16)", "half = fp16"], K="16,64", M=4, N=4, dist="integers(-99,99)", metric="bwd_err_u_mean"
    )
    rows = study.run(kind, tmp_path).rows
    for row in rows:
        left_out = row["label"] == "whole"
        assert all((row[name] is None) == left_out for name in IN_UNITS)
        assert row.get("no_unit_roundoff") == (NO_UNIT if left_out else None)
        assert row["rel_fro"] is not None
    table = " ".join((tmp_path / "table.txt").read_text().split())
    assert f"none of whole: {NO_UNIT}" in table


def test_tables_and_pictures_of_such_registers_alone(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(12.0).reshape(3, 4))
    np.save(tmp_path / "b.npy", np.arange(8.0).reshape(4, 2))
    files = {"a": str(tmp_path / "a.npy"), "b": str(tmp_path / "b.npy")}
    study.run(study.kind("gemm")(**files, spec=["int(16)"], metric="bwd_err_u_mean"), tmp_path / "gemm")
    table = " ".join((tmp_path / "gemm" / "table.txt").read_text().split())
    assert f"bwd_err_u_mean: none of int(16): {NO_UNIT}" in table and (tmp_path / "gemm" / "plot.svg").is_file()
    study.run(study.kind("gemm")(**files, spec=["fp32"]), tmp_path / "floats")
    assert NO_UNIT not in " ".join((tmp_path / "floats" / "table.txt").read_text().split())
    chunked = study.kind("chunk")(
        spec=["i = chunked({n}, int(16), fixed(24,0))", "h = chunked({n}, fp16)"],
        K="64",
        dist="integers(-9,9)",
        M=2,
        N=2,
    )
    assert study.run(chunked, tmp_path / "chunk").ok and (tmp_path / "chunk" / "plot.svg").is_file()
