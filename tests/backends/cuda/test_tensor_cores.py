"""When a device's own instruction takes the place of its model, on a GPU made of Python: what is launched, with which
operands, what is compared, what is said, and that no bit depends on it."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from support import assert_bitwise_equal
from support.tensor_cores import fake_gpu, run_on_gpu  # noqa: F401

import gemmsim as gs
from gemmsim import acc, hardware
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu, cuda
from gemmsim.backends.cuda import CompileError
from gemmsim.backends.cuda.tensor_cores import native_mma, self_check, self_check_inputs
from gemmsim.backends.cuda.tensor_cores.native_mma import Chain, chain_of, instruction_source
from gemmsim.backends.encoded_operand import Coded
from gemmsim.backends.encoding import as_second
from gemmsim.backends.product import Product
from gemmsim.hardware.devices import CAPABILITIES, architecture_of

SPECS = [
    ("hopper", acc.cublas_fp32()),
    ("hopper", acc.cublas_fp32("hopper", "tf32")),
    ("hopper", acc.fp16_accumulate()),
    ("hopper", acc.hopper_fp8_fast("e4m3", "e5m2")),
    ("hopper", acc.deepgemm()),
    ("hopper", acc.chunked(64, acc.cublas_fp32("hopper", "fp16"), "fp32")),
    ("ampere", acc.cublas_fp32("ampere", "fp16")),
    ("ada", acc.ada_fp8()),
    ("blackwell", acc.promote(acc.hw("blackwell", "tcgen05", "bf16", "fp16"), 64)),
    ("rtx_blackwell", acc.hw("rtx_blackwell", "mma", "e5m2", "e4m3")),
]


def operands(k=200, batch=(), m=37, n=21):
    g = torch.Generator().manual_seed(k)
    a, b = torch.randn(*batch, m, k, generator=g), torch.randn(*batch, k, n, generator=g)
    return a * torch.exp2(torch.randint(-9, 9, (k,), generator=g)), b


def by_cpu(a, b, spec, dtype=torch.float32):
    out = torch.empty(*a.shape[:-1], b.shape[-1], dtype=dtype)
    cpu.gemm(a, b, spec, out, 5)
    return out


def by_gpu(a, b, spec, dtype=torch.float32):
    out = torch.full((*a.shape[:-1], b.shape[-1]), 3.0, dtype=dtype)
    return out, str(run_on_gpu(Product(a, b, spec, out, 5)))


@pytest.mark.kept(by="nothing")
@pytest.mark.parametrize(("arch", "accumulator"), SPECS, ids=lambda x: x if isinstance(x, str) else str(x))
def test_an_instruction_equal_to_its_model_is_used(fake_gpu, caplog, arch, accumulator):  # noqa: F811
    fake_gpu.arch, spec = arch, GemmSpec(accumulator=accumulator)
    with caplog.at_level(logging.INFO, "gemmsim.cuda"):
        for k in (1, 64, 200):
            a, b = operands(k)
            got, plan = by_gpu(a, b, spec)
            assert_bitwise_equal(got, by_cpu(a, b, spec), context=f"k={k}")
            assert "gemm_instruction<" in plan and "those of its model in all" in plan
    assert [record.levelname for record in caplog.records] == ["INFO"], "said once"
    checks = len(list(self_check_inputs.plain_problems(chain_of(accumulator).instruction)))
    assert len(fake_gpu.launches) == 3 + checks, "compared once"
    (((device, name), verdict),) = cuda.verdicts().items()
    assert device == 0 and verdict.equal and len(verdict.digest) == 16 and name in str(fake_gpu.launches[0][0])


def test_an_instruction_that_differs_is_not_used(fake_gpu, caplog):  # noqa: F811
    """Silicon that keeps one bit less: the first output that shows it is reported, the model's bits stay."""
    fake_gpu.silicon = hardware.instruction("ampere", "mma.m16n8k16.f32.bf16.bf16.f32")
    spec, (a, b) = GemmSpec(accumulator=acc.cublas_fp32()), operands()
    with caplog.at_level(logging.INFO, "gemmsim.cuda"):
        for _ in range(2):
            got, plan = by_gpu(a, b, spec)
            assert_bitwise_equal(got, by_cpu(a, b, spec))
    assert "instruction not used: the instruction differs from its model" in plan and " instead of " in plan
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "0x1." in caplog.text
    assert not next(iter(cuda.verdicts().values())).equal


