"""Importing gemmsim does nothing: no compiling, no file written, no folder made, no module loaded that takes time."""

from __future__ import annotations

import sys

import pytest
from support import run_python
from support.fork import run_forked

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
there = set(sys.modules)
{statement}
print(json.dumps(dict(seen=list(seen), torch="torch" in sys.modules, modules=sorted(set(sys.modules) - there))))
"""


def audited(statement: str, before: str = "", run=run_forked) -> dict:
    """What ``statement`` does and loads, in an interpreter that has PyTorch loaded unless ``run`` is another."""
    import json

    done = run(AUDIT.format(statement=statement, before=before))
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
    report = audited("import gemmsim", before="import torch", run=run_python)
    others = {name.split(".")[0] for name in report["modules"]} - {"gemmsim"} - set(sys.stdlib_module_names)
    assert not others, f"{others}: what takes time to load is loaded where it is used, PyTorch's compiler above all"
    assert not any(name.startswith(("gemmsim.study", "gemmsim.cli", "gemmsim.reference")) for name in report["modules"])


def test_the_first_product_loads_no_more_than_products():
    """It takes 0.2 s of processor time beyond PyTorch's import (bytecode kept); PyTorch's compiler alone takes 3 s."""
    first = "import gemmsim; gemmsim.qmatmul(torch.ones(2, 3), torch.ones(3, 2), 'e4m3 : e5m10')"
    report = audited(first, before="import torch", run=run_python)
    modules = set(report["modules"])
    others = {name.split(".")[0] for name in modules} - {"gemmsim"} - set(sys.stdlib_module_names)
    assert not others, f"{others}: imported by a first product, the compiler (torch._dynamo, sympy) above all"
    assert "gemmsim.ops.product.matmul" in modules
    unused = (
        "gemmsim.ops.conv",
        "gemmsim.ops.rowwise",
        "gemmsim.nn",
        "gemmsim.mx",
        "gemmsim.reference",
        "gemmsim.sliced",
    )
    unused = (*unused, "gemmsim.study", "gemmsim.backends.cuda.jit", "gemmsim.tensor_quant", "gemmsim.optim")
    assert not {name for name in modules if name.startswith(unused)}


def test_formats_alone_need_no_torch():
    report = audited("import gemmsim.formats, gemmsim.arithmetic", run=run_python)
    assert report["torch"] is False, "formats and arithmetic are standard library only"


def test_every_public_name_is_there():
    import gemmsim

    for name in gemmsim.__all__:
        assert getattr(gemmsim, name) is not None, name
    assert set(gemmsim.__all__) <= set(dir(gemmsim))
    with pytest.raises(AttributeError, match="qmatmull"):
        gemmsim.qmatmull  # noqa: B018
