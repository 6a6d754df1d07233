"""The kind recipes: cells, columns and verdicts, and that a training is the same whenever it runs."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim import study
from gemmsim.cli.app import app
from gemmsim.study.errors import StudyError
from gemmsim.study.recipe_claims import CLAIMS, NOT_SHOWN, above, judged
from gemmsim.study.recipe_parts import BASELINE, FULL, PARTS, variant
from gemmsim.study.recipe_training import NETWORKS, Patches, network, train_recipe

ROLES = ("fprop", "dgrad", "wgrad")


@pytest.fixture(scope="module")
def conv():
    return network("conv")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study of a few steps, and its rows."""
    kind = study.kind("recipes")(
        recipes="nvfp4_pretraining", without="stochastic", networks="conv", steps=4, seeds=2, looks=2
    )
    folder = tmp_path_factory.mktemp("recipes")
    assert study.run(kind, folder, limit=3).left == 3  # broken off, and taken up again
    return kind, study.run(kind, folder).rows, folder


def trained(net, formats, kept=(), **given):
    return train_recipe(net, formats, kept, **{"steps": 2, "seed": 0, "looks": 1, **given})


def test_cells_and_their_labels():
    kind = study.kind("recipes")(recipes="hopper_fp8_current,mxfp8_pretraining", without="scales,bf16-layers", seeds=2)
    cells = kind.cells()
    labels = [cell.label for cell in cells if cell.seed == 0 and dict(cell.columns)["network"] == "gpt"]
    assert labels == [
        "bf16",
        "hopper_fp8_current",
        "hopper_fp8_current without scales",
        "mxfp8_pretraining",
        "mxfp8_pretraining without bf16-layers",
    ]
    assert len(cells) == 5 * 2 * 2 == len({cell.key for cell in cells})
    kept = {cell.label: dict(cell.columns)["kept"] for cell in cells if dict(cell.columns)["network"] == "gpt"}
    assert kept["mxfp8_pretraining"] == "head" and kept["mxfp8_pretraining without bf16-layers"] == ""
    assert not any(cell.stochastic for cell in cells)
    assert sum(len(parts) for parts in PARTS.values()) + len(PARTS) == 32
    alone = study.kind("recipes")(without="none", networks="conv", seeds=1)
    assert study.kind("recipes")(**alone.parts[0].given()).parts == alone.parts
    assert len(alone.cells()) == 6 and [cell.stochastic for cell in alone.cells()][-2:] == [True, True]


@pytest.mark.parametrize("name", NETWORKS)
def test_each_layer_multiplies_as_it_should(name):
    """The recipe in its layers, bf16 in those that are kept and in attention, nothing native."""
    net = network(name)
    recipe = variant("nvfp4_pretraining", FULL)
    kept = net.kept_of("nvfp4_pretraining")
    model = net.model(0)
    inputs, wanted = net.batch(2, torch.Generator().manual_seed(0))
    with gs.emulate(net.rules(recipe.formats, kept), root=model), gs.audit() as report:
        net.loss(model(inputs), wanted).backward()
    given, bf16 = gs.QAffineFormats.of(recipe.formats), gs.QAffineFormats.of(BASELINE)
    seen = set()
    for record in report:
        wants = given if record.module in net.layers and record.module not in kept else bf16
        assert record.spec == str(getattr(wants, record.role)), record
        seen.add(record.module)
    assert {*net.layers, *net.kept} <= seen


def test_a_convolution_of_patches_is_a_convolution():
    torch.manual_seed(0)
    for stride in (1, 2):
        layer = Patches(3, 5, stride).double()
        x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
        weight = layer.linear.weight.unflatten(1, (3, 3, 3))
        want = functional.conv2d(x, weight, layer.linear.bias, stride=stride, padding=1)
        assert torch.allclose(layer(x), want, rtol=1e-12, atol=1e-12)


def test_the_training_is_that_of_torch_where_sums_are_fp32(conv):
    """The same steps with torch's own products: they differ in the last bits of the sums alone."""
    done = trained(conv, "all_products(fp32 : fp32)", steps=3)
    model = conv.model(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.99))
    generator = torch.Generator().manual_seed(0)
    for step in range(3):
        inputs, wanted = conv.batch(32, generator)
        optimizer.param_groups[0]["lr"] = 4e-3 * (step + 1) / 20 * (0.05 + 0.475 * (1 + math.cos(math.pi * step / 3)))
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), wanted)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert done.losses[step] == pytest.approx(loss.item(), rel=1e-4 if step else 1e-6)  # two layers are in bf16


def test_looking_at_products_changes_nothing_and_threads_and_seeds_of_others_stay(conv):
    recipe = variant("mxfp4_hadamard", FULL)
    torch.manual_seed(5)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    once = trained(conv, recipe.formats, conv.kept, steps=3, looks=1)
    often = trained(conv, recipe.formats, conv.kept, steps=3, looks=3)
    assert once.losses == often.losses and once.test_loss == often.test_loss
    assert [len(often.lost[role]) for role in ROLES] == [3 * 2] * 3
    assert [once.lost[role] == often.lost[role][-2:] for role in ROLES] == [True] * 3
    assert torch.get_num_threads() == threads and torch.equal(torch.get_rng_state(), state)
    assert trained(conv, recipe.formats, conv.kept, steps=3, seed=1).losses != once.losses


