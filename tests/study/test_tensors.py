"""The kinds gemm and layers: rows against plain products, files and models of all sorts, bad input."""

from __future__ import annotations

import copy
import json
import pickle
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.rounding import FLOAT64, assert_product
from support.studies import seen
from torch import nn
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim import study
from gemmsim.cli.app import app
from gemmsim.study.capture import layer_shapes
from gemmsim.study.errors import StudyError
from gemmsim.study.kinds.gemm import evenly
from gemmsim.study.records import TIME_COLUMNS
from gemmsim.study.store import read_rows
from gemmsim.study.tensor_files import digest_of, tensor_file


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("hardware", {"archs": ["H = h100", "mi300/mfma", "kahan(fp32)"], "dtype": "bf16,fp16/row"}),
        ("chunk", {"spec": ["chunked({n}, e5m10)", "p = promote(fp16, {n}, fp32)"], "n": "2,4"}),
        ("growth", {"spec": ["kahan(e5m10)", "x = e4m3 : fp32"]}),
        ("gemm", {"a": "a.npy", "b": "b.pt:w", "transpose": "b", "rows": 3}),
        ("layers", {"model": "m:f", "layers": ["a.*", "b"], "role": "wgrad"}),
    ],
)
def test_the_command_of_parameters_gives_them_again(kind, given):
    from gemmsim.cli.study_options import named

    made = study.kind(kind)(**given)
    again = named([kind, *made.arguments()])[1]
    assert study.kind(kind)(**again).parts == made.parts


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(6, 2, 32, generator=generator), torch.randn(5, 32, generator=generator)
    np.save("x.npy", x.numpy())
    np.save("big_endian.npy", x.numpy().astype(">f8"))
    np.save("vector.npy", np.zeros(5))
    broken = x.clone()
    broken[3, 1, 7], broken[0, 0, 0] = float("nan"), float("inf")
    np.save("nan.npy", broken.numpy())
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    save_file(
        {"head.weight": w.bfloat16(), "head.bias": w[:, 0].clone(), "codes": (w * 9).to(torch.int8)}, "m.safetensors"
    )
    torch.save({"w": w.half(), "n": 3}, "w.pt")
    torch.save(w, "one.pt")
    torch.save([w], "list.pt")
    torch.save({"w": w.to(torch.complex64)}, "complex.pt")
    Path("text.npy").write_text("hello")
    Path("text.safetensors").write_text("hello")
    Path("text.pt").write_text("hello")
    Path("evil.pt").write_bytes(pickle.dumps(Evil()))
    return x, w


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("ran"),))


def test_products_of_tensors_from_files(files, tmp_path):
    x, w = files
    for a, b in (("x.npy", "m.safetensors:head.weight"), ("big_endian.npy", "w.pt"), ("x.npy", "one.pt")):
        kind = study.kind("gemm")(a=a, b=b, transpose="b", spec=["e5m10", "s = bf16/sr8"], seeds=2)
        rows = study.run(kind, tmp_path / "out" / b.partition(":")[0]).rows
        assert [(row["label"], row["seed"]) for row in rows] == [("e5m10", 0), ("s", 0), ("s", 1)]
        right = {"m.safetensors:head.weight": w.bfloat16(), "w.pt": w.half(), "one.pt": w}[b].float()
        left, right = x.reshape(12, 32), right
        if a == "big_endian.npy":
            left, right = left.double(), right.double()
        for row in rows:
            assert (row["M"], row["K"], row["N"]) == (12, 32, 5) and row["a"] == a and row["b"] == b
            truth = left.double() @ right.double().T
            error = gs.qmatmul(left, right.T, row["spec"], seed=row["seed"]).double() - truth
            assert float(error.norm() / truth.norm()) == pytest.approx(row["rel_fro"], rel=FLOAT64)
        seen(kind, rows, tmp_path)


