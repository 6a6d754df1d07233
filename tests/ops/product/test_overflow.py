"""Overflow events equal the reference's, on every instruction set; what counts and what is refused."""

from __future__ import annotations

import math
import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

import gemmsim as gs
from gemmsim import acc, reference
from gemmsim.backends import cpu


@pytest.fixture(autouse=True)
def _restore():
    name, threads = cpu.isa(), torch.get_num_threads()
    yield
    cpu.set_isa(name)
    torch.set_num_threads(threads)


def register(rng: random.Random, integer: bool) -> str:
    width, overflow = rng.choice([1, 4, 8, 12, 24, 53]), rng.choice(["wrap", "saturate"])
    if integer:
        extra = [rng.choice(["", word]) for word in (", when=end", ", signed=false", ", shift=3")]
        return f"int({width}, {overflow}{''.join(extra)})"
    rounding = rng.choice(["rtz", "rne", "rd", "rna", "sr8"])
    return f"fixed({width}, {rng.choice([0, 4, 10, -3])}, rounding={rounding}, overflow={overflow})"


def random_spec(rng: random.Random, integer: bool) -> gs.GemmSpec | None:
    text = register(rng, integer)
    if rng.random() < 0.4:
        text = rng.choice(
            [f"chunked(3, {text}, fp32)", f"pairwise({text}, 2)", f"interleaved(4, {text})", f"shuffled({text}, 3)",
             f"splitk(3, {text}, fixed(6,1))", f"chunked(5, promote({text}, 2, bf16), fp32)"]
        )  # fmt: skip
    try:
        return gs.GemmSpec.of(f"{rng.choice(['int8', 'int4', ''] if integer else ['', 'e4m3', 'e4m3/sr4'])} : {text}")
    except ValueError:  # totals of a register that wraps have no format to meet in
        return None


