"""A product of a captured file, found by its name; convolutions that are no products are refused."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import gemmsim as gs
from gemmsim.vectors import VectorsError, captured_product


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("captured") / "o.safetensors"
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(36, 5))
    with gs.capture(net, convolutions="im2col", to=path):
        net(torch.randn(2, 2, 5, 5)).sum().backward()
        torch.matmul(torch.arange(24.0).reshape(2, 3, 4), torch.ones(4, 2))
        torch.bmm(torch.arange(24.0).reshape(2, 3, 4), torch.arange(16.0).reshape(2, 4, 2))
    return path


def test_products_are_found_by_name_and_by_its_beginning(file):
    found = captured_product(file, "2/aten.addmm/fprop/0")
    assert found.name == captured_product(file, "2/aten.addmm").name and found.a.shape == (2, 36)
    assert found.about["operator"] == "aten.addmm" and found.b.shape == (36, 5) and found.k_dim_b == 0
    bits = gs.acc.min_accumulator_bits(torch.ones_like(found.b), "int8", k_dim=found.k_dim_b)
    assert bits == gs.acc.min_accumulator_bits(torch.ones(5, 36), "int8", k_dim=1)
    windows = captured_product(file, "0/im2col/fprop/1")
    assert windows.about["group"] == 1 and windows.a.shape == (18, 9) and windows.b.shape == (9, 2)


def test_one_of_a_batch(file):
    for batch in (0, 1):
        found = captured_product(file, "-/aten.bmm", batch=batch)
        assert torch.equal(found.a, torch.arange(24.0).reshape(2, 3, 4)[batch])
        assert torch.equal(found.b, torch.arange(16.0).reshape(2, 4, 2)[batch])
    with pytest.raises(VectorsError, match="batch=2; allowed: 0 to 1"):
        captured_product(file, "-/aten.bmm", batch=2)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("2/aten.adm/fprop/0", "(?s)no product.*Did you mean '2/aten.addmm/fprop/0'"),
        ("2", "has 3 products that begin with '2'; allowed: 2/aten.addmm/fprop/0, 2/aten.mm/dgrad/0"),
        ("", "has .* products; allowed: -/aten"),
        ("0/aten.convolution_backward/wgrad/0", "(?s)image .N, C, .... and gradient.*convolutions=.im2col"),
    ],
)
def test_what_is_not_one_product(file, name, says):
    with pytest.raises(VectorsError, match=says):
        captured_product(file, name)


def test_other_files(tmp_path):
    with pytest.raises(VectorsError, match="there is no file"):
        captured_product(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("no")
    with pytest.raises(VectorsError, match="a file of gemmsim.capture"):
        captured_product(tmp_path / "text.safetensors")
    path = tmp_path / "old.safetensors"  # written before files said their orientation
    save_file(
        {
            "x/aten.convolution/fprop/0/a": torch.ones(1, 1, 3, 3),
            "x/aten.convolution/fprop/0/b": torch.ones(1, 1, 2, 2),
        },
        path,
    )
    with pytest.raises(VectorsError, match="convolution, written as image and filter"):
        captured_product(path)
    save_file({"x/aten.mm/fprop/0/a": torch.ones(2, 3), "x/aten.mm/fprop/0/b": torch.ones(2, 3)}, path)
    with pytest.raises(VectorsError, match="allowed: .*M, K.*"):
        captured_product(path)
    save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(VectorsError, match="none in this file"):
        captured_product(path)