def test_rows_follow_the_values_and_not_the_place_of_files(files, tmp_path):
    given = {"a": "x.npy", "b": "one.pt", "transpose": "b", "spec": ["e5m10"]}
    first = study.run(study.kind("gemm")(**given), tmp_path / "out")
    assert first.computed == 1 and study.run(study.kind("gemm")(**given), tmp_path / "out").computed == 0
    Path("there").mkdir()
    Path("x.npy").rename("there/x.npy")
    moved = study.run(study.kind("gemm")(**{**given, "a": "there/x.npy"}), tmp_path / "out")
    assert moved.computed == 0 and moved.rows == first.rows
    np.save("there/x.npy", np.load("there/x.npy") + 1)
    folder = tmp_path / "new"
    changed = study.run(study.kind("gemm")(**{**given, "a": "there/x.npy"}), folder)
    assert changed.rows[0]["fingerprint"] != first.rows[0]["fingerprint"]
    assert changed.rows[0]["cell"] == first.rows[0]["cell"]


def test_pictures_are_drawn_again_without_what_was_measured(files, module, tmp_path, monkeypatch):
    given = {"gemm": {"a": "x.npy", "b": "one.pt", "transpose": "b"}, "layers": {"model": module}}
    for kind, parameters in given.items():
        study.run(study.kind(kind)(**parameters, spec=["bf16", "fp32"]), tmp_path / kind)
        (tmp_path / kind / "plot.svg").unlink()
    monkeypatch.delitem(sys.modules, "users_model")
    for path in tmp_path.glob("*.*"):
        path.unlink()
    for kind in given:
        drawn = CliRunner().invoke(app, ["study", "plot", kind, "--out", str(tmp_path / kind)])
        assert drawn.exit_code == 0, drawn.output
        assert "<svg" in (tmp_path / kind / "plot.svg").read_text()


def test_some_rows_and_columns(files, tmp_path):
    x, w = files
    kind = study.kind("gemm")(a="x.npy", b="one.pt", transpose="b", spec=["bf16"], rows=4, columns=2)
    row = study.run(kind, tmp_path / "out").rows[0]
    assert (row["M"], row["N"], row["macs"]) == (4, 2, 4 * 32 * 2)
    a, b = x.reshape(12, 32)[[0, 4, 7, 11]], w[[0, 4]].T
    error = gs.qmatmul(a, b, "bf16").double() - a.double() @ b.double()
    assert float(error.abs().mean()) == pytest.approx(row["mean_abs"], rel=FLOAT64)
    assert evenly(3, 5) == slice(None) and evenly(3, 0) == slice(None) and evenly(9, 1).tolist() == [0]


def test_numbers_that_are_none(files, tmp_path):
    given = {"a": "nan.npy", "b": "one.pt", "transpose": "b", "spec": ["fp32"]}
    with pytest.raises(StudyError, match=r"2 NaN or infinite numbers, the first at \[0, 0\]; say --nonfinite zero"):
        study.run(study.kind("gemm")(**given), tmp_path / "refused")
    zero = study.run(study.kind("gemm")(**given, nonfinite="zero"), tmp_path / "zero").rows[0]
    keep = study.run(study.kind("gemm")(**given, nonfinite="keep"), tmp_path / "keep").rows[0]
    assert zero["nonfinite"] == 0 and round(12 * keep["nonfinite"]) == 2
    assert keep["rel_fro"] < 32 * 2.0**-24 / (1 - 32 * 2.0**-24) * 4, (
        "32 steps of fp32; sums of magnitudes are below 4 results"
    )


