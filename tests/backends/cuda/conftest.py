from __future__ import annotations

import pytest


@pytest.fixture
def cache_dir(tmp_path, monkeypatch):
    """A folder for compiled kernels that does not exist yet."""
    folder = tmp_path / "kernels"
    monkeypatch.setenv("GEMMSIM_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def casts_on_the_host(monkeypatch):
    """Kernels run on the host here, on its tensors: the casts around them are the CPU backend's, with the same bits."""
    from gemmsim.backends import cpu
    from gemmsim.backends.cuda.casts import cast
    from gemmsim.backends.cuda.tensor_cores import wgmma_block_scaled

    monkeypatch.setattr(cast.CONVERSIONS, "quantize", cpu.quantize)
    monkeypatch.setattr(wgmma_block_scaled, "decode_blocks", cpu.decode_blocks)


@pytest.fixture
def compiled_before(request):
    """Whether the test need not compile these pairs of a source and an architecture again."""
    from support import traces

    ask = not (request.config.getoption("--remember") or request.config.getoption("--long"))

    def compiled_before(*kernels):
        return traces.compiled_before(request.node.nodeid, request.node.path, kernels, ask)

    return compiled_before


def pytest_itemcollected(item: pytest.Item) -> None:
    """Kernels that were run before, and nothing about them has changed, are not compiled and run again.

    Tests of compiling and keeping run none, and leave files behind that they do not expect a second time.
    """
    if item.path.parent.name != "jit" or item.path.name == "test_inspect.py":
        item.add_marker("kept")
