"""From a function to the spec with its bits."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
from probe.accumulator_cases import FAMILIES, draw
from probe.odd_kernels import KERNELS
from support import LONG

import gemmsim as gs


def by_spec(text):
    return lambda a, b: gs.qmatmul(a, b, text)


#: Specs that are found as they are written.
SAME = [
    *(":fp32", ":fp16", ":bf16/rtz", ":fp16/ru", ":e6m9", ":e5m2/rna", ":fp32/ro", ":fp16/ftz"),
    *(":sequential(fp32, mul=fp32)", ":chunked(8, bf16, fp32)", ":chunked(7, fp32)", ":pairwise(fp16)"),
    *(":pairwise(bf16, 4)", ":interleaved(4, fp32)", ":interleaved(4, fp16, combine=pairwise, width=2)"),
    *(
        ":splitk(3, fp32, bf16)",
        ":splitk([10, 30, 24], fp16, fp32)",
    ),
    *(":kahan(bf16)", ":two_sum(fp16)", ":exact(fp32)", ":binned(bf16, carry=2)"),
    *(":chunked(8, fp16, kahan(fp16))", ":chunked(8, two_sum(e6m9), bf16)", ":fused(8, 20, e8m13, a=bf16)"),
    *("e4m3 : fp16", "e5m2 : bf16 -> fp16", ":fixed(16, 8, rounding=rtz)"),
]


@pytest.mark.parametrize("text", SAME)
def test_specs_are_found_again(text):
    found = gs.identify(by_spec(text), 8, 8, 64)
    assert found.verified and found.spec == gs.GemmSpec.parse(text), found
    assert found.equal == found.of >= 4 * 64


@pytest.mark.parametrize(
    "text", [f"int8 : int({P}, {end})" for P in (12, 20) for end in ("wrap", "saturate", "saturate, when=end")]
)
def test_integer_registers(text):
    def f(a, b):
        return gs.qmatmul(a, b, text.removeprefix("int8 "))

    found = gs.identify(f, 6, 6, 40)
    assert found.verified and found.spec.accumulator == gs.GemmSpec.parse(text).accumulator
    assert "no term is lost" in found.no_tree


def test_products_of_integers_that_lose_low_bits():
    found = gs.identify(by_spec(":int(24, wrap, shift=3)"), 6, 6, 40)
    assert found.verified and found.text == ":int(24, wrap, shift=3)" and "lose their 3 low bits" in found.no_tree


def cases():
    """Every family, more of each in the long run; together 504."""
    for family in FAMILIES:
        for number in range(21 if LONG else 2):
            yield pytest.param(family, number, id=f"{family}-{number}")


@pytest.mark.parametrize(("family", "number"), cases())
def test_accumulators_with_random_parameters_are_recovered_or_verified(family, number):
    choice = random.Random(f"{family} {number}")
    text, K = draw(choice, family), choice.choice([64, 48, 50, 100, 37])
    found = gs.identify(by_spec(text), 8, 8, K)
    assert found.verified, f"{text}, K = {K}: {found}"


@pytest.mark.parametrize(
    "text",
    [
        "hw(ampere, mma, bf16)",
        "e4m3 : hw(hopper, wgmma, e4m3)",
        "hw(cdna3, mfma, fp16)",
        "hw(cdna1, mfma, bf16)",
        "hw(ada, mma, fp16, out=fp16)",
    ],
)
def test_rows_of_the_tables_are_named(text):
    found = gs.identify(by_spec(text), 8, 8, 96)
    assert found.verified and str(gs.GemmSpec.parse(text).accumulator) in found.rows
    assert all(gs.qmatmul(torch.eye(8), torch.eye(8), row).equal(torch.eye(8)) for row in found.rows)


@pytest.mark.parametrize(
    ("config", "K", "words"),
    [
        ("66,,4,2,,,35", 1024, "family nvjet in 4 slices"),
        ("66,,1,,,,35", 256, "family nvjet"),
        ("21,,3,4,,,13", 510, "family cutlass in 3 slices"),
    ],
)
def test_plans_of_libraries_are_named(config, K, words):
    plan = gs.libraries.cublaslt("h100", version="13.1").plan(
        16, 16 if "66" in config else 17, K, "bf16", config=config
    )
    M, N = plan.call.M, plan.call.N
    out = plan.spec.out.format

    def library(a, b):
        return gs.qmatmul(a.float(), b.float(), plan.spec).to(torch.bfloat16)

    found = gs.identify(library, M, N, K, torch.bfloat16)
    assert str(out) == "e8m7" and found.verified, found
    assert any(words in name and "h100" in name for name in found.plans), found.plans


def test_terms_that_a_library_loses_are_said():
    lossy = gs.acc.splitk(9, gs.acc.hw("h100", "wgmma", "fp16"), "fp32", grain=64, share="floor")
    K = next(k for k in range(600, 1200) if lossy.lost(k))
    found = gs.identify(by_spec(lossy), 4, 4, K, torch.float16)
    assert f"{lossy.lost(K)} of {K} terms never enter the sum" in found.no_tree and found.tree is None


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("K", [40, 33])
def test_kernels_by_hand_end_verified(name, K):
    found = gs.identify(KERNELS[name], 8, 8, K)
    assert found.verified and found.tree is not None, found


PRODUCTS = {
    "torch.mm float32": (torch.mm, torch.float32),
    "torch.mm bfloat16": (torch.mm, torch.bfloat16),
    "torch.mm float16": (torch.mm, torch.float16),
    "torch.bmm": (torch.bmm, torch.float32),
    "torch.nn.functional.linear": (torch.nn.functional.linear, torch.float32),
    "numpy.matmul": (np.matmul, torch.float32),
}
SIZES = [(M, K) for M in (1, 2, 3, 4, 5, 6, 7, 8, 64) for K in (16, 64, 100, 256, 500)]


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(("M", "K"), SIZES if LONG else [(1, 64), (3, 100), (8, 16)])
def test_products_of_this_machine_end_verified(name, M, K):
    f, dtype = PRODUCTS[name]
    found = gs.identify(f, M, 64 if LONG else 16, K, dtype)
    if found.found == "order" and dtype != torch.float32:
        pytest.skip(f"the order is known, the roundings of this processor's instructions are not: {found}")
    assert found.verified and found.function.endswith(name.split()[0].rpartition(".")[2]), found


def test_results_in_a_narrow_format_do_not_hide_the_order():
    """Sums in float32 that end in bfloat16 are told apart by operands that cancel."""
    for text in (":interleaved(4, fp32) -> bf16", ":fp32 -> bf16", ":pairwise(fp32) -> bf16"):
        found = gs.identify(
            lambda a, b, text=text: gs.qmatmul(a.float(), b.float(), text).bfloat16(), 8, 8, 64, torch.bfloat16
        )
        assert found.verified and found.spec == gs.GemmSpec.parse(text), found


def test_random_roundings_change_from_call_to_call():
    found = gs.identify(by_spec(":fp16/sr8"), 16, 16, 48)
    assert found.found == "stochastic" and found.spec is None and not found.verified
    assert "outputs differ between calls" in found.text and found.order == "0:48"


def test_comparison_with_a_spec():
    same = gs.identify(by_spec(":chunked(8, fp16)"), 8, 8, 32, spec=":chunked(8, fp16)")
    assert same.verified and same.difference is None and same.asked == str(same.spec)
    other = gs.identify(by_spec(":chunked(8, fp16)"), 8, 8, 32, spec=":chunked(4, fp16)")
    assert other.verified and other.spec == gs.GemmSpec.parse(":chunked(8, fp16)")
    parting = other.difference
    assert parting.found != parting.spec and parting.parts[-1][1] != parting.parts[-1][2]
    before = parting.parts[0]
    assert len(parting.parts) == 1 or before[1] == before[2]
    assert "differs: " in str(other)


def test_answers_print_and_go_to_json():
    found = gs.identify(by_spec(":chunked(8, bf16, fp32)"), 4, 4, 32)
    assert json.loads(json.dumps(found.to_dict()))["spec"] == "chunked(8, e8m7, e8m23)".join([":", ""])
    assert "equal in 2048 of 2048 outputs: normal, wide, positive, cancelling operands" in str(found)
    assert found._repr_html_().startswith("<table") and found.svg().startswith("<svg")
    assert all(
        word in str(found) for word in ("order: 0:8 (8:16)*3", "PyTorch", "threads", "first addition: 8 bits, rne")
    )


def test_equal_seeds_give_equal_answers():
    one, other = (gs.identify(by_spec(":splitk(3, fp16, fp32)"), 6, 6, 40, seed=3) for _ in range(2))
    assert one == other


def test_products_in_float64():
    found = gs.identify(by_spec(":chunked(8, fp64)"), 6, 6, 24, torch.float64)
    assert found.verified and found.text == ":chunked(8, fp64)"
    assert "results are read with 53 bits" in str(found) and "products 2^-1074 to 2^1023" in str(found)


def test_a_narrow_result_does_not_narrow_the_sums():
    found = gs.identify(lambda a, b: gs.qmatmul(a.float(), b.float(), ":fp32").half(), 8, 8, 32, torch.float16)
    assert found.text == ":fp32 -> fp16"
    same = gs.identify(lambda a, b: gs.qmatmul(a, b, ":fp32"), 4, 4, 32, torch.bfloat16, spec=":fp32")
    assert same.verified and same.difference is None  # bfloat16 tensors, bfloat16 results


def test_the_hint_of_a_name_that_is_none():
    with pytest.raises(gs.SpecError, match="Did you mean"):
        gs.identify(torch.mm, 4, 4, 8, spec=":chuncked(4, bf16)")