@pytest.mark.parametrize("kept", [12, 14, 23, 24, 26])
def test_the_check_sees_every_other_number_of_bits(fake_gpu, monkeypatch, kept):  # noqa: F811
    accumulator = acc.hopper_fp8_fast() if kept < 20 else acc.cublas_fp32()
    row = accumulator.instruction
    other = replace(row, model=replace(row.model, kept=kept))
    fake_gpu.silicon = other
    from gemmsim.hardware import matrix_instruction

    monkeypatch.setattr(matrix_instruction, "find", lambda arch, name: other)
    a, b = operands()
    assert "differs from its model" in by_gpu(a, b, GemmSpec(accumulator=accumulator))[1]


def test_a_kernel_that_does_not_compile_leaves_the_model(fake_gpu, caplog):  # noqa: F811
    fake_gpu.error = CompileError("NVRTC could not compile it.\nlog")
    spec, (a, b) = GemmSpec(accumulator=acc.cublas_fp32()), operands()
    got, plan = by_gpu(a, b, spec)
    assert_bitwise_equal(got, by_cpu(a, b, spec))
    assert "instruction not used: not checked, the model is used: NVRTC could not compile it." in plan
    assert "log" not in plan and caplog.records[0].levelname == "WARNING"


@pytest.mark.kept(by="nothing")
def test_reasons(fake_gpu, monkeypatch):  # noqa: F811
    a, b = operands()

    def plan(accumulator):
        return by_gpu(a, b, GemmSpec(accumulator=accumulator))[1]

    assert "cuda:0" not in plan(acc.cublas_fp32()) and "gemm_instruction" in plan(acc.cublas_fp32())
    assert "is hopper, not ampere" in plan(acc.cublas_fp32("ampere"))
    assert "kernel promotes at 32, 64 and multiples of 128" in plan(acc.hopper_fp8_2xacc(96))
    assert "promotion to e5m10" in plan(acc.promote(acc.cublas_fp32(), 64, "e5m10"))
    assert "no kernel issues hopper mma.m16n8k16.f64" in plan(acc.hw("hopper", "mma", "fp64", out="fp64"))
    assert "no kernel issues cdna3" in plan(acc.cdna3_fp8())
    assert "no kernel issues blackwell tcgen05mma.m64n8k16.kind::f16.f16" in plan(
        acc.hw("blackwell", "tcgen05", "fp16", out="fp16")
    )
    assert "not used" not in plan(acc.sequential("e5m10")) and "not used" not in plan(acc.chunked(8, "e5m10"))
    fake_gpu.arch = "ampere"
    monkeypatch.setitem(CAPABILITIES, "hopper", (80,))
    monkeypatch.setitem(CAPABILITIES, "ampere", (80,))
    monkeypatch.setattr(cuda.tensor_cores.route, "architecture_of", lambda capability: "hopper")
    assert "sm_80 has no such instruction" in plan(acc.cublas_fp32())


@pytest.mark.kept(by="nothing")
def test_the_switch(fake_gpu, monkeypatch):  # noqa: F811
    spec, (a, b) = GemmSpec(accumulator=acc.cublas_fp32()), operands()
    monkeypatch.setenv("GEMMSIM_ALLOW_TENSOR_CORES", "0")
    assert not cuda.tensor_cores_allowed() and "switched off" in by_gpu(a, b, spec)[1] and not fake_gpu.launches
    cuda.allow_tensor_cores(True)
    assert cuda.tensor_cores_allowed() and "gemm_instruction" in by_gpu(a, b, spec)[1]
    cuda.allow_tensor_cores(False)
    assert "switched off" in by_gpu(a, b, spec)[1]


