"""``gs.scaled_mm``: PyTorch's arguments, checks and early returns, cuBLASLt's epilogue, and what is refused."""

from __future__ import annotations

import pickle
import warnings

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.libraries.scaled_mm import RejectedCall

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ONE = torch.tensor(1.0)
WIDE = torch.float32


def operands(m=16, k=32, n=48, a=E4M3, b=E4M3):
    g = torch.Generator().manual_seed(m + k + n)
    return torch.randn(m, k, generator=g).to(a), torch.randn(n, k, generator=g).to(b).t()


def scaled(a, b, *scales, **more):
    return gs.scaled_mm(a, b, *(scales or (ONE, ONE)), **{"split": 1, **more})


SPECS = {
    ("h100-pcie", True): "hw(hopper, wgmma, e4m3)",
    ("h100-pcie", False): "promote(hw(hopper, wgmma, e4m3), 128)",
    ("rtx4060", True): "hw(ada, mma, e4m3)",
    ("rtx4060", False): "promote(hw(ada, mma, e4m3), 128)",
}


@pytest.mark.parametrize("gpu, fast", SPECS)
def test_the_sum_is_that_of_the_gpus_instruction(gpu, fast):
    a, b = operands(16, 400, 48)
    library = gs.libraries.cublaslt(gpu, version="12.8", workspace=1 << 20)
    scale_a, scale_b = torch.tensor(0.3), torch.tensor([[-1.7]])
    sums = gs.qmatmul(a.float(), b.float(), f"e4m3 : {SPECS[gpu, fast]}")
    y = (sums.double() * (scale_a * scale_b).double()).float() + 0.0
    options = {"use_fast_accum": fast, "library": library}
    assert_bitwise_equal(scaled(a, b, scale_a, scale_b, out_dtype=WIDE, **options), y)
    assert_bitwise_equal(scaled(a, b, scale_a, scale_b, out_dtype=torch.float16, **options), y.half())
    found = scaled(a, b, scale_a, scale_b, scale_result=torch.tensor(90.0), **options)
    assert found.dtype == E4M3
    assert_bitwise_equal(found.float(), (y * 90).clamp(-448, 448).to(E4M3).float())
    assert ((y * 90).abs() > 448).any()
    if gpu == "h100-pcie":
        assert_bitwise_equal(gs.scaled_mm(a, b, scale_a, scale_b, None, None, WIDE, fast, split=1), y)


def test_nan_has_the_librarys_bits_and_zeros_are_positive():
    a, b = operands(16, 32, 16)
    a[0, 0], a[1] = float("nan"), 0.0
    for dtype, bits in ((WIDE, 0x7FFFFFFF), (torch.bfloat16, 0x7FFF), (torch.float16, 0x7FFF), (E4M3, 0x7F)):
        found = scaled(a, b, -ONE, ONE, out_dtype=dtype)
        codes = found.view({4: torch.int32, 2: torch.int16, 1: torch.uint8}[dtype.itemsize])
        assert set(codes[0].tolist()) == {bits} and set(codes[1].tolist()) == {0}
        assert not found[2:].float().isnan().any()


def test_an_infinite_operand():
    a, b = operands(16, 32, 16, a=E5M2)
    a[0, 0], a[1, 0], a[1, 1] = float("inf"), float("inf"), -float("inf")
    b[:] = 1.0
    wide, narrow = scaled(a, b, out_dtype=WIDE), scaled(a, b, out_dtype=E5M2)
    assert (wide[0] == float("inf")).all() and wide[1].isnan().all() and wide[2:].isfinite().all()
    assert (narrow[0].float() == 57344).all()


