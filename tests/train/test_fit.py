"""gemmsim.train: a run broken off and resumed is the run that was not; files are complete; errors are typed."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
import torch
from support import assert_bitwise_equal
from torch import nn

import gemmsim as gs
from gemmsim import train
from gemmsim.nn import QLinear
from gemmsim.optim import QSGD

X = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def parts(momentum: float = 0.9):
    torch.manual_seed(0)
    model = nn.Sequential(QLinear(6, 8, spec=":e5m7/sr8"), nn.ReLU(), nn.Dropout(0.2), QLinear(8, 2, spec=":e5m10"))
    optimizer = QSGD(model.parameters(), lr=0.1, momentum=momentum, acc_quant="bf16/sr", momentum_quant="bf16/sr")
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)


def loss(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


def evaluate(model):
    assert not model.training and not torch.is_grad_enabled()
    return {"accuracy": float((model(X).argmax(1) == Y).double().mean())}


def run(folder, epochs, **options):
    model, optimizer, scheduler = parts()
    data = options.pop("data", train.Batches(X, Y, size=8, seed=1))
    options = {"evaluate": evaluate, "scheduler": scheduler, "progress": False, **options}
    return model, train.fit(model, optimizer, loss, data, epochs=epochs, folder=folder, **options)


def without_time(rows):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


@pytest.mark.parametrize("broken_at", [1, 3])
def test_a_resumed_run_has_the_same_bits(tmp_path, broken_at):
    straight, rows = run(None, 4)
    run(tmp_path, broken_at)
    torch.manual_seed(77)
    resumed, again = run(tmp_path, 4)
    assert without_time(again) == without_time(rows)
    for a, b in zip(resumed.parameters(), straight.parameters(), strict=True):
        assert_bitwise_equal(a.detach(), b.detach())
    assert train.read_metrics(tmp_path) == again
    assert [row["epoch"] for row in again] == [1, 2, 3, 4]
    assert again[0]["lr"] == 0.1 and again[1]["lr"] == 0.1 * 0.9


def test_a_run_that_breaks_inside_an_epoch_resumes_from_the_last_whole_one(tmp_path):
    straight, _ = run(None, 3)
    batches = train.Batches(X, Y, size=8, seed=1)

    def failing(epoch):
        for number, batch in enumerate(batches(epoch)):
            if (epoch, number) == (2, 2):
                raise KeyboardInterrupt
            yield batch

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 3, data=failing)
    assert len(train.read_metrics(tmp_path)) == 2
    resumed, _ = run(tmp_path, 3)
    for a, b in zip(resumed.parameters(), straight.parameters(), strict=True):
        assert_bitwise_equal(a.detach(), b.detach())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint.pt", "metrics.jsonl"]


def test_a_finished_run_is_read_back_and_resume_false_starts_anew(tmp_path):
    _, rows = run(tmp_path, 2)
    _, again = run(tmp_path, 2)
    assert again == rows
    _, anew = run(tmp_path, 1, resume=False)
    assert without_time(anew) == without_time(rows[:1]) and train.read_metrics(tmp_path) == anew


def test_metrics_are_json_whatever_they_are(tmp_path):
    run(tmp_path, 1, evaluate=lambda model: {"nan": float("nan"), "tensor": torch.tensor(2.5), "text": "x"})
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert row["nan"] is None and row["tensor"] == 2.5 and row["text"] == "x" and row["loss"] > 0


def test_batches_follow_from_seed_and_epoch():
    batches = train.Batches(torch.arange(10), size=4, seed=3)
    assert len(batches) == 3
    epochs = [torch.cat([b for (b,) in batches(e)]) for e in (0, 0, 1)]
    assert torch.equal(epochs[0], epochs[1]) and not torch.equal(epochs[0], epochs[2])
    assert all(sorted(e.tolist()) == list(range(10)) for e in epochs)
    plain = train.Batches(torch.arange(10), size=4, shuffle=False)
    assert torch.cat([b for (b,) in plain(5)]).tolist() == list(range(10))


def test_errors_say_what_to_do(tmp_path):
    run(tmp_path, 1, setting={"layers": 2})
    with pytest.raises(train.TrainError, match="another folder"):
        run(tmp_path, 2, setting={"layers": 3})
    with pytest.raises(train.TrainError, match="no batches"):
        run(None, 1, data=[])
    with pytest.raises(train.TrainError, match="equal lengths"):
        train.Batches(X, Y[:3], size=4)
    other = nn.Linear(6, 2)
    with pytest.raises(train.TrainError, match="another model"):
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        train.fit(other, optimizer, loss, [(X, Y)], epochs=2, folder=tmp_path, setting={"layers": 2}, progress=False)
    (tmp_path / "checkpoint.pt").write_bytes(b"not one")
    with pytest.raises(train.TrainError, match="not a checkpoint"):
        run(tmp_path, 2)


def test_progress_is_a_line_for_each_epoch(capsys):
    run(None, 2, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and lines[1].startswith("epoch 2/2  loss ") and "accuracy" in lines[1]


def test_the_plot_is_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    _, rows = run(None, 2)
    train.curves_plot(
        {"a": rows, "b": rows[:1]}, tmp_path / "a.png", {"loss": "loss", "accuracy": "accuracy"}, title="t"
    )
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_random_bits_of_contexts_and_of_converted_models_go_on(tmp_path):
    """A run that is broken off has the steps of one that is not."""

    def run(folder, *epochs, converted):
        for end in epochs:
            gs.emulation.load_state_dict({"version": 1, "contexts": [], "models": {}})  # as in a new process
            torch.manual_seed(0)
            model = torch.nn.Linear(8, 2)
            context = nullcontext() if converted else gs.emulate(":bf16/sr", 201)
            if converted:
                gs.convert(model, ":bf16/sr")
            data = [(torch.randn(4, 8), torch.randn(4, 2)) for _ in range(3)]
            with context:
                optimizer = torch.optim.SGD(model.parameters(), 0.1)
                train.fit(model, optimizer, _squares, data, epochs=end, folder=folder, progress=False)
        return model.weight.detach()

    for converted in (False, True):
        whole = run(tmp_path / f"whole{converted}", 4, converted=converted)
        parts = run(tmp_path / f"parts{converted}", 1, 2, 4, converted=converted)
        assert torch.equal(whole, parts)


def _squares(model, x, y):
    return (model(x) - y).square().mean()


class _Arguments:
    process_index = 3

    def __init__(self, folder):
        self.output_dir = str(folder)


class _State:
    def __init__(self, step):
        self.global_step = step


def test_the_callback_of_a_trainer_saves_and_restores_steps(tmp_path):
    pytest.importorskip("transformers", reason="needs the extra 'transformers'")
    model, x = gs.convert(torch.nn.Linear(8, 2), ":bf16/sr"), torch.randn(4, 8)
    arguments, callback = _Arguments(tmp_path), gs.train.trainer_callback()
    callback.on_train_begin(arguments, _State(0), None, model=model)
    model(x)
    (tmp_path / "checkpoint-7").mkdir()
    callback.on_save(arguments, _State(7), None, model=model)
    assert [path.name for path in (tmp_path / "checkpoint-7").iterdir()] == ["gemmsim_steps_3.json"]
    ahead = model(x)
    for callback in (gs.train.trainer_callback(), gs.train.trainer_callback(tmp_path / "checkpoint-7")):
        gs.emulation.arithmetic_of(model).step = 0
        callback.on_train_begin(arguments, _State(7), None, model=model)
        assert torch.equal(model(x), ahead)
    with pytest.raises(train.TrainError, match=r"gemmsim_steps_3.json'.*\n.*resume_from"):
        gs.train.trainer_callback().on_train_begin(_Arguments(tmp_path / "other"), _State(8), None, model=model)
