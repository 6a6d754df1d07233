"""What ``gemmsim.explain`` says of the CUDA backend, and that saying it imports no CUDA package."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

import gemmsim as gs

INSIDE = ":chunked(64, shuffled(e5m10, 1))"


def line(spec: str, start: str = "cuda: ") -> str:
    (found,) = (x for x in gs.explain(spec).splitlines() if x.startswith(start))
    return found


@pytest.mark.parametrize(
    "spec", ["e4m3 : e5m10", ":binned(fp32)", ":sequential(e5m10, init=c_first)", ":hw(hopper, wgmma, e4m3)"]
)
def test_a_spec_that_runs(spec):
    assert line(spec).startswith("cuda: yes, ") and "gemmsim[cuda]" in line(spec)


def test_a_spec_that_does_not_run_and_why():
    assert line(INSIDE) == f"cuda: no, {reason_of_the_backend()}"


def reason_of_the_backend() -> str:
    from gemmsim.backends import cuda

    reason = cuda.refuses(gs.GemmSpec.of(INSIDE))
    assert reason is not None and "CPU" not in str(reason)
    return str(reason)


def test_explaining_imports_no_cuda_package():
    code = (
        "import sys, torch, gemmsim as gs\n"
        "before = set(sys.modules)\n"  # PyTorch imports cuda.bindings where it is installed
        "gs.explain('e4m3 : e5m10')\n"
        "loaded = [name for name in set(sys.modules) - before if name.split('.')[0] in ('cuda', 'nvidia', 'cutlass')]\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


OTHER_SUMS = (
    "backends.cuda.gemm_tensor_cores gives their sums: Hopper's by wgmma on values in bfloat16, Blackwell's by "
)


def test_values_of_blocks_are_decoded_once():
    spec = "mxfp8_e4m3 : fp32"
    assert line(spec, "blocks on cuda: ").startswith("blocks on cuda: codes and scales of a and b are decoded once")
    assert "float32, or float64" in line(spec, "blocks on cuda: ") and "(gemm)" in line(spec, "blocks on cuda: ")
    assert "* scale * the tensor's scale" in line("nvfp4/tensor : e5m10", "blocks on cuda: ")
    assert "scales of b are decoded" in line("bf16*mxfp4 : e5m10", "blocks on cuda: ")
    assert "a and b rounded in a pass beforehand" in line("MXFP8[E4M3]{8} : e5m10", "blocks on cuda: ")
    cores = line(spec, "tensor cores: ")
    assert cores.startswith("tensor cores: no, they add and truncate in their own way, not as e8m23 does, and")
    assert "Hopper has no block-scaled instruction" in cores and f"{OTHER_SUMS}the block-scaled instruction" in cores
    assert "Blackwell's is another spec, 'mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)'" in cores


def test_scales_apart_multiply_totals_of_groups():
    how = line("nvfp4/tensor : scaled(fp32)", "blocks on cuda: ")
    assert "decode them while they are loaded; scales multiply the sum of each group of 16 terms" in how
    assert how.endswith("the tensors' scales multiply the final sum")
    cores = line("mxfp4 : scaled(fp32)", "tensor cores: ")
    assert "not as scaled(e8m23) does" in cores and "'mxfp4 : hw(blackwell, mxf4, e2m1)'" in cores
    cores = line("mxfp8_e4m3 : scaled(hw(hopper, wgmma, e4m3))", "tensor cores: ")
    assert cores.startswith("tensor cores: wgmma.m64n8k32.f32.e4m3.e4m3, scaled every 32 terms on hopper, if a check")
    assert ". otherwise the model of hw(hopper, wgmma, e4m3) runs, and Hopper has no block-scaled" in cores
    cores = line("nvfp4/tensor : scaled(hw(hopper, wgmma, e4m3))", "tensor cores: ")
    assert cores.startswith(
        "tensor cores: no, the kernel does not take a scale of a whole tensor. otherwise the model of"
    )
    cores = line("mxfp6_e3m2 : scaled(fp32)", "tensor cores: ")  # no kernel of tcgen05 reads 6 bits
    assert "another spec" not in cores and f"{OTHER_SUMS}warps' instructions on values in bfloat16" in cores
    assert "gives their sums" not in line("mxfp4/b8 : scaled(fp32)", "tensor cores: ")


def test_block_scaled_instructions_run_as_their_model_on_a_hopper():
    spec = "nvfp4 : hw(blackwell, mxf4nvf4, e2m1)"
    assert "they compute the model of the instruction" in line(spec, "blocks on cuda: ")
    cores = line(spec, "tensor cores: ")
    assert cores.startswith(
        "tensor cores: tcgen05mma_block_scale.m128n8k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.ue4m3 on blackwell, if"
    )
    assert cores.endswith(
        "Hopper has no block-scaled instruction: there, as on any GPU without it, ordinary units are used"
    )


def test_what_is_said_of_tensor_cores_is_what_would_be_launched():
    """Each spec of Blackwell's own instruction has a kernel; each kernel that is named is the one that is chosen."""
    from gemmsim.backends.cuda import instruction_specs
    from gemmsim.backends.cuda.tensor_cores.explain_block_scaled import _named

    for spec in (spec for spec in instruction_specs("blackwell") if spec.has_blocks):
        assert _named(replace(spec, accumulator=gs.GemmSpec.of(":fp32").accumulator)) == spec


def test_native_types_of_decoded_operands():
    """On a Hopper, which takes no codes and scales, and of formats that no library takes."""
    assert line("mxfp8_e4m3 : fp32", "cublas: ").startswith(
        "cublas: native type mxfp8, only under gemmsim.cublas_acceleration"
    )
    assert "older than a Blackwell, native type bf16/fp32 of the operands' values" in line(
        "mxfp8_e4m3 : fp32", "cublas: "
    )
    assert line("mxfp4 : fp32", "cublas: ").startswith(
        "cublas: native type bf16/fp32 of the operands' values, if bfloat16"
    )
    assert "cublas: no, " in line("mxfp4 : scaled(fp32)", "cublas: ")
    assert "cublas: no, " in line("mxfp4 : e5m10", "cublas: ")


def test_other_specs_have_no_such_lines():
    assert "blocks on cuda" not in gs.explain("e4m3 : e5m10") and "tensor cores" not in gs.explain("e4m3 : e5m10")