def test_empty_products(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, shape in (("a", (0, 4)), ("b", (4, 3)), ("c", (2, 0)), ("d", (0, 3))):
        np.save(f"{name}.npy", np.zeros(shape, dtype=np.float32))
    for a, b in (("a", "b"), ("c", "d")):
        kind = study.kind("gemm")(a=f"{a}.npy", b=f"{b}.npy", spec=["fp32"], **{"in": "e4m3/row"})
        rows = study.run(kind, tmp_path / a).rows
        assert rows[0]["K"] == (4 if a == "a" else 0) and rows[0]["max_rel"] is None


BAD_FILES = [
    ({}, "give --a and --b"),
    ({"a": "x.npy"}, "give --b"),
    ({"a": "x.txt", "b": "one.pt"}, "allowed: .npy, .safetensors, .pt"),
    (
        {"a": "xx.npy", "b": "one.pt"},
        "no file 'xx.npy'. Did you mean 'x.npy'. Allowed: .npy, .safetensors, .pt, .pth, by a whole path",
    ),
    ({"a": "x.npy", "b": "m.safetensors:head.weigth"}, "Did you mean 'head.weight'.*head.bias"),
    ({"a": "x.npy", "b": "m.safetensors"}, "several tensors; name one"),
    ({"a": "x.npy", "b": "m.safetensors:codes"}, "holds int8; allowed: floating-point"),
    ({"a": "x.npy", "b": "w.pt:z"}, "holds no 'z'.*Allowed after the colon: "),
    ({"a": "x.npy:k", "b": "one.pt"}, "leave out ':k'"),
    ({"a": "x.npy", "b": "one.pt:w"}, "leave out ':w'"),
    ({"a": "x.npy", "b": "list.pt"}, "holds a list"),
    ({"a": "x.npy", "b": "complex.pt"}, "holds complex64"),
    ({"a": "x.npy", "b": "one.pt", "transpose": "none"}, "12 x 32 and one.pt 5 x 32.*--transpose b makes them fit"),
    ({"a": "vector.npy", "b": "one.pt"}, r"shape \(5,\)"),
    ({"a": "text.npy", "b": "one.pt"}, "not a .npy file"),
    ({"a": "objects.npy", "b": "one.pt"}, "cannot read|Object arrays|two dimensions"),
    ({"a": "x.npy", "b": "text.safetensors"}, "cannot read a tensor"),
    ({"a": "x.npy", "b": "text.pt"}, "cannot read a tensor"),
    ({"a": "x.npy", "b": "evil.pt"}, "cannot read a tensor.*more than tensors.*Save a tensor"),
    ({"a": "x.npy", "b": "one.pt", "transpose": "c"}, "allowed: none, a, b, ab"),
    ({"a": "x.npy", "b": "one.pt", "nonfinite": "skip"}, "allowed: refuse, zero, keep"),
]


@pytest.mark.parametrize(("given", "says"), BAD_FILES, ids=[str(n) for n in range(len(BAD_FILES))])
def test_files_that_do_not_do(files, tmp_path, given, says):
    with pytest.raises(StudyError, match=says):
        study.run(study.kind("gemm")(**{"transpose": "b", **given}), tmp_path / "out")
    assert not Path("ran").exists(), "nothing in a file is run"


def test_names_of_tensors_in_files():
    assert tensor_file("a/b.safetensors:x:y") == tensor_file("a/b.safetensors:x:y")
    assert tensor_file("a/b.safetensors:x:y").key == "x:y" and tensor_file("C:/b.npy").path == Path("C:/b.npy")
    assert digest_of(torch.zeros(2, 3)) != digest_of(torch.zeros(3, 2)) != digest_of(torch.zeros(3, 2).double())
    assert digest_of(torch.ones(3, 2).T) == digest_of(torch.ones(2, 3))


class Twice(nn.Module):
    """A layer that is called twice, one of ours, one that is never called."""

    def __init__(self):
        super().__init__()
        self.up, self.mid = nn.Linear(6, 8), gs.nn.QLinear(8, 8, spec="e4m3 : e5m10")
        self.head, self.unused = nn.Linear(8, 3), nn.Linear(2, 2)

    def forward(self, x):
        h = torch.relu(self.mid(torch.relu(self.up(x))))
        return self.head(self.mid(h))


def twice():
    torch.manual_seed(0)
    return Twice(), torch.randn(4, 2, 6), lambda y: y.square().sum()


def test_captured_operands_make_the_products_of_the_pass(tmp_path):
    model, x, loss = twice()
    model.head = nn.Linear(8, 3).double().float()
    model.mid.formats = None
    path = tmp_path / "deep" / "layers.safetensors"
    before = [p.clone() for p in model.parameters()]
    model.up.weight.grad = torch.ones_like(model.up.weight)
    names = study.capture_layers(
        model, x, path, layers=["up", "mid", "head"], roles=["fprop", "dgrad", "wgrad"], loss=loss
    )
    assert names == ["up", "mid", "head"]
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert torch.equal(model.up.weight.grad, torch.ones_like(model.up.weight)) and model.mid.weight.grad is None
    assert not any(module._forward_hooks for module in model.modules())
    kept = load_file(path)
    assert kept["mid/input"].shape == (16, 8), "rows of both calls"
    model.up.weight.grad = None
    loss(model(x)).backward()
    for name in names:
        grad, weight = model.get_submodule(name).weight.grad, model.get_submodule(name).weight
        assert_product(grad, kept[f"{name}/grad"].T, kept[f"{name}/input"])
        assert torch.equal(kept[f"{name}/weight"], weight)
    assert_product(model(x).reshape(8, 3), kept["head/input"], kept["head/weight"].T, model.head.bias)


def test_what_the_file_holds_is_safetensors_of_any_float_type(tmp_path):
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        model = nn.Linear(3, 2).to(dtype)
        path = tmp_path / "one.safetensors"
        assert study.capture_layers(model, torch.ones(5, 3, dtype=dtype), path) == ["model"]
        kept = load_file(path)
        assert {name: (tuple(t.shape), t.dtype) for name, t in kept.items()} == {
            "model/input": ((5, 3), dtype),
            "model/weight": ((2, 3), dtype),
        }
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    assert json.loads(raw[8 : 8 + size])["__metadata__"]["roles"] == "fprop"


def test_capture_takes_tuples_mappings_and_losses_of_outputs(tmp_path):
    class Out(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(2, 2)

        def forward(self, x, scale):
            from types import SimpleNamespace

            return SimpleNamespace(loss=(self.one(x) * scale).sum())

    for inputs in ((torch.ones(3, 2), 2.0), {"x": torch.ones(3, 2), "scale": 2.0}):
        study.capture_layers(Out(), inputs, tmp_path / "x.safetensors", roles=["wgrad"])
        assert torch.equal(load_file(tmp_path / "x.safetensors")["one/grad"], torch.full((3, 2), 2.0))


class SetAnew(nn.Module):
    """A layer whose weight is a plain attribute that each call sets; its twin is parametrised."""

    def __init__(self, calls, step):
        super().__init__()
        self.calls, self.step = calls, step
        self.fc = nn.Linear(4, 4)
        self.base = nn.Parameter(self.fc.weight.detach().clone())
        del self.fc.weight
        self.fc.weight = self.base.detach() * 1000
        self.normed = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
        self.fc.register_forward_hook(lambda layer, *rest: setattr(layer, "weight", torch.zeros(2, 3)))

    def forward(self, x):
        for call in range(self.calls):
            self.fc.weight = self.base * (2 + call * self.step)
            x = self.fc(x)
        return self.normed(x)


def test_captured_weights_are_those_of_the_calls(tmp_path):
    torch.manual_seed(0)
    model, x, path = SetAnew(2, 0), torch.randn(5, 4), tmp_path / "x.safetensors"
    twin = copy.deepcopy(model.normed)
    study.capture_layers(model, x, path)
    kept = load_file(path)
    assert torch.equal(kept["fc/weight"], model.base * 2)
    with torch.no_grad():
        assert_product(twin(kept["normed/input"]), kept["normed/input"], kept["normed/weight"].T, twin.bias)
    assert all(torch.equal(a, b) for a, b in zip(twin.buffers(), model.normed.buffers(), strict=True))
    assert layer_shapes(model, x) == {"fc": (10, 4, 4), "normed": (5, 4, 4)}
    twin(kept["normed/input"])  # whose one step is that of this pass
    assert all(torch.equal(a, b) for a, b in zip(twin.buffers(), model.normed.buffers(), strict=True))
    with pytest.raises(StudyError, match="fc is called with different weights"):
        study.capture_layers(SetAnew(2, 1), x, path)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"layers": ["mdi"]}, "no layer matches 'mdi'.*Did you mean 'mid'.*Allowed: "),
        ({"layers": ["unused"]}, "does not call unused"),
        ({"roles": ["fpro"]}, "Did you mean 'fprop'"),
        ({"roles": ["dgrad"], "layers": ["up"]}, "one number to differentiate"),
    ],
)
def test_what_cannot_be_captured(tmp_path, given, says):
    model, x, _ = twice()
    with pytest.raises(StudyError, match=says):
        study.capture_layers(model, x, tmp_path / "x.safetensors", **given)
    assert not list(tmp_path.iterdir()) and not any(module._forward_hooks for module in model.modules())
    with pytest.raises(StudyError, match="no linear layer"):
        study.capture_layers(nn.ReLU(), x, tmp_path / "x.safetensors")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """This file as the user's own module."""
    monkeypatch.setitem(sys.modules, "users_model", sys.modules[__name__])
    return "users_model:twice"


