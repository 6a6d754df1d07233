"""Finished rows survive whatever ends a run: SIGKILL at any moment, a full disk, a folder that became read-only, a rival."""

from __future__ import annotations

import json
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from support import ROOT
from support.fork import run_forked

from gemmsim import study
from gemmsim.study import store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks after importing PyTorch")

#: A study of many cells that cost nothing, so that a run does little but write. Each cell is logged before it is computed.
QUICK = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import os, random, resource, signal, time
from pathlib import Path
from study.counting_study import CountingStudy
from gemmsim import study
from gemmsim.study import Cell
# Found before a process that may read little asks for it.
study.registry.get("higham_mary_growth").cells()
import importlib.metadata
importlib.metadata.version("torch")

class Quick(CountingStudy):
    name = "quick"
    log = None
    def cells(self):
        return [Cell(self.name, "setting", "", i, (("trailing", i), ("blank", "x" * 300))) for i in range(2000)]
    def evaluate(self, cell, context):
        if self.log is not None:
            os.write(self.log, (cell.key + "\\n").encode())
        return super().evaluate(cell, context)
    def table(self, rows):
        return f"{{len(rows)}} rows"

def said(out, what):
    try:
        what()
    except study.StudyError as error:
        out.write_text(str(error))
        os._exit(2)
    os._exit(0)
"""


def program(body: str, folder: Path, timeout: float = 120) -> str:
    done = run_forked(QUICK + body, cwd=folder, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def whole(path: Path) -> bytes:
    """The bytes of the lines that are complete."""
    return path.read_bytes().rpartition(b"\n")[0] + b"\n" if path.is_file() and b"\n" in path.read_bytes() else b""


KILLS = """
points = random.Random(19)
out, log = Path("out"), os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
before, killed, deepest = b"", 0, 0
while killed < 50:
    if os.path.exists(out / "verdicts.json"):
        print("finished", len(before.splitlines()))
        os.rename(out, f"full{killed}")
        before = b""
    os.truncate("log", 0)
    child = os.fork()
    if child == 0:
        quick = Quick()
        quick.log = log
        if killed % 2:
            study.store.WRITE_EVERY = 0.0
        study.run(quick, out)
        os._exit(0)
    # By rows, not by seconds, so that a busy machine kills at as many points; 0 is while the run is prepared.
    wanted, ended = 17 * points.choice([0, *range(1, 40)]), 0
    while os.path.getsize("log") < wanted and not ended:
        time.sleep(0.0005)
        ended = os.waitpid(child, os.WNOHANG)[0]
    time.sleep(points.uniform(0.0, 0.005))
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    killed += 1  # so that odd ones had their rows written together
    path = out / "results.jsonl"
    data = path.read_bytes() if path.exists() else b""
    complete = data[: data.rfind(b"\\n") + 1]
    assert complete.startswith(before), "bytes of finished rows changed"
    rows = study.store.read_rows(out)
    assert not rows[1], rows[1]
    keys = [line.split(b'"cell": "')[1][:16].decode() for line in complete.splitlines()]
    assert len(set(keys)) == len(keys) == len(rows[0]), "a row twice"
    # The next cell begins when the last one is stored, or waits for those that follow within a moment.
    begun = Path("log").read_text().split()
    kept = [key in set(keys) for key in begun]
    lost = kept.count(False)
    assert not any(kept[len(kept) - lost:]), "lost rows before stored ones"
    assert killed % 2 or lost <= 1, f"lost {lost} rows"
    print(len(keys), len(data) - len(complete), lost)
    before = complete
"""


def test_fifty_kills_repeat_no_row_change_none_and_lose_only_what_waited_to_be_written(tmp_path):
    points = [tuple(map(int, line.split())) for line in program(KILLS, tmp_path, 240).splitlines() if line[0].isdigit()]
    assert len(points) == 50
    assert len({rows for rows, *_ in points}) > 20, "killed at different points"
    assert any(lost > 1 for *_, lost in points), "killed while rows waited"


def test_a_folder_that_was_killed_at_any_byte_is_completed(tmp_path):
    """The lengths of a last line that a kill may leave, not only those that it happened to."""
    summary = study.run(study.kind("growth")(spec="e5m10", K="4", M=2, N=2, dist="randn", seeds=3), tmp_path / "whole")
    data = (tmp_path / "whole" / "results.jsonl").read_bytes()
    lines = data.splitlines(keepends=True)
    for cut in [1, 2, *range(3, len(lines[2]), 23), len(lines[2])]:
        folder = tmp_path / "cut"
        folder.mkdir()
        (folder / "results.jsonl").write_bytes(data[: len(data) - cut])
        with store.ResultStore(folder) as opened:
            assert len(opened) == 2 and not opened.problems
            opened.add(summary.rows[2])
        assert (folder / "results.jsonl").read_bytes() == data, cut
        shutil.rmtree(folder)


def test_rows_wait_for_those_of_the_same_moment_and_no_longer(tmp_path, monkeypatch):
    rows = study.run(
        study.kind("growth")(spec="e5m10", K="4", M=2, N=2, dist="randn", seeds=4), tmp_path / "whole"
    ).rows
    lines = (tmp_path / "whole" / "results.jsonl").read_bytes().splitlines(keepends=True)
    now = [0.0]
    monkeypatch.setattr(store.time, "monotonic", lambda: now[0])
    with store.ResultStore(tmp_path / "out") as opened:
        for at, row, there in ((0.12, rows[0], 0), (0.26, rows[1], 2), (0.5, rows[2], 2)):
            now[0] = at
            opened.add(row)
            path = tmp_path / "out" / "results.jsonl"
            assert len(path.read_bytes().splitlines() if path.exists() else []) == there
        assert len(opened) == 3 and path.read_bytes() == b"".join(lines[:3]), "asked for, rows are written"
        opened.add(rows[3])
    assert path.read_bytes() == b"".join(lines)


def test_of_rows_written_together_those_that_fit_are_kept(tmp_path):
    program(FULL_AT_ONCE, tmp_path)
    assert "File too large. Finished cells are safe" in (tmp_path / "said").read_text()
    path = tmp_path / "out" / "results.jsonl"
    assert path.read_bytes().endswith(b"\n") and len(study.load_rows(tmp_path / "out")) == 2


FULL_AT_ONCE = """
study.run(Quick(), "whole", limit=5)
rows = study.load_rows("whole")
size = os.path.getsize("whole/results.jsonl")

