"""Products of block formats on the CUDA backend, run on the host: the bits of the CPU backend."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import _run, compile_on_host, cuda_blocks, host_blocks, sources_of_blocks

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec, SpecError, UnsupportedSpec
from gemmsim.backends import cublas, cuda
from gemmsim.backends.cuda.simt import encoded as cuda_coded
from gemmsim.backends.encoded_operand import Coded
from gemmsim.formats import BlockFormat
from gemmsim.ops.product import blocks as block_product

SPECS = [
    "mxfp8_e4m3 : scaled(fp32)", "mxfp8_e5m2*mxfp4 : scaled(e5m10, bf16)", "mxfp6_e3m2 : scaled(exact(fp32), fp32)",
    "nvfp4 : scaled(fp32, fp32, n=4)", "nvfp4/tensor : scaled(chunked(4, e5m10, fp32), fp32) -> bf16",
    "nvfp4/tensor*nvfp4 : scaled(pairwise(fp32), bf16/rtz)", "mxint8/torchmx : scaled(int(24), fp32)",
    "mxint8 : scaled(fixed(24, 12), fp32)", "mxfp4/b7*mxfp8_e4m3/b14 : scaled(e6m9, e5m10/sr8)",
    "mxfp8_e4m3 : scaled(kahan(bf16), fp64)", "mxfp8_e4m3 : scaled(e4m3/sr8, fp32, n=1)", "mxfp8_e4m3*e5m2 : scaled(bf16, tf32)",
    "bf16*mxfp6_e2m3 : scaled(fp32, fp32, n=8)", "mxfp4/b8 : scaled(interleaved(2, e5m10), bf16)", "mxfp8_e4m3 : scaled(fp64, e5m10/ru)",
    "mxfp8_e4m3 : scaled(hw(hopper, wgmma, e4m3), fp32)", "mx(e3m2,e5m2)/b16 : scaled(fp32, e8m3)", "mxfp4 : scaled(fp32) -> e4m3/sr8",
    "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)", "mxfp8_e5m2*mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e5m2, e4m3)", "mxfp4 : hw(blackwell, mxf4, e2m1)",
    "mxfp6_e3m2 * mxfp4 : hw(blackwell, mxf8f6f4, e3m2, e2m1)",
    "nvfp4 : hw(blackwell, mxf4nvf4, e2m1)", "nvfp4/tensor : hw(rtx_blackwell, mxf4nvf4, e2m1)", "e2m1*nvfp4 : hw(blackwell, mxf4nvf4, e2m1)",
]  # fmt: skip


def operands(spec: GemmSpec, seed: int, wild: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Spread magnitudes; wild: NaN, infinities, zero blocks and the ends of the scales' range."""
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(21, 75, generator=g), torch.randn(75, 19, generator=g)
    if wild:
        a = a * torch.exp2(torch.randint(-130, 110, (21, 1), generator=g).float())
        b = b * torch.exp2(torch.randint(-140, 120, (1, 19), generator=g).float())
        a[3, 5], a[4, 40], b[10, 2], a[7], b[:, 5] = float("nan"), float("inf"), float("-inf"), 0.0, -0.0
        a[9:, ::2] = 0.0  # groups of products that are zero, where b has the others
        b[1::2, 9:] = 0.0
    return a, b


def codes(x: object, batch: torch.Size) -> object:
    return cuda_coded.readable(x, batch) if isinstance(x, Coded) else x.expand(*batch, *x.shape[-2:])


@pytest.fixture(scope="module")
def compiled():
    calls = []
    for text in SPECS:
        spec = GemmSpec.of(text)
        for wild in (False, True):
            a, b = block_product.operands_of("test", *operands(spec, 1, wild), spec)
            calls.append(
                (codes(a, torch.Size()), codes(b, torch.Size()), spec, torch.empty(21, 19, dtype=torch.float64))
            )
    compile_on_host(sources_of_blocks(calls))


@pytest.mark.parametrize("wild", [False, True], ids=["plain", "wild"])
@pytest.mark.parametrize("text", SPECS)
def test_scaled_sums_are_the_cpus(text, wild, compiled):
    spec = GemmSpec.of(text)
    a, b = block_product.operands_of("test", *operands(spec, 1, wild), spec)
    want, _ = block_product.matmul(a, b, spec, 5, torch.float64, (21, 19))
    got = torch.empty(21, 19, dtype=torch.float64)
    run = host_blocks(codes(a, torch.Size()), codes(b, torch.Size()), spec, got, 5)
    assert_bitwise_equal(got, want, context=f"{text} {run}")


