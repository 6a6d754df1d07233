"""Where the answer changes with the shape."""

from __future__ import annotations

import json

import pytest

import gemmsim as gs


def by_rows_and_length(a, b):
    """One register for up to two rows, else runs whose length grows with K."""
    K = a.shape[1]
    return gs.qmatmul(a, b, ":fp16" if len(a) <= 2 else f":chunked({K // 4}, fp16)")


def test_ranges_with_one_answer_are_one_rule():
    over = gs.identify_over(by_rows_and_length, M=range(1, 5), N=4, K=[16, 32])
    assert len(over.answers) == 8 and all(one.verified for one in over.answers)
    assert over.rules == (
        "M 1 to 2, K 16 to 32: :fp16",
        "M 3 to 4, K 16: :chunked(4, fp16)",
        "M 3 to 4, K 32: :chunked(8, fp16)",
        "M 3 to 4: chunks of 4 (K = 16), 8 (K = 32)",
    )
    assert "rule: M 1 to 2" in str(over) and json.loads(json.dumps(over.to_dict()))["rules"] == list(over.rules)
    assert over._repr_html_().startswith("<table")


def test_shapes_that_are_refused_are_listed():
    def picky(a, b):
        if len(a) == 3:
            raise ValueError("no three rows")
        return gs.qmatmul(a, b, ":fp32")

    over = gs.identify_over(picky, M=[2, 3], N=3, K=[12])
    assert [one.shape for one in over.answers] == [(2, 3, 12)]
    assert over.refused[0][0] == (3, 3, 12) and "no three rows" in over.refused[0][1]


def test_no_size_and_no_answer_at_all():
    with pytest.raises(gs.ProbeError, match="at least one M and one K"):
        gs.identify_over(by_rows_and_length, M=[], K=[4])
    with pytest.raises(gs.ProbeError, match="zeros give 1"):
        gs.identify_over(lambda a, b: a @ b + 1, M=[2], N=2, K=[4, 5])
