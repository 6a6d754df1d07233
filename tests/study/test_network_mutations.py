"""The reproductions on the digits network pass, and each of their checks fails where the arithmetic is wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gemmsim import study
from gemmsim.study.checks import judge
from gemmsim.study.published.integers import A2Q_OVERFLOW
from gemmsim.study.registry import reproduced


@pytest.fixture(scope="module")
def workers():
    """Network and images are read once."""
    made = {}

    def worker(name):
        if name not in made:
            made[name] = study.Worker(study.get(name), Path("."))
        return made[name]

    return worker


def rows_of(worker, wanted, label, change):
    """The rows that checks look at, that of ``label`` computed with a changed spec."""
    rows = []
    for cell in worker.study.cells():
        at = dict(cell.columns)
        if at["what"] != "truth" and (wanted not in (None, at["acc_format"]) or cell.seed):
            continue
        if cell.label == label:
            changed = dataclasses.replace(cell, spec=change(cell.spec))
            assert changed.spec != cell.spec
            cell = changed
        rows.append(worker.compute(cell))
    return rows


def failed(worker, rows, label):
    """The failed checks of this label alone."""
    own = [e for e in worker.study.expectations() if ("label", label) in e.of and not e.against]
    verdicts = judge(own, rows)
    assert len(verdicts) >= 1 and all(verdict.values for verdict in verdicts), "the rows are there"
    return [verdict for verdict in verdicts if not verdict.ok]


BIT = ("a bit less", lambda spec: spec.replace("e5m2", "e5m1"))
TRUNCATE = ("truncation", lambda spec: spec.replace("e5m2", "e5m2/rtz"))
DIGITS = [
    *((label, *BIT) for label in ("sequential", "rtz", "chunk16", "pairwise", "kahan")),
    *((label, *TRUNCATE) for label in ("sequential", "chunk16", "pairwise", "kahan")),
    ("rtz", "to nearest", lambda spec: spec.replace("/rtz", "")),
    ("chunk16", "chunk doubled", lambda spec: spec.replace("(16,", "(32,")),
    ("pairwise", "not pairwise", lambda spec: ":e5m2"),
    ("kahan", "not compensated", lambda spec: ":e5m2"),
]


@pytest.mark.parametrize(("label", "wrong", "change"), DIGITS, ids=[f"{d[0]}-{d[1].replace(' ', '_')}" for d in DIGITS])
def test_a_wrong_accumulator_of_the_digits_fails(label, wrong, change, workers):
    worker = workers("digits")
    assert failed(worker, rows_of(worker, "e5m2", label, change), label), wrong


LBA = {
    "a bit less": lambda spec: spec.replace("e4m7", "e4m6"),
    "to nearest": lambda spec: spec.replace("/rtz", ""),
    "chunk doubled": lambda spec: spec.replace("(16,", "(32,"),
}


@pytest.mark.parametrize("label", ["bias7", "bias9", "bias11"])
@pytest.mark.parametrize("wrong", LBA)
def test_a_wrong_12_bit_accumulator_fails(label, wrong, workers):
    worker = workers("lba_digits")
    assert failed(worker, rows_of(worker, None, label, LBA[wrong]), label), wrong


def _changed(label, **given):
    parts = tuple({**part, **given} if part.get("label") == label else part for part in A2Q_OVERFLOW.parts[1:])
    return reproduced("a2q_overflow", dataclasses.replace(A2Q_OVERFLOW, parts=parts))


@pytest.mark.parametrize(
    ("label", "given"),
    [
        ("enough_wrap", {"P": 17}),
        ("less_saturate", {"P": 16}),
        ("less_saturate", {"overflow": "wrap"}),
        ("less_wrap", {"P": 16}),
        ("less_wrap", {"P": 18}),
        ("less_wrap", {"overflow": "saturate"}),
        ("certified_wrap", {"P": 20}),
        ("certified_wrap", {"operands": "int8*int8"}),
        ("uncertified_wrap", {"P": 21}),
    ],
    ids=str,
)
def test_a_wrong_integer_register_fails(label, given, tmp_path):
    summary = study.run(_changed(label, **given), tmp_path)
    wrong = [verdict.expectation.of for verdict in summary.verdicts if not verdict.ok]
    assert not summary.ok and (("label", label),) in wrong


def test_the_right_integer_registers_pass(tmp_path):
    assert study.run(_changed(""), tmp_path).ok
