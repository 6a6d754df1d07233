"""Traces of integer accumulators: each product beside its addition, with its term, and numbers as integers."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs

A, B = [100.0, 100.0, -100.0, 3.0], [1.0, 1.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("spec", "kinds"),
    [
        (":int(8)", ["product", "add"]),
        (":int(8, saturate)", ["product", "add"]),
        (":int(9, shift=1)", ["product", "shift", "add"]),
        (gs.acc.fixed(16, 4), ["product", "add"]),
        ("int8 : chunked(2, int(18), fixed(24,0))", ["product", "add"]),
    ],
    ids=str,
)
def test_steps_of_a_term_stand_together(spec, kinds):
    story = gs.trace(A, B, spec)
    inner = [(step.k, step.kind) for step in story.steps if step.kind in ("product", "shift", "add")]
    assert inner == [(k, kind) for k in range(4) for kind in kinds]
    assert_bitwise_equal(torch.tensor(story.value), gs.qmatmul(torch.tensor(A), torch.tensor(B), spec))


def test_a_register_that_is_judged_at_the_end_has_one_addition():
    steps = gs.trace(A, B, ":int(7, when=end)").steps
    assert [(step.kind, step.k) for step in steps] == [
        *(("product", k) for k in range(4)),
        ("add", None),
        ("result", None),
    ]
    assert str(steps[-2]).split(None, 1) == ["add", "0 + 106, out of 7 bits (wrap) = 106 -> -22"]


def test_numbers_of_integer_registers_are_integers():
    text = str(gs.trace([100.2, 100.0], [1.0, 1.0], "int8 : int(8) -> bf16"))
    assert "a = 100, b = 1, from 100.2 and 1.0" in text  # what was given stays as it was given
    assert "add         100 + 100, out of 8 bits (wrap) = 200 -> -56" in text and "exact    200" in text
    assert "output      -56 = -56  (exact in e8m7)" in text
    html = gs.trace([100.0], [1.0], ":int(8)")._repr_html_()
    assert "100 * 1" in html and "100.0" not in html and "exact: 100" in html
    assert "100.0 * 1.0 = 100.0" in str(gs.trace([100.0], [1.0], ":fp32"))  # of others floats, as before
    assert all(step.whole for step in gs.trace([1.0], [1.0], ":int(8)").steps)
    assert not any(step.whole for step in gs.trace([1.0], [1.0], ":fp32").steps)