@pytest.mark.parametrize("m, k, n", [(16, 0, 32), (0, 32, 16), (16, 32, 0), (0, 0, 0)])
@pytest.mark.parametrize("dtype", [WIDE, torch.bfloat16, E4M3])
def test_sizes_of_zero(m, k, n, dtype):
    a, b = torch.empty(m, k).to(E4M3), torch.empty(n, k).to(E4M3).t()
    found = scaled(a, b, torch.tensor(float("nan")), -ONE, out_dtype=dtype)
    assert_bitwise_equal(found.float(), torch.zeros(m, n))
    assert found.dtype == dtype and torch._scaled_mm(a, b, ONE, ONE, out_dtype=dtype).shape == found.shape
    out = torch.full((m, n), 3.0).to(dtype)
    assert_bitwise_equal(scaled(a, b, out=out).float(), torch.zeros(m, n))


def reject(match, *given, **more):
    for kind in (RejectedCall, RuntimeError, ValueError, gs.libraries.LibraryError):
        with pytest.raises(kind, match=match) as caught:
            scaled(*given, **more)
    assert "allowed: " in str(caught.value) and "\n  " in str(caught.value)


def test_calls_that_pytorch_rejects():
    a, b = operands()
    reject("matrices", a[0], b)
    reject(r"\(M, K\) and \(K, N\)", a[:, :16], b)
    reject("float32", a.float(), b)
    reject("float8_e4m3fnuz", a.float().to(torch.float8_e4m3fnuz), b)
    reject("e5m2 times e5m2", *operands(a=E5M2, b=E5M2))
    reject("multiples of 16", *operands(k=24))
    reject("multiples of 16", *operands(n=24))
    reject("factors of shapes", a, b, torch.ones(3), ONE)
    reject("factors of shapes", a, b, ONE.double(), ONE)
    reject("scale_result", a, b, scale_result=torch.ones(2))
    reject("scale_result", a, b, scale_result=ONE.double())
    reject("a bias of 47", a, b, bias=torch.zeros(47).bfloat16(), out_dtype=torch.bfloat16, assume="separate")
    reject("result in float32", a, b, bias=torch.zeros(48).bfloat16(), out_dtype=WIDE, assume="separate")
    reject("a bias in torch.float16", a, b, bias=torch.zeros(48).half(), out_dtype=torch.bfloat16, assume="separate")
    reject("one dtype", a, b, out_dtype=torch.bfloat16, out=torch.empty(16, 48))


#: What PyTorch's CPU code refuses as well, and with which class.
SHARED = {
    "a vector": lambda a, b: (a[0], b, ONE, ONE),
    "sizes of K": lambda a, b: (a[:, :16], b, ONE, ONE),
    "float64 factors": lambda a, b: (a, b, ONE.double(), ONE),
    "three factors": lambda a, b: (a, b, torch.ones(3), ONE),
    "no tensor": lambda a, b: (a, b, 1.0, ONE),
    "factors of the result": lambda a, b: (a, b, ONE, ONE, None, torch.ones(2)),
    "a bias of another size": lambda a, b: (a, b, ONE, ONE, torch.ones(47).bfloat16(), None, torch.bfloat16),
}


@pytest.mark.parametrize("name", SHARED)
def test_errors_are_caught_by_pytorchs_classes(name):
    given = SHARED[name](*operands())
    with pytest.raises(Exception) as theirs:
        torch._scaled_mm(*given)
    with pytest.raises(theirs.type):
        gs.scaled_mm(*given, split=1)


def strided(rows, columns, step):
    return torch.randn(rows, step, generator=torch.Generator().manual_seed(1)).to(E4M3)[:, :columns]


def test_layouts():
    a, b = operands()
    reject("contiguous rows", a.t().contiguous().t(), b)
    reject("contiguous columns", a, b.contiguous())
    reject("contiguous columns", a, b.t()[:1].expand(48, 32).t())
    reject("multiples of 16", strided(16, 32, 40), b)
    reject("multiples of 16", a, strided(48, 32, 40).t())
    want = scaled(a, b, out_dtype=WIDE)
    for left in (torch.cat([a, a], 1)[:, :32], torch.stack([a, a], 2)[:, :, 0]):  # PyTorch copies what is neither
        assert not left.is_contiguous()
        assert_bitwise_equal(scaled(left, b, out_dtype=WIDE), want)
    assert_bitwise_equal(scaled(a, torch.cat([b.t(), b.t()], 1)[:, :32].t(), out_dtype=WIDE), want)
    assert_bitwise_equal(
        scaled(strided(16, 32, 40)[:1], b, out_dtype=WIDE), scaled(strided(16, 32, 40)[:1].clone(), b, out_dtype=WIDE)
    )


