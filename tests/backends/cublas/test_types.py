"""Which spec names which native type, which device and shape it takes, and the calls that PyTorch makes for it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import acc
from gemmsim.backends import cublas
from gemmsim.backends.cublas import TYPES, Compute, ComputeType, MatrixType, match_mac_format_with_cublas_types
from gemmsim.backends.cublas import run as cublas_run
from gemmsim.lowering.refusal import Refusal

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


def native(spec, a=F32, b=None, mode=None):
    found = cublas.native_type(gs.GemmSpec.of(spec), a, a if b is None else b, mode)
    return found.name if isinstance(found, cublas.NativeType) else found


@pytest.mark.parametrize(
    ("spec", "dtype", "mode", "name"),
    [
        ("fp16 : fp16", F32, None, "fp16/fp16"),
        (":fp16", F16, None, "fp16/fp16"),
        ("e4m3 * e5m2/rtz : fp16", F32, None, "fp16/fp16"),
        (":fp16", F16, "tf32", "fp16/fp16"),
        (":fp16", F16, "pedantic", "fp16/fp16 pedantic"),
        ("fp16 : fp32 -> fp16", F64, None, "fp16/fp32"),
        (":fp32", F16, "pedantic", "fp16/fp32 pedantic"),
        ("bf16/sr8 : fp32", F32, None, "bf16/fp32"),
        (":fp32", BF16, "pedantic", "bf16/fp32 pedantic"),
        (":fp32", F32, None, "fp32"),
        (":fp32, arithmetic=fp32", F32, "f32", "fp32"),
        ("fp32 : fp32", F64, None, "fp32"),
        (":fp32", F32, "tf32", "fp32 fast tf32"),
        (":fp32", F32, "f16", "fp32 fast f16"),
        (":fp32", F32, "bf16", "fp32 fast bf16"),
        (":fp32", F32, "pedantic", "fp32 pedantic"),
        ("tf32 : fp32", F32, None, "tf32/fp32"),
        (":fp64", F64, None, "fp64"),
        (":fp64", F64, "pedantic", "fp64 pedantic"),
        ("int8 : int(32)", F32, None, "int8/int32"),
        ("e4m3 : fp32", F32, None, "e4m3*e4m3 promoted"),
        ("e4m3 * e5m2 : fp32 -> bf16", F32, None, "e4m3*e5m2 promoted"),
        ("e5m2 * e4m3/sat : fp32", F32, None, "e5m2*e4m3 promoted"),
        (acc.hopper_fp8_fast(), F32, None, "e4m3*e4m3 fast"),
        (acc.hopper_fp8_2xacc(), F32, None, "e4m3*e4m3 promoted"),
        (acc.deepgemm(), F32, None, "e4m3*e4m3 promoted"),
        (acc.ada_fp8("e4m3", "e5m2"), F32, None, "e4m3*e5m2 fast"),
        (acc.cublas_fp32(), F32, None, "bf16/fp32"),
        (acc.cublas_fp32("ampere", "fp16"), F32, None, "fp16/fp32"),
        (acc.cublas_fp32("blackwell", "tf32"), F32, None, "tf32/fp32"),
        (acc.fp16_accumulate(), F32, None, "fp16/fp16"),
        (acc.fp16_accumulate("hopper"), F32, "pedantic", "fp16/fp16 pedantic"),
        (acc.blackwell_mxfp8(), F32, None, "mxfp8"),
        (acc.blackwell_nvfp4(), F32, None, "nvfp4"),
        (acc.batch_invariant(), F32, None, "fp32"),
    ],
    ids=str,
)
def test_specs_with_a_native_type(spec, dtype, mode, name):
    assert native(spec, dtype, mode=mode) == name


@pytest.mark.parametrize(
    "spec",
    [":bf16", ":fp32/sr8", ":fp32/sat", ":e5m10/ftz", ":fp64", "fp16 : fp64", "tf32 * fp32 : fp32", "uint8 : int(32)",
     "int8 : int(32, when=end)", "int8 : int(24)", "int8 : fp32", "e4m3 * fp32 : fp16", "e4m3fnuz : fp32", "e3m2 : fp32",
     ":exact(fp32)", ":chunked(64, fp32)", acc.hopper_fp8_2xacc(32), acc.promote(acc.cublas_fp32(), 128), acc.lba_m7e4()],
    ids=str,
)  # fmt: skip
def test_specs_without_one_say_why(spec):
    found = cublas.native_type(gs.GemmSpec.of(spec), F32, F32)
    assert not isinstance(found, cublas.NativeType) and len(found.reason) > 20


def test_an_operand_dtype_counts_where_the_spec_has_no_cast():
    assert "multiplies e5m10 by e8m23" in native(":fp32", F16, F32).reason
    assert native("fp16 * : fp32", F32, F16) == "fp16/fp32"
    assert "dtype" in native(":fp32", torch.int32).reason


def test_the_table_is_sound():
    for name, row in TYPES.items():
        assert (
            row.name == name and row.results and row.call in ("gemm_ex", "int_mm", "scaled_mm", "block_scaled", "none")
        )
        assert row.results[0].itemsize == max(t.itemsize for t in row.results)
        assert ("pedantic" in name) == (row.compute in (65, 69, 71, 73))
    assert {TYPES[n].compute for n in ("fp32 fast tf32", "fp32 fast f16", "fp32 fast bf16")} == {
        Compute.F32_FAST_TF32,
        Compute.F32_FAST_16F,
        Compute.F32_FAST_16BF,
    }


# mptorch's own rule


def test_the_old_matching_rule():
    hits = {}
    modes, flags = ("f32", "tf32", "f16", "bf16", None), (True, False)
    formats = [(23, 8), (10, 5), (7, 8), (10, 8), (2, 5)]
    for add, mul, rounding, fma, sub, sat, mode in itertools.product(
        formats, formats, ("nearest", "stochastic", "toward_zero"), flags, flags, flags, modes
    ):
        found = match_mac_format_with_cublas_types(*add, *mul, rounding, fma, sub, sat, mode)
        if found is not None:
            assert add == mul and (rounding, fma, sub, sat) == ("nearest", True, True, False)
            hits[add, mode] = found
    F, H, T = MatrixType.F32, MatrixType.F16, ComputeType
    fast = {"f32": T.F32, None: T.F32, "tf32": T.F32_FAST_TF32, "f16": T.F32_FAST_F16, "bf16": T.F32_FAST_BF16}
    assert hits == {((23, 8), m): (F, F, t) for m, t in fast.items()} | {((10, 5), m): (H, H, T.F16) for m in modes}
    assert match_mac_format_with_cublas_types(23, 8, 23, 8, "nearest", True, True, False)[2] is T.F32


# Devices and shapes


@pytest.fixture
def device(monkeypatch):
    """Stand-ins for tensors on a GPU of some compute capability."""

    def tensor(*shape):
        stand_in = SimpleNamespace(device=torch.device("cuda:0"), shape=shape)
        stand_in.dim = lambda: len(shape)
        return stand_in

    def reason(name, capability, m=64, n=64, k=64, batch=(), row=None):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
        row = TYPES[name] if row is None else row
        found = cublas_run.refuses(row, tensor(*batch, m, k), tensor(*batch, k, n), tensor(*batch, m, n))
        return None if found is None else found.reason

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(cublas_run, "library_refuses", lambda: None)
    return reason


def test_devices_that_are_too_old_or_of_another_kind(device):
    assert device("fp32", (7, 0)) is None and device("fp64", (9, 0)) is None
    assert "needs compute capability 8.0" in device("bf16/fp32", (7, 5))
    assert "needs compute capability 8.9" in device("e4m3*e4m3 fast", (8, 6))
    assert device("e4m3*e4m3 fast", (8, 9)) is None
    assert "block scales" in device("nvfp4", (10, 0)) and "10.0" in device("nvfp4", (9, 0))
    assert "has no mxfp4" in device("mxfp4", (10, 0))
    hopper = cublas.native_type(gs.GemmSpec.of(acc.cublas_fp32("hopper")), F32, F32)
    assert device("", (9, 0), row=hopper) is None
    assert "another architecture" in device("", (8, 0), row=hopper)
    consumer = cublas.native_type(gs.GemmSpec.of(acc.hw("rtx_blackwell", "mma", "bf16")), F32, F32)
    assert device("", (12, 0), row=consumer) is None and "another" in device("", (10, 0), row=consumer)


def test_shapes_that_a_type_refuses(device):
    assert "K = 0" in device("fp32", (9, 0), k=0)
    assert device("fp32", (9, 0), 1, 1, 1, (5,)) is None
    assert "multiples of 16 as N and K, not (64, 24)" in device("e4m3*e4m3 fast", (9, 0), k=24)
    assert "not (8, 64)" in device("e4m3*e4m3 promoted", (9, 0), n=8)
    assert device("e4m3*e4m3 fast", (9, 0), m=1) is None
    assert "not batches" in device("e4m3*e4m3 fast", (9, 0), batch=(2,))
    assert "M > 16" in device("int8/int32", (9, 0), m=16) and device("int8/int32", (9, 0), m=17) is None
    assert "multiples of 8" in device("int8/int32", (9, 0), k=12) and "multiples of 8" in device(
        "int8/int32", (9, 0), n=4
    )


def test_cublas_that_cannot_be_reached_is_a_reason(device, monkeypatch):
    monkeypatch.setattr(cublas_run, "library_refuses", lambda: Refusal("torch has loaded no libcublas"))
    assert "no libcublas" in device("fp16/fp16", (9, 0)) and device("int8/int32", (9, 0)) is None
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "not built for NVIDIA" in device("fp32", (9, 0))


# PyTorch's calls, which exist on the CPU too


def grid(rows, cols, values):
    g = torch.Generator().manual_seed(rows * cols)
    return torch.tensor(values)[torch.randint(0, len(values), (rows, cols), generator=g)]


@pytest.mark.parametrize("fast", ["promoted", "fast"])
@pytest.mark.parametrize("pair", ["e4m3*e4m3", "e4m3*e5m2", "e5m2*e4m3"])
def test_fp8_products_of_integers(pair, fast):
    row = TYPES[f"{pair} {fast}"]
    a, b = grid(32, 64, [-2.0, 0.0, 1.0, 4.0]), grid(64, 16, [-1.0, 0.0, 0.5, 3.0])
    out = torch.empty(32, 16)
    how = cublas_run._torch_call(a.to(row.a), b.to(row.b), out, row)
    assert how == f"torch._scaled_mm(use_fast_accum={fast == 'fast'})"
    assert_bitwise_equal(out, a @ b)


def test_int8_products_are_those_of_int32(monkeypatch):
    """On a GPU the result is the emulation's, bit for bit; NaN, which int8 does not hold, becomes NaN there."""
    a, b = grid(32, 64, [-300.0, -128.0, -1.0, 0.4, 127.0]), grid(64, 16, [-128.0, 3.0, 0.0, 77.0])
    spec = gs.GemmSpec.of("int8 : int(32) -> fp32")
    monkeypatch.setattr(cublas_run, "_product", cublas_run._torch_call)
    for dtype in (F32, F64, BF16, F16):
        got = torch.empty(32, 16, dtype=dtype)
        run = cublas.gemm(a, b, spec, got, 0, TYPES["int8/int32"])
        assert "torch._int_mm" in str(run)
        assert_bitwise_equal(got, gs.qmatmul(a, b, spec, out_dtype=dtype))
    a[3, 5] = torch.nan
    cublas.gemm(a, b, spec, got := torch.empty(32, 16), 0, TYPES["int8/int32"])
    assert got[3].isnan().all() and not got[4].isnan().any() and not got[:3].isnan().any()
