"""A row's line and digest are those of the standard library's JSON, whatever its values are."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmsim.study.cells import digest
from gemmsim.study.row_text import SCHEMA, as_line, stamp

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
finite = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
nested = st.recursive(finite, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
rows = st.dictionaries(st.text(), scalars | nested, max_size=12).map(lambda row: {"cell": "c", **row})


def plain(row: dict) -> dict:
    """The stamped row, by definition."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items() if k != "digest"}
    body = json.loads(json.dumps({"schema": SCHEMA, **finite}))
    return {**body, "digest": digest(body)}


@settings(max_examples=500, deadline=None)
@given(rows)
def test_line_and_digest(row):
    stamped, text = stamp(row)
    assert text == as_line(plain(row)) == as_line(stamped)
    assert list(json.loads(text).items()) == list(stamped.items()) == list(plain(row).items())
    assert stamp(stamped) == (stamped, text), "a row that was read is written as it was"


def test_numbers_of_numpy_are_numbers():
    row = {"cell": "c", "x": np.float64(0.1), "bad": np.float64("nan"), "100%": 1, 'a "quoted" %s': True}
    stamped, text = stamp(row)
    assert json.loads(text) == {**row, "schema": SCHEMA, "bad": None, "digest": stamped["digest"]}


@pytest.mark.parametrize(
    ("value", "error"), [([math.nan], ValueError), ({"a": math.inf}, ValueError), ({1, 2}, TypeError)]
)
def test_what_json_does_not_have(value, error):
    with pytest.raises(error):
        stamp({"cell": "c", "value": value})
