"""Ladders and orders: ranges, lists, integers, widths in bits, and what is refused."""

from __future__ import annotations

import pytest

import gemmsim as gs
from gemmsim.accumulator_search.ladder import read_ladder, register_bits

RANGES = {
    "e5m1:e5m4": ["e5m1", "e5m2", "e5m3", "e5m4"],
    " e5m2 : e5m3 ": ["e5m2", "e5m3"],
    "e4m3:e6m3": ["e4m3", "e5m3", "e6m3"],
    "e5m9/rtz:e5m11/rtz": ["e5m9/rtz", "e5m10/rtz", "e5m11/rtz"],
    "int(9):int(11)": ["int(9)", "int(10)", "int(11)"],
    "int(9, saturate):int(10, saturate)": ["int(9, saturate)", "int(10, saturate)"],
    "fixed(12,8):fixed(14,8)": ["fixed(12,8)", "fixed(13,8)", "fixed(14,8)"],
    "fp32, e4m3, bf16": ["e4m3", "bf16", "fp32"],
    "int(9, saturate), int(8)": ["int(8)", "int(9, saturate)"],
}


@pytest.mark.parametrize("ladder", RANGES)
def test_texts(ladder):
    assert [rung.register for rung in read_ladder(ladder, "{}")] == RANGES[ladder]


@pytest.mark.parametrize("ladder", [[12, 10, 12], (10, 12), ["int(12)", 10]])
def test_sequences_and_duplicates(ladder):
    assert [rung.register for rung in read_ladder(ladder, "{}")] == ["int(10)", "int(12)"]
    assert [rung.bits for rung in read_ladder(range(3, 6), "{}")] == [3, 4, 5]


def test_orders_are_templates():
    assert [rung.spec for rung in read_ladder("e5m1:e5m2", "e4m3 : chunked(64, {}) -> bf16")] == [
        "e4m3 : chunked(64, e5m1) -> e8m7",
        "e4m3 : chunked(64, e5m2) -> e8m7",
    ]
    assert [rung.spec for rung in read_ladder("e5m1:e5m2", "chunked(8, {}, {})")][0] == ":chunked(8, e5m1, e5m1)"
    assert read_ladder("e5m1:e5m2", "kahan({})")[1].spec == ":kahan(e5m2)"


def test_widths():
    widths = {"e5m4": 10, "bf16": 16, "fp32": 32, "int(13)": 13, "fixed(20,8)": 20, "e5m10/rtz": 16, "e5m2/sr8": 8}
    assert {name: register_bits(name) for name in widths} == widths


def test_equal_widths_keep_their_order():
    assert [rung.register for rung in read_ladder("e5m2, e4m3, e3m2", "{}")] == ["e3m2", "e5m2", "e4m3"]


REFUSED = [
    ("e5m1", "1 format;"), ("", "0 formats"), ("e5m10:e5m1", "Write 'e5m1:e5m10'"), ("e5m1:e6m2", "a range of one"),
    ("e5m1:e5m1", "a range of one"), ("e5m1:bf16", "a range of one"), ("a:b:c", "a range of one"), (3.5, "a range of"),
    ([1.5, 2], "a range of one"), ("e5m1, zzz", "unknown format 'zzz'"), ([], "0 formats"), (b"e5m1", "a range of"), ([True, 4], "a range of"),
    ("e5m1:e5m60", "unknown format|e5m"), ("int(2):int(900)", "65 formats"),
]  # fmt: skip


@pytest.mark.parametrize("ladder, said", REFUSED, ids=lambda one: repr(one)[:20])
def test_refused_ladders(ladder, said):
    with pytest.raises(gs.SearchError, match=said):
        read_ladder(ladder, "{}")


@pytest.mark.parametrize("order", ["", "chunked(64)", "e4m3 : fp32", None, 3])
def test_orders_without_a_place(order):
    with pytest.raises(gs.SearchError, match="with {} in place of a format"):
        read_ladder("e5m1:e5m2", order)


def test_orders_that_mean_nothing():
    with pytest.raises(gs.SearchError, match="with format 'e5m1'.*Did you mean chunked"):
        read_ladder("e5m1:e5m2", "chunkd(64, {})")
