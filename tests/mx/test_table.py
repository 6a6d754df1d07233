"""Tables and pictures of formats."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.fork import run_forked

import gemmsim as gs


@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp6_e3m2", "mxfp4", "mxint8", "e8m0", "fp16"])
def test_rows_are_the_codes_bit_by_bit(name):
    fmt = gs.formats.parse(name)
    single = getattr(fmt, "element", fmt)
    rows = gs.mx.format_table(name)
    assert [row["code"] for row in rows] == single.codes()
    for row in rows:
        assert int(row["s"] + row["e"] + row["m"], 2) == row["code"]
        assert row["value"] == single.decode(row["code"]) or row["value"] != row["value"]


def test_the_module_prints_the_table():
    code = "from gemmsim.mx.code_table import main; assert main(['nonsense']) == main([]) == 2; main(['mxfp4'])"
    assert run_forked(code).stdout.splitlines()[7] == "0x0007  0 11 1  6.0"


def test_wide_formats_are_refused(tmp_path):
    with pytest.raises(gs.FormatError, match="up to 16 bits"):
        gs.mx.format_table("fp32")
    pytest.importorskip("matplotlib")
    with pytest.raises(gs.FormatError, match="up to 8 bits"):
        gs.mx.plot_formats(["fp16"], tmp_path / "x.png")


def test_the_plot_is_a_png(tmp_path):
    pytest.importorskip("matplotlib")
    gs.mx.plot_formats(["mxfp4", "mxint8"], tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_line_shows_block_formats():
    done = subprocess.run(
        [sys.executable, "-m", "gemmsim.cli", "formats", "mxfp4", "--codes"], capture_output=True, text=True
    )
    assert done.returncode == 0 and "mxfp4: blocks of 32 e2m1 values" in done.stdout and "0x7" in done.stdout


def test_a_reader_that_stops_early_is_no_error():
    code = "python -m gemmsim.mx.code_table e5m10 | head -1"
    done = subprocess.run(["bash", "-c", code.replace("python", sys.executable, 1)], capture_output=True, text=True)
    assert done.stdout.startswith("0x0000") and done.stderr == ""
