"""The comparison with other packages (benchmarks/peers): its page shows its committed results, its packages are pinned."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from support import ROOT

FOLDER = ROOT / "benchmarks" / "peers"
RESULTS = ROOT / "benchmarks" / "results" / "peers.jsonl"


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(FOLDER), str(FOLDER.parent), *sys.path])
    spec = importlib.util.spec_from_file_location(f"peers_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_every_package_has_an_exact_version_and_committed_results(monkeypatch):
    pinned = set(re.findall(r"^([\w-]+)==", (FOLDER / "requirements.txt").read_text(), re.MULTILINE))
    peers = set(script("cases", monkeypatch).PEERS)
    assert peers <= pinned
    assert {json.loads(line)["peer"] for line in RESULTS.read_text().splitlines()} == peers


def test_the_page_is_made_from_the_committed_results(monkeypatch):
    page = script("page", monkeypatch)
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    assert page.PAGE.read_text(encoding="utf-8") == page.page(rows)


def test_results_are_compared_as_numbers(monkeypatch):
    compare = script("compare", monkeypatch)
    x = torch.tensor([1.0, float("nan"), 0.0, 2.0])
    assert compare.equal_fraction(x, np.array([1.0, np.nan, -0.0, 3.0])) == 0.75
    assert compare.equal_fraction((x, x), (x.clone(), x.reshape(2, 2))) == 1


def test_a_rate_has_three_digits(monkeypatch):
    page = script("page", monkeypatch)
    assert [page.rate(r) for r in (12.0, 1234.0, 5.678e8, 1.5e9)] == ["12", "1.23 k", "568 M", "1.5 G"]