def test_a_row_is_the_training_that_its_columns_name(finished, conv):
    _, rows, _ = finished
    row = next(row for row in rows if row["seed"] == 1 and row["without"] == "stochastic")
    again = trained(conv, row["formats"], row["kept"].split(","), steps=4, seed=1, looks=2)
    assert row["train_loss"] == again.losses[-1] and row["first_loss"] == again.losses[0]
    assert (row["test_loss"], row["accuracy"]) == (again.test_loss, again.accuracy)
    assert row["curve"].split() == [f"{loss:.6g}" for loss in again.losses]
    lost = again.lost["wgrad"]
    zeros, nonzero = (sum(getattr(one.operands, name) for one in lost) for name in ("zeros", "nonzero"))
    assert row["wgrad_zero"] == zeros / nonzero > 0.01
    assert row["wgrad_bias"] == sum(one.bias for one in lost) / len(lost)


def test_tables_pictures_and_findings_of_any_part_of_the_rows(finished, tmp_path):
    kind, rows, folder = finished
    text = (folder / "table.txt").read_text(encoding="utf-8")
    assert "nvfp4_pretraining" in text and "square-weights" not in text and NOT_SHOWN.split()[0] in text
    assert "published statements" in kind.finding(rows)
    for part in (rows[:1], rows[1:]):
        kind.table(part)
        kind.finding(part)
        kind.plot(part, tmp_path / "part.svg")
        assert "loss" in (tmp_path / "part.svg").read_text(encoding="utf-8")


def row(recipe, without, seed, loss, network="gpt", **more):
    return {"network": network, "recipe": recipe, "without": without, "seed": seed, "train_loss": loss, **more}


def verdict(rows, words):
    return next(one for one in judged(rows, "train_loss") if one.claim.words().startswith(words)).verdict


@pytest.mark.parametrize(
    ("losses", "word"),
    [
        ((1.001, 1.001, 1.001), "pass"),  # 0.1 % above each
        ((1.003, 1.003, 1.003), "fail"),
        ((1.000, 1.002, 1.004), NOT_SHOWN),  # mean 0.2 %, standard error 0.115 %, times 2.92
        ((0.999, 1.000, 1.001), "pass"),  # 0 +- 0.058 %: 0.17 % at most
        ((1.001,), NOT_SHOWN),  # one seed has no band
        ((None, None, None), "fail"),  # all diverged
        ((None, 1.0, 1.0), NOT_SHOWN),
    ],
)
def test_a_loss_within_a_share_of_bf16s(losses, word):
    rows = [row("bf16", FULL, seed, 1.0) for seed in range(3)]
    rows += [row("deepseek_v3", FULL, seed, loss) for seed, loss in enumerate(losses)]
    assert verdict(rows, "deepseek_v3: loss within 0.25 %") == word


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ((0.01, 0.02, 0.03), "pass"),  # standard error 0.00577: 0.02 - 2.92 * 0.00577 > 0
        ((0.01, 0.04, 0.07), NOT_SHOWN),  # three times that: 0.04 - 2.92 * 0.0173 < 0
        ((-0.01, -0.02, -0.03), "fail"),
        ((0.01, 0.01), "pass"),
        ((None, None), "pass"),
    ],
)
def test_a_loss_above_the_whole_recipes(more, word):
    rows = [row("nvfp4_pretraining", FULL, seed, 2.0) for seed in range(3)]
    losses = [None if one is None else 2.0 * (1 + one) for one in more]
    rows += [row("nvfp4_pretraining", "hadamard", seed, loss) for seed, loss in enumerate(losses)]
    assert verdict(rows, "nvfp4_pretraining without hadamard: loss above") == word


def test_a_bias_is_compared_by_magnitude():
    rows = [row("mxfp4_hadamard", FULL, seed, 2.0, dgrad_bias=0.001 * (-1) ** seed) for seed in range(3)]
    rows += [row("mxfp4_hadamard", "stochastic", seed, 2.0, dgrad_bias=-0.02) for seed in range(3)]
    assert verdict(rows, "mxfp4_hadamard without stochastic: magnitude of the bias of dgrad") == "pass"
    found = judged(rows, "train_loss")
    one = next(one for one in found if one.claim.column == "dgrad_bias")
    assert one.mean == pytest.approx(0.019) and one.error == pytest.approx(0, abs=1e-12) and one.seeds == 3
    assert above(rows[3:], rows[:3], "train_loss") == [0.0] * 3 and above(rows, [], "train_loss") == []


def test_claims_name_parts_that_there_are():
    for claim in CLAIMS:
        known = {part.name for part in PARTS[claim.recipe]}
        assert claim.without in known | {FULL} and claim.against in (FULL, "bf16")
        assert claim.place.startswith("arXiv:") and set(claim.networks) <= set(NETWORKS)
        assert claim.within is None or claim.against == "bf16"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"recipes": "nvfp4_pretrainin"}, "allowed: hopper_fp8_current, .* Did you mean 'nvfp4_pretraining'"),
        ({"without": "hadamar"}, "allowed: all, none, or some of .* Did you mean 'hadamard'"),
        ({"without": []}, "lists no part. Give all, none"),
        (
            {"recipes": "mxfp4_hadamard", "without": "scales"},
            "'scales', which is not part of mxfp4_hadamard; allowed: had",
        ),
        ({"networks": "mlp"}, "allowed: gpt, conv"),
        ({"steps": 0}, "1 to 100000"),
        ({"steps": 2}, "looks = 3; allowed: 1 to the number of steps, 2"),
        ({"metric": "loss"}, "train_loss"),
        ({"recipe": "mxfp8"}, "Did you mean 'recipes'"),
    ],
)
def test_bad_input(given, said):
    with pytest.raises(StudyError, match=said):
        study.kind("recipes")(**given)


def test_the_command_tells_what_it_would_cost(tmp_path):
    words = ["study", "run", "recipes", "--networks", "conv", "--without", "none", "--seeds", "1", "--dry-run"]
    told = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "x")])
    assert told.exit_code == 0 and "6 of 6 cells to do" in told.stdout and not (tmp_path / "x").exists()
