"""Commands take a spec by place and as --spec."""

from __future__ import annotations

from typing import Any

import pytest


def told(*words: str) -> Any:
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from gemmsim.cli.app import app

    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize("words", [("explain",), ("trace", "--a", "1,2", "--b", "3,4")], ids=lambda words: words[0])
def test_commands_take_a_spec_by_place_and_by_name(words):
    command, *rest = words
    want, got = told(command, ":fp16", *rest), told(command, "--spec", ":fp16", *rest)
    assert want.exit_code == got.exit_code == 0 and want.output == got.output != ""
    both, none = told(command, ":fp16", "--spec", ":fp16", *rest), told(*words)
    assert both.exit_code == none.exit_code == 2
    assert "SPEC and --spec" in both.output and "neither SPEC nor --spec" in none.output


def test_studies_take_specs_by_both_flags():
    pytest.importorskip("typer")
    words = ("study", "run", "growth", "--K", "16", "--dist", "randn", "--dry-run", "--out", "o")
    now, before = told(*words, "--spec", "e5m10"), told(*words, "--acc", "e5m10")
    assert now.exit_code == before.exit_code == 0
    assert now.stdout == before.stdout and "e5m10" in now.stdout and now.stderr == ""
    assert before.stderr == "--acc is an older name of --spec. Write --spec.\n"
    listed = told("study", "run", "growth", "-h")
    assert "--spec <spec>..." in listed.output and "--acc" not in listed.output
