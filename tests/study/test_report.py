"""The page about finished studies: one file that loads nothing, verdicts first, made from the folders alone."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser

import pytest
from study.counting_study import CountingStudy

from gemmsim import study
from gemmsim.study import metrics, operands
from gemmsim.study.glossary import COLUMNS
from gemmsim.study.runner import command_of

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

GRID = {"spec": ["a = e5m4", "b = kahan(e5m4)"], "K": "8,16", "dist": "rand01", "M": 2, "N": 3}
#: Of HTML; in SVG every element is closed.
VOID = {"meta", "img", "input", "br", "link"}


class Page(HTMLParser):
    """Elements with attributes and text; raises where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data):
        if data.strip() and self.open:
            self.texts.append((self.open[-1], data.strip()))

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.elements if name == tag]

    def of(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A study of checks that pass, one that fails, one of checks none; the last is a user's."""
    top = tmp_path_factory.mktemp("studies")
    growth = study.kind("growth")
    fine = study.Expectation(
        (("label", "b"),), "bwd_err_u_max", 0.0, 9.0, "derived", "theory <of> sums", "at most 2 & a bit"
    )
    wrong = study.Expectation(
        (("label", "a"), ("K", 16)), "bwd_err_u_max", 100.0, 200.0, "measured here first", "nowhere"
    )
    study.run(growth(name="fine", title="A <title> & more", expectations=[fine], **GRID), top / "fine")
    study.run(growth(name="wrong", expectations=[fine, wrong], **GRID), top / "wrong")
    study.run(CountingStudy(), top / "own")
    return top


@pytest.fixture(scope="module")
def text(folders, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "new" / "report.html"
    assert study.report([folders / "fine", folders / "wrong", folders / "own"], out) == out
    return out.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_it_names_no_external_address(text, page):
    assert not re.search(r"(https?|ftp|file):|//[\w.]+\.\w|@import", text)
    assert not page.all("link") and not page.all("iframe")
    for tag, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
    (policy,) = [
        m["content"] for m in page.all("meta") if "content-security-policy" in str(m.get("http-equiv")).lower()
    ]
    assert policy.startswith("default-src 'none'")


def test_ids_are_unique_and_every_reference_leads_somewhere(text, page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    asked = {a["href"][1:] for _, a in page.elements if a.get("href", "").startswith("#")}
    asked |= {word for _, a in page.elements for word in a.get("aria-labelledby", "").split()}
    asked |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert asked <= set(ids)


def test_verdicts_come_first_and_what_fails_before_all(text, page):
    assert page.of("h1") == ["1 of 3 checks fail"]
    assert text.index("label=a, K=16: bwd_err_u_max in [100, 200]") < text.index("label=b: bwd_err_u_max in [0, 9]")
    assert text.index("</table>") < text.index("<h2")
    assert [words for words in page.of("span") if "pass" in words or "fail" in words] == ["✗ fail", "✓ pass", "✓ pass"]
    assert "computed here, derived" in page.of("td") and "computed here, measured" in page.of("td")


def test_text_is_escaped(text, page):
    assert "<title> & more" not in text and "theory <of> sums" not in text
    assert "A <title> & more" in page.of("p") and "theory <of> sums" in page.of("td")
    assert "at most 2 & a bit" in page.of("td")


def test_every_picture_has_title_and_words(page):
    pictures = page.all("svg")
    assert len(pictures) == 2, "counting writes no SVG"
    for picture in pictures:
        assert picture["role"] == "img" and len(picture["aria-labelledby"].split()) == 2
    assert len(page.of("desc")) == 2 and all("against K" in words for words in page.of("desc"))
    assert all(image.get("alt") for image in page.all("img"))
    assert "No picture that can be read is in the folder." in page.of("p")


def test_tables_are_sorted_by_buttons(text, page):
    tables = [table for table in page.all("table") if "sortable" in table["class"]]
    assert len(tables) == 4
    assert len(page.all("button")) == len(page.all("th")) and all(th["scope"] == "col" for th in page.all("th"))
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert "aria-sort" in script and "addEventListener" in script and len(script.splitlines()) < 30


def test_a_study_is_told_with_finding_command_and_versions(folders, page):
    finding = json.loads((folders / "fine" / "study.json").read_text())["finding"]
    assert "error grows by these factors: a" in finding and finding in page.of("p")
    commands = page.of("pre")
    assert commands[0].startswith(
        "gemmsim study run growth --spec 'a = :e5m4' 'b = :kahan(e5m4)' --K 8,16 --dist rand01"
    )
    assert commands[2].startswith("gemmsim.study.run(study.counting_study.CountingStudy(...)")
    made = [words for words in page.of("p") if "rows in the folder" in words]
    assert len(made) == 3 and all("; torch " in words and "; gemmsim " in words for words in made)


def test_columns_that_do_not_vary_are_said_once_and_the_rest_can_be_shown(page):
    assert "In all rows: seed = 0, M = 2, N = 3, dist = rand01, scale = 1." in page.of("p")
    heads = page.of("button")
    assert "M" not in heads and "K" in heads and "rel_fro" in heads
    assert len([box for box in page.all("input") if box["type"] == "checkbox"]) == 2, "counting has one column"


def test_a_folder_of_folders_stands_for_them_and_each_counts_once(folders, tmp_path):
    study.report([folders, folders / "own"], tmp_path / "r.html")
    assert len(re.findall("<h2", (tmp_path / "r.html").read_text())) == 3 + 1


def test_a_study_that_was_skipped_is_passed_over(folders, tmp_path):
    skipped = tmp_path / "skipped"
    skipped.mkdir()
    (skipped / "study.json").write_text('{"study": "sentence_encoder", "schema": 2}\n')
    ran = next(path.parent for path in sorted(folders.glob("*/results.jsonl")))
    alone, beside = (study.report(x, tmp_path / f"{len(x)}.html") for x in ([ran], [ran, skipped]))
    assert alone.read_text() == beside.read_text()
    with pytest.raises(study.StudyError, match="no results in .*skipped"):
        study.report([skipped], tmp_path / "page.html")


def test_a_long_study_shows_its_first_rows(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(study.reporting, "MOST_ROWS", 4)
    study.report([folders / "own"], tmp_path / "r.html")
    assert "The first 4 of 6 rows." in (tmp_path / "r.html").read_text()


def test_an_unfinished_study_says_so(tmp_path):
    check = study.Expectation((("label", "b"),), "bwd_err_u_max", 0.0, 9.0, "derived")
    study.run(study.kind("growth")(expectations=[check], **GRID), tmp_path / "half", limit=2)
    study.report([tmp_path / "half"], tmp_path / "r.html")
    assert "0 of 1 checks pass, 1 unfinished" in (tmp_path / "r.html").read_text()


def test_a_folder_of_rows_alone_is_enough(folders, tmp_path):
    (tmp_path / "bare").mkdir()
    shutil.copy(folders / "fine" / "results.jsonl", tmp_path / "bare")
    study.report([tmp_path / "bare"], tmp_path / "r.html")
    found = Page((tmp_path / "r.html").read_text())
    assert found.of("h1") == ["Studies without checks"] and found.of("h2")[0] == "fine"


def test_mistakes_are_told(folders, tmp_path):
    out = tmp_path / "r.html"
    for asked, said in (
        ([], "no folder given"),
        ([tmp_path / "nowhere"], "no results in .*nowhere"),
        ([tmp_path], "no results in"),
    ):
        with pytest.raises(study.StudyError, match=said):
            study.report(asked, out)
    with pytest.raises(study.StudyError, match="is a folder"):
        study.report([folders], tmp_path)
    shutil.copytree(folders / "fine", tmp_path / "damaged")
    for name, content in (("verdicts.json", "{"), ("verdicts.json", "[1]"), ("study.json", "[]")):
        (tmp_path / "damaged" / name).write_text(content)
        with pytest.raises(study.StudyError, match=f"{name}.*damaged"):
            study.report([tmp_path / "damaged"], out)
    (tmp_path / "damaged" / "results.jsonl").write_text("no row\n")
    with pytest.raises(study.StudyError, match="no intact row"):
        study.report([tmp_path / "damaged"], out)
    assert not out.exists()


def test_the_page_is_whole_or_as_it_was(folders, tmp_path, monkeypatch):
    out = tmp_path / "r.html"
    out.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(study.StudyError, match="No space left"):
        study.report([folders], out)
    assert out.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_commands_of_studies(monkeypatch, tmp_path):
    assert command_of(study.get("wang2018_fig3"), tmp_path) == f"gemmsim study run wang2018_fig3 --out {tmp_path}"
    monkeypatch.setattr(study.registry, "_STUDIES", {**study.registry._STUDIES, "counting": CountingStudy})
    assert command_of(CountingStudy(), tmp_path).startswith("gemmsim.study.run('counting', ")


def test_the_glossary_has_every_column_of_errors():
    import torch

    found = metrics.errors(torch.ones(2, 2), operands.of_tensors(torch.ones(2, 3), torch.ones(3, 2)), 1.0)
    assert set(found) <= set(COLUMNS)
