"""cublasGemmEx through ctypes, against a library of the same symbols that computes on the host: pointers, order of
operands, leading dimensions, strides, scalars, modes and errors. What a GPU computes is in test_gpu.py."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from ctypes import c_int, c_int64, c_uint64, c_void_p
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gemmsim import GemmSpec, quantize
from gemmsim.backends.cublas import Compute, CublasError, gemm, native_type
from gemmsim.backends.cublas import run as cublas_run
from gemmsim.backends.cublas import shared_library as cublas_library
from gemmsim.backends.cublas.gemm_ex import gemm_ex, layout


class Last(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in "calls m n k lda ldb ldc batch stride_a stride_b stride_c streams_set".split()),
        *((name, c_int) for name in "op_a op_b type_a type_b type_c compute algorithm math_mode pointer_mode".split()),
        ("handle", c_void_p), ("stream", c_void_p), ("alpha", c_uint64), ("beta", c_uint64),
    ]  # fmt: skip


class Fake:
    def __init__(self, lib):
        self.lib = lib
        self.last = Last.in_dll(lib, "fake_last")

    def value(self, name, put=None):
        variable = c_int.in_dll(self.lib, f"fake_{name}")
        if put is not None:
            variable.value = put
        return variable.value


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is needed to build the library that stands for cuBLAS")
    library = tmp_path_factory.mktemp("cublas") / "libcublas.so.99"
    source = Path(__file__).with_name("fake_cublas.cpp")
    subprocess.run([compiler, "-O1", "-fPIC", "-shared", "-w", str(source), "-o", str(library)], check=True)
    return library


@pytest.fixture
def fake(built, monkeypatch):
    lib = cublas_library.declare(ctypes.CDLL(str(built)))
    monkeypatch.setattr(cublas_library, "_loaded", lib)
    found = Fake(lib)
    found.value("math", 3), found.value("pointer", 1), found.value("status", 0)
    return found


def numbers(*shape, dtype=torch.float32):
    g = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-9, 10, shape, generator=g).to(dtype)


VIEWS = {
    "contiguous": lambda m, k: numbers(m, k),
    "transposed": lambda m, k: numbers(k, m).mT,
    "rows of a wider one": lambda m, k: numbers(m, k + 3)[:, :k],
    "columns of a taller one": lambda m, k: numbers(k + 2, m + 1).mT[:m, :k],
    "every second": lambda m, k: numbers(m, 2 * k)[:, ::2],
    "repeated row": lambda m, k: numbers(1, k).expand(m, k),
}


@pytest.mark.parametrize("left", VIEWS)
@pytest.mark.parametrize("right", VIEWS)
@pytest.mark.parametrize(("m", "n", "k"), [(3, 4, 5), (1, 1, 1), (1, 6, 2), (5, 1, 7), (4, 4, 1)])
def test_any_strides(fake, left, right, m, n, k):
    a, b = VIEWS[left](m, k), VIEWS[right](k, n)
    out = torch.full((m, n), torch.nan)
    gemm_ex(a, b, out, Compute.F32, 11, 22)
    assert torch.equal(out, a @ b)


def test_batches_with_any_strides(fake):
    a, b = numbers(3, 4, 5), numbers(3, 5, 2)
    for left in (
        a,
        a[:1].expand(3, 4, 5),
        numbers(3, 5, 4).mT,
        numbers(4, 3, 5).transpose(0, 1),
        numbers(3, 4, 10)[..., ::2],
    ):
        out = torch.full((3, 4, 2), torch.nan)
        gemm_ex(left, b, out, Compute.F32, 0, 0)
        assert torch.equal(out, left @ b)
    out = torch.empty(3, 4, 2)
    gemm_ex(a[:1].expand(3, 4, 5), b, out, Compute.F32, 0, 0)
    assert fake.last.stride_b == 0 and fake.last.stride_a == 10 and fake.last.stride_c == 8  # operands swapped


@pytest.mark.parametrize(
    ("operand", "result", "compute", "codes", "one"),
    [
        (torch.float32, torch.float32, Compute.F32, (0, 0), 0x3F800000),
        (torch.float32, torch.float32, Compute.F32_FAST_TF32, (0, 0), 0x3F800000),
        (torch.float32, torch.float32, Compute.F32_FAST_16F, (0, 0), 0x3F800000),
        (torch.float32, torch.float32, Compute.F32_PEDANTIC, (0, 0), 0x3F800000),
        (torch.bfloat16, torch.float32, Compute.F32, (14, 0), 0x3F800000),
        (torch.float64, torch.float64, Compute.F64, (1, 1), 0x3FF0000000000000),
        (torch.int8, torch.int32, Compute.I32, (3, 10), 1),
        (torch.float16, torch.float16, Compute.F16, (2, 2), 0x3C00),
        (torch.float16, torch.float32, Compute.F32, (2, 0), 0x3F800000),
    ],
    ids=str,
)
def test_types_scalars_and_what_the_handle_is_left_with(fake, operand, result, compute, codes, one):
    a, b = numbers(4, 6, dtype=operand), numbers(6, 3, dtype=operand)
    out = torch.zeros(4, 3, dtype=result)
    gemm_ex(a, b, out, compute, 0x1234, 0x5678)
    assert torch.equal(out, (a.double() @ b.double()).to(result))
    last = fake.last
    assert (last.type_a, last.type_b, last.type_c) == (codes[0], codes[0], codes[1])
    assert (last.compute, last.algorithm, last.alpha, last.beta) == (int(compute), -1, one, 0)
    assert (last.handle, last.stream) == (0x1234, 0x5678)
    already = last.streams_set
    gemm_ex(a, b, out, compute, 0x1234, 0x5678)
    assert fake.last.streams_set == already, "setting it again would take torch's workspace from the handle"
    assert (last.math_mode, last.pointer_mode) == (16, 0)  # the compute type alone decides; scalars on the host
    assert (fake.value("math"), fake.value("pointer")) == (3, 1)  # as torch had them


def test_half_precision_has_half_precision_scalars(fake):
    a = torch.ones(2, 2, dtype=torch.float16)
    gemm_ex(a, a, torch.empty(2, 2, dtype=torch.float16), Compute.F16, 0, 0)
    assert (fake.last.type_a, fake.last.type_c, fake.last.alpha, fake.last.beta) == (2, 2, 0x3C00, 0)


@pytest.mark.parametrize(
    ("spec", "mode", "compute", "codes"),
    [
        ("bf16 : fp32 -> bf16", None, Compute.F32, (14, 14)),
        ("bf16/rtz : fp32", "pedantic", Compute.F32_PEDANTIC, (14, 0)),
        (":fp32", "tf32", Compute.F32_FAST_TF32, (0, 0)),
        (":fp32", "f16", Compute.F32_FAST_16F, (0, 0)),
        (":fp32", "bf16", Compute.F32_FAST_16BF, (0, 0)),
        ("tf32 : fp32", None, Compute.F32_FAST_TF32, (0, 0)),
        ("fp64 : fp64", None, Compute.F64, (1, 1)),
        ("fp16 : fp16", None, Compute.F16, (2, 2)),
        ("fp16 : fp32", None, Compute.F32, (2, 0)),
        (":fp32 -> e5m2", None, Compute.F32, (0, 0)),
    ],
    ids=str,
)
def test_whole_products_on_the_handle_and_stream_of_their_device(fake, monkeypatch, spec, mode, compute, codes):
    """From a spec to the library's arguments: operand casts before, the output cast behind, PyTorch's handle and stream of
    the tensors' device in between, whatever device is current."""
    seen = []

    class Guard:
        def __init__(self, device):
            seen.append(device)

        def __enter__(self):
            seen.append("in")

        def __exit__(self, *error):
            seen.append("out")

    monkeypatch.setattr(torch.cuda, "device", Guard)
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: seen.append("handle") or 0x77)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0x99))
    monkeypatch.setattr(cublas_run, "_product", cublas_run._cublas_call)
    meaning = GemmSpec.of(spec)
    for shape in ((5, 8), (2, 3, 5, 8)):
        a, b = numbers(*shape), numbers(*shape[:-2], 8, 6)
        out = torch.full((*shape[:-1], 6), torch.nan)
        native = native_type(meaning, a.dtype, b.dtype, mode)
        record = gemm(a, b, meaning, out, 0, native)
        assert torch.equal(out, (a @ b) if meaning.out is None else quantize(a @ b, meaning.out))
        assert f"cublasGemmEx, compute type {compute.name}" in str(record)
        last = fake.last
        assert (last.compute, last.handle, last.stream) == (int(compute), 0x77, 0x99)
        assert (last.type_a, last.type_c) == (codes[0], codes[1] if codes[1] != 14 else 0)  # the result is float32 here
        assert last.batch == (1 if len(shape) == 2 else 6)
        assert seen[-4:] == [a.device, "in", "handle", "out"]


