"""The kind train: which product has the accumulator, and that a training is the same whenever it runs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim import study
from gemmsim.cli.app import app
from gemmsim.study.errors import StudyError
from gemmsim.study.kinds.train import ROLES, roles, train_digits
from gemmsim.study.networks.digits import load_data

PLAIN = gs.QAffineFormats(fprop=":fp32", dgrad=":fp32", wgrad=":fp32")


@pytest.fixture(scope="module")
def data():
    return load_data()


def formats(**given):
    return gs.QAffineFormats(**{role: given.get(role, ":fp32") for role in ROLES})


def test_cells_and_their_labels():
    cells = study.kind("train")(spec=["n = e5m3", "s = e5m3/sr8"], roles="all,wgrad,dgrad+fprop", seeds=2).cells()
    labels = [cell.label for cell in cells if cell.seed == 0]
    assert labels == ["fp32", "n all", "n wgrad", "n fprop+dgrad", "s all", "s wgrad", "s fprop+dgrad"]
    assert len(cells) == 14 and len({cell.key for cell in cells}) == 14
    assert cells[0].macs == 8 * 1198 * (2 * 64 * 256 + 3 * 256 * 10)


def test_roles_are_read():
    assert roles("all, wgrad+fprop ,fprop+dgrad+wgrad", "roles") == ("all", "fprop+wgrad")
    for given in ("forward", "", "fprop+", []):
        with pytest.raises(StudyError, match="allowed|lists no product"):
            roles(given, "roles")


def test_the_training_is_that_of_torch_where_sums_are_fp32(data):
    """The same steps with torch's own products: they differ in the last bits of the sums alone."""
    done = train_digits(data, PLAIN, epochs=2, batch=100, rate=0.1, seed=3)
    generator = torch.Generator().manual_seed(3)
    parameters = []
    for inputs, outputs in ((64, 256), (256, 10)):
        bound = (6 / (inputs + outputs)) ** 0.5
        parameters += [(torch.rand(outputs, inputs, generator=generator) * 2 - 1) * bound, torch.zeros(outputs)]
    for parameter in parameters:
        parameter.requires_grad_()
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    w1, b1, w2, b2 = parameters

    def forward(images):
        return functional.linear(torch.relu(functional.linear(images, w1, b1)), w2, b2)

    for epoch in range(2):
        total = 0.0
        for chosen in torch.randperm(1198, generator=generator).split(100):
            loss = functional.cross_entropy(forward(data.train_images[chosen]), data.train_labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(chosen)
        # 24 steps, each of sums of 64 pixels, 256 hidden units and 100 images, in another order
        assert done.losses[epoch] == pytest.approx(total / 1198, rel=24 * (64 + 256 + 100) * 2.0**-24)
    accuracy = float((forward(data.test_images).argmax(1) == data.test_labels).double().mean())
    assert done.accuracies[-1] == pytest.approx(accuracy, abs=1 / 599)  # an image may lie between two classes


def test_each_product_has_its_own_accumulator(data):
    def losses(chosen):
        return train_digits(data, chosen, epochs=1, batch=400, rate=0.1, seed=0).losses

    plain = losses(PLAIN)
    narrow = {role: losses(formats(**{role: ":e5m2/rtz"})) for role in ROLES}
    assert all(found != plain for found in narrow.values()) and len({tuple(f) for f in narrow.values()}) == 3


def test_a_row_is_the_training_that_its_columns_name(data, tmp_path):
    kind = study.kind("train")(spec=["r = e5m3/sr8"], roles="fprop+wgrad", epochs=1, batch=400, seeds=2)
    rows = study.run(kind, tmp_path).rows
    row = next(row for row in rows if row["seed"] == 1 and row["what"] != "truth")
    again = train_digits(data, formats(fprop=row["spec"], wgrad=row["spec"]), 1, 400, row["rate"], 1)
    assert (row["train_loss"], row["accuracy"]) == (again.losses[-1], again.accuracies[-1])
    assert row["curve"].split() == [f"{loss:.5g}" for loss in again.losses]
    assert len({row["train_loss"] for row in rows}) == 4, "seeds and accumulators all differ"


def test_the_same_training_has_the_same_losses_for_any_number_of_threads(data):
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    chosen = formats(fprop=":e5m3/sr8", wgrad=":chunked(16, e5m3)")
    try:
        torch.set_num_threads(1)
        first = train_digits(data, chosen, 1, 300, 0.1, 0)
        torch.set_num_threads(2)
        again = train_digits(data, chosen, 1, 300, 0.1, 0)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert again == first and torch.equal(torch.get_rng_state(), state)


def test_a_training_that_diverges_is_a_row_and_a_table(tmp_path):
    kind = study.kind("train")(spec=["n = e5m2"], roles="all", epochs=2, batch=400, rate=100.0)
    rows = study.run(kind, tmp_path).rows
    assert len(rows) == 2
    for row in rows:
        assert row["diverged"] or row["train_loss"] > 1
        assert 0 <= row["accuracy"] <= 1
    kind.plot(rows, tmp_path / "part.png")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"task": "mnist"}, "digits"),
        ({"epochs": 0}, "1 to 10000"),
        ({"batch": 1199}, "1 to 1198"),
        ({"rate": "fast"}, "a number"),
        ({"metric": "loss"}, "train_loss"),
    ],
)
def test_bad_input(given, said):
    with pytest.raises(StudyError, match=said):
        study.kind("train")(**given)


def test_the_command_tells_what_it_would_cost(tmp_path):
    words = ["study", "run", "train", "--spec", "a = e5m3", "--roles", "all", "--out", str(tmp_path / "x"), "--dry-run"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0 and "2 of 2 cells to do" in told.stdout and not (tmp_path / "x").exists()
    assert f"{2 * 8 * 1198 * (2 * 64 * 256 + 3 * 256 * 10):,} multiply-adds" in told.stdout


def test_pictures_and_findings_of_any_part_of_the_rows(tmp_path):
    kind = study.kind("train")(spec=["n = e5m3"], roles="fprop,wgrad", epochs=2, batch=600)
    rows = study.run(kind, tmp_path).rows
    for part in (rows, rows[:1], rows[1:]):
        kind.table(part)
        kind.plot(part, tmp_path / "part.svg")
        assert "training loss" in (tmp_path / "part.svg").read_text(encoding="utf-8")
    assert "with fp32 sums" in kind.finding(rows)