def test_layers_from_a_model_and_from_its_file_are_the_same(module, tmp_path):
    given = {"spec": ["e5m3", "kahan(e5m3)"], "role": "fprop,dgrad,wgrad", "most": 3, "layers": ["up", "mid", "head"]}
    kind = study.kind("layers")(model=module, **given)
    first = study.run(kind, tmp_path / "a")
    assert len(first.rows) == 3 * 3 * 2 and study.run(kind, tmp_path / "a").computed == 0
    shapes = {(row["layer"], row["role"]): (row["M"], row["K"], row["N"]) for row in first.rows}
    assert (
        shapes["mid", "fprop"] == (3, 8, 3)
        and shapes["up", "wgrad"] == (3, 8, 3)
        and shapes["head", "dgrad"] == (3, 3, 3)
    )
    (path,) = (tmp_path / "a").glob("operands-*.safetensors")
    again = study.run(study.kind("layers")(captured=str(path), **given), tmp_path / "b").rows
    skipped = {*TIME_COLUMNS, "model", "cell"}
    assert [{k: v for k, v in row.items() if k not in skipped} for row in again] == [
        {k: v for k, v in row.items() if k not in skipped} for row in first.rows
    ]
    kept = load_file(path)
    row = next(row for row in first.rows if (row["layer"], row["role"], row["label"]) == ("mid", "wgrad", "e5m3"))
    a, b = kept["mid/grad"].T[[0, 4, 7]], kept["mid/input"][:, [0, 4, 7]]
    truth = a.double() @ b.double()
    error = gs.qmatmul(a, b, row["spec"]).double() - truth
    assert float(error.norm() / truth.norm()) == pytest.approx(row["rel_fro"], rel=FLOAT64)
    assert pickle.loads(pickle.dumps(kind)).parts == kind.parts
    seen(kind, first.rows, tmp_path)