def operands(rng: random.Random, integer: bool, m: int, k: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    scale = rng.choice([1.0, 4.0, 100.0, 2.0**40, 2.0**100])
    a, b = (torch.randn(*shape, dtype=torch.float64, generator=g) * scale for shape in ((m, k), (k, n)))
    if integer:
        return a.round(), b.round()
    if rng.random() < 0.4:
        a.view(-1)[0], b.view(-1)[1], b.view(-1)[-1] = math.inf, rng.choice([math.nan, 3e38, 0.0]), -0.0
    return a, b


@pytest.mark.kept
@pytest.mark.parametrize("integer", [True, False])
@pytest.mark.parametrize("start", range(2))
def test_counts_equal_the_reference(integer, start):
    rng, done, events = random.Random(start), 0, 0
    while done < 150:
        spec = random_spec(rng, integer)
        if spec is None:
            continue
        m, k, n = rng.choice([(1, 5, 3), (3, 17, 33), (9, 12, 5), (2, 40, 35)])
        a, b = operands(rng, integer, m, k, n)
        want = torch.tensor(reference.count_overflows(a.tolist(), b.tolist(), spec, seed=7))
        for name in isas():
            cpu.set_isa(name)
            got = gs.count_overflows(a, b, spec, seed=7)
            assert_bitwise_equal(got, want, context=f"{spec} on {name}")
        events += int(got.sum())
        done += 1
    assert events > 1000


HUGE = [
    # sums that a stand-in for a large product would get wrong
    ("int(16, saturate, when=end)", [2.0**101, -(2.0**102)]),
    ("int(16, saturate, when=end)", [2.0**101, -(2.0**101)]),
    ("int(16, when=end)", [2.0**900, 5.0, -(2.0**900), 2.0**15]),
    ("int(16, when=end)", [2.0**900, 5.0]),
    ("int(16, when=end, signed=false, shift=2)", [-(2.0**200), -7.0, 2.0**200]),
    ("int(53, saturate, shift=63)", [2.0**105]),
    ("int(53, saturate, when=end, shift=63)", [2.0**105, -(2.0**63) - 2.0**11, 2.0**114]),
    ("int(12, shift=63)", [2.0**500, -(2.0**74), -1.0]),
    ("fixed(8, 1074, overflow=wrap)", [2.0**100, 2.0**-1074, 2.0**-1067]),
    ("fixed(8, 1074, rounding=rtz)", [2.0**100, -(2.0**-1074), -(2.0**-1066)]),
    ("fixed(8, 4, overflow=wrap)", [2.0**900, 1.0]),
]


@pytest.mark.parametrize(("text", "products"), HUGE)
def test_products_beyond_128_bits(text, products):
    a, b = torch.tensor([products], dtype=torch.float64), torch.ones(len(products), 1, dtype=torch.float64)
    assert gs.count_overflows(a, b, f":{text}").tolist() == reference.count_overflows(a, b, f":{text}")
    assert gs.qmatmul(a, b, f":{text}").tolist() == reference.gemm(a, b, f":{text}")


def test_operand_casts_come_first_and_the_output_cast_has_no_influence():
    a, b = torch.full((1, 3), 100.4), torch.ones(3, 1)
    assert gs.count_overflows(a, b, "int8 : int(8)").item() == 1
    assert gs.count_overflows(a, b, "int4 : int(8) -> e4m3").item() == 0
    with pytest.raises(ValueError, match="whole numbers"):
        gs.count_overflows(a, b, acc.int(8))


def test_shapes_are_those_of_matmul():
    g = torch.Generator().manual_seed(1)
    a = torch.randint(-100, 100, (2, 1, 3, 20), generator=g).float()
    b = torch.randint(-100, 100, (5, 20, 4), generator=g).float()
    for x, y in [(a, b), (a[0, 0], b[0]), (a[0, 0, 0], b), (a, b[0, :, 0]), (a[0, 0, 0], b[0, :, 0])]:
        got = gs.count_overflows(x, y, acc.int(10, "saturate"))
        assert got.shape == (x @ y).shape and got.dtype == torch.int64
        left, right = x.reshape(-1, 20)[0], y.reshape(-1, 20, y.shape[-1])[0] if y.dim() > 1 else y[:, None]
        assert got.reshape(-1)[0] == reference.count_overflows([left.tolist()], right, acc.int(10, "saturate"))[0][0]
    assert gs.count_overflows(torch.empty(2, 0), torch.empty(0, 3), acc.int(4)).tolist() == [[0] * 3] * 2
    assert gs.count_overflows(torch.empty(0, 4), torch.empty(4, 3), acc.int(4)).shape == (0, 3)


def test_threads_strides_compilation_and_vmap_change_nothing():
    g = torch.Generator().manual_seed(2)
    a, b = (torch.randint(-100, 100, shape, generator=g).float() for shape in ((70, 60), (60, 90)))
    spec = "int8 : chunked(16, fixed(14, 0, rounding=rne), fp32)"
    torch.set_num_threads(1)
    want = gs.count_overflows(a, b, spec)
    assert int(want.sum()) > 0
    for threads in (2, 3):
        torch.set_num_threads(threads)
        assert torch.equal(gs.count_overflows(a, b, spec), want)
    assert torch.equal(acc.count_overflows(a.t().contiguous().t(), b.t().contiguous().t(), spec), want)
    assert torch.equal(torch.vmap(lambda row: gs.count_overflows(row, b, spec))(a), want)
    compiled = torch.compile(lambda x, y: gs.count_overflows(x, y, spec), fullgraph=True, backend="eager")
    assert torch.equal(compiled(a.requires_grad_(), b), want)
    assert gs.count_overflows(a.to("meta"), b.to("meta"), spec).shape == want.shape


@pytest.mark.parametrize("text", ["e5m10", ":exact()", ":fixed(16,8)", ":chunked(8, fp32)", ":binned()"])
def test_an_accumulator_without_a_register_is_refused(text):
    with pytest.raises(gs.SpecError, match="allowed: int"):
        gs.count_overflows(torch.ones(1, 1), torch.ones(1, 1), text)
    with pytest.raises(gs.SpecError, match="allowed: int"):
        reference.count_overflows([[1.0]], [[1.0]], text)


def test_operands_that_do_not_fit_are_refused():
    with pytest.raises(gs.ShapeError):
        gs.count_overflows(torch.ones(2, 3), torch.ones(2, 3), acc.int(8))
    with pytest.raises(gs.DTypeError):
        gs.count_overflows(torch.ones(2, 3, dtype=torch.int32), torch.ones(3, 3), acc.int(8))
    with pytest.raises(gs.SeedError):
        gs.count_overflows(torch.ones(2, 3), torch.ones(3, 3), acc.int(8), seed=-1)