@pytest.mark.parametrize("packing", ["lo_first", "hi_first"])
def test_packed_codes_batches_and_odd_terms(packing):
    spec = GemmSpec.of("mxfp4 : scaled(fp32)")
    g = torch.Generator().manual_seed(3)
    x, y = torch.randn(3, 1, 9, 45, generator=g), torch.randn(2, 45, 10, generator=g)
    fmt = spec.a
    assert isinstance(fmt, BlockFormat)
    left, right = gs.mx.encode(x, fmt, packing=packing), gs.mx.encode(y, fmt, dim=-2, packing=packing)
    a = Coded(left.codes, left.scales, fmt, -1, 45, packing)
    b = Coded(right.codes, right.scales, fmt, -2, 45, packing)
    want, _ = block_product.matmul(a, b, spec, 0, torch.float32, (3, 2, 9, 10))
    got = torch.empty(3, 2, 9, 10)
    host_blocks(codes(a, torch.Size([3, 2])), codes(b, torch.Size([3, 2])), spec, got)
    assert_bitwise_equal(got, want)


def test_dense_codes_come_one_a_byte():
    x = torch.randn(5, 70, generator=torch.Generator().manual_seed(4))
    for name, packing in (("mxfp6_e3m2", "dense"), ("mxfp4", "hi_first")):
        fmt = gs.formats.parse(name)
        packed, plain = gs.mx.encode(x, fmt, packing=packing), gs.mx.encode(x, fmt, packing="bytes")
        operand = Coded(packed.codes, packed.scales, fmt, -1, 70, packing)
        assert torch.equal(cuda_coded.one_a_byte(operand), plain.codes)


def test_other_accumulators_are_refused():
    a = torch.randn(4, 32)
    with pytest.raises(UnsupportedSpec, match="scaled"):
        cuda.gemm_blocks(a, a.t(), GemmSpec.of("mxfp8_e4m3 : fp32"), torch.empty(4, 4))
    with pytest.raises(SpecError):
        GemmSpec.of("e4m3 : scaled(fp32)")


def test_values_are_narrowed_only_where_bfloat16_holds_them():
    spec = GemmSpec.of("mxfp8_e4m3 : fp32")
    x = torch.tensor([[448.0, 0.0, float("nan"), 2.0**-133]])
    narrow = cublas.narrowed(x, x, spec)
    assert narrow[0].dtype == narrow[1].dtype == torch.bfloat16 and narrow[0].isnan().any()
    for hard in (2.0**-134, 1 + 2.0**-8):
        assert cublas.narrowed(x, torch.tensor([[hard]]), spec)[0] is x
    assert cublas.narrowed(x, x, GemmSpec.of("mxfp8_e4m3*bf16 : fp32"))[1] is x


COUNTED = [
    "mxint8 : scaled(fixed(14, 12, overflow=wrap), fp32)", "mxint8/torchmx : scaled(int(12, saturate), fp32)",
    "nvfp4/tensor : scaled(chunked(4, fixed(8, 2, rounding=rne), bf16), fp32)", "mxfp4*e4m3 : scaled(fixed(6, 3, rounding=sr8), bf16)",
]  # fmt: skip


@pytest.mark.parametrize("text", COUNTED)
def test_overflows_in_groups_are_the_cpus(text):
    spec = GemmSpec.of(text)
    a, b = operands(spec, 2, False)
    want, got = (torch.full((21, 19), 3) for _ in range(2))
    block_product.count_overflows(a, b, spec, want, 6)
    left, right = block_product.operands_of("test", a, b, spec, 6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_blocks, "launch", _run)
        cuda_coded.count_coded_overflows(left, right, spec, got, 6)
    assert_bitwise_equal(got, want)
    assert int(want.sum()) > 3 * 21 * 19


def test_a_scaled_sum_without_a_register_that_counts():
    x = torch.ones(2, 32, dtype=torch.uint8)
    with pytest.raises(UnsupportedSpec, match=r"allowed: int\(...\), fixed"):
        cuda.count_overflows_blocks(
            x, x.T, GemmSpec.of("mxfp8_e4m3 : scaled(fp32)"), torch.zeros(2, 2, dtype=torch.int64)
        )