BAD_LAYERS = [
    ({}, "one source"),
    ({"model": "users_model:twice", "captured": "x.safetensors"}, "one source"),
    ({"model": "users_model"}, "module:function"),
    ({"model": "no_such_module_here:f"}, "no module 'no_such_module_here'"),
    ({"model": "users_model:twise"}, "Did you mean 'twice'"),
    ({"model": "users_model:Twice"}, "returned Twice"),
    ({"model": "nofile.py:f"}, "no file 'nofile.py'. Allowed: module:function or file.py:function"),
    ({"model": "users_model:twice", "layers": ["hed"]}, "Did you mean 'head'"),
    ({"model": "users_model:twice", "layers": "unused"}, "calls none of unused"),
    ({"model": "users_model:twice", "role": "grad"}, "allowed: fprop, dgrad, wgrad"),
    ({"captured": "nofile.safetensors"}, "no file.*Allowed: a .safetensors file of captured operands"),
    ({"captured": "other.safetensors"}, "no NAME/input"),
    ({"captured": "forward.safetensors", "role": "wgrad"}, "no up/grad, which wgrad needs"),
    ({"captured": "forward.safetensors", "layers": "upp"}, "Did you mean 'up'"),
    ({"captured": "mixed.safetensors"}, "do not belong together"),
]


@pytest.mark.parametrize(("given", "says"), BAD_LAYERS, ids=[str(n) for n in range(len(BAD_LAYERS))])
def test_models_that_do_not_do(module, tmp_path, monkeypatch, given, says):
    monkeypatch.chdir(tmp_path)
    model, x, _ = twice()
    study.capture_layers(model, x, "forward.safetensors", layers=["up"])
    save_file({"w": torch.ones(2)}, "other.safetensors")
    save_file({"up/input": torch.ones(2, 3), "up/weight": torch.ones(4, 5)}, "mixed.safetensors")
    with pytest.raises(StudyError, match=says):
        study.kind("layers")(**given).cells()


def test_dry_runs_cost_and_create_nothing(files, module, tmp_path):
    words = {
        "chunk": [],
        "hardware": [],
        "gemm": ["--a", "x.npy", "--b", "one.pt", "--transpose", "b"],
        "layers": ["--model", module, "--layers", "up"],
    }
    for kind, given in words.items():
        done = CliRunner().invoke(app, ["study", "run", kind, *given, "--out", str(tmp_path / "none"), "--dry-run"])
        assert done.exit_code == 0 and "Nothing was computed" in done.output, done.output
    assert not (tmp_path / "none").exists() and read_rows(tmp_path)[0] == []
