"""Libraries with one rule for every shape: batch-invariant kernels, CUTLASS's split-K; and Transformer Engine's cuBLASLt."""

from __future__ import annotations

import pickle

import pytest
import torch

import gemmsim as gs
from gemmsim.libraries import LibraryError, UnknownPlan, batch_invariant, cutlass_splitk, transformer_engine

MIB = 1 << 20


@pytest.mark.parametrize(
    ("library", "text"),
    [
        (batch_invariant("a100"), "bf16 : hw(ampere, mma, bf16) -> bf16"),
        (batch_invariant("h100"), "bf16 : hw(hopper, wgmma, bf16) -> bf16"),
        (batch_invariant("gb200", by="triton"), "bf16 : hw(blackwell, tcgen05, bf16) -> bf16"),
        (batch_invariant("h100", by="thinking-machines"), "bf16 : hw(hopper, wgmma, bf16) -> fp16 -> bf16"),
        (batch_invariant("l40s", by="triton"), "bf16 : hw(ada, mma, bf16) -> bf16"),
        (cutlass_splitk(1), "bf16 : hw(ampere, mma, bf16, first=32) -> bf16"),
        (
            cutlass_splitk(3),
            "bf16 : splitk(3, hw(ampere, mma, bf16, first=32), bf16/via(fp32), partial=fp32, grain=64) -> bf16",
        ),
        (cutlass_splitk(3, "parallel", gpu="h100", block=64), "bf16 : splitk(3, hw(hopper, mma, bf16, first=64), fp32, grain=64) -> bf16"),
        (
            cutlass_splitk(3, "parallel", "bf16"),
            "bf16 : splitk(3, hw(ampere, mma, bf16, first=32), fp32, partial=bf16, grain=64) -> bf16",
        ),
        (cutlass_splitk(3, "serial", "fp32"), "bf16 : splitk(3, hw(ampere, mma, bf16, first=32), fp32, grain=64) -> bf16"),
    ],
    ids=str,
)  # fmt: skip
def test_one_rule_for_every_shape(library, text):
    plan = library.plan(64, 256, 4096, "bf16")
    assert plan.text == text and gs.GemmSpec.parse(text) == plan.spec
    assert (plan.source, plan.evidence, plan.config, plan.lost) == ("rule", "inferred", None, 0)
    assert str(library) in plan.explain() and "one rule for every shape" in plan.explain()
    assert library.plan(32, 64, 4096, "bf16").text == text
    assert pickle.loads(pickle.dumps(library)) == library == eval(repr(library), {"gemmsim": gs})
    assert hash(library) == hash(pickle.loads(pickle.dumps(library)))
    with pytest.raises(LibraryError, match="config or split"):
        library.plan(64, 64, 4096, "bf16", config="66,,,,,,35")
    with pytest.raises(UnknownPlan):
        library.plan(64, 64, 4096, "e4m3")
    with pytest.raises(UnknownPlan):
        library.plan(64, 64, 4096, "fp32")


def test_grains_follow_k():
    assert "grain=8" in cutlass_splitk(3).plan(64, 64, 4100, "fp16").text
    assert cutlass_splitk(3).plan(64, 64, 4096, "fp16", out="fp32").text == (
        "fp16 : splitk(3, hw(ampere, mma, fp16, first=32), fp32, grain=64) -> fp32"
    )


def test_vllm_leaves_small_and_unaligned_shapes_to_cublas():
    hopper, ampere = batch_invariant("h100"), batch_invariant("a100")
    for shape in ((16, 64, 64), (1, 64, 64), (64, 16, 64), (17, 24, 60), (24, 20, 64)):
        with pytest.raises(UnknownPlan, match="cuBLAS choose the kernel"):
            hopper.plan(*shape, "bf16")
        assert ampere.plan(*shape, "bf16").spec
        assert hopper.plan(*shape, "bf16", assume="chain").evidence == "unverified"
    assert hopper.plan(24, 24, 64, "bf16").spec
    assert hopper.calls_cublas and not ampere.calls_cublas


def test_thinking_machines_round_to_fp16_first():
    library = batch_invariant("h100", by="thinking-machines")
    ends = {
        out: library.plan(1, 8, 64, "bf16", out=out).text.partition(" -> ")[2]
        for out in ("bf16", "fp16", "fp32", "e4m3")
    }
    assert ends == {"bf16": "fp16 -> bf16", "fp16": "fp16", "fp32": "fp16 -> fp32", "e4m3": "e4m3"}


def test_they_multiply():
    g = torch.Generator().manual_seed(3)
    a, b = torch.randn(20, 300, generator=g).half(), torch.randn(300, 24, generator=g).half()
    got = batch_invariant("a100").matmul(a, b)
    assert torch.equal(got, gs.qmatmul(a.float(), b.float(), "fp16 : hw(ampere, mma, fp16) -> fp16").half())
    assert torch.equal(got[:3], batch_invariant("a100").matmul(a[:3], b))  # the batch does not matter


@pytest.mark.parametrize(
    "make",
    [
        lambda: batch_invariant("h100", by="vlm"),
        lambda: batch_invariant("h100", by=None),
        lambda: batch_invariant("h1"),
        lambda: batch_invariant(90),
        lambda: batch_invariant("mi300x"),
        lambda: cutlass_splitk(0),
        lambda: cutlass_splitk(True),
        lambda: cutlass_splitk(2.0),
        lambda: cutlass_splitk(2, "atomic"),
        lambda: cutlass_splitk(2, workspace="fp64"),
        lambda: cutlass_splitk(2, block=48),
        lambda: cutlass_splitk(2, gpu="mi300x"),
        lambda: transformer_engine("a100"),
        lambda: transformer_engine("h100", "12"),
    ],
)
def test_what_does_not_exist(make):
    with pytest.raises(LibraryError, match="allowed"):
        make()


def test_nothing_is_assumed_of_cutlass():
    with pytest.raises(UnknownPlan):
        cutlass_splitk(2).plan(64, 64, 64, "e4m3", assume="chain")


@pytest.mark.parametrize(
    ("gpu", "workspace"), [("h100-pcie", 32 * MIB), ("rtx4060", 4 * MIB), ("h100", 32 * MIB), ("gb300", 32 * MIB)]
)
def test_transformer_engine_is_cublaslt_with_its_workspace(gpu, workspace):
    assert transformer_engine(gpu) == gs.libraries.cublaslt(gpu, workspace=workspace)