@pytest.mark.kept(by="nothing")
def test_no_comparison_while_a_graph_is_captured(fake_gpu, monkeypatch):  # noqa: F811
    spec, (a, b) = GemmSpec(accumulator=acc.cublas_fp32()), operands()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert "while a graph is captured" in by_gpu(a, b, spec)[1] and not fake_gpu.launches
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    by_gpu(a, b, spec)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert "gemm_instruction" in by_gpu(a, b, spec)[1], "known by now"


def test_the_capture_that_counts_is_that_of_the_tensors_gpu(fake_gpu, monkeypatch):  # noqa: F811
    """A stream of another GPU may be captured meanwhile, or this one's while another is current."""
    asked = []
    monkeypatch.setattr(cuda.tensor_cores.route, "is_capturing", lambda device: asked.append(device) or True)
    a, b = operands()
    assert "while a graph is captured" in by_gpu(a, b, GemmSpec(accumulator=acc.cublas_fp32()))[1]
    assert asked == [a.device]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_dtypes_strides_batches_and_output_casts(fake_gpu, dtype):  # noqa: F811
    spec = GemmSpec(accumulator=acc.cublas_fp32(), out="e4m3/sr8")
    plain = GemmSpec(accumulator=acc.hopper_fp8_fast())
    a, b = operands(72, (3, 2))
    cases = [(a, b), (a[0, 0], b[0, 0]), (a, b[:1, :1].expand_as(b)), (a[..., ::3], b[..., ::3, :]), (a[..., :0], b[..., :0, :])]  # fmt: skip
    cases.append((a.mT.contiguous().mT, b.mT.contiguous().mT))
    for left, right in cases:
        for one in (spec, plain):
            x, y = left.to(dtype), right.to(dtype)
            got, run = by_gpu(x, y, one, dtype)
            assert "gemm_instruction" in run
            assert_bitwise_equal(got, by_cpu(x, y, one, dtype))


def test_specials_and_operand_casts(fake_gpu):  # noqa: F811
    a, b = operands(40)
    a[0, 3], a[1, 4], b[5, 2], b[6, 3], a[2] = float("nan"), float("inf"), -float("inf"), 1e30, -0.0
    for spec in (
        "bf16/rtz * bf16 : hw(hopper, wgmma, bf16)", "e4m3/sr8 : hw(hopper, wgmma, bf16)",
        "e4m3/sat * e5m2 : hw(hopper, wgmma, e4m3, e5m2)", "int4 : hw(hopper, wgmma, fp16, out=fp16)",
        "e2m1 : hw(hopper, wgmma, e4m3)",
    ):  # fmt: skip
        meaning = GemmSpec.of(spec)
        got, run = by_gpu(a, b, meaning)
        assert "gemm_instruction" in run, run
        assert_bitwise_equal(got, by_cpu(a, b, meaning), context=spec)


BLOCK_SPECS = [
    "mxfp8_e5m2 * mxfp8_e4m3 : hw(rtx_blackwell, mxf8f6f4, e5m2, e4m3)",
    "mxfp4 : hw(rtx_blackwell, mxf4, e2m1) -> bf16",
    "nvfp4/tensor : hw(rtx_blackwell, mxf4nvf4, e2m1)", "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)",
    "mxfp4 : hw(blackwell, mxf4, e2m1)", "nvfp4/tensor * nvfp4 : hw(blackwell, mxf4nvf4, e2m1) -> e5m10/sr8",
]  # fmt: skip


def encoded(x, fmt, dim, packing="bytes"):
    found = gs.mx.encode(x, fmt, dim=dim, packing=packing)
    return Coded(found.codes, found.scales, fmt, dim, x.shape[dim], packing, as_second(found[2]))


