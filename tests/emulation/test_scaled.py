"""Products of scaled float8 operands and of groups: as PyTorch's CPU has them where the accumulator is wide."""

import math

import pytest
import torch
from emulation.agreement import NARROW, numbers, same, with_gradients
from support.rounding import assert_near
from torch.fx.experimental.proxy_tensor import make_fx

import gemmsim as gs
from gemmsim.emulation.context import emulate

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
aten = torch.ops.aten


def operands(m: int = 16, k: int = 32, n: int = 48) -> tuple[torch.Tensor, torch.Tensor]:
    return numbers(m, k).to(E4M3), numbers(n, k).to(E4M3).t()


WIDTHS = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize(
    "out_dtype, rows, bias",
    # PyTorch's result of eight bits comes with neither factors of rows nor a bias.
    [(None, False, False), *((d, rows, bias) for d in WIDTHS for rows in (False, True) for bias in (False, True))],
)
def test_wide_accumulators_give_pytorchs_results(out_dtype, rows, bias):
    a, b = operands()
    scales = (torch.full((16, 1), 0.5), torch.full((1, 48), 4.0)) if rows else (torch.tensor(2.0), torch.tensor(0.25))
    if rows:
        scales[0][3], scales[1][0, 5] = 8.0, 0.125
    added = numbers(48).to(out_dtype) if bias else None
    expected = torch._scaled_mm(a, b, *scales, bias=added, out_dtype=out_dtype)
    with emulate(":fp32"):
        found = torch._scaled_mm(a, b, *scales, bias=added, out_dtype=out_dtype)
    assert found.dtype == expected.dtype
    exact = a.double() @ b.double() * scales[0].double() * scales[1].double()
    bound = 40 * 2.0**-24 * (a.double().abs() @ b.double().abs()) * (scales[0] * scales[1])
    step = {torch.float32: 2.0**-22, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10, E4M3: 2.0**-3}[found.dtype]
    total = exact if added is None else exact + added.double()
    for out in (found, expected):
        assert (
            (out.double() - total).abs()
            <= bound + step * total.abs() + 2.0**-10 * (out.dtype == E4M3)  # half of its subnormals' quantum
        ).all()


def test_the_accumulator_is_the_specs():
    a, b = operands()
    one, two = torch.tensor(1.0), torch.tensor(2.0)
    product = gs.qmatmul(a.float(), b.float(), NARROW)
    with emulate(NARROW):
        same(torch._scaled_mm(a, b, one, one, out_dtype=torch.float32), product)
        same(aten._scaled_mm.default(a, b, one, two, out_dtype=torch.float32), product * 2)
        rows = torch.rand(16, 1, generator=torch.Generator().manual_seed(1))
        columns = torch.rand(1, 48, generator=torch.Generator().manual_seed(2))
        bias = numbers(48, dtype=torch.bfloat16)
        found = torch._scaled_mm(a, b, rows, columns, bias, out_dtype=torch.bfloat16)
        same(found, (product * columns * rows + bias.float()).bfloat16())
        mixed = torch._scaled_mm(a.float().to(E5M2), b, one, one, out_dtype=torch.float32)
        same(mixed, gs.qmatmul(a.float().to(E5M2).float(), b.float(), NARROW))
        more = torch.nn.functional
        if hasattr(more, "scaled_mm"):
            how = (more.ScalingType.TensorWise, two, more.ScalingType.TensorWise)
            same(more.scaled_mm(a, b, one, *how, output_dtype=torch.float32), product * 2)


def test_two_factors_are_one():
    """Rounded to float32 by themselves, as cuBLASLt has them: one after the other, a third of the results differ."""
    a, b = operands(64, 32, 64)
    one, two = torch.tensor(0.3), torch.tensor(1.7)
    product = gs.qmatmul(a.float(), b.float(), NARROW)
    with emulate(NARROW):
        found = torch._scaled_mm(a, b, one, two, out_dtype=torch.float32)
        wide = torch._scaled_mm(a, b, one * -1, two, out_dtype=torch.bfloat16)
    exact = (product.double() * (one * two).double()).float() + 0.0
    same(found, exact)
    same(wide, (-exact + 0.0).bfloat16())
    assert not torch.equal(found, product * two * one)


def test_results_of_eight_bits_saturate_after_the_last_factor():
    a, b = operands(64, 128, 64)
    one, last = torch.tensor(1.0), torch.tensor(20.0)
    a[0] = math.nan
    product = gs.qmatmul(a.float(), b.float(), ":fp32")
    with emulate(":fp32"):
        found = torch._scaled_mm(a, b, one, one, scale_result=last, out_dtype=E4M3)
        ignored = torch._scaled_mm(a, b, one, one, scale_result=last, out_dtype=torch.bfloat16)
    assert (product[1:] * last).abs().max() > 480  # where PyTorch's conversion to e4m3 gives NaN
    want = (product * last).clamp(-448, 448)
    same(found[1:].float(), want[1:].to(E4M3).float())
    assert found[0].float().isnan().all()
    same(ignored[1:], product[1:].bfloat16())