def test_results_that_cublaslt_does_not_give():
    a, b = operands()
    for dtype in (torch.float64, torch.int32, E5M2):
        reject("to torch", a, b, out_dtype=dtype)
    assert scaled(*operands(b=E5M2), out_dtype=E5M2).dtype == E5M2
    assert scaled(*operands(a=E5M2)).dtype == E5M2


def test_out():
    a, b = operands()
    want = scaled(a, b, out_dtype=WIDE)
    rows, gaps = torch.empty(16, 48), torch.empty(16, 50)[:, :48]
    for out in (rows, gaps, torch.empty(48, 16).t(), torch.empty(0)):
        assert scaled(a, b, out=out) is out
        assert_bitwise_equal(out, want)
    with pytest.warns(UserWarning, match="was resized"):
        small = scaled(a, b, out=torch.empty(3), out_dtype=WIDE)
    assert_bitwise_equal(small, want)
    neither = torch.full((32, 96), 5.0)[::2, ::2]
    with pytest.warns(UserWarning, match="returns out unchanged"):
        assert scaled(a, b, out=neither) is neither
    assert (neither == 5).all()


def test_an_out_in_columns_is_the_transposed_product():
    asked = []

    class Asked(gs.libraries.CublasLt):
        __slots__ = ()

        def plan(self, *given, **more):
            asked.append(given)
            return super().plan(*given, **more)

    library = gs.libraries.cublaslt("h100-pcie", version="12.8", workspace=1 << 20)
    library = Asked(*library.__reduce__()[1])
    a, b = operands(16, 160, 48, b=E5M2)
    want = scaled(a, b, ONE * 0.3, ONE, out_dtype=torch.bfloat16, library=library)
    out = scaled(a, b, ONE * 0.3, ONE, out=torch.empty(48, 16).bfloat16().t(), library=library)
    assert asked == [(16, 48, 160, E4M3, E5M2, torch.bfloat16), (48, 16, 160, E5M2, E4M3, torch.bfloat16)]
    assert_bitwise_equal(out, want)


def test_what_nobody_has_measured():
    a, b = operands(16, 160, 48)
    rows, columns = torch.rand(16, 1), torch.rand(1, 48)
    bias = torch.randn(48).bfloat16()
    with pytest.raises(gs.UnsupportedSpec, match="a bias"):
        scaled(a, b, bias=bias, out_dtype=torch.bfloat16)
    with pytest.raises(gs.UnsupportedSpec, match="each row and column"):
        scaled(a, b, rows, columns, out_dtype=torch.bfloat16)
    sums = gs.qmatmul(a.float(), b.float(), "e4m3 : promote(hw(hopper, wgmma, e4m3), 128)")
    more = {"out_dtype": torch.bfloat16, "assume": "separate"}
    scale = torch.tensor(0.3)
    assert_bitwise_equal(scaled(a, b, scale, ONE, bias=bias, **more), (sums * scale + bias.float()).bfloat16())
    assert_bitwise_equal(
        scaled(a, b, rows, columns, bias=bias, **more), (sums * columns * rows + bias.float()).bfloat16()
    )
    assert_bitwise_equal(scaled(a, b, rows, columns, **more), (sums * columns * rows).bfloat16())
    blocks = torch.ones(16, 2), torch.ones(2, 48)
    tiny = torch.ones(512).to(torch.float8_e8m0fnu)
    for factors in (blocks, (tiny, tiny)):
        for assume in (None, "separate"):
            with pytest.raises(gs.UnsupportedSpec, match="each block"):
                scaled(a, b, *factors, out_dtype=torch.bfloat16, assume=assume)


