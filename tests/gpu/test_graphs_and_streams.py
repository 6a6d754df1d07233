"""Tables on the device under captured graphs and on several streams: what a graph was shown stays, whatever is forgotten;
what one stream made another may read; and memory is not used again while a stream still reads it."""

from __future__ import annotations

import functools
import gc

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.backends.cuda.simt import k_permutation, launch_cache, lookup
from gemmsim.ops.conv import im2col_indices as conv_windows

pytestmark = pytest.mark.gpu


@functools.cache
def multiplier() -> gs.acc.ProductTable:
    """A table that lies in global memory."""
    return gs.acc.table(torch.randn(256, 256, generator=torch.Generator().manual_seed(9)), "e4m3")


#: Operators that read terms through tables on the device, of an image or two matrices.
CALLS = {
    "convolution": lambda x, w: gs.qconv2d(x.view(2, 8, 20, 20), w.view(16, 8, 3, 3), spec=":e6m9", padding=1),
    "interleaved convolution": lambda x, w: gs.qconv2d(
        x.view(2, 8, 20, 20), w.view(16, 8, 3, 3), spec=":interleaved(4, bf16/sr8)", seed=3
    ),
    "interleaved": lambda x, w: gs.qmatmul(x.view(100, 64), w.view(64, 18), ":interleaved(4, bf16/sr8)", seed=3),
    "shuffled": lambda x, w: gs.qmatmul(x.view(100, 64), w.view(64, 18), ":shuffled(chunked(16, e5m10), 7)"),
    "nested": lambda x, w: gs.qmatmul(x.view(100, 64), w.view(64, 18), ":chunked(24, interleaved(5, e5m10))"),
    "table": lambda x, w: gs.qmatmul(x.view(100, 64), w.view(64, 18), f":lookup({multiplier()}, bf16/sr8)", seed=3),
    "scaled": lambda x, w: gs.qmatmul(x.view(100, 64), w.view(64, 18), "mxfp8_e4m3 : scaled(interleaved(2, bf16))"),
}
#: Clock cycles for which a stream does nothing, so that what it was given later still waits.
LONG = 200_000_000


def operands(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(6400, generator=g).cuda(), torch.randn(1152, generator=g).cuda()


def forget() -> None:
    """Clears every cache that holds a table."""
    launch_cache._ready.clear()
    k_permutation._tables.clear()
    conv_windows._tables.clear()
    lookup._tables.clear()
    gc.collect()


def overwrite() -> list[torch.Tensor]:
    """Takes the memory that is free for small tensors, and fills it with what no table has."""
    sizes = [2**i for i in range(7, 17)] * 40
    return [torch.full((size // 4,), -1, dtype=torch.int32, device="cuda") for size in sizes]


def check(got: torch.Tensor, name: str, x: torch.Tensor, w: torch.Tensor, context: str) -> None:
    assert_bitwise_equal(got.cpu(), CALLS[name](x.cpu(), w.cpu()), context=f"{name} {context}")


@pytest.mark.parametrize("known", [True, False], ids=["tables before", "tables under capture"])
@pytest.mark.parametrize("name", CALLS)
def test_a_graph_keeps_what_it_points_to(name, known):
    x, w = operands(1)
    CALLS[name](x, w)  # loads the kernels
    if not known:
        if name == "table":
            pytest.skip("a table of products has to be there before")
        forget()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = CALLS[name](x, w)
    forget()
    garbage = overwrite()
    for seed in (2, 3):
        for mine, other in zip((x, w), operands(seed), strict=True):
            mine.copy_(other)
        graph.replay()
        check(captured, name, x, w, f"replay {seed}")
    check(CALLS[name](x, w), name, x, w, "after the graph")
    assert all(int(t.max()) == -1 for t in garbage)


@pytest.mark.parametrize("name", CALLS)
def test_a_table_that_one_stream_made_is_read_by_another(name):
    x, w = operands(4)
    CALLS[name](x, w)
    forget()
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        torch.cuda._sleep(LONG)
        one = CALLS[name](x, w)
    with torch.cuda.stream(second):
        two = CALLS[name](x, w)
    torch.cuda.synchronize()
    for got in (one, two):
        check(got, name, x, w, "two streams")


@pytest.mark.parametrize("name", CALLS)
def test_memory_is_not_used_again_while_a_stream_reads_it(name):
    """A table made on one stream and forgotten while another has yet to read it."""
    x, w = operands(5)
    other = torch.cuda.Stream()
    forget()
    CALLS[name](x, w)
    with torch.cuda.stream(other):
        CALLS[name](x, w)  # its other tensors have their memory already
    torch.cuda.synchronize()
    with torch.cuda.stream(other):
        torch.cuda._sleep(LONG)
        got = CALLS[name](x, w)
    forget()
    garbage = overwrite()
    torch.cuda.synchronize()
    check(got, name, x, w, "other stream")
    assert all(int(t.max()) == -1 for t in garbage)