def test_a_specs_output_rounds_the_scaled_sums():
    a, b = operands()
    scale = torch.tensor(0.3)
    with emulate(NARROW + " -> e5m2"):
        found = torch._scaled_mm(a, b, scale, scale, out_dtype=torch.float32)
    acc = gs.qmatmul(a.float(), b.float(), NARROW)
    want = gs.quantize(acc.double() * (scale * scale).double(), "e5m2").float() + 0.0
    same(found, want)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def compiled(x, y):
        with emulate(NARROW + " -> e5m2"):
            return torch._scaled_mm(x, y, scale, scale, out_dtype=torch.float32)

    same(compiled(a, b), want)


def test_scales_of_blocks_are_refused():
    a, b = operands(16, 32, 48)
    scales = torch.ones(16, 2).to(torch.float8_e8m0fnu), torch.ones(2, 48).to(torch.float8_e8m0fnu)
    with emulate(NARROW), pytest.raises(gs.UnsupportedSpec, match="blocks"):
        torch._scaled_mm(a, b, *scales, out_dtype=torch.bfloat16)


GROUPS = {
    "rows": ((24, 32), (3, 32, 16), [8, 8, 24]),
    "columns": ((3, 8, 32), (32, 48), [16, 32, 48]),
    "terms": ((8, 48), (48, 16), [16, 32, 48]),
    "batch": ((3, 8, 32), (3, 32, 16), None),
}


def by_group(name: str, a: torch.Tensor, b: torch.Tensor, multiply) -> torch.Tensor:
    """A grouped product, one group after the other."""
    ends = GROUPS[name][2]
    spans = [] if ends is None else list(zip([0, *ends], ends, strict=False))
    if name == "rows":
        return torch.cat([multiply(a[s:e], b[g]) for g, (s, e) in enumerate(spans)])
    if name == "columns":
        return torch.cat([multiply(a[g], b[:, s:e]) for g, (s, e) in enumerate(spans)], 1)
    if name == "terms":
        return torch.stack([multiply(a[:, s:e], b[s:e]) for s, e in spans])
    return torch.stack([multiply(x, y) for x, y in zip(a, b, strict=True)])


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_groups(name, dtype):
    left, right, ends = GROUPS[name]
    a, b = numbers(*left, dtype=dtype), numbers(*right, dtype=dtype)
    offs = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    call = lambda x, y: torch._grouped_mm(x, y, offs=offs)  # noqa: E731
    native = call(a, b)
    with emulate(NARROW):
        found, grads = with_gradients(call, a, b)
        same(aten._grouped_mm.default(a, b, offs), found.detach())
    expected, wanted = with_gradients(lambda x, y: by_group(name, x, y, lambda p, q: gs.qmatmul(p, q, NARROW)), a, b)
    same(found, expected)
    for g, w in zip(grads, wanted, strict=True):
        same(g, w)
    with emulate(":fp32"):
        again = call(a, b)
    if dtype is torch.bfloat16:  # float32 sums in two orders, rounded
        assert_near(again, native, 1)
    else:
        assert_near(
            again,
            native,
            max(a.shape[-1], b.shape[-2]),
            size=float((by_group(name, a.abs(), b.abs(), torch.matmul)).max()),
        )


def test_rows_beyond_the_last_group_are_zero_and_scaled_groups_are_refused():
    a, b = numbers(24, 32), numbers(2, 32, 16)
    with emulate(NARROW):
        found = torch._grouped_mm(a, b, offs=torch.tensor([8, 16], dtype=torch.int32))
        assert not found[16:].any() and found[:16].any()
        with pytest.raises(gs.UnsupportedSpec, match="grouped"):
            torch._scaled_grouped_mm(a.to(E4M3), b.to(E4M3), torch.ones(24), torch.ones(2, 16))


class Grouped(torch.nn.Module):
    def forward(self, a, b, ends):
        return torch._grouped_mm(a, b, offs=ends)


ENDS = [torch.tensor(ends, dtype=torch.int32) for ends in ([2, 3, 24], [8, 16, 24], [0, 0, 5])]


@pytest.mark.parametrize("how", ["export", "strict export", "make_fx", "compile"])
def test_recorded_programs_take_the_sizes_of_groups_from_data(how):
    """And not those of the example that they were recorded with, or any that fakes of it were given."""
    model, (a, b) = Grouped(), (numbers(24, 32), numbers(3, 32, 16))
    with emulate(NARROW):
        wanted = [model(a, b, ends) for ends in ENDS]
        if how == "compile":
            program = torch.compile(model, backend="aot_eager", fullgraph=True)
        elif how == "make_fx":
            program = make_fx(model, tracing_mode="symbolic")(a, b, ENDS[0])
        else:
            program = torch.export.export(model, (a, b, ENDS[0]), strict=how == "strict export").module()
        if how == "compile":
            found = [program(a, b, ends) for ends in ENDS]
    if how != "compile":
        found = [program(a, b, ends) for ends in ENDS]
    for ours, theirs in zip(found, wanted, strict=True):
        same(ours, theirs)
    assert not torch.equal(wanted[0], wanted[1])
