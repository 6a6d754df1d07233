"""``gemmsim study run all`` runs what has checks, and its exit code is theirs; ``study report`` makes the page."""

from __future__ import annotations

import pytest
from study.counting_study import CountingStudy
from typer.testing import CliRunner

from gemmsim import study
from gemmsim.cli.app import app


def gemmsim(*args: str):
    return CliRunner().invoke(app, list(args))


class Checked(CountingStudy):
    """Six cells whose scores are 0.1 to 0.6, and what they should at most be."""

    def __init__(self, name: str, most: float, fails: str = "") -> None:
        super().__init__()
        self.name, self.most, self.fails = name, most, fails

    def prepare(self, folder):
        if self.fails:
            raise study.StudyError(self.fails)
        return super().prepare(folder)

    def expectations(self):
        return [study.Expectation((), "score", 0.0, self.most, "derived", "tenths")]


@pytest.fixture
def known(monkeypatch):
    """Makes these the studies there are."""

    def only(*studies):
        table = {each.name: (lambda each=each: each) for each in studies}
        monkeypatch.setattr(study.registry, "_STUDIES", table)
        monkeypatch.setattr(study.registry, "REPRODUCTIONS", {})

    return only


def test_all_runs_what_has_checks(known, tmp_path):
    first, second, without = Checked("first", 1.0), Checked("second", 1.0), CountingStudy()
    known(first, second, without)
    result = gemmsim("study", "run", "all", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "== first: pass; second: pass" in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]
    assert not without.computed and sum(second.computed.values()) == 6
    assert "6 reused" in gemmsim("study", "run", "all", "--out", str(tmp_path)).stdout


def test_a_failing_check_is_the_exit_code_and_stops_none(known, tmp_path):
    known(Checked("first", 0.5), Checked("second", 1.0))
    result = gemmsim("study", "run", "all", "--out", str(tmp_path))
    assert result.exit_code == 1 and "== first: fail; second: pass" in result.stdout


def test_a_study_that_cannot_run_stops_none(known, tmp_path):
    known(Checked("first", 1.0, fails="needs something"), Checked("second", 0.5))
    result = gemmsim("study", "run", "all", "--out", str(tmp_path))
    assert result.exit_code == 2 and "error: first: needs something" in result.stderr
    assert "== first: could not run; second: fail" in result.stdout


def test_dry_run_of_all_creates_nothing(known, tmp_path):
    known(Checked("first", 1.0), CountingStudy())
    result = gemmsim("study", "run", "all", "--out", str(tmp_path), "--dry-run")
    assert result.exit_code == 0 and "first: 6 cells" in result.stdout and "counting" not in result.stdout
    assert not list(tmp_path.iterdir())


def test_all_leaves_the_long_training_out():
    with_checks = [name for name in study.names() if study.get(name).expectations()]
    assert "language" not in with_checks and {"wang2018_fig3", "higham_mary_growth"} <= set(with_checks)


def test_report(known, tmp_path):
    known(Checked("first", 1.0), Checked("second", 0.5))
    gemmsim("study", "run", "all", "--out", str(tmp_path / "all"))
    result = gemmsim("study", "report", str(tmp_path / "all"), "--out", str(tmp_path / "r.html"))
    assert result.exit_code == 0 and result.stdout.strip() == str(tmp_path / "r.html")
    assert "1 of 2 checks fail" in (tmp_path / "r.html").read_text(encoding="utf-8")
    result = gemmsim("study", "report", str(tmp_path / "nowhere"), "--out", str(tmp_path / "q.html"))
    assert result.exit_code == 2 and "no results in" in result.stderr and not (tmp_path / "q.html").exists()