def add():
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
    with study.store.ResultStore("out") as opened:
        for row in rows:
            opened.add(row)

child = os.fork()
if child == 0:
    said(Path("said"), add)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
"""

FULL = """
study.run(Quick(), "out", limit=20)
child = os.fork()
if child == 0:
    size = os.path.getsize("out/results.jsonl")
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2500, size + 2500))
    said(Path("said"), lambda: study.run(Quick(), "out"))
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert status == 2, status
"""


def test_a_full_disk_is_told_and_finished_rows_are_whole(tmp_path):
    program(FULL, tmp_path)
    assert "results.jsonl': File too large. Finished cells are safe" in (tmp_path / "said").read_text()
    path = tmp_path / "out" / "results.jsonl"
    before = path.read_bytes()
    assert before.endswith(b"\n") and 20 < len(before.splitlines()) < 30
    assert len(study.load_rows(tmp_path / "out")) == len(before.splitlines())
    program('assert study.run(Quick(), "out", limit=5).problems == []', tmp_path)
    after = path.read_bytes()
    assert after.startswith(before) and len(after.splitlines()) == len(before.splitlines()) + 5


REPORT_FULL = """
child = os.fork()
if child == 0:
    class Pictured(Quick):
        def plot(self, rows, path):
            path.write_bytes(bytes(1 << 20))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))
    said(Path("said"), lambda: study.run(Pictured(), "out", limit=20))
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert status == 2, status
"""


def test_a_disk_that_is_full_when_the_picture_is_drawn_is_told(tmp_path):
    program(REPORT_FULL, tmp_path)
    assert "plot.png': File too large. Finished cells are safe" in (tmp_path / "said").read_text()
    assert len(study.load_rows(tmp_path / "out")) == 20


READ_ONLY = """
study.run(Quick(), "out", limit=5)
out = Path("out")
for path in [*out.iterdir(), out]:
    path.chmod(0o555 if path.is_dir() else 0o444)
child = os.fork()
if child == 0:
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    said_at = os.open("said", os.O_WRONLY)
    try:
        study.run(Quick(), "out")
    except study.StudyError as error:
        os.write(said_at, str(error).encode())
        os._exit(2)
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert status == 2, status
"""


def test_a_read_only_folder_is_told(tmp_path):
    """As root, whom no permission stops, the run is made by another user."""
    folder = Path(tempfile.mkdtemp(prefix="gemmsim_"))  # pytest's own are closed to others
    try:
        folder.chmod(0o755)
        (folder / "said").touch()
        (folder / "said").chmod(0o666)
        program(READ_ONLY, folder)
        text = (folder / "said").read_text()
        assert "cannot write" in text and "Permission denied" in text and "--out" in text
        assert len(study.load_rows(folder / "out")) == 5
    finally:
        (folder / "out").chmod(stat.S_IRWXU)
        shutil.rmtree(folder)


RIVALS = """
class Slow(Quick):
    def evaluate(self, cell, context):
        Path("begun").touch()
        time.sleep(60)
child = os.fork()
if child == 0:
    study.run(Slow(), "out")
while not os.path.exists("begun"):
    time.sleep(0.01)
second = os.fork()
if second == 0:
    said(Path("said"), lambda: study.run(Quick(), "out", limit=1))
status = os.waitstatus_to_exitcode(os.waitpid(second, 0)[1])
assert status == 2, status
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
assert study.run(Quick(), "out", limit=1).computed == 1
"""


def test_a_second_writer_is_refused_until_the_first_is_gone(tmp_path):
    program(RIVALS, tmp_path)
    assert "another run is writing" in (tmp_path / "said").read_text()


ORPHANS = """
sys.path.insert(0, {tests!r})
from study.dying_study import DyingStudy
child = os.fork()
if child == 0:
    dying = DyingStudy(Path.cwd())
    dying.pause = 0.3
    study.run(dying, "out", executor=study.Processes(2))
    os._exit(0)
while not os.path.exists("out/results.jsonl") or not os.path.getsize("out/results.jsonl"):
    time.sleep(0.01)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
dying = DyingStudy(Path.cwd())
print(study.run(dying, "out").reused)
""".replace("{tests!r}", repr(str(ROOT / "tests")))


def test_a_killed_parent_leaves_its_rows_and_no_lock(tmp_path):
    assert 1 <= int(program(ORPHANS, tmp_path)) < 6
    rows = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert len({row["cell"] for row in rows}) == len(rows) == 6
