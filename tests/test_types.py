"""What type checkers see: every public name with its type, and no other names."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest
from support import ROOT

import gemmsim as gs
from gemmsim import _lazy

api = pytest.importorskip("mypy.api")

#: torch is large and none of our business here; our own bodies are checked elsewhere.
CONFIG = """\
[mypy]
check_untyped_defs = False
[mypy-gemmsim.*]
follow_imports = silent
[mypy-torch.*,numpy.*,rich.*,matplotlib.*,typer.*,sklearn.*,safetensors.*,cuda.*,onnxscript.*,transformers.*]
follow_imports = skip
ignore_missing_imports = True
"""
#: Packages whose public names are loaded on first use.
LAZY = (
    "gemmsim",
    *(f"gemmsim.{name}" for name in ("functional", "hardware", "mx", "nn", "optim", "tensor_quant", "train")),
)

USER = """\
import gemmsim as gs
import gemmsim.nn as qnn
from torch import nn

reveal_type(qnn.QLinear.from_float(nn.Linear(2, 2), "e4m3 : fp32"))
reveal_type(qnn.QLazyLinear.from_float(nn.Linear(2, 2)))
reveal_type(qnn.QConv2d.from_float(nn.Conv2d(2, 2, 2)))
reveal_type(qnn.QLSTM.from_float(nn.LSTM(2, 2)))
reveal_type(qnn.QLayerNorm.from_float(nn.LayerNorm(2)))
reveal_type(qnn.QEmbedding.from_float(nn.Embedding(2, 2)))
reveal_type(gs.GemmSpec.parse("fp32"))
reveal_type(gs.qlinear)
reveal_type(qnn.QSoftmax(-1, spec="bf16"))
reveal_type(gs.emulate(spec="e4m3 : fp32"))
reveal_type(gs.train.fit)
reveal_type(gs.compat.torchao)
reveal_type(gs.study)
"""
REVEALED = (
    *("QLinear", "QLinear", "QConv2d", "QLSTM", "QLayerNorm", "QEmbedding", "GemmSpec"),
    *("spec: ", "QSoftmax", "emulate", "def (", "ModuleType", "ModuleType"),
)


def report(tmp_path_factory, text: str) -> list[str]:
    """mypy's lines about a file of a user; its cache lies beside the project's own."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "mypy.ini").write_text(CONFIG, encoding="utf-8")
    path = folder / "user.py"
    path.write_text(text, encoding="utf-8")
    cache = ROOT / ".mypy_cache" / "of_users"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", str(ROOT))
        out, err, _ = api.run(["--config-file", str(folder / "mypy.ini"), "--cache-dir", str(cache), str(path)])
    assert not err, err
    return [line.partition("user.py:")[2] for line in out.splitlines() if "user.py:" in line]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """One run for everything: revealed types, then every public name, then names that there are not."""
    names = [f"{package}.{name}" for package in (*LAZY, *systems()) for name in public(package)]
    wrong = [f"{package}.nosuchname" for package in (*LAZY, *systems())] + ["gemmsim.qmatmull"]
    imports = "".join(f"import {package}\n" for package in (*LAZY, *systems()))
    text = USER + imports + "".join(f"{name}\n" for name in [*names, *wrong])
    first = len((USER + imports).splitlines()) + 1
    return (
        report(tmp_path_factory, text),
        {first + i: name for i, name in enumerate(names)},
        {first + len(names) + i: name for i, name in enumerate(wrong)},
    )


def public(package: str) -> list[str]:
    module = importlib.import_module(package)
    return sorted({*module.__all__, *_lazy.read(package).homes})


def systems() -> list[str]:
    names = (
        *("torchao", "torchao.prototype", "torchao.prototype.mx_formats", "modelopt", "dmx", "qtorch"),
        *("mptorch", "mptorch.quant", "microxcaling", "torchmx"),
    )
    return ["gemmsim.compat", *(f"gemmsim.compat.{name}" for name in names)]


def test_from_float_and_other_names_have_their_types(lines):
    found = [line for line in lines[0] if "Revealed type" in line]
    assert len(found) == len(REVEALED)
    for line, want in zip(found, REVEALED, strict=True):
        assert want in line, line


def test_every_public_name_is_known(lines):
    report, names, _ = lines
    about = {int(line.split(":")[0]): line for line in report if "error" in line}
    assert {names[at]: about[at] for at in names if at in about} == {}


def test_a_name_that_there_is_not_is_found(lines):
    report, _, wrong = lines
    about = {int(line.split(":")[0]): line for line in report if "attr-defined" in line}
    assert [name for at, name in wrong.items() if at not in about] == []
    assert "qmatmul" in next(line for at, line in about.items() if wrong.get(at) == "gemmsim.qmatmull")


def test_study_train_and_compat_are_attributes():
    assert gs.study.__name__ == "gemmsim.study" and gs.train.__name__ == "gemmsim.train"
    assert {name for _, name, package in pkgutil.iter_modules([str(Path(gs.compat.__path__[0]))]) if package} == set(
        gs.compat.__all__
    )
    assert {"study", "train", "compat"} <= set(dir(gs))
