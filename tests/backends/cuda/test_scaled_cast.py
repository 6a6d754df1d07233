"""Scaled casts, run on the host: the bits of the CPU backend for every grid, scale, bias, block, dtype and layout."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import run_rows_on_host

from gemmsim import tensor_quant as tq
from gemmsim.backends import cpu
from gemmsim.backends.cuda.casts import scaled_casts as cuda
from gemmsim.tensor_quant import operators, torch_fallback
from gemmsim.tensor_quant.grids import ELEMENTS, grid_of

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
INTEGERS = ["int8", "int8/narrow", "int4", "uint4", "uint1", "int2/narrow", "int23/narrow", "uint23"]
FLOATS = [*(str(g) for g in ELEMENTS.values()), "e2m1/toward_zero", "e4m3/away"]
SPECIALS = [torch.nan, torch.inf, -torch.inf, -0.0, 1e-44, -3e-310, 3e38, 2.0**-24]


@pytest.fixture(autouse=True)
def on_host() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "launch", run_rows_on_host)
        yield


def numbers(*shape: int, dtype: torch.dtype = F32, specials: bool = True) -> torch.Tensor:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(*shape, generator=g, dtype=torch.float64) * torch.exp2(torch.randint(-9, 9, shape, generator=g))
    flat = x.view(-1)
    flat[10:40] = torch.arange(-15, 15) / 4  # ties
    if specials:
        flat[: len(SPECIALS)] = torch.tensor(SPECIALS)
    flat[-40:-3] = 0
    return x.to(dtype)


def amaxes(*shape: int) -> torch.Tensor:
    a = torch.rand(shape, generator=torch.Generator().manual_seed(2)) * 8
    a.view(-1)[:1] = 1.5
    if a.numel() > 5:
        a.view(-1)[1:5] = torch.tensor([0.0, 2.0**-24, 2.0**-23, 1e-44])
    return a


def compare(name: str, x: torch.Tensor, amax=None, bias=None, out_dtype=None, out=None, integers=False) -> int:
    grid = grid_of(name).numbers
    want = torch.empty(x.shape, dtype=out_dtype or x.dtype)
    got = torch.full_like(want, 7.0) if out is None else out
    status = cpu.scaled_cast(x, grid, want, amax=amax, bias=bias, integers=integers)
    where = f"{name} {x.dtype} {tuple(x.shape)} {x.stride()} amax {None if amax is None else tuple(amax.shape)}"
    assert cuda.scaled_cast(x, grid, got, amax=amax, bias=bias, integers=integers) == status, where
    assert_bitwise_equal(got.contiguous(), want, context=where)
    return status


def compare_blocks(name: str, x: torch.Tensor, size: int, scale: str, amax: float = 900.0, out=None) -> int:
    grid = grid_of(name)
    want = torch.empty_like(x, memory_format=torch.contiguous_format)
    got = torch.full_like(want, 7.0) if out is None else out
    total = torch.tensor(amax)
    second = torch_fallback.second_scale(total, grid) if scale == "e4m3" else 0.0
    status = cpu.scaled_blocks(x, grid.numbers, size, scale, second, want)
    where = f"{name} {x.dtype} {tuple(x.shape)} {x.stride()} blocks of {size} {scale}"
    found = cuda.scaled_blocks(x, grid.numbers, size, scale, total if scale == "e4m3" else None, got)
    assert found == status, where
    assert_bitwise_equal(got.contiguous(), want, context=where)
    return status


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_every_grid(name):
    x = numbers(6, 5, 41)
    status = compare(name, x, amaxes(6, 1, 1))
    assert bool(status & cpu.NEGATIVE_INPUT) == name.startswith("u")
    if name not in INTEGERS:
        compare(name, x)


@pytest.mark.parametrize(
    "shape", [(), (6, 1, 1), (1, 5, 1), (1, 1, 41), (41,), (6, 5, 1), (6, 1, 41), (6, 5, 41), (5, 1)]
)
def test_every_scale_bias_and_layout(shape):
    x = numbers(6, 5, 41)
    for view in (x, x.permute(2, 0, 1).contiguous().permute(1, 2, 0), x.repeat(2, 1, 2)[::2, :, ::2]):
        compare("int8", view, amaxes(*shape))
        compare("e4m3", view, amaxes(*shape), numbers(41, specials=False), out=torch.empty(41, 6, 5).permute(1, 2, 0))
    compare("int8/narrow", x, amaxes(1, 5, 1), amaxes(*shape))
    compare("int4", x, amaxes(*shape), integers=True)


@pytest.mark.parametrize("dtype", [F64, F16, BF16], ids=str)
def test_every_dtype(dtype):
    x = numbers(5, 77, dtype=dtype)
    compare("int8", x, amaxes(5, 1))
    compare("e4m3", x, amaxes(77).to(dtype), out_dtype=F32)
    compare("int8", numbers(5, 77), amaxes(5, 1), out_dtype=dtype)
    compare_blocks("e2m1", numbers(4, 64, dtype=dtype), 16, "e4m3")
    compare_blocks("int8", numbers(4, 50, dtype=dtype), 16, "amax")


@pytest.mark.parametrize("low", [(), (6, 1, 1), (41,)])
def test_ranges(low):
    x = numbers(6, 5, 41)
    least = -amaxes(*low) - 0.125
    for bits, high in ((8, torch.tensor(3.0)), (4, amaxes(6, 5, 1) + 1), (1, amaxes(5, 1))):
        for view in (x, x.permute(2, 0, 1).contiguous().permute(1, 2, 0)):
            want, got = torch.empty(view.shape), torch.full(view.shape, 7.0)
            cpu.affine_cast(view, least, high, bits, want)
            cuda.affine_cast(view, least, high, bits, got)
            assert_bitwise_equal(got, want, context=f"{bits} bits {low}")


@pytest.mark.parametrize("name", ["int8", "uint4", *FLOATS])
def test_blocks_of_every_grid_and_scale(name):
    x = numbers(6, 96)
    x[3] *= 2.0**-100
    x[4] *= 2.0**-126
    x = x.abs() if name == "uint4" else x
    for scale in ("amax",) if name in INTEGERS else ("amax", "e8m0", "e4m3"):
        status = compare_blocks(name, x, 16, scale)
        assert bool(status & cpu.AMAX_NOT_FINITE) == (scale != "e8m0")
    if name == "uint4":
        assert compare_blocks(name, -x, 16, "amax") & cpu.NEGATIVE_INPUT


@pytest.mark.parametrize("size", [1, 8, 12, 32, 64, 96, 500])
@pytest.mark.parametrize("scale", ["amax", "e8m0", "e4m3"])
def test_blocks_of_every_length_and_layout(size, scale):
    x = numbers(7, 3, 96)
    for view in (x, x.transpose(0, 2).contiguous().transpose(0, 2), x.repeat(1, 1, 2)[..., ::2], x[:, :, 1:90]):
        compare_blocks("e4m3", view, size, scale)
    compare_blocks("e4m3", numbers(200), size, scale)
    compare_blocks("e2m1", x, size, scale, out=torch.empty(96, 7, 3).permute(1, 2, 0))


def test_in_place_zeros_and_nothing():
    x = numbers(4, 40)
    compare("int8", x.clone(), amaxes(4, 1), out=x)
    x = numbers(4, 64)
    want = torch.empty_like(x)
    cpu.scaled_blocks(x, grid_of("e4m3").numbers, 32, "e8m0", 0.0, want)
    cuda.scaled_blocks(x, grid_of("e4m3").numbers, 32, "e8m0", None, x)
    assert_bitwise_equal(x, want)
    compare_blocks("e2m1", numbers(4, 64), 16, "e4m3", 0.0)
    compare("int8", torch.empty(0, 4), amaxes(4))
    compare_blocks("int8", torch.empty(0, 16), 16, "amax")
    many = numbers(*[2] * 10).reshape([2, 1] * 10).permute(*range(19, -1, -1))
    got, want = torch.empty_like(many), torch.empty(many.numel())
    cpu.scaled_cast(many.reshape(-1), grid_of("int8").numbers, want, amax=amaxes())
    cuda.scaled_cast(many, grid_of("int8").numbers, got, amax=amaxes())
    assert_bitwise_equal(got.reshape(-1), want)


def test_the_status_is_not_asked_for_in_vain():
    x = -numbers(4, 64, specials=False).abs() - 1
    assert cuda.scaled_cast(x, grid_of("uint4").numbers, torch.empty_like(x), amax=amaxes(), check=False) == 0
    assert cuda.scaled_blocks(x, grid_of("uint4").numbers, 16, "amax", None, torch.empty_like(x), check=False) == 0


CALLS = {
    "int8": lambda x: tq.fake_tensor_quant(x, 3.0),
    "int4 with a bias, by row": lambda x: tq.fake_tensor_quant(x, x.abs().amax(1, keepdim=True), 0.25, 4),
    "uint8": lambda x: tq.fake_tensor_quant(x.abs(), 3.0, None, 8, True),
    "integers": lambda x: tq.tensor_quant(x, 3.0)[0],
    "a range": lambda x: tq.fake_affine_tensor_quant(x, -1.0, 2.0),
    "e4m3": lambda x: tq.scaled_e4m3(x, x.abs().amax(0), None, 4, 3),
    "mxfp8": lambda x: tq.dynamic_block_quant(x, 32),
    "nvfp4": lambda x: tq.dynamic_block_quant(x, 16, None, None, (2, 1), (4, 3)),
    "int8 in blocks": lambda x: tq.dynamic_block_quant(x, 16, None, None, 8, None),
    "learned": lambda x: tq.learned_fake_tensor_quant(x, torch.tensor(2.0), 4),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_operators_reach_the_kernels(name, monkeypatch):
    """As CUDA tensors do: the public functions with this backend in place of the CPU's, forward and backward."""
    from gemmsim.backends import cuda as backend

    ran = []
    results = []
    for chosen in (cpu, backend):
        monkeypatch.setattr(operators, "backend_of", lambda x, chosen=chosen: chosen)
        monkeypatch.setattr(cuda, "launch", lambda *args: (ran.append(args[0].family), run_rows_on_host(*args)))
        x = numbers(6, 64, specials=False).requires_grad_()
        y = CALLS[name](x)
        y.sum().backward()
        results += [(y.detach(), x.grad)]
        assert bool(ran) == (chosen is backend)
    for got, want in zip(results[1], results[0], strict=True):
        assert_bitwise_equal(got, want, context=name)
    assert set(ran) == {"scaled_cast"}


def test_errors_of_values_are_those_of_the_cpu(monkeypatch):
    from gemmsim.backends import cuda as backend

    monkeypatch.setattr(operators, "backend_of", lambda x: backend)
    x = numbers(4, 64, specials=False)
    with pytest.raises(tq.SignError):
        tq.fake_tensor_quant(x, 1.0, None, 8, True)
    with pytest.raises(tq.SignError):
        tq.dynamic_block_quant(x, 16, None, None, 4, None, unsigned=True)
    x[0, 0] = torch.inf
    with pytest.raises(tq.AmaxError):
        tq.dynamic_block_quant(x, 16, None, None, 8, None)
    assert tq.dynamic_block_quant(x, 16, None, None, 8, None, nonfinite_amax="propagate").isnan().any()
