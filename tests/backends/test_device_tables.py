"""Tables that kernels read through raw pointers, with a GPU that is made of Python: how they are made, which are kept for
captured graphs, and of which streams the allocator hears."""

from __future__ import annotations

import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import cuda_gemm, host_gemm
from support.device_tables import gpu  # noqa: F401

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu, device_tables
from gemmsim.backends.cuda.simt import k_permutation, launch_cache
from gemmsim.backends.device_tables import Table, Tables
from gemmsim.lowering.orders import Order
from gemmsim.ops.conv import im2col_indices as conv_windows

CPU = torch.device("cpu")


def pair(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(5, device=device), torch.ones(2, device=device)


def test_a_table_is_made_once_on_the_host_and_kept(gpu):  # noqa: F811
    tables, asked = Tables(8), []

    def make(device):
        asked.append(device)
        return pair(device)

    first = tables.get("x", CPU, make)
    assert tables.get("x", CPU, make) is first and asked == [CPU] and first.lasting
    assert tables.get("y", CPU, make) is not first
    assert not gpu.recorded and not gpu.of_graphs()


def test_a_copy_is_waited_for(gpu, monkeypatch):  # noqa: F811
    """A table is read by whichever stream comes next: it must not be copied while others go on."""
    copies = []

    class Host:
        def to(self, *args, **more):
            copies.append((args, more))
            return torch.ones(1)

    Tables(8).get("x", torch.device("cuda", 0), lambda where: (Host(),))
    assert copies == [((torch.device("cuda", 0),), {})], "from pageable memory, and not non_blocking"


def test_what_is_made_under_capture_is_the_graphs_own(gpu):  # noqa: F811
    tables, asked, device = Tables(8), [], torch.device("meta")

    def make(where):
        asked.append(where)
        return pair(CPU)

    gpu.capturing = True
    found = tables.get("x", device, make)
    assert asked == [device] and not found.lasting, "by operations of the graph"
    found.read()
    assert not gpu.of_graphs(), "its memory is the graph's"
    gpu.capturing = False
    assert tables.get("x", device, make).lasting and asked == [device, CPU], "and was not kept"


def test_what_a_graph_points_to_outlives_the_caches(gpu):  # noqa: F811
    tables = Tables(2)
    shown, other = tables.get("shown", CPU, pair), tables.get("other", CPU, pair)
    gpu.capturing = True
    assert tables.get("shown", CPU, pair) is shown
    pointers = {t.data_ptr() for t in shown.tensors}
    assert gpu.of_graphs() == pointers and other.tensors[0].data_ptr() not in pointers
    gpu.capturing = False
    tables.clear()
    del shown
    assert gpu.of_graphs() == pointers and tables.get("shown", CPU, pair).tensors[0].data_ptr() not in pointers


def test_other_streams_are_recorded_once(gpu):  # noqa: F811
    tables = Tables(8)
    table = tables.get("x", CPU, pair)
    pointers = [t.data_ptr() for t in table.tensors]
    tables.get("x", CPU, pair)
    assert not gpu.recorded, "the stream that the memory was made on"
    gpu.stream = 2
    for _ in range(3):
        tables.get("x", CPU, pair)
        table.read()
    assert gpu.recorded == [(p, 2) for p in pointers]
    gpu.stream = 3
    tables.get("x", CPU, pair)
    gpu.stream = 1
    tables.get("x", CPU, pair)
    assert gpu.recorded == [(p, s) for s in (2, 3) for p in pointers]


def test_the_capture_asked_about_is_that_of_the_tables_device(gpu, monkeypatch):  # noqa: F811
    entered = []

    class Device:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            entered.append(self.device)
            gpu.capturing = True

        def __exit__(self, *_):
            gpu.capturing = False

    monkeypatch.setattr(torch.cuda, "device", Device)
    assert device_tables.is_capturing(torch.device("cuda", 1)) and entered == [torch.device("cuda", 1)]
    assert not device_tables.is_capturing(torch.device("cuda", 0)) and len(entered) == 1


def test_the_oldest_is_forgotten_first():
    tables = Tables(2)
    first, _ = tables.get(1, CPU, pair), tables.get(2, CPU, pair)
    assert tables.get(1, CPU, pair) is first
    tables.get(3, CPU, pair)
    assert tables.get(1, CPU, pair) is first and sorted(what for what, _ in tables._kept) == [1, 3]


def test_a_table_of_the_cpu_asks_nothing_of_cuda(monkeypatch):
    for name in ("current_device", "current_stream", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: pytest.fail("asked"))
    Tables(2).get(1, CPU, pair).read()


SPECS = [":interleaved(4, bf16/sr8)", ":shuffled(chunked(8, interleaved(3, e5m10)), 5)"]


@pytest.mark.parametrize("text", SPECS)
def test_products_whose_terms_are_permuted(gpu, text):  # noqa: F811
    """The same bits however the table came about; a launch with a graph's own pointer is not remembered."""
    spec = GemmSpec.of(text)
    a, b = (torch.randn(6, 29), torch.randn(29, 5))
    want, got = torch.empty(6, 5), torch.empty(6, 5)
    cpu.gemm(a, b, spec, want, 3)
    gpu.capturing = True
    host_gemm(a, b, spec, got, 3)
    assert_bitwise_equal(got, want, context="captured before any other call")
    assert not launch_cache._ready and not k_permutation._tables._kept and not gpu.of_graphs()
    gpu.capturing = False
    host_gemm(a, b, spec, got.zero_(), 3)
    assert_bitwise_equal(got, want, context="not captured")
    assert len(launch_cache._ready) == len(k_permutation._tables._kept) == 1
    gpu.capturing = True
    host_gemm(a, b, spec, got.zero_(), 3)
    assert_bitwise_equal(got, want, context="captured, remembered")
    (found,) = launch_cache._ready.values()
    assert {found.args.term} <= gpu.of_graphs()
    gpu.capturing, gpu.stream = False, 2
    host_gemm(a, b, spec, got, 3)
    assert (found.args.term, 2) in gpu.recorded, "remembered launches, too"


def test_windows_of_a_convolution(gpu, monkeypatch):  # noqa: F811
    windows = conv_windows.Windows((2, 3), (5, 1), (2, 2), (25, 1), 1, 0, 50)
    want = [0, 1, 2, 5, 6, 7]
    gpu.capturing = True
    assert windows.rows(CPU).tolist() == want and not conv_windows._tables._kept
    gpu.capturing = False
    rows, cols = windows.rows(CPU), windows.cols(CPU)
    assert rows.tolist() == want and cols.tolist() == [0, 1, 25, 26] and not gpu.of_graphs()
    gpu.capturing = True
    assert windows.rows(CPU) is rows and gpu.of_graphs() == {rows.data_ptr()}
    gpu.capturing, gpu.stream = False, 2
    assert windows.cols(CPU) is cols and gpu.recorded == [(cols.data_ptr(), 2)]
    monkeypatch.setattr(conv_windows, "_KEPT", 3)
    assert windows.rows(CPU) is not rows, "too long to be kept: made on the device by each call"


def permuted(levels, k_of):
    """The order of terms by its definition: lanes of each interleaved level one after the other."""
    if not levels or not k_of or all(order != Order.INTERLEAVED for order, _ in levels):
        return k_of
    (order, n), inner = levels[0], levels[1:]
    if order == Order.SHUFFLED:
        return permuted(inner, k_of)
    if order == Order.INTERLEAVED:
        lanes = [k_of[lane :: min(n, len(k_of))] for lane in range(min(n, len(k_of)))]
    else:
        size = -(-len(k_of) // n) if order == Order.SPLITK else n
        lanes = [k_of[i : i + size] for i in range(0, len(k_of), size)]
    return [k for lane in lanes for k in permuted(inner, lane)]


def test_places_are_those_of_the_definition():
    rng = random.Random(4)
    for _ in range(300):
        levels = tuple(
            (rng.choice([Order.INTERLEAVED, Order.INTERLEAVED, Order.CHUNKED, Order.SPLITK]), rng.randint(1, 9))
            for _ in range(rng.randint(1, 4))
        )
        levels = ((Order.SHUFFLED, 0), *levels) if rng.random() < 0.3 else levels
        k = rng.choice([0, 1, 2, rng.randint(3, 200)])
        found = k_permutation._places(levels, k, CPU)
        assert found.dtype == torch.int32 and found.tolist() == permuted(levels, list(range(k))), (levels, k)


def test_specs_that_read_terms_in_order_have_no_table(gpu):  # noqa: F811
    a, b, out = torch.randn(3, 8), torch.randn(8, 2), torch.empty(3, 2)
    for text in (":e5m10", ":chunked(4, e5m10)"):
        args = cuda_gemm.gemm_args(a, b, out, 0)
        assert cuda_gemm.fill_orders(args, gs.GemmSpec.of(text).accumulator, CPU) is None and not args.term
    assert isinstance(cuda_gemm.fill_orders(args, gs.GemmSpec.of(SPECS[0]).accumulator, CPU), Table) and args.key