@pytest.mark.parametrize("text", BLOCK_SPECS)
def test_block_scaled_instructions(fake_gpu, text):  # noqa: F811
    spec = GemmSpec.of(text)
    fake_gpu.arch = spec.accumulator.arch
    for k, batch in ((200, ()), (97, (2,)), (31, ())):
        a, b = operands(k)
        a[3, 5], a[4] = float("nan"), 0.0
        a = torch.stack([a, -2 * a]) if batch else a
        left, right = encoded(a, spec.a, -1), encoded(b, spec.b, -2)
        out = torch.full((*batch, 37, 21), 3.0)
        plan = str(run_on_gpu(Product(left, right, spec, out, 5)))
        assert "gemm_tensor<" in plan and "those of its model in all" in plan
        want = gs.mx.matmul(a, b, spec, seed=5)
        assert_bitwise_equal(out, want, context=f"{text} k={k}")


def test_block_scaled_instructions_that_differ_or_do_not_fit(fake_gpu):  # noqa: F811
    fake_gpu.arch = "rtx_blackwell"
    a, b = operands(128)

    def plan(text, left=None, right=None):
        spec = GemmSpec.of(text)
        out = torch.empty(*a.shape[:-1], 21)
        one, two = (encoded(a, spec.a, -1), encoded(b, spec.b, -2))
        return str(run_on_gpu(Product(left or one, right or two, spec, out, 5)))

    assert "is rtx_blackwell, not blackwell" in plan("mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)")
    assert "no kernel issues" in plan("mxfp4/b16 : hw(rtx_blackwell, mxf4nvf4, e2m1)")
    fake_gpu.silicon = hardware.instruction("blackwell", "tcgen05mma_block_scale.m128n8k32.block32.f32.e5m2.e4m3.ue8m0")
    assert "differs from its model" in plan("mxfp8_e4m3 : hw(rtx_blackwell, mxf8f6f4, e4m3)")


def test_operands_of_the_check_reach_what_they_should():
    """Every problem has finite results and special ones, in every format; each call gives the same."""
    for one in [chain_of(x).instruction for _, x in SPECS[::3]]:
        kinds = {"nan": 0, "zero": 0, "finite": 0}
        for (a, b), (c, d) in zip(
            self_check_inputs.plain_problems(one), self_check_inputs.plain_problems(one), strict=True
        ):
            assert torch.equal(a.nan_to_num(9), c.nan_to_num(9)) and torch.equal(b.nan_to_num(9), d.nan_to_num(9))
            spec = GemmSpec(accumulator=Chain(one).accumulator)
            y = by_cpu(a, b, spec)
            kinds["nan"] += int(y.isnan().sum())
            kinds["zero"] += int((y == 0).sum())
            kinds["finite"] += int((y.isfinite() & (y != 0)).sum())
        assert min(kinds.values()) > 500 and kinds["finite"] > 4000, (one.name, kinds)


def test_architectures_of_capabilities():
    assert [architecture_of(c) for c in ((8, 0), (8, 9), (9, 0), (10, 3), (12, 1), (8, 8))] == [
        *("ampere", "ada", "hopper", "blackwell", "rtx_blackwell"),
        None,
    ]
    assert set(CAPABILITIES) < set(hardware.ARCHITECTURES)


def test_explain_names_the_instruction():
    text = gs.explain(acc.cublas_fp32())
    assert "tensor cores: wgmma.m64n8k16.f32.bf16.bf16 on hopper, if a check at its first use" in text
    assert "tensor cores: no, no kernel issues cdna3" in gs.explain(acc.cdna3_fp8())
    assert "tensor cores" not in gs.explain(":e5m10")