def test_the_library_decides_where_nobody_says_the_split():
    a, b = operands()
    with pytest.raises(gs.libraries.UnknownPlan, match="no table") as caught:
        gs.scaled_mm(a, b, ONE, ONE)
    assert "16 x 48 x 32" in str(caught.value)
    never = gs.libraries.cublaslt("h100-pcie", version="12.8", workspace=0)
    assert_bitwise_equal(gs.scaled_mm(a, b, ONE, ONE, None, None, WIDE, library=never), scaled(a, b, out_dtype=WIDE))
    for split in (2, True, (1, "contiguous"), (2, "serial"), (2, "pairwise"), (0, "contiguous"), "auto"):
        with pytest.raises(gs.libraries.LibraryError, match="split="):
            scaled(*operands(k=512), split=split)


def test_options_that_mean_nothing():
    a, b = operands()
    for more in ({"library": "h100"}, {"assume": "chain"}, {"torch_version": "new"}, {"torch_version": 2.9}):
        with pytest.raises(gs.libraries.LibraryError, match=f"{next(iter(more))}="):
            scaled(a, b, **more)
    for given in ((None, b, ONE, ONE), (a, b, 1.0, ONE)):
        with pytest.raises(gs.DTypeError, match="a tensor"):
            gs.scaled_mm(*given, split=1)
    for more in ({"out": 3}, {"bias": 1.0}, {"out_dtype": "fp32"}, {"use_fast_accum": 1}):
        with pytest.raises(gs.DTypeError, match=next(iter(more))):
            scaled(a, b, **more)
    with pytest.raises(gs.DeviceError, match="meta"):
        scaled(a, b, ONE.to("meta"), ONE)


@pytest.mark.parametrize(
    "release, applies", [("2.7.1", True), ("2.9.1+cu128", True), ("2.10", False), ("2.13.0", False), ("2.14", True)]
)
def test_releases_that_ignore_the_factor_of_the_result(release, applies):
    a, b = operands()
    two = torch.tensor(2.0)
    found = scaled(a, b, scale_result=two, torch_version=release)
    want = scaled(a, b, scale_result=two) if applies else scaled(a, b)
    assert torch.equal(found.view(torch.uint8), want.view(torch.uint8))
    assert not torch.equal(scaled(a, b, scale_result=two).view(torch.uint8), scaled(a, b).view(torch.uint8))
    wide = scaled(a, b, scale_result=two, out_dtype=WIDE)
    assert_bitwise_equal(wide, scaled(a, b, out_dtype=WIDE))


def test_there_is_no_gradient():
    a, b = operands()
    scale = ONE.clone().requires_grad_()
    found = scaled(a, b, scale, ONE, out_dtype=WIDE)
    assert_bitwise_equal(found.detach(), scaled(a, b, out_dtype=WIDE))
    with pytest.raises(gs.GradError, match="derivative"):
        found.sum().backward()
    with pytest.raises(gs.GradError, match="out="):
        scaled(a, b, scale, ONE, out=torch.empty(16, 48))
    with torch.no_grad():
        assert not scaled(a, b, scale, ONE, out=torch.empty(16, 48)).requires_grad


def test_subnormal_results_are_kept_where_the_process_flushes_them():
    a, b = operands()
    tiny = torch.tensor(2.0**-70)
    want = scaled(a, b, tiny, tiny, out_dtype=WIDE)
    assert ((want != 0) & (want.abs() < 2.0**-126)).any()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush subnormal numbers")
    try:
        found = scaled(a, b, tiny, tiny, out_dtype=WIDE)
    finally:
        torch.set_flush_denormal(False)
    assert_bitwise_equal(found, want)


def test_no_warning_and_errors_that_pickle():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled(*operands())
    with pytest.raises(RejectedCall) as caught:
        scaled(*operands(n=24))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
