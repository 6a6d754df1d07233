"""The language study: deterministic training in MX formats, near float32's, with its table and plot."""

from __future__ import annotations

import pytest
import torch
from support import LONG

import gemmsim as gs
from gemmsim import study
from gemmsim.study import language, language_model


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        # Few products of few terms, all trainings; of the products as they are in the long run.
        patch.setattr(language, "STEPS", 40 if LONG else 30)
        if not LONG:
            patch.setattr(language, "BATCH", 4)
            for name, size in (("WIDTH", 32), ("CONTEXT", 16), ("LAYERS", 1)):
                patch.setattr(language_model.LanguageModel, name, size)
        return study.run("language", tmp_path_factory.mktemp("language"))


def test_every_training_is_there(finished):
    assert finished.left == 0 and len(finished.rows) == len(language.TRAININGS)
    for name in ("results.jsonl", "results.csv", "table.txt", "plot.png"):
        assert (finished.folder / name).stat().st_size > 0, name
    for row in finished.rows:
        assert str(gs.GemmSpec.parse(row["spec"])) == row["spec"]
        assert len(row["curve"].split()) == (4 if LONG else 3)
    assert "mxfp4" in (finished.folder / "table.txt").read_text()


def test_training_lowers_the_loss_in_every_format(finished):
    losses = {(row["format"], row["accumulator"]): row for row in finished.rows}
    truth = losses["fp32", None]
    assert 3.9 < truth["first_loss"] < 4.4
    for row in finished.rows:
        # Training is no sum: bounds around these seeds' figures, not from a roundoff.
        assert abs(row["first_loss"] - truth["first_loss"]) < 0.05
        curve = [float(text) for text in row["curve"].split()]
        assert curve[-1] < curve[0] - (1.0 if LONG else 0.4) and abs(row["test_loss"] - truth["test_loss"]) < 0.15
    assert len({row["curve"] for row in finished.rows}) == len(finished.rows)
    assert "mxfp4" in language.finding(finished.rows) and "unfinished" in language.finding([truth])


def test_the_same_training_has_the_same_losses_for_any_number_of_threads():
    text, threads = language_model.load_text(), torch.get_num_threads()
    state = torch.get_rng_state()
    first = language_model.train(text, "mxfp4", "fp32", steps=3)
    try:
        torch.set_num_threads(2)
        again = language_model.train(text, "mxfp4", "fp32", steps=3)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert again == first and torch.equal(torch.get_rng_state(), state)


def test_every_product_of_the_network_is_in_the_format():
    model = language_model.model_of(56, "mxfp6_e2m3", "bf16", seed=0)
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    assert len(layers) == 4 * model.LAYERS + 1 and all(type(layer) is gs.mx.MXLinear for layer in layers)
    assert {(layer.config.input, layer.config.grad) for layer in layers} == {("mxfp6_e2m3", "mxfp6_e2m3")}
    assert {layer.config.wgrad_accumulator for layer in layers} == {str(gs.Accumulator.parse("bf16"))}
    plain = language_model.model_of(56, None, None, seed=0)
    for (name, ours), (_, theirs) in zip(model.named_parameters(), plain.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), name
