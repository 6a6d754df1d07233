"""The kind "layers" on files of ``gemmsim.capture``: every product of a model, not those of linear layers alone."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.rounding import FLOAT64
from torch import nn

import gemmsim as gs
from gemmsim import study


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(16, 16)

    def forward(self, x):
        q = self.q(x)
        return (q @ x.mT).softmax(-1) @ x


def captured(folder, **options):
    torch.manual_seed(1)
    model = nn.Sequential(Attends(), nn.Linear(16, 4))
    x = torch.randn(2, 6, 16)
    path = gs.capture(model, to=folder / "operands.safetensors", **options).run(x)
    return path, x


def test_products_of_a_capture_are_cells(tmp_path):
    path, x = captured(tmp_path)
    kind = study.kind("layers")(captured=str(path), role="fprop,wgrad", spec=["bf16", "fp32"], most=0)
    summary = study.run(kind, tmp_path / "out")
    rows = {(row["layer"], row["role"], row["label"]): row for row in summary.rows}
    layers = {layer for layer, _, _ in rows}
    assert layers == {"0.q", "0", "0#1", "1"}
    assert (rows["0.q", "fprop", "bf16"]["M"], rows["0.q", "fprop", "bf16"]["K"]) == (12, 16)
    assert (rows["0#1", "fprop", "bf16"]["M"], rows["0#1", "fprop", "bf16"]["K"]) == (6, 6)
    assert all(rows[layer, "fprop", "bf16"]["rel_fro"] > rows[layer, "fprop", "fp32"]["rel_fro"] for layer in layers)
    assert kind.finding(summary.rows)


def test_the_error_is_that_of_the_captured_operands(tmp_path):
    path, x = captured(tmp_path, roles="fprop")
    file = load_file(path)
    (name,) = {key[:-2] for key in file if key.startswith("1/")}
    a, b = file[f"{name}/a"], file[f"{name}/b"]
    kind = study.kind("layers")(captured=str(path), layers="1", spec=["bf16"], most=0)
    (row,) = study.run(kind, tmp_path / "out").rows
    exact = a.double() @ b.double()
    error = (gs.qmatmul(a, b, ": bf16").double() - exact).norm() / exact.norm()
    assert row["rel_fro"] == pytest.approx(float(error), rel=FLOAT64)


@pytest.mark.parametrize(
    ("options", "given", "says"),
    [
        ({"roles": "fprop"}, {"role": "wgrad"}, "no product of wgrad.*roles in it: fprop"),
        ({}, {"layers": "0.k"}, "no layer matches '0.k'"),
    ],
)
def test_what_the_file_does_not_hold(tmp_path, options, given, says):
    path, _ = captured(tmp_path, **options)
    with pytest.raises(study.StudyError, match=says):
        study.run(study.kind("layers")(captured=str(path), **given), tmp_path / "out")


def test_convolutions_and_empty_products_are_left_out(tmp_path):
    path = tmp_path / "operands.safetensors"
    with gs.capture(to=path):
        torch.conv1d(torch.ones(1, 2, 5), torch.ones(3, 2, 2))
        torch.ones(0, 3) @ torch.ones(3, 2)
    with pytest.raises(study.StudyError, match="no product of fprop"):
        study.run(study.kind("layers")(captured=str(path)), tmp_path / "out")
    save_file({"a/b/c/d/e": torch.ones(2)}, path)
    with pytest.raises(study.StudyError, match="NAME/input"):
        study.run(study.kind("layers")(captured=str(path)), tmp_path / "out")