@pytest.mark.cuda
@pytest.mark.parametrize(("text", "arch", "instruction"), [
    ("hw(hopper, wgmma, fp16, out=fp16)", "sm_90a", "HGMMA"), ("promote(hw(hopper, wgmma, e4m3), 128)", "sm_90a", "QGMMA"),
    ("hw(ampere, mma, bf16)", "sm_80", "HMMA"), ("hw(blackwell, tcgen05, bf16)", "sm_100a", "UTCHMMA"),
    ("promote(hw(blackwell, tcgen05, e4m3, e5m2), 128)", "sm_100a", "UTCQMMA"),
])  # fmt: skip
def test_kernels_become_the_instructions_that_are_meant(text, arch, instruction, tmp_path, compiled_before):
    from gemmsim.arithmetic import Accumulator
    from gemmsim.backends.cuda.jit import sass_report

    chain = chain_of(Accumulator.parse(text))
    assert isinstance(chain, Chain)
    if compiled_before((instruction_source(chain), arch)):
        return
    compiled = cuda.compile_kernel(instruction_source(chain), arch)
    facts = sass_report.inspect_kernel(compiled)
    assert (facts.spills, facts.stack) == (0, 0)
    (tmp_path / "k.cubin").write_bytes(compiled.cubin)
    assert instruction in sass_report._parse(sass_report._output("nvdisasm", "-c", str(tmp_path / "k.cubin"))).names


def test_kernels_are_listed():
    assert {source.archs for source in native_mma.sources()} == {
        ("sm_80", "sm_120a"), ("sm_80",), ("sm_120a",), ("sm_90a",), ("sm_100a",)
    }  # fmt: skip


def test_verdicts_on_all_instructions_of_a_device(fake_gpu, monkeypatch):  # noqa: F811
    """What ``make gpu-check`` prints; every instruction of each architecture has one spec, and only its own; FP8's
    of Hopper another two, promoted and with scales on its totals."""
    keys = {arch: [spec.key for spec in cuda.instruction_specs(arch)] for arch in CAPABILITIES}
    assert {arch: len(found) for arch, found in keys.items()} == {
        "volta": 0, "turing": 0, "ampere": 4, "ada": 13, "hopper": 30, "blackwell": 29, "rtx_blackwell": 40
    }  # fmt: skip
    assert not [key for arch, found in keys.items() for key in found if f"hw({arch}, " not in key]
    names = [f"mxfp8_{x}" for x in ("e4m3", "e5m2")]
    scaled = [GemmSpec.of(key) for key in keys["hopper"] if ": scaled(hw(hopper, wgmma, " in key]
    assert {(str(spec.a), str(spec.b)) for spec in scaled} == {(x, y) for x in names for y in names}
    assert len({str(cuda.tensor_cores.self_check_report._source(spec)) for spec in scaled}) == 4
    fake_gpu.arch = "ampere"
    monkeypatch.setattr(cuda.tensor_cores.self_check_report, "device_arch", lambda index: "sm_80")
    monkeypatch.setattr(cuda.tensor_cores.self_check_report, "kernel_cache", self_check.kernel_cache)
    monkeypatch.setattr(cuda.tensor_cores.self_check_report, "_device", lambda index: torch.device("cpu"))
    found = dict(cuda.instruction_verdicts())
    assert set(found) == set(keys["ampere"]) and all(verdict.equal for verdict in found.values())


@pytest.mark.kept(by="nothing")
def test_what_follows_a_product(fake_gpu):  # noqa: F811
    """A bias and a cast behind the instruction's product are those behind the model's."""
    from gemmsim.backends.epilogue import Finish
    from gemmsim.formats import parse_cast

    a, b = operands()
    bias = torch.linspace(-3, 3, 21)
    finish = Finish(bias, torch.float32, parse_cast("e4m3"))
    spec, blocks = GemmSpec(accumulator=acc.cublas_fp32()), GemmSpec.of(BLOCK_SPECS[0])
    out = torch.empty(37, 21, dtype=torch.bfloat16)
    assert "gemm_instruction<" in str(run_on_gpu(Product(a, b, spec, out, 5, finish=finish)))
    assert_bitwise_equal(out, gs.quantize(by_cpu(a, b, spec) + bias, "e4m3").bfloat16())
    fake_gpu.arch = "rtx_blackwell"
    plan = str(run_on_gpu(Product(encoded(a, blocks.a, -1), encoded(b, blocks.b, -2), blocks, out, 5, finish=finish)))
    assert "gemm_tensor<" in plan and "not used" not in plan
    assert_bitwise_equal(out, gs.quantize(gs.mx.matmul(a, b, blocks) + bias, "e4m3").bfloat16())
