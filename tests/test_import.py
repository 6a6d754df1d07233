"""Importing gemmsim does nothing: no compiling, no file written, no folder made, little time."""

from __future__ import annotations

import pytest
from support import run_python

# Reports every file opened for writing, folder made, process started or library loaded while the import runs.
AUDIT = """
import json, sys
{before}
seen = []
def hook(event, args):
    if event == "open":
        path, mode, flags = args
        writing = any(c in mode for c in "wax+") if isinstance(mode, str) else bool(flags and flags & 3)
        if writing and not str(path).endswith(".pyc") and "__pycache__" not in str(path):
            seen.append([event, str(path)])
    elif event in ("os.mkdir", "subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "os.rename",
                   "os.remove", "socket.connect", "ctypes.dlopen"):
        seen.append([event, str(args[0])])
sys.dont_write_bytecode = True
sys.addaudithook(hook)
import time
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
report = dict(seen=list(seen), seconds=seconds, torch="torch" in sys.modules, modules=sorted(
    name for name in sys.modules if name.split(".")[0] in ("gemmsim", "matplotlib", "sklearn", "typer", "rich")))
print(json.dumps(report))
"""


def audited(statement: str, before: str = "") -> dict:
    import json

    done = run_python(AUDIT.format(statement=statement, before=before))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


STATEMENTS = [
    "import gemmsim",
    "import gemmsim; gemmsim.formats.parse('e4m3'); gemmsim.GemmSpec.parse('e4m3 : e5m10')",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_importing_writes_compiles_and_starts_nothing(statement):
    report = audited(statement, before="import torch, torch.library, torch.autograd.function")
    assert report["seen"] == []


def test_importing_loads_neither_the_library_nor_the_optional_packages():
    report = audited("import gemmsim", before="import torch")
    assert [name for name in report["modules"] if not name.startswith("gemmsim")] == []
    assert not any(name.startswith(("gemmsim.study", "gemmsim.cli", "gemmsim.reference")) for name in report["modules"])


def test_importing_costs_little_beyond_torch():
    # Aim: 50 ms. The bound leaves room for a busy machine; the fastest of three counts.
    seconds = min(audited("import gemmsim", before="import torch")["seconds"] for _ in range(3))
    assert seconds < 0.5, f"{seconds:.3f} s"


def test_formats_alone_need_no_torch():
    report = audited("import gemmsim.formats, gemmsim.arithmetic")
    assert report["torch"] is False, "formats and arithmetic are standard library only"


def test_every_public_name_is_there():
    import gemmsim

    for name in gemmsim.__all__:
        assert getattr(gemmsim, name) is not None, name
    assert set(gemmsim.__all__) <= set(dir(gemmsim))
    with pytest.raises(AttributeError, match="qmatmull"):
        gemmsim.qmatmull  # noqa: B018
