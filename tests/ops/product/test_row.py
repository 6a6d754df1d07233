"""``row``: stochastic roundings of some rows alone draw the bits of the whole product."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import reference
from gemmsim.arithmetic import UnsupportedSpec
from gemmsim.ops.errors import SeedError

#: Random bits in operands, products, sums, totals and results; more than 16 of them; members, blocks, tables, addends.
SPECS = [
    ":e5m10/sr8", "e4m3/sr4 : bf16/sr8", "e4m3/sr4 * e5m2/sr4 : fp32 -> e5m10/sr6", ":mul=e4m3/sr20, add=e5m10/sr18",
    ":chunked(4, e5m2/sr8, e5m10/sr8) -> bf16/sr8", ":pairwise(bf16/sr8, 3)", ":splitk(3, e5m10/sr3, bf16/sr3)",
    ":kahan(e5m2/sr8)", ":chunked(8, exact(e5m2/sr8))", ":fixed(12, 4, rounding=sr8)", ":shuffled(e5m10/sr8, 7)",
    "mxfp8_e4m3 : scaled(fp32/sr8, fp32/sr8) -> e5m10/sr4", "e4m3/sr8 : hw(hopper, wgmma, e4m3) -> bf16/sr4",
    ":sequential(e5m10/sr8, seed=11)", "int4/sr3 : int(20)", ":e6m9/src9",
]  # fmt: skip


def operands(m: int, k: int, n: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(m + k + n)
    return torch.randn(m, k, generator=g).to(dtype), torch.randn(k, n, generator=g).to(dtype)


@pytest.mark.parametrize("spec", SPECS)
def test_any_partition_of_rows_gives_the_bits_of_the_whole(spec):
    a, b = operands(21, 37, 19)
    whole = gs.qmatmul(a, b, spec, seed=5)
    for sizes in ([1] * 21, [8, 8, 5], [2, 19], [20, 1]):
        first, parts = 0, []
        for size in sizes:
            parts.append(gs.qmatmul(a[first : first + size], b, spec, seed=5, row=first))
            first += size
        assert_bitwise_equal(torch.cat(parts), whole, context=f"{spec} in {sizes}")
    if "seed=" not in spec:
        assert not torch.equal(gs.qmatmul(a[3:], b, spec, seed=5), whole[3:]), "the sample decides nothing"


@pytest.mark.parametrize("spec", [s for s in SPECS if "mxfp8" not in s])
def test_the_reference_draws_the_same(spec):
    a, b = operands(3, 20, 4, torch.float64)
    for row in (1, 70_000, 2**32 - 1):
        want = reference.gemm(a.tolist(), b.tolist(), spec, seed=9, row0=row)
        got = gs.qmatmul(a, b, spec, seed=9, row=row)
        assert_bitwise_equal(got, torch.tensor(want, dtype=torch.float64), context=f"{spec}, row {row}")


@pytest.mark.parametrize("spec", SPECS[:6])
def test_batches_linear_layers_and_finishing_steps(spec):
    a, b = operands(24, 16, 5)
    whole = gs.qmatmul(a, b, spec, seed=5)
    batch = gs.qmatmul(a[6:].view(3, 6, 16), b, spec, seed=5, row=6)
    assert_bitwise_equal(batch.reshape(18, 5), whole[6:], context=spec)
    # Rows of all matrices count, M for each one. Each matrix of b would draw from its own place for its cast.
    if "*" not in spec and not spec.startswith("e4m3"):
        several = torch.randn(4, 16, 5)
        both = gs.qmatmul(a.view(4, 6, 16), several, spec, seed=5)
        assert_bitwise_equal(gs.qmatmul(a.view(4, 6, 16)[2:], several[2:], spec, seed=5, row=12), both[2:])
    bias = torch.randn(5)
    linear = gs.qlinear(a, b.mT, bias, spec, seed=5)
    assert_bitwise_equal(gs.qlinear(a[10:], b.mT, bias, spec, seed=5, row=10), linear[10:], context=spec)
    assert_bitwise_equal(gs.qmm(a[4:], b, spec, seed=5, row=4), whole[4:], context=spec)
    strided = a.t().contiguous().t()
    assert_bitwise_equal(gs.qmatmul(strided[7:9], b, spec, seed=5, row=7), whole[7:9], context=spec)
    assert gs.qmatmul(a[:0], b, spec, seed=5, row=7).shape == (0, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_every_dtype(dtype):
    a, b = operands(9, 20, 6, dtype)
    spec = "e4m3/sr4 : e5m10/sr8 -> e5m2/sr5"
    assert_bitwise_equal(gs.qmatmul(a[5:], b, spec, seed=1, row=5), gs.qmatmul(a, b, spec, seed=1)[5:])


def test_palettes_and_addends():
    a, b = operands(12, 20, 6)
    select = torch.arange(72).view(12, 6) % 2
    spec = ":palette(e5m2/sr8, chunked(4, e5m10/sr8))"
    whole = gs.qmatmul(a, b, spec, seed=3, select=select)
    assert_bitwise_equal(gs.qmatmul(a[5:], b, spec, seed=3, select=select[5:], row=5), whole[5:])
    c, spec = torch.randn(12, 6), ":sequential(e5m10/sr8, init=c_last)"
    whole = gs.qmatmul(a, b, spec, seed=3, c=c)
    assert_bitwise_equal(gs.qmatmul(a[5:], b, spec, seed=3, c=c[5:], row=5), whole[5:])


@pytest.mark.parametrize("spec", [":e5m10/sr8", "e4m3/sr4 : bf16/sr8 -> e5m10/sr5"])
def test_the_gradient_of_a_row_is_that_of_the_batch(spec):
    a, b = operands(12, 20, 6)
    g = torch.randn(12, 6)

    def gradient(x: torch.Tensor, up: torch.Tensor, **more: int) -> torch.Tensor:
        x = x.clone().requires_grad_()
        gs.qmatmul(x, b, spec, seed=3, **more).backward(up)
        assert x.grad is not None
        return x.grad

    whole = gradient(a, g)
    for i in range(0, 12, 5):
        assert_bitwise_equal(gradient(a[i : i + 5], g[i : i + 5], row=i), whole[i : i + 5], context=spec)


def test_deterministic_specs_do_not_depend_on_it():
    a, b = operands(5, 20, 6)
    for spec in (None, ":e5m10", "e4m3 : kahan(bf16)"):
        assert_bitwise_equal(gs.qmatmul(a, b, spec, row=77), gs.qmatmul(a, b, spec))


def test_vmap_gives_each_example_the_row():
    a, b = operands(12, 20, 6)
    got = torch.vmap(lambda x: gs.qmatmul(x, b, ":e5m10/sr8", seed=3, row=4))(a.view(3, 4, 20))
    want = torch.stack([gs.qmatmul(x, b, ":e5m10/sr8", seed=3, row=4) for x in a.view(3, 4, 20)])
    assert_bitwise_equal(got, want)


def test_compiled_code_takes_another_row_without_compiling_for_each():
    import torch._dynamo.testing

    torch._dynamo.reset()
    counts = torch._dynamo.testing.CompileCounter()
    a, b = operands(6, 20, 6)
    compiled = torch.compile(lambda x, y, r: gs.qmatmul(x, y, "e4m3/sr4 : e5m10/sr8", seed=3, row=r), backend=counts)
    for row in (0, 1, 2, 3, 50, 1000):
        assert_bitwise_equal(compiled(a, b, row), gs.qmatmul(a, b, "e4m3/sr4 : e5m10/sr8", seed=3, row=row))
    assert counts.frame_count <= 3
    torch._dynamo.reset()


@pytest.mark.parametrize("row", [-1, 2**32, 1.5, "3", None, True])
def test_what_is_no_row(row):
    a, b = operands(3, 4, 5)
    for call in (gs.qmatmul, gs.qmm, lambda x, y, spec, **more: gs.qlinear(x, y.mT, None, spec, **more)):
        with pytest.raises(SeedError, match=r"row=.*an integer from 0 to 2\*\*32 - 1"):
            call(a, b, ":e5m10/sr8", row=row)


def test_what_always_draws_from_its_first_element_on_is_refused():
    a, b = operands(4, 32, 5)
    with pytest.raises(UnsupportedSpec, match="row=2 with operand a"):
        gs.qmatmul(a, b, "bfp(8,16)/sr8 : fp32", seed=1, row=2)
    with pytest.raises(UnsupportedSpec, match="row=2 with quantisers"):
        gs.qmatmul(a, b, gs.QAffineFormats(fprop=":fp32", input_quant="e4m3/sr8"), seed=1, row=2)
    gs.qmatmul(a, b, gs.QAffineFormats(fprop=":fp32", input_quant="e4m3/sr8"), seed=1)
