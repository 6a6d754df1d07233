"""What stands behind the interval of a check: a publication's number, a known effect, or this project alone."""

from __future__ import annotations

import json
import re

import pytest
from support import ROOT

from gemmsim import study
from gemmsim.study.checks import SOURCES, counted_sources, today_source
from gemmsim.study.distributions import NAMES
from gemmsim.study.errors import StudyError
from gemmsim.study.registry import REPRODUCTIONS

CHECKS = {name: study.get(name).expectations() for name in study.names()}


def check(source, **more):
    return study.Expectation((("label", "a"),), "ratio", 0.0, 1.0, source, **more)


@pytest.mark.parametrize(
    ("source", "given", "words"),
    [
        ("paper", {"place": "section 2", "published": "0.9"}, "paper"),
        ("known effect", {"place": "section 2"}, "known effect, measured"),
        ("known effect", {"place": "section 2", "derived": True}, "known effect, derived"),
        ("computed here", {}, "computed here, measured"),
        ("computed here", {"derived": True}, "computed here, derived"),
        ("derived", {}, "computed here, derived"),
        ("measured here first", {}, "computed here, measured"),
    ],
)
def test_a_source_and_how_its_interval_was_made(source, given, words):
    found = check(source, **given)
    assert found.source_words() == words and found.source in SOURCES
    assert found.derived == words.endswith("derived")


@pytest.mark.parametrize(
    ("source", "given", "message"),
    [
        ("paper", {"place": "section 2"}, "has no published"),
        ("paper", {"published": "0.9"}, "has no place"),
        ("known effect", {"published": "0.9"}, "has no place"),
        ("seen", {}, "source = 'seen'; allowed: paper, known effect, computed here"),
    ],
)
def test_a_source_that_nothing_stands_behind_is_refused(source, given, message):
    with pytest.raises(StudyError, match=message):
        check(source, **given)


def test_sources_are_counted_apart():
    assert counted_sources(["paper", "computed here", "paper"]) == "3 checks: 2 paper, 1 computed here"
    assert counted_sources(["known effect"]) == "1 check: 1 known effect" and counted_sources([]) == ""
    assert today_source("derived", False) == ("computed here", True)
    assert today_source("paper", False) == ("paper", False)


@pytest.mark.parametrize("name", [name for name in CHECKS if CHECKS[name]])
def test_what_is_called_a_paper_s_number_is_printed_with_its_place(name):
    for one in CHECKS[name]:
        if one.source == "paper":
            assert re.search(r"\d|nu|2\^", one.published) and re.search(
                r"section|abstract|ICCV|pull request", one.place
            )
        assert one.source != "known effect" or one.place


#: Studies with a number that a publication prints; all other named ones are known effects or this project's own.
PRINTED = {
    "deepseek_v3_fp8": ("nearly 2 %", "highest 14 bits"),
    "vllm_router_k6144": ("5.10e-6",),
    "higham_mary_growth": ("constant nu in a rounding error bound",),
    "a2q_overflow": ("2^(P-1) - 1",),
}


def test_which_studies_have_a_number_of_a_publication():
    strongest = {name: study.strongest_source(checks) for name, checks in CHECKS.items()}
    assert {name for name, source in strongest.items() if source == "paper"} == set(PRINTED)
    for name, numbers in PRINTED.items():
        told = " ".join(one.published for one in CHECKS[name] if one.source == "paper")
        assert all(number in told for number in numbers)
    assert {strongest[name] for name in REPRODUCTIONS} == set(SOURCES) and strongest["digits"] == "computed here"
    assert study.strongest_source([]) == ""


def test_the_page_and_the_verdicts_tell_them_apart(tmp_path):
    checks = [
        study.Expectation((), "rel_fro", 0.0, 9.0, "measured here first"),
        study.Expectation((), "rel_fro", 0.0, 9.0, "known effect", "section 3", derived=True),
        study.Expectation((), "rel_fro", 0.0, 9.0, "paper", "section 2", "9"),
        study.Expectation((), "rel_fro", 8.0, 9.0, "paper", "section 4", "8 to 9"),
    ]
    kind = study.kind("growth")(spec=["e5m10"], K="16", M=4, N=4, dist="rand01", name="three", expectations=checks)
    study.run(kind, tmp_path / "three")
    verdicts = json.loads((tmp_path / "three" / "verdicts.json").read_text())
    assert [(one["source"], one["derived"]) for one in verdicts] == [
        ("computed here", False), ("known effect", True), ("paper", False), ("paper", False)
    ]  # fmt: skip
    text = study.report([tmp_path / "three"], tmp_path / "report.html").read_text()
    words = re.sub(r"<[^>]+>", "", text)
    assert "By source: paper 1 of 2, known effect 1 of 1, computed here 1 of 1 pass." in words
    assert "3 of 4 checks pass. 4 checks: 2 paper, 1 known effect, 1 computed here." in words
    cells = re.findall(r"<td>(paper|known effect[^<]*|computed here[^<]*)</td>", text)
    assert cells == ["paper", "paper", "known effect, derived", "computed here, measured"]  # what fails comes first
    earlier = [{**one, "source": "derived"} for one in verdicts[:1]]
    for one in earlier:
        del one["derived"]
    (tmp_path / "three" / "verdicts.json").write_text(json.dumps(earlier))  # of a folder of an earlier version
    assert "<td>computed here, derived</td>" in study.report([tmp_path / "three"], tmp_path / "old.html").read_text()


def test_readme_and_the_page_of_studies_count_truly():
    sources = [one.source for checks in CHECKS.values() for one in checks]
    counts = {source: sources.count(source) for source in SOURCES}
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    words = (
        f"{counts['paper']} of the {len(sources)} checks of all studies compare with a number or bound that a publication "
        f"prints, {counts['known effect']} show a known effect, {counts['computed here']} are this project's own numbers"
    )
    assert words in readme
    page = (ROOT / "docs" / "studies" / "index.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| !\[.*\| \*\*(\w+)\*\*.*\| ([^|]*) \|$", page, flags=re.MULTILINE))
    assert set(told) == {name for name in CHECKS if CHECKS[name]}
    for name, source in told.items():
        assert source.startswith(study.strongest_source(CHECKS[name]))


def test_the_page_of_growth_defines_every_distribution():
    page = (ROOT / "docs" / "studies" / "growth.md").read_text(encoding="utf-8")
    defined = re.findall(r"^\| `(\w+)(?:\([\w,]+\))?` \|", page.partition("## Distributions")[2], flags=re.MULTILINE)
    assert set(defined) == set(NAMES) and len(defined) == len(NAMES)
