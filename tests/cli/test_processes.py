"""Processes and threads that a program under ``gemmsim emulate`` or ``audit`` starts: emulated, refused, or named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import ROOT

from gemmsim.cli.start import reach

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")

#: 256 in bf16, where the sum stops growing; 4096 natively.
PRODUCT = "(torch.ones(1, 4096) @ torch.ones(4096, 1)).item()"
#: Words that print a number from a process of its own.
CHILD = f"import torch; print({PRODUCT})"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs ``gemmsim COMMAND`` with a program in a process of its own."""
    (tmp_path / "one.py").write_text(f"import torch\nprint({PRODUCT})\n")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)

    def started(program: str, *words: str, command: str = "emulate", spec: str | None = ":bf16"):
        (tmp_path / "program.py").write_text(program)
        given = ["--spec", spec] if spec else []
        return subprocess.run(
            [sys.executable, "-m", "gemmsim", command, *given, *words, "program.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=240,
        )

    return started


START = "import asyncio, os, subprocess, sys\nONE = [sys.executable, 'one.py']\n"
STARTS = {
    "subprocess": "subprocess.run(ONE, check=True)",
    "an environment of its own": "subprocess.run(ONE, env={'PATH': os.environ['PATH']}, check=True)",
    "PYTHONPATH overwritten": "os.environ['PYTHONPATH'] = '/nowhere'; subprocess.run(ONE, check=True)",
    "a shell": "subprocess.run(' '.join(ONE), shell=True, check=True)",
    "os.system": "os.system(' '.join(ONE))",
    "posix_spawn": "os.waitpid(os.posix_spawn(ONE[0], ONE, os.environ), 0)",
    "spawnv": "os.spawnv(os.P_WAIT, ONE[0], ONE)",
    "a process that becomes Python": "os.execv(ONE[0], ONE)",
    "grandchildren": "subprocess.run([ONE[0], '-c', f'import subprocess; subprocess.run({ONE})'], check=True)",
}


LONG = pytest.mark.long
SHORT = ("an environment of its own", "grandchildren")


@pytest.mark.parametrize("start", [pytest.param(s, id=n, marks=() if n in SHORT else LONG) for n, s in STARTS.items()])
def test_python_processes_of_a_program_are_emulated(run, start):
    done = run(START + start)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["256.0"], "")


SPAWN = f"""
import os, sys, threading, torch, torch.multiprocessing as mp
from concurrent.futures import ThreadPoolExecutor

def work(rank):
    print({PRODUCT}, flush=True)

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, i):
        return {PRODUCT}

if __name__ == "__main__":
    os.environ["PYTHONPATH"] = "/nowhere"
    mp.spawn(work, nprocs=2)
    for method in ("fork", "forkserver"):
        process = mp.get_context(method).Process(target=work, args=(0,))
        process.start()
        process.join()
    thread = threading.Thread(target=work, args=(0,))
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work, 0).result()
    print(*(batch.item() for batch in torch.utils.data.DataLoader(Data(), num_workers=1)))
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        work(0)
        os._exit(0)
    os.waitpid(pid, 0)
"""


@pytest.mark.long
def test_multiprocessing_threads_and_workers_of_loaders_are_emulated(run):
    done = run(SPAWN)
    assert done.returncode == 0 and done.stdout.split() == ["256.0"] * 9, done.stderr


def test_an_audit_has_the_products_of_processes_and_threads(run, tmp_path):
    done = run(SPAWN.replace("os._exit(0)", "sys.exit(5)"), "--strict", "--json", "report.json", command="audit")
    assert done.returncode == 0, done.stderr
    assert "9 products" in done.stdout and "Of 7 processes" in done.stdout and "error" not in done.stderr
    records = json.loads((tmp_path / "report.json").read_text())["records"]
    assert [record["spec"] for record in records] == [":e8m7"] * 9


@pytest.mark.long
def test_what_is_native_is_native_in_processes_and_threads(run):
    done = run(SPAWN, command="audit", spec=None)
    assert done.stdout.split().count("4096.0") == 9 and "0 emulated" in done.stdout


