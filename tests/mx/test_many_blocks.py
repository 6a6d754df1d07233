"""Conversions of many blocks at once against each block alone, which tests/mx compares with the reference."""

from __future__ import annotations

import math

import pytest
import torch

import gemmsim as gs
from gemmsim.backends import cpu
from gemmsim.formats import parse

FORMATS = ["mxfp8_e4m3", "mxfp8_e5m2/ceil", "mxfp6_e2m3/even", "mxfp6_e3m2", "mxfp4", "mxfp4/rceil", "mxint8", "mxint4", "mxint2", "nvfp4", "nvfp4/tensor", "mxfp4/b16"]  # fmt: skip
#: From here on results are written past the caches.
LARGE = 1 << 20


@pytest.fixture(params=cpu.ISAS, autouse=True)
def isa(request: pytest.FixtureRequest):
    before = cpu.isa()
    try:
        cpu.set_isa(request.param)
    except cpu.LibraryError:
        pytest.skip(f"no {request.param} here")
    yield
    cpu.set_isa(before)


def numbers(count: int) -> torch.Tensor:
    """Normal numbers of many magnitudes, zeros of both signs, and a few NaN and infinities."""
    generator = torch.Generator().manual_seed(count)
    x = (
        torch.randn(count, generator=generator)
        * torch.exp2(torch.randint(-140, 100, (count // 16,), generator=generator).float()).repeat_interleave(16)[
            :count
        ]
    )
    x[torch.randint(0, count, (count // 8,), generator=generator)] = -0.0
    x[: count // 8 : 3] = 0.0
    for at, value in (
        (count // 2 + 5, math.nan),
        (count // 2 + 40, math.inf),
        (count - 70, -math.inf),
        (count // 3, 1e-45),
    ):
        x[at] = value
    return x


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.contiguous().view(torch.int32), right.contiguous().view(torch.int32))


@pytest.mark.parametrize("packing", ["bytes", None])
@pytest.mark.parametrize("name", FORMATS)
def test_many_blocks_are_encoded_and_decoded_as_single_ones(name: str, packing: str | None) -> None:
    size = parse(name).block_size
    second = torch.tensor(0.37) if parse(name).tensor_scale else None
    x = numbers(size * 200)
    whole = gs.mx.encode(x, name, packing=packing, tensor_scale=second)
    # rows of one block, with a stride between elements: no group of sixteen, nothing in place
    apart = torch.empty(200, size, 2)[..., 0].copy_(x.view(200, size))
    for row in range(200):
        one = gs.mx.encode(apart[row], name, packing=packing, tensor_scale=second)
        per = one.codes.numel()
        assert torch.equal(one.codes, whole.codes[row * per : (row + 1) * per]), row
        assert torch.equal(one.scales, whole.scales[row : row + 1]), row
        value = gs.mx.decode(one, name, packing=packing)
        assert same(value, gs.mx.decode(whole, name, packing=packing)[row * size : (row + 1) * size]), row


@pytest.mark.parametrize("count", [32 * 131, LARGE + 32 * 7])
@pytest.mark.parametrize("name", FORMATS)
def test_fake_quantising_is_encoding_and_decoding(name: str, count: int) -> None:
    x = numbers(count)
    expected = gs.mx.decode(gs.mx.encode(x, name), name)
    assert same(gs.mx.quantize(x, name), expected)
    assert same(gs.mx.quantize(x, name, out=x), expected)  # in place
