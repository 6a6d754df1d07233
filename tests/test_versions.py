"""Other releases of PyTorch: nothing holds one back, and what an older one lacks is mended or refused."""

from __future__ import annotations

import re
from importlib.metadata import requires

import pytest
import torch
from support import ROOT, assert_bitwise_equal, run_python

import gemmsim as gs
from gemmsim.nn import layer_base
from gemmsim.ops import scaling, torch_versions
from gemmsim.ops.torch_versions import TorchVersionError, has

HEADING = "# PyTorch and what it asks for"


def names(text: str) -> set[str]:
    """Packages of requirement lines, in the form in which registries compare them."""
    found = (re.match(r"[A-Za-z0-9._-]+", line) for line in text.splitlines() if not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", match[0]).lower() for match in found if match}


def test_what_pytorch_asks_for_is_pinned_under_its_own_heading():
    ours, theirs = (ROOT / "constraints.txt").read_text(encoding="utf-8").split(HEADING)
    asked = names("\n".join(requires("torch") or []))
    assert "torch" in names(theirs) and asked
    assert not (names(ours) & ({"torch", "setuptools"} | asked))
    assert not [name for name in names(ours) if name.startswith(("nvidia-", "cuda-"))]


def test_the_makefile_leaves_that_part_out():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"sed '/^{HEADING}/,$$d' constraints.txt" in makefile
    assert "$(if $(TORCH),checks,test)" in makefile


def test_the_oldest_release_is_the_one_that_the_page_names():
    (oldest,) = re.findall(r'"torch>=(\d+\.\d+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    page = (ROOT / "docs/howto/pytorch_tools.md").read_text(encoding="utf-8")
    assert f"gemmsim runs with PyTorch {oldest} and newer" in page


@pytest.mark.parametrize("version", ["2.9.0+cu128", "2.11.0", "2.12.0a0+git1", "2.13.0", "3.0.1", "unknown"])
def test_releases_are_compared_as_numbers(version):
    assert has((2, 12), version) is not version.startswith(("2.9", "2.11"))


def test_a_norm_without_bias_names_the_release_that_has_it(monkeypatch):
    monkeypatch.setattr(layer_base, "has", lambda release: False)
    with pytest.raises(TorchVersionError, match=r"bias=False .*; allowed: PyTorch 2\.12 or newer, and this is "):
        gs.nn.QGroupNorm(2, 4, bias=False)
    assert gs.nn.QGroupNorm(2, 4).bias is not None


def test_scaled_formats_under_vmap_have_the_same_bits_without_views_of_other_dtypes(monkeypatch):
    formats = gs.QAffineFormats(fprop="e4m3 : e8m10", use_scaling=True, weight_scaled_format="e4m3",
                                input_scaled_format="e4m3")  # fmt: skip
    a, b = torch.randn(3, 4, 5) * 2.0**-30, torch.randn(3, 5, 6) * 2.0**20
    monkeypatch.setattr(scaling, "_VIEWS", False)
    assert_bitwise_equal(
        torch.vmap(lambda a, b: gs.qmatmul(a, b, formats))(a, b),
        torch.stack([gs.qmatmul(*pair, formats) for pair in zip(a, b, strict=True)]),
    )


def test_views_of_bits_under_vmap_name_the_release_that_has_them(monkeypatch):
    def refused(t):
        raise RuntimeError("Batching rule not implemented for aten::view.dtype")

    monkeypatch.setattr(torch_versions, "_VIEWS", False)
    with pytest.raises(TorchVersionError, match=r"torch\.vmap of .*; allowed: PyTorch 2\.13 or newer, and this is "):
        torch_versions.viewed(type("Batched", (), {"view": lambda self, dtype: refused(self)})(), torch.int32)
    assert torch.equal(torch_versions.viewed(torch.ones(2), torch.int32), torch.ones(2).view(torch.int32))


UNCOMPILED = """
import torch
from gemmsim.ops import torch_versions

torch_versions.COMPILES = (99, 0)  # as if no compiler could follow this package
import gemmsim as gs

torch.manual_seed(0)
x, w = torch.randn(4, 32, requires_grad=True), torch.randn(32, 8, requires_grad=True)
plain = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
block = torch.nn.Sequential(gs.nn.QLinear(32, 16, spec="e4m3 : e5m10"), gs.mx.MXLinear(16, 32, config="mxfp8_e4m3"))


def inside(t):
    with gs.emulate("e4m3 : e5m10"):
        return plain(t * 2) + 1


def product(t):
    return gs.qmatmul(t.sin(), w, "e4m3 : e5m10").cos()


def bits(f):
    x.grad = None
    y = f(x)
    y.square().sum().backward()
    return y.detach(), x.grad


for f in (product, block, inside, lambda t: gs.quantizer("e4m3")(t) + 1):
    want, got = bits(f), bits(torch.compile(f, backend="aot_eager"))
    assert all(map(torch.equal, want, got)), f
with gs.emulate("e4m3 : e5m10"):
    around = torch.compile(plain, backend="aot_eager")
    assert all(map(torch.equal, bits(plain), bits(around)))
assert all(map(torch.equal, bits(plain), bits(around)))  # and no longer, after the context
for f in (product, block):
    try:
        torch.compile(f, backend="eager", fullgraph=True)(x)
    except torch._dynamo.exc.Unsupported as error:
        assert "gemmsim is compiled by PyTorch 99.0 or newer, and this is " in str(error), error
    else:
        raise AssertionError("a whole graph")
print("done")
"""


def test_a_compiler_that_cannot_follow_runs_gemmsim_between_its_graphs_with_the_same_bits():
    done = run_python(UNCOMPILED, timeout=400)
    assert done.stdout.strip().endswith("done"), done.stderr[-3000:]
