"""Every check can fail: the reproduction with one thing wrong in its arithmetic does not pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmsim import study
from gemmsim.study.cells import Cell
from gemmsim.study.checks import judge

Change = Callable[[Cell], Cell]


def spec(old: str, new: str) -> Change:
    """The same accumulator with one part of its text replaced."""

    def change(cell: Cell) -> Cell:
        assert old in cell.spec, cell.spec
        return dataclasses.replace(cell, spec=cell.spec.replace(old, new))

    return change


def scheme(text: str) -> Change:
    """Another scheme under the same label."""
    return lambda cell: dataclasses.replace(
        cell, columns=tuple((k, text if k == "scheme" else v) for k, v in cell.columns)
    )


HOPPER = "hw(hopper, wgmma, e4m3)"
#: (reproduction, label, what is wrong, the wrong cell)
MUTATIONS = [
    *(("srmac_rbits", f"r{r}", "a random bit less", spec(f"sr{r}", f"sr{r - 1}")) for r in (2, 3, 4, 6, 8, 10)),
    ("srmac_rbits", "r13", "truncation", spec("/sr13", "/rtz")),
    ("srmac_rbits", "r6", "a significand bit less", spec("e6m5", "e6m4")),
    ("batch_invariance", "exact", "an ordinary sum", spec("exact()", "e8m23")),
    ("batch_invariance", "int_wrap", "saturation", spec("int(16)", "int(16, saturate)")),
    ("batch_invariance", "sequential", "an exact sum", spec("e8m23", "exact(e8m23)")),
    ("ootomo_tf32x3", "outside", "the sum inside", scheme("tf32x3(inside)")),
    ("ootomo_tf32x3", "inside", "the sum outside", scheme("tf32x3(outside)")),
    *(("ozaki_int8", f"slices{n}", "a slice less", scheme(f"ozaki_int8({n - 1})")) for n in range(3, 9)),
    ("bf16_slices", "x1", "two slices", scheme("bf16(2)")),
    ("bf16_slices", "x3", "a slice less", scheme("bf16(1)")),
    ("bf16_slices", "x6", "a truncating register", scheme("bf16(3, products=6, spec=:hw(hopper, wgmma, bf16))")),
    ("bf16_slices", "x9", "a truncating register", scheme("bf16(3, spec=:hw(hopper, wgmma, bf16))")),
    ("bf16_slices", "x6_hopper", "an exact register", scheme("bf16(3, products=6)")),
    ("bf16_slices", "x9_hopper", "an exact register", scheme("bf16(3)")),
    ("wang2018_fig3", "chunk1", "a bit less", spec("e6m9", "e6m8")),
    ("wang2018_fig3", "chunk1", "truncation", spec("e6m9", "e6m9/rtz")),
    ("wang2018_fig3", "chunk64", "a bit less", spec("e6m9", "e6m8")),
    ("wang2018_fig3", "chunk64", "truncation", spec("e6m9", "e6m9/rtz")),
    ("wang2018_fig3", "chunk64", "chunks doubled", spec("64", "128")),
    ("wang2018_fig3", "sr", "a bit less", spec("e6m9", "e6m8")),
    ("wang2018_fig3", "sr", "nearest", spec("/sr16", "")),
    *(("wang2018_fig3", f"sr{r}", "a random bit less", spec(f"sr{r}", f"sr{r - 1}")) for r in (8, 4)),
    *(
        ("higham_mary_growth", label, "a bit less", spec("e8m10", "e8m9"))
        for label in ("sequential", "rtz", "sr", "chunk64", "pairwise", "kahan")
    ),
    *(
        ("higham_mary_growth", label, "truncation", spec("e8m10", "e8m10/rtz"))
        for label in ("sequential", "chunk64", "pairwise", "kahan")
    ),
    ("higham_mary_growth", "rtz", "nearest", spec("/rtz", "")),
    ("higham_mary_growth", "sr", "truncation", spec("/sr16", "/rtz")),
    ("higham_mary_growth", "chunk64", "chunks doubled", spec("64", "128")),
    ("deepseek_v3_fp8", "hopper", "a bit less", spec(HOPPER, "fused(32, 12, e8m12/rtz)")),
    ("deepseek_v3_fp8", "hopper", "nearest", spec(HOPPER, "fused(32, exact, e8m13)")),
    *(
        ("deepseek_v3_fp8", f"promote{n}", "runs doubled", spec(f", {n})", f", {2 * n})"))
        for n in (32, 64, 128, 256, 512)
    ),
    ("deepseek_v3_fp8", "promote128", "a bit less", spec(HOPPER, "fused(32, 12, e8m12/rtz)")),
    ("deepseek_v3_fp8", "f25", "a bit less", spec("25)", "24, e8m22/rtz)")),
    ("deepseek_v3_fp8", "f25", "nearest", spec("25)", "25, e8m23)")),
    ("deepseek_v3_fp8", "fp32", "a bit less", spec("e8m23", "e8m22")),
    ("deepseek_v3_fp8", "fp32", "truncation", spec("e8m23", "e8m23/rtz")),
    ("vllm_router_k6144", "hopper", "a bit less", spec("hw(hopper, wgmma, e8m7)", "fused(16, 24)")),
    ("vllm_router_k6144", "hopper", "nearest", spec("hw(hopper, wgmma, e8m7)", "fused(16, 25, e8m23)")),
    ("vllm_router_k6144", "rounded", "a bit less", spec("exact, e8m23", "exact, e8m22")),
    ("vllm_router_k6144", "rounded", "truncation", spec("exact, e8m23", "exact, e8m23/rtz")),
    ("vllm_router_k6144", "rounded", "steps doubled", spec("fused(16", "fused(32")),
    ("swamping", "sequential", "a bit less", spec("e6m9", "e6m8")),
    ("swamping", "sequential", "truncation", spec("e6m9", "e6m9/rtz")),
    ("swamping", "chunk64", "one run", spec("chunked(64,", "chunked(2048,")),
]


@pytest.mark.parametrize(
    ("name", "label", "wrong", "change"), MUTATIONS, ids=[f"{m[0]}-{m[1]}-{m[2].replace(' ', '_')}" for m in MUTATIONS]
)
def test_a_wrong_accumulator_fails(name, label, wrong, change):
    chosen = study.get(name)
    concerned = [e for e in chosen.expectations() if ("label", label) in e.of or not e.of]
    partners = {value for e in concerned for column, value in e.against if column == "label"}
    worker = study.Worker(chosen, Path("."))
    rows = []
    for cell in chosen.cells():
        if cell.label == label:
            rows.append({**worker.compute(change(cell)), "label": label, "scheme": dict(cell.columns).get("scheme")})
        elif cell.label in partners:
            rows.append(worker.compute(cell))
    verdicts = judge(concerned, rows)
    assert any(verdict.ok is False for verdict in verdicts), [f"{v.expectation.words()}: {v.found()}" for v in verdicts]
