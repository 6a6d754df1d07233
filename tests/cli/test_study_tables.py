"""Tables of studies: no wider than COLUMNS, nothing cut off, each citation once."""

from __future__ import annotations

import re

import pytest
from rich.table import Table
from typer.testing import CliRunner

from gemmsim import study
from gemmsim.cli.app import app
from gemmsim.cli.study_tables import show_study_table


def lines(text: str) -> list[str]:
    """Those of tables and citations; sentences are not folded."""
    return [line for line in text.splitlines() if re.match(r"[┏┃┡│└]|\[\d+\]|   ", line)]


def drawn(capsys, monkeypatch, table: object, columns: int) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    show_study_table(table)
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = str(tmp_path_factory.mktemp("swamping"))
    assert CliRunner().invoke(app, ["study", "run", "swamping", "--out", out]).exit_code == 0
    return out


@pytest.mark.parametrize("columns", [None, 60, 120])
def test_no_line_of_a_run_is_wider_than_the_columns(folder, columns):
    env = {"COLUMNS": None if columns is None else str(columns)}
    result = CliRunner(env=env).invoke(app, ["study", "run", "swamping", "--out", folder])
    assert result.exit_code == 0 and max(map(len, lines(result.stdout))) <= (columns or 80)
    assert "…" not in result.stdout


@pytest.mark.parametrize("command", [("run",), ("show",)])
def test_each_citation_stands_once_below_the_table(folder, command):
    words = ["study", *command, "swamping", *(["--out", folder] if command == ("run",) else [])]
    text = " ".join(CliRunner(env={"COLUMNS": "80"}).invoke(app, words).stdout.split())
    below = text[text.rindex("┘") :]
    parts = {part for entry in study.get("swamping").expectations() for part in entry.place.split("; ")}
    for number, part in enumerate(sorted(parts, key=below.index), 1):
        assert text.count(part) == 1 and f"[{number}] {part}" in below
    assert re.search(r"\[1(, \d+)*\]", text[: text.rindex("┘")])


def wide() -> Table:
    table = Table(title="a title", caption="a caption")
    table.add_column("accumulator")
    for at in range(30):
        table.add_column(f"K = {2**at}", justify="right")
    for row in range(3):
        table.add_row(f"name{row}[bold]", *(f"{row}.{at:04}" for at in range(30)))
    return table


@pytest.mark.parametrize("columns", [40, 80, 200, 2000])
def test_a_wide_table_becomes_several_with_the_same_first_column(capsys, monkeypatch, columns):
    text = drawn(capsys, monkeypatch, wide(), columns)
    assert max(map(len, text.splitlines())) <= columns and "…" not in text
    words = re.findall(r"[\w.\[\]]+", text)
    for row in range(3):
        assert words.count(f"name{row}[bold]") == text.count("┏") and all(f"{row}.{at:04}" in words for at in range(30))
    assert text.count("a title") == 1 and text.count("a caption") == 1
    assert (text.count("┏") > 1) is (columns < 2000)


def test_long_names_are_folded_not_cut(capsys, monkeypatch):
    table = Table()
    table.add_column("spec")
    table.add_column("error", justify="right")
    spec = "chunked(16,sequential(e4m7b5/rtz/sat/ftz,mul=e4m7b7/rtz/sat/ftz))" * 2
    table.add_row(spec, "0.125")
    text = drawn(capsys, monkeypatch, table, 60)
    assert max(map(len, text.splitlines())) <= 60 and "0.125" in text
    assert "".join(line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")) == spec


def test_what_is_no_table_is_printed(capsys, monkeypatch):
    assert drawn(capsys, monkeypatch, "plain [bold] words", 40) == "plain [bold] words\n"
