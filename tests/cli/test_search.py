"""gemmsim search: files, words, JSON, the config that emulate takes, and mistakes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim.cli.app import app
from gemmsim.emulation import Config

NETS = """
import torch

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

def both():
    return model(), torch.randn(200, 16, generator=torch.Generator().manual_seed(1))

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model()

    def forward(self, x, y):
        return self.inner(x + y)

def two():
    return Two()

def flips(found, wanted):
    return float((found.argmax(1) != wanted.argmax(1)).float().mean())

def text():
    return "model"
"""
PROGRAM = """
import numpy, torch
import nets
model, x = nets.both()
with torch.no_grad():
    numpy.save("y.npy", model(x).numpy())
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)
    torch.manual_seed(1)
    x = torch.randn(200, 16)
    np.save(tmp_path / "x.npy", x.numpy())
    torch.save(x, tmp_path / "x.pt")
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, ["search", *words])


def test_files_and_words(folder):
    done = run("nets.py:model", "--inputs", "x.npy", "--out", "found", "--order", "chunked(8, {})")
    assert done.exit_code == 0, done.output
    config = Config.from_json((folder / "found" / "config.json").read_text())
    data = json.loads((folder / "found" / "search.json").read_text())
    assert Config.from_dict(data["config"]) == config and (folder / "found" / "front.svg").stat().st_size > 2000
    assert "2 layers with accumulators of" in done.output and "held-back samples" in done.output
    assert "chunked(8, e5m" in done.output and "gemmsim emulate --config" in done.output


def test_emulate_takes_the_config(folder):
    assert run("nets.py:both", "--out", "found", "--json").exit_code == 0
    (folder / "program.py").write_text(PROGRAM)
    done = CliRunner().invoke(app, ["emulate", "--config", "found/config.json", "program.py"])
    assert done.exit_code == 0, done.output
    namespace = {}
    exec(NETS, namespace)
    model, x = namespace["both"]()
    config = Config.from_json((folder / "found" / "config.json").read_text())
    with torch.no_grad(), gs.emulate(config):
        assert np.array_equal(model(x).numpy(), np.load(folder / "y.npy"))


def test_json_is_all_of_standard_output(folder):
    done = run("nets.py:both", "--out", "found", "--json", "--at-most", "0.1", "--seed", "3")
    data = json.loads(done.stdout)
    assert data["at_most"] == 0.1 and data["measured"]["error"] <= 0.1 and len(data["table"]) == 2


def test_several_batches_names_and_functions(folder):
    from safetensors.torch import save_file

    x = torch.randn(60, 16)
    save_file({"x": x, "y": x.flip(0).contiguous()}, folder / "xy.safetensors")
    words = ["nets.py:two", "--inputs", "xy.safetensors", "--inputs", "xy.safetensors", "--held-back", "xy.safetensors"]
    done = run(*words, "--out", "found", "--metric", "nets.py:flips", "--json", "--at-most", "0.05")
    data = json.loads(done.stdout)
    assert (data["samples"], data["samples_held_back"], data["metric"]) == (120, 60, "flips")


def test_warnings_go_to_standard_error(folder):
    torch.save(torch.randn(1, 16), folder / "one.pt")
    done = run("nets.py:model", "--inputs", "one.pt", "--out", "found", "--at-most", "0.1", "--json")
    assert done.exit_code == 0 and done.stderr.startswith("warning: search: 1 calibration sample")
    assert json.loads(done.stdout)["held_back"] is None


def test_without_matplotlib_there_is_no_picture(folder, monkeypatch):
    monkeypatch.setattr("gemmsim.accumulator_search.command.find_spec", lambda name: None)
    done = run("nets.py:both", "--out", "found")
    assert done.exit_code == 0 and "no front.svg, which needs matplotlib" in done.stderr
    assert sorted(path.name for path in (folder / "found").iterdir()) == ["config.json", "search.json"]


MISTAKES = [
    (["nets.py:modle", "--inputs", "x.npy"], "Did you mean 'model'?"),
    (["nets.py", "--inputs", "x.npy"], "module:function or file.py:function"),
    (["nets.py:model"], "inputs from neither nets.py:model nor --inputs"),
    (["nets.py:both", "--inputs", "x.npy"], "inputs from both nets.py:both and --inputs"),
    (["nets.py:text", "--inputs", "x.npy"], "returned a str"),
    (["nets.py:model", "--inputs", "y.npy"], "there is no file 'y.npy'. Did you mean 'x.npy'?"),
    (["nets.py:both", "--at-most", "0"], "at_most=0.0"),
    (["nets.py:both", "--at-most", "1e-9"], "misses with an error of 0.00"),
    (["nets.py:both", "--ladder", "e5m10:e5m1"], "Write 'e5m1:e5m10'"),
    (["nets.py:both", "--order", "chunked(8)"], "with {} in place of a format"),
    (["nets.py:both", "--metric", "logits"], "allowed: 'logit_err', 'max_err'"),
    (["nets.py:both", "--metric", "nets.py:flip"], "Did you mean 'flips'?"),
    (["nets.py:both", "--modules", "9"], "without matched products"),
    (["nets.py:both", "--seed", "-1"], "seed=-1"),
]


@pytest.mark.parametrize("words, said", MISTAKES, ids=lambda one: one if isinstance(one, str) else "")
def test_a_mistake_is_one_message(folder, words, said):
    done = run(*words, "--out", "found")
    assert done.exit_code == 2 and done.stderr.startswith("error: ") and said in done.stderr
    assert "Traceback" not in done.output and not list(folder.glob("found/*"))
