"""Captured files say which dimension is summed over; convolutions as products of windows give the convolution's bits."""

from __future__ import annotations

import json
from itertools import product

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import gemmsim as gs
from gemmsim.emulation import ConfigError

SPEC = "e4m3 : chunked(4, e5m4)"


def metadata(path):
    with safe_open(path, "pt") as opened:
        return opened.metadata()


def test_the_metadata_say_orientation_and_operator(tmp_path):
    path = tmp_path / "o.safetensors"
    net = nn.Sequential(nn.Linear(8, 3), nn.ReLU())
    with gs.emulate([("0", SPEC)]), gs.capture(net, to=path) as grown:
        net(torch.randn(5, 8)).sum().backward()
        torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 1))
        with safe_open(grown.partial, "pt") as partial:
            assert partial.metadata()["k_dim_b"] == "-2"
    found, about = load_file(path), metadata(path)
    assert (about["a"], about["b"], about["k_dim_a"]) == ("(..., M, K)", "(..., K, N)", "-1")
    products = json.loads(about["products"])
    assert {name.rpartition("/")[0] for name in found} == products.keys()
    assert {entry["operator"] for entry in products.values()} == {"gemmsim.matmul", "aten.bmm"}
    for name, entry in products.items():
        assert name.split("/")[1] == entry["operator"] and entry["b"] == "(..., K, N)"
        a, b = found[f"{name}/a"], found[f"{name}/b"]
        assert a.shape[int(about["k_dim_a"])] == b.shape[int(about["k_dim_b"])]


def test_the_width_of_a_captured_operand_is_that_of_its_sums(tmp_path):
    """The case in which the other orientation gives 16 bits, at which sums overflow."""
    path, b = tmp_path / "o.safetensors", torch.full((8, 2), 100.0)
    with gs.capture(to=path):
        torch.full((1, 8), -128.0) @ b
    k_dim = int(metadata(path)["k_dim_b"])
    taken = load_file(path)["-/aten.mm/fprop/0/b"]
    bits = gs.acc.min_accumulator_bits(taken, "int8", k_dim=k_dim)
    assert bits == gs.acc.min_accumulator_bits(taken.T, "int8", k_dim=1) == 18
    assert gs.acc.overflow_certificate(taken, "int8", bits, k_dim=k_dim).tolist() == [True, True]
    assert not gs.acc.overflow_certificate(taken, "int8", bits - 1, k_dim=k_dim).any()
    for wrong in (None, 2, -3, True, "b"):
        with pytest.raises(gs.SpecError, match="k_dim"):
            gs.acc.min_accumulator_bits(taken, "int8", k_dim=wrong)


CASES = [
    (1, (2, 3, 11), (4, 3, 3), {"stride": 2, "padding": 1}),
    (2, (2, 3, 9, 8), (6, 3, 3, 2), {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}),
    (2, (1, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "padding": 2}),
    (2, (3, 4, 4, 4), (4, 1, 2, 2), {"groups": 4}),
    (2, (2, 2, 6, 5), (3, 2, 3, 5), {"padding": "same", "dilation": (2, 1)}),
    (2, (2, 7, 7), (3, 2, 3, 3), {"padding": 1}),  # unbatched
    (3, (1, 2, 4, 5, 3), (2, 2, 2, 3, 1), {"stride": (1, 2, 1), "dilation": (2, 1, 1)}),
]


@pytest.mark.parametrize(("case", "config"), list(product(range(len(CASES)), [None, SPEC])))
def test_products_of_windows_have_the_bits_of_the_convolution(tmp_path, case, config):
    axes, image, weight, options = CASES[case]
    torch.manual_seed(case)
    x, w, path = torch.randn(image), torch.randn(weight), tmp_path / "c.safetensors"
    with gs.emulate(config), gs.capture(convolutions="im2col", to=path):
        getattr(torch.nn.functional, f"conv{axes}d")(x, w, **options)
    found, products = load_file(path), json.loads(metadata(path)["products"])
    want = getattr(gs, f"qconv{axes}d")(x, w, spec=SPEC, **options)
    want = want if len(image) == axes + 2 else want[None]
    groups = options.get("groups", 1)
    assert [entry["group"] for entry in products.values()] == list(range(groups))
    parts = []
    for name, entry in products.items():
        assert name.split("/")[1:3] == ["im2col", "fprop"] and "conv" in entry["operator"]
        assert entry["kernel"] == list(weight[2:]) and entry["order_of_k"].startswith("channels, kernel ")
        a, b = found[f"{name}/a"], found[f"{name}/b"]
        assert b.shape == (w[0].numel(), w.shape[0] // groups)
        result = gs.qmatmul(a, b, SPEC)
        parts.append(result.reshape(want.shape[0], *entry["output_size"], -1).movedim(-1, 1))
    assert torch.equal(torch.cat(parts, 1), want)


def test_the_order_of_k_and_m_is_the_one_that_is_named(tmp_path):
    path, image = tmp_path / "c.safetensors", torch.arange(2 * 2 * 3 * 4.0).reshape(2, 2, 3, 4)
    with gs.capture(convolutions="im2col", to=path):
        torch.conv2d(image, torch.ones(1, 2, 2, 3))
    (entry,) = json.loads(metadata(path)["products"]).values()
    assert entry["order_of_k"] == "channels, kernel rows, kernel columns"
    assert entry["order_of_m"] == "images, output rows, output columns"
    a, m = load_file(path)["-/im2col/fprop/0/a"], 0
    for n, row, column in product(range(2), range(2), range(2)):
        terms = [image[n, c, row + i, column + j] for c, i, j in product(range(2), range(2), range(3))]
        assert a[m].tolist() == terms
        m += 1
    assert m == len(a)


def test_rows_are_chosen_without_the_others(tmp_path):
    path, conv = tmp_path / "c.safetensors", nn.Conv2d(4, 6, 3, groups=2, bias=False)
    x = torch.randn(2, 4, 6, 6)
    with gs.capture(conv, convolutions="im2col", to=path):
        conv(x)
    whole = load_file(path)
    with gs.capture(conv, convolutions="im2col", max_rows=5, to=path):
        conv(x)
    some = load_file(path)
    at = torch.linspace(0, 31, 5, dtype=torch.float64).round().long()
    for n in range(2):
        assert torch.equal(some[f"-/im2col/fprop/{n}/a"], whole[f"-/im2col/fprop/{n}/a"][at])
        assert torch.equal(some[f"-/im2col/fprop/{n}/b"], whole[f"-/im2col/fprop/{n}/b"])


def test_backward_and_transposed_convolutions_stay_as_they_are(tmp_path):
    path = tmp_path / "c.safetensors"
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ConvTranspose2d(2, 1, 3))
    for config in (None, SPEC):
        with gs.emulate(config), gs.capture(net, convolutions="im2col", to=path):
            net(torch.randn(1, 1, 5, 5)).sum().backward()
        products = json.loads(metadata(path)["products"])
        assert {name.split("/")[1] for name in products if name.startswith("0/") and "/fprop/" in name} == {"im2col"}
        others = {name: entry for name, entry in products.items() if "/im2col/" not in name}
        assert others and all("conv" in entry["operator"] and "(M, K)" not in entry["a"] for entry in others.values())
        assert any(name.startswith("1/") and "/fprop/" in name for name in others)


def test_another_word_is_refused():
    with pytest.raises(ConfigError, match="convolutions='unfold'; allowed: 'image' or 'im2col'"):
        gs.capture(convolutions="unfold")
