"""Every spec string that a release could read is read forever, with the same meaning (docs/contributing/compatibility.md).

tests/golden/spec_strings.json only grows: a new construct of the grammar gets new lines, and no line is changed or removed.
"""

from __future__ import annotations

import json
import warnings

import pytest
from support import ROOT

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import parse_cast

GOLDEN = json.loads((ROOT / "tests/golden/spec_strings.json").read_text(encoding="utf-8"))


def cast_text(text: str) -> str:
    return str(parse_cast(text))


def recipe_text(text: str) -> str:
    return str(gs.QAffineFormats.of(text))


READERS = {"specs": lambda text: str(GemmSpec.parse(text)), "casts": cast_text, "recipes": recipe_text}


def other_meanings(kind: str) -> dict[str, str]:
    """The strings of ``kind`` that are read differently today, with what became of them."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text, meaning in GOLDEN[kind].items():
            for written in (text, meaning):
                try:
                    read = READERS[kind](written)
                except Exception as error:
                    read = f"{type(error).__name__}: {error}"
                if read != meaning:
                    found[written] = read
    return found


@pytest.mark.parametrize("kind", READERS)
def test_every_string_of_a_release_is_read_with_the_same_meaning(kind):
    assert len(GOLDEN[kind]) > 50
    assert other_meanings(kind) == {}


def test_every_json_document_of_a_release_is_read_with_the_same_meaning():
    assert len(GOLDEN["documents"]) > 50
    for document in GOLDEN["documents"]:
        spec = GemmSpec.from_json(document)
        assert spec == GemmSpec.parse(document["spec"])
        assert spec == GemmSpec.from_json({key: value for key, value in document.items() if key != "spec"})