@pytest.mark.parametrize("shape", [(2, 2), (3, 2, 2)])
def test_errors_carry_the_name_of_the_status_and_restore_the_modes(fake, shape):
    a = torch.ones(shape)
    for code, name in ((15, "CUBLAS_STATUS_NOT_SUPPORTED"), (13, "CUBLAS_STATUS_EXECUTION_FAILED"), (99, "status 99")):
        fake.value("status", code)
        with pytest.raises(CublasError, match=name) as error:
            gemm_ex(a, a, torch.empty(shape), Compute.F32, 0, 0)
        assert error.value.status == name
        assert (fake.value("math"), fake.value("pointer")) == (3, 1)


def test_layouts_copy_only_what_blas_cannot_read():
    a = numbers(4, 6)
    assert layout(a).tensor is a and layout(a).op == 0 and layout(a).ld == 6
    assert layout(a.mT).tensor.data_ptr() == a.data_ptr() and layout(a.mT).op == 1 and layout(a.mT).ld == 6
    assert layout(a[:, ::2]).tensor.data_ptr() != a.data_ptr()
    assert layout(a[:1].expand(4, 6)).tensor.data_ptr() != a.data_ptr()


def test_the_loaded_library_is_found_in_the_memory_map(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r--p 00000000 00:00 0\n"
        "7f01-7f02 r-xp 00000000 08:01 77   /opt/a b/libcublasLt.so.13\n"
        "7f02-7f03 r-xp 00000000 08:01 78   /opt/a b/libcublas.so.13\n"
    )
    assert cublas_library.find_library(str(maps)) == Path("/opt/a b/libcublas.so.13")
    maps.write_text("7f00-7f01 r--p 00000000 00:00 0 [heap]\n")
    assert cublas_library.find_library(str(maps)) is None
    assert cublas_library.find_library(str(tmp_path / "nothing")) is None


def test_why_the_library_cannot_be_called(monkeypatch, built, tmp_path):
    monkeypatch.setattr(cublas_library, "_loaded", None)
    monkeypatch.setattr(cublas_library, "find_library", lambda: None)
    assert "no libcublas" in str(cublas_library.library_refuses())
    monkeypatch.setattr(cublas_library, "find_library", lambda: built)
    assert cublas_library.library_refuses() is None and cublas_library.cublas() is not None
    monkeypatch.setattr(cublas_library, "_loaded", None)
    monkeypatch.setattr(cublas_library.sys, "platform", "win32")
    assert "Linux" in str(cublas_library.library_refuses())
