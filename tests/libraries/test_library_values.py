"""A library is a value: text, equality, hash, pickle; versions by prefix; what is asked wrongly, and what is not known."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import gemmsim as gs
from gemmsim.libraries import Config, LibraryError, UnknownPlan, cublaslt

H100 = cublaslt("h100", version="13.1")
CONFIG = (66, 0, 4, 0, 0, 0, 35, 0, 0)


def test_text_equality_hash_and_pickle():
    assert str(H100) == "cublaslt('h100', version='13.1.1', workspace=33554432)"
    assert repr(H100) == f"gemmsim.libraries.{H100}"
    same = [cublaslt("H100", version=version) for version in ("13", "13.1", "13.1.1", None)]
    same += [copy.deepcopy(H100), pickle.loads(pickle.dumps(H100)), eval(repr(H100), {"gemmsim": gs})]
    assert {*same, H100} == {H100}
    others = [
        cublaslt("h100", workspace=0),
        cublaslt("gb300"),
        cublaslt("h100", assume_version="13.2"),
        cublaslt("h100", assume_gpu="gh200"),
    ]
    assert len({*others, H100}) == 5 and H100 != "h100"
    assert all(eval(repr(one), {"gemmsim": gs}) == one for one in others)


def test_a_plan_is_a_value():
    plan = H100.plan(64, 64, 8192, "fp16", config=CONFIG)
    assert plan == cublaslt("h100").plan(64, 64, 8192, torch.float16, torch.float16, "fp16", config=list(CONFIG))
    assert hash(plan) and pickle.loads(pickle.dumps(plan)) == plan and "silicon" in str(plan)
    assert plan.config == Config(*CONFIG) and plan.source == "config" and plan.call.K == 8192
    assert H100.spec(64, 64, 8192, "fp16", config=CONFIG) == plan.spec
    assert gs.GemmSpec.parse(plan.text) == plan.spec


def test_plans_are_kept():
    plan = H100.plan(64, 64, 8192, "fp16", config=CONFIG)
    assert H100.plan(64, 64, 8192, "fp16", config=CONFIG) is plan
    assert H100.plan(64, 64, 8192, "fp16", config=Config(*CONFIG)) is plan
    with pytest.raises(LibraryError):
        H100.plan(64, 64, 8192, "fp16", config=(66, False, 4, 0, 0, 0, 35, 0, 0))
    with pytest.raises(LibraryError):
        H100.plan(64.0, 64, 8192, "fp16", config=CONFIG)
    H100.plan(1, 1, 8192, "fp16", config=CONFIG)
    with pytest.raises(LibraryError):
        H100.plan(True, 1, 8192, "fp16", config=CONFIG)
    with pytest.raises(LibraryError):
        H100.plan(64, 64, 8192, "fp16", config=CONFIG, fast_accumulation=0)


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        list(CONFIG),
        (66, None, 4, None, None, None, 35, None, None),
        {"ALGO_ID": 66, "SPLITK_NUM": 4, "STAGES_ID": 35},
        "66,,4,,,,35",
        " 66, 0, 4, 0, 0, 0, 35, 0, 0 ",
        Config(66, SPLITK_NUM=4, STAGES_ID=35),
    ],
    ids=str,
)
def test_configurations_may_be_written_in_several_ways(config):
    assert H100.plan(64, 64, 8192, "fp16", config=config).text == H100.plan(64, 64, 8192, "fp16", config=CONFIG).text


@pytest.mark.parametrize(
    "config",
    [
        (66, 0, 4),
        [66] * 10,
        (66, 0, True, 0, 0, 0, 35, 0, 0),
        (66, 0, 4.0, 0, 0, 0, 35, 0, 0),
        ("66", 0, 4, 0, 0, 0, 35, 0, 0),
        (None, 0, 4, 0, 0, 0, 35, 0, 0),
        (66, 0, 4, 0, 0, 0, 35, 0x10000, 0),
        (66, 0, 2**31, 0, 0, 0, 35, 0, 0),
        {"ALGO_ID": 66, "SPLIT_K": 4},
        {"SPLITK_NUM": 4},
        "66,x",
        "66,,,,,,,,,1",
        "",
        66,
        b"66",
    ],
    ids=str,
)
def test_configurations_that_are_none(config):
    with pytest.raises(LibraryError, match="allowed") as refusal:
        H100.plan(64, 64, 8192, "fp16", config=config)
    assert "\n  " in str(refusal.value)
    if isinstance(config, dict) and "SPLIT_K" in config:
        assert "SPLITK_NUM" in str(refusal.value)


@pytest.mark.parametrize("size", [0, -1, 2**31, 1.0, True, "64", None])
@pytest.mark.parametrize("place", ["M", "N", "K"])
def test_sizes_are_positive_integers(size, place):
    sizes = {"M": 64, "N": 64, "K": 64, place: size}
    with pytest.raises(LibraryError, match=f"{place}="):
        H100.plan(*sizes.values(), "fp16", config=CONFIG)


@pytest.mark.parametrize("value", ["fp61", 16, torch.int8, torch.complex64, ["fp16"], None, "mxfp4"])
def test_formats_that_are_none(value):
    with pytest.raises(LibraryError, match="a="):
        H100.plan(64, 64, 64, value, config=CONFIG)


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        ("fp32", None, None),
        ("fp16", "bf16", None),
        ("fp16", None, "bf16"),
        ("e5m2", "e5m2", None),
        ("fp64", None, None),
    ],
)
def test_operands_that_nobody_has_measured(a, b, out):
    with pytest.raises(UnknownPlan) as refusal:
        H100.plan(64, 64, 64, a, b, out, config=CONFIG)
    assert "fp16 * fp16 to fp16" in refusal.value.known and "64 x 64 x 64" in refusal.value.asked


def test_fp8_needs_multiples_of_16():
    config = (66, 0, 1, 0, 0, 0, 36, 0, 0)
    for shape in ((16, 17, 16), (16, 16, 24)):
        with pytest.raises(LibraryError, match="multiples of 16"):
            H100.plan(*shape, "e4m3", config=config)
    with pytest.raises(UnknownPlan):
        H100.plan(17, 16, 16, "e4m3", config=config)
    assert cublaslt("h100-pcie").plan(17, 16, 16, "e4m3", config=config).spec


def test_the_error_of_what_is_unknown_is_a_lookup_error_with_three_parts():
    with pytest.raises(LookupError) as refusal:
        H100.plan(64, 64, 64, "fp16")
    error = refusal.value
    assert isinstance(error, UnknownPlan) and not isinstance(error, ValueError)
    assert "no table" in error.asked and "nvjet" in error.known and "record" in error.do
    assert all(part in str(error) for part in (error.asked, error.known, error.do)) and "; known: " in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.asked, again.known, again.do) == (error.asked, error.known, error.do)


def test_a_guess_is_asked_for_and_said():
    plan = H100.plan(64, 64, 64, "fp16", assume="chain")
    assert plan.text == "fp16 : hw(hopper, wgmma, fp16) -> fp16"
    assert (plan.source, plan.evidence, plan.config) == ("assumed", "unverified", None)
    assert "assumed" in plan.explain()
    assert H100.plan(64, 64, 64, "fp16", config="41", assume="chain").source == "assumed"
    known = H100.plan(64, 64, 8192, "fp16", config=CONFIG, assume="chain")
    assert known.source == "config"
    slow = H100.plan(16, 16, 4096, "e4m3", assume="chain")
    assert slow.text == "e4m3 : promote(hw(hopper, wgmma, e4m3), 128) -> fp32 -> fp16"
    ada = cublaslt("rtx4060").plan(16, 16, 4096, "e4m3", assume="chain", fast_accumulation=True)
    assert ada.text == "e4m3 : hw(ada, mma, e4m3) -> fp32 -> fp16"
    with pytest.raises(UnknownPlan):
        H100.plan(64, 64, 64, "fp32", assume="chain")
    with pytest.raises(LibraryError, match="assume="):
        H100.plan(64, 64, 64, "fp16", assume="plain")


def test_without_a_workspace_nothing_is_split():
    for gpu, evidence in (("h100-pcie", "silicon"), ("rtx4060", "silicon"), ("h100", "inferred")):
        plan = cublaslt(gpu, workspace=0).plan(64, 64, 8192, "e4m3")
        assert (plan.source, plan.evidence, plan.config.slices) == ("bound", evidence, 1), gpu
    with pytest.raises(UnknownPlan):
        cublaslt("h100", workspace=0).plan(64, 64, 8192, "fp16")
    with pytest.raises(UnknownPlan):
        cublaslt("h100-pcie").plan(64, 64, 8192, "e4m3")


@pytest.mark.parametrize(
    ("gpu", "split", "accumulator"),
    [
        ("h100-pcie", 1, "promote(hw(hopper, wgmma, e4m3), 128)"),
        (
            "h100-pcie",
            (4, "contiguous"),
            "splitk(4, promote(hw(hopper, wgmma, e4m3), 128), fp32, grain=128, share=floor)",
        ),
        ("rtx4060", [2, "serial"], "interleaved(2, promote(hw(ada, mma, e4m3), 128), sequential, width=64)"),
        ("rtx4060", (3, "pairwise"), "interleaved(3, promote(hw(ada, mma, e4m3), 128), tree(((2+0)+1)), width=64)"),
    ],
)
def test_splits_may_be_given(gpu, split, accumulator):
    plan = cublaslt(gpu).plan(64, 64, 4096, "e4m3", out="bf16", split=split)
    assert plan.text == f"e4m3 : {accumulator} -> fp32 -> bf16"
    assert (plan.source, plan.evidence) == ("explicit", "silicon")


@pytest.mark.parametrize(
    ("gpu", "split"),
    [
        ("h100-pcie", (4, "serial")),
        ("rtx4060", (4, "contiguous")),
        *(("h100-pcie", one) for one in (0, 2, True, 1.0, (1, "contiguous"), (4,), (4, 1), "4", (True, "serial"))),
    ],
)
def test_splits_that_these_kernels_do_not_have(gpu, split):
    cublaslt(gpu).plan(64, 64, 4096, "e4m3", split=1)
    with pytest.raises(LibraryError, match="split="):
        cublaslt(gpu).plan(64, 64, 4096, "e4m3", split=split)


def test_a_split_does_not_name_a_family_of_16_bits_and_contradicts_a_configuration():
    with pytest.raises(UnknownPlan, match="family"):
        H100.plan(64, 64, 4096, "fp16", split=1)
    with pytest.raises(LibraryError, match="config and split"):
        H100.plan(64, 64, 4096, "e4m3", split=1, config=(66, 0, 1, 0, 0, 0, 36, 0, 0))


def test_versions():
    assert cublaslt("gb200", version="12").version == "12.8.5" and cublaslt("gb200", version="13").version == "13.1.1"
    with pytest.raises(LibraryError, match=r"without a version; allowed: 12\.8\.5, 13\.1\.1"):
        cublaslt("gb200")
    for version in ("13.x", "", "13.", ".1", "13.1.1.0.0", 13, 13.1, "v13", True):
        with pytest.raises(LibraryError, match="version="):
            cublaslt("h100", version=version)
    for version in ("13.10", "1", "12.8", "13.1.10", "13.1.1.2"):
        with pytest.raises(LibraryError, match=f"assume_version='{version}'"):
            cublaslt("h100", version=version)


def test_what_is_assumed_is_inferred_and_said():
    lib = cublaslt("h100", version="13.1", assume_version="13.2")
    plan = lib.plan(64, 64, 8192, "fp16", config=CONFIG)
    assert plan.evidence == "inferred" and "h100 13.2 is assumed to behave the same" in plan.explain()
    assert plan.text == H100.plan(64, 64, 8192, "fp16", config=CONFIG).text
    assert lib.names == ("h100", "13.2") and H100.names == ("h100", "13.1.1")
    with pytest.raises(LibraryError, match="This one was"):
        cublaslt("gb200", version="13.1", assume_version="12.8")
    with pytest.raises(LibraryError, match="This one was"):
        cublaslt("gb200", version="13.1", assume_gpu="gb300")
    for wrong in ("13.x", 13, ""):
        with pytest.raises(LibraryError, match="assume_version="):
            cublaslt("h100", assume_version=wrong)


@pytest.mark.parametrize("gpu", ["h10", "H 100 ", "a100", "", None, 100, "h100 pcie"])
def test_gpus(gpu):
    if gpu == "h100 pcie":
        assert cublaslt(gpu).gpu == "h100-pcie"
        return
    with pytest.raises(LibraryError, match="h100-pcie") as refusal:
        cublaslt(gpu)
    assert "Did you mean 'h100'" in str(refusal.value) or gpu != "h10"


@pytest.mark.parametrize("workspace", [-1, 1.5, "32", None, True])
def test_workspaces_are_sizes(workspace):
    with pytest.raises(LibraryError, match="workspace="):
        cublaslt("h100", workspace=workspace)


def test_explanations_say_what_was_measured_and_what_would_change_it():
    text = H100.plan(64, 64, 8192, "fp16", config=CONFIG).explain()
    for word in (
        *("nvjet", "4 contiguous slices of up to 2048 terms", "instructions of 16 products", "spec: fp16 : splitk"),
        *("silicon", "1,886,731 of 1,890,189 equal", "ALGO_ID=66, TILE_ID=0, SPLITK_NUM=4", "workspace"),
    ):
        assert word in text, word
    assert "gemv" not in text and "gemmsn" not in text


def test_matmul():
    g = torch.Generator().manual_seed(1)
    a, b = torch.randn(5, 300, generator=g).half(), torch.randn(300, 7, generator=g).half()
    got = H100.matmul(a, b, config=(66, 0, 1, 0, 0, 0, 35, 0, 0))
    assert got.dtype == torch.float16 and got.shape == (5, 7)
    assert torch.equal(got, gs.qmatmul(a.float(), b.float(), "fp16 : hw(hopper, wgmma, fp16) -> fp16").half())
    wide = H100.matmul(a, b, torch.float32, "66,,,,,,35")
    assert wide.dtype == torch.float32 and torch.equal(
        wide, gs.qmatmul(a.float(), b.float(), "fp16 : hw(hopper, wgmma, fp16) -> fp32")
    )
    with pytest.raises(UnknownPlan, match="batched"):
        H100.matmul(a[None], b[None], config=CONFIG)
    for x, y in ((a, a), (a[0], b), ([1.0], b), (a, None)):
        with pytest.raises(LibraryError):
            H100.matmul(x, y, config=CONFIG)
    with pytest.raises(UnknownPlan):
        H100.matmul(a.float(), b.float(), config=CONFIG)


def test_special_values_pass_through_matmul():
    a = torch.tensor([[float("inf"), 0.0], [float("nan"), 1.0], [-0.0, -0.0], [65504.0, 65504.0]]).half()
    got = H100.matmul(a, torch.ones(2, 1).half(), config="66,,,,,,35")[:, 0]
    assert got[0] == float("inf") and got[1].isnan() and got[3] == float("inf")
    assert got[2] == 0 and not torch.signbit(got[2])


def test_an_empty_product_needs_no_configuration():
    library = gs.libraries.cublaslt("h100", version="13.1")
    for shape in ((0, 64, 8), (4, 64, 0), (4, 0, 8)):
        a, b = (torch.ones(s, dtype=torch.bfloat16) for s in (shape[:2], shape[1:]))
        found = library.matmul(a, b)
        assert found.shape == (shape[0], shape[2]) and found.dtype == torch.bfloat16 and not found.any()