@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch was built without torch.distributed")
@pytest.mark.parametrize(
    ("command", "first"),
    [("emulate", "ours"), *(pytest.param(c, f, marks=LONG) for c, f in (("audit", "ours"), ("emulate", "torchrun")))],
)
def test_workers_of_torchrun_are_emulated_in_either_order(run, tmp_path, command, first):
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    ours = ["-m", "gemmsim", command, "--spec", ":bf16"]
    words = [sys.executable, *(ours + launch if first == "ours" else launch + ours), "one.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout.split().count("256.0") == 2, done.stderr
    assert "4096.0" not in done.stdout


@pytest.mark.parametrize("switches", ["-I", "-E", "-S", "-uI", "-X dev -I", "-Wignore -E", "-X dev -W error -uE"])
def test_switches_that_keep_the_emulation_out(switches, tmp_path):
    watch = reach.Watch(str(tmp_path), "gemmsim emulate")
    with pytest.raises(reach.ProcessError, match="disables the emulation"):
        watch.process(["/usr/bin/python3", *switches.split(), "one.py"], {})


def test_python_that_is_told_not_to_read_its_variables_is_refused(run):
    done = run(START + "subprocess.run([ONE[0], '-I', 'one.py'])")
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    assert "disables the emulation" in done.stderr and "-m gemmsim emulate --spec :bf16 SCRIPT" in done.stderr
    done = run(START + "subprocess.run([ONE[0], '-I', '-c', 'print(1)'])", "--no-children")
    assert done.returncode == 0 and done.stdout == "1\n"


@pytest.mark.parametrize("event", ["posix_spawn", "exec", "a shell"])
def test_environments_that_come_too_late_to_be_mended_are_refused(event, tmp_path):
    watch = reach.Watch(str(tmp_path), "gemmsim emulate")
    there = {"PYTHONPATH": reach.HERE, reach.VARIABLE: str(tmp_path)}
    words = ["sh", "-c", "python one.py"] if event == "a shell" else ["python", "one.py"]
    start = watch.replaced if event == "exec" else lambda words, env: watch.process(words, env, late=True)
    start(words, there)
    assert watch.started == [words]
    with pytest.raises(reach.ProcessError, match="its environment lacks"):
        start(words, {})


@pytest.mark.long
@pytest.mark.parametrize("start", ["os.posix_spawn(ONE[0], ONE, {})", "os.execve(ONE[0], ONE, {})"])
def test_no_process_is_native_for_want_of_its_environment(run, start):
    done = run(START + start)
    assert done.returncode == 2 and done.stdout == "" and "its environment lacks" in done.stderr


def test_an_audit_is_not_replaced_by_another_program(run):
    done = run(START + "import torch\nos.execv(ONE[0], ONE)", command="audit")
    assert done.returncode == 2 and "so the report of this process would be lost" in done.stderr


def test_a_process_that_is_not_reached_is_named(run):
    hidden = START + "subprocess.run(f'PYTHONPATH=/nowhere {ONE[0]} one.py', shell=True)"
    done = run(hidden)
    assert done.returncode == 0 and done.stdout == "4096.0\n"
    assert done.stderr.startswith("warning: the program started '/bin/sh -c PYTHONPATH=/nowhere")
    assert "products are native" in done.stderr and "-m gemmsim emulate --spec :bf16 SCRIPT" in done.stderr
    strict = run(f"import torch\n{PRODUCT}\n" + hidden, "--strict", command="audit")
    assert strict.returncode == 1 and "processes with unknown products" in strict.stderr


def test_programs_that_are_not_python_are_left_alone(run):
    done = run(START + "subprocess.run(['true']); subprocess.run([ONE[0], '--version']); os.system('true')")
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize(("program", "code"), [("print(1)", 1), ("import sys; sys.exit(7)", 7), (CHILD, 0)])
def test_strict_without_a_product_fails(run, program, code):
    done = run(program, "--strict", command="audit")
    assert done.returncode == code and ("no products" in done.stderr) is (code != 0)


def test_strict_with_products_of_nothing_fails(run):
    done = run("import torch\ntorch.ones(0, 3) @ torch.ones(3, 2)", "--strict", command="audit")
    assert done.returncode == 1 and "only products without multiply-adds, so nothing is proved" in done.stderr


NATIVE = "import torch, gemmsim\nwith gemmsim.emulate(None): torch.ones(1, 4) @ torch.ones(4, 1)"
REFUSED = {
    "in a process whose exit code nobody reads": START + f"subprocess.run([ONE[0], '-c', '''{NATIVE}'''])",
    "in a thread": f"import threading\nexec('''import torch''')\nt = threading.Thread(target=exec, args=('''{NATIVE}''',))\nt.start(); t.join()",
    "caught": f"try:\n    exec('''{NATIVE}''')\nexcept RuntimeError:\n    pass",
}


@pytest.mark.parametrize(
    "start", [pytest.param(s, id=n, marks=LONG if n == "caught" else ()) for n, s in REFUSED.items()]
)
def test_strict_fails_where_the_program_goes_on_after_a_native_product(run, start):
    done = run(f"import torch\n{PRODUCT}\n{start}", "--strict", command="audit")
    assert done.returncode == 1 and "a native PyTorch product was refused" in done.stderr


def test_a_process_that_is_killed_has_reported_nothing(run):
    killed = START + f"subprocess.run([ONE[0], '-c', 'import os; {CHILD}; os._exit(0)'])"
    done = run(f"import torch\n{PRODUCT}\n{killed}", "--strict", command="audit")
    assert done.returncode == 1 and "1 products" in done.stdout and "sent no report" in done.stderr


def test_a_process_that_outlives_the_command_is_not_native(run, tmp_path):
    later = "import time, os; time.sleep(0.2)\nwhile os.path.isdir(os.environ['GEMMSIM_RUN']): time.sleep(0.05)\n"
    (tmp_path / "later.py").write_text(later + CHILD)
    done = run(START + "subprocess.Popen([ONE[0], 'later.py'])")
    assert done.returncode == 0  # its output was read to the end, which is that of the last process
    assert done.stdout == "" and "that cannot read its session" in done.stderr


def test_another_sitecustomize_runs_as_well(run, tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys; sys.mine = 7\n")
    program = "import os\nos.environ['PYTHONPATH'] += os.pathsep + 'site'\n" + START
    done = run(program + f"subprocess.run([ONE[0], '-c', 'import sys; print(sys.mine); {CHILD}'], check=True)")
    assert done.stdout.split() == ["7", "256.0"], done.stderr


def test_names_of_commands_are_told_in_the_right_order(run, tmp_path):
    words = [sys.executable, "-m", "gemmsim", "emulate", "--spec", ":bf16", "git", "log"]
    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 2 and "there is no file 'git'" in done.stderr
    assert "git log ... -m gemmsim emulate --spec :bf16 SCRIPT" in done.stderr


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from gemmsim.cli.app import app

    (tmp_path / "program.py").write_text(
        "import os, pathlib\npathlib.Path('folder').write_text(os.environ['GEMMSIM_RUN'])"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "mine")
    before = dict(os.environ)
    assert CliRunner().invoke(app, ["audit", "--spec", ":bf16", "--strict", "program.py"]).exit_code == 1
    assert dict(os.environ) == before and reach.watched() is None
    assert not Path((tmp_path / "folder").read_text()).exists()


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        (["sh", "-c", "exec python3 x.py"], True),
        (["torchrun", "x.py"], True),
        (["bash", "train.sh"], False),
        (["/usr/bin/env", "python", "x.py"], True),
        (["g++", "-I/usr/include/python3.11", "x.cpp"], False),
        (["sh", "-c", "g++ -I/usr/include/python3.11 x.cpp"], False),
        (["python3.11", "x.py"], True),
        (["python", "-V"], False),
        (["python", "-c", "-V"], True),
        (["python", "-m", "x", "-I"], True),
        (["python", "-Xdev", "-W", "-I", "x.py"], True),
        (["python", "x.py", "-E"], True),
    ],
)
def test_which_commands_may_start_python(words, asks, tmp_path):
    watch = reach.Watch(str(tmp_path), "")
    env: dict[str, str] = {}
    watch.process(words, env)
    assert bool(watch.started) is asks
    assert env["PYTHONPATH"] == reach.HERE and env[reach.VARIABLE] == str(tmp_path)


def test_environments_in_bytes(tmp_path):
    env = {b"PYTHONPATH": b"mine"}
    assert not reach.repair(env, str(tmp_path))
    assert env[b"PYTHONPATH"].split(os.pathsep.encode()) == [os.fsencode(reach.HERE), b"mine"]
    assert reach.repair(env, str(tmp_path))
