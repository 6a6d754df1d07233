"""The shipped network and the script that makes it."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from support import assert_bitwise_equal
from support.rounding import gamma

from gemmsim.study.errors import StudyError
from gemmsim.study.networks import digits, make


@pytest.fixture(scope="module")
def data():
    return digits.load_data()


def test_the_data_is_real_and_the_split_fixed(data):
    assert data.test_images.shape == (digits.Data.TEST_IMAGES, 64) and len(data.train_labels) == data.TRAIN_IMAGES
    assert data.test_labels[:5].tolist() == [0, 3, 6, 9, 2]
    assert bool((data.test_images * 16 == (data.test_images * 16).round()).all())
    assert float(data.test_images.min()) == 0 and float(data.test_images.max()) == 1


def test_the_file_has_what_scikit_learn_loads(data, monkeypatch):
    sklearn = pytest.importorskip("sklearn.datasets")
    loaded = sklearn.load_digits()
    images = torch.tensor(loaded.data / 16, dtype=torch.float32)
    assert_bitwise_equal(data.test_images, images[::3])
    assert data.test_labels.tolist() == loaded.target[::3].tolist()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert_bitwise_equal(digits.load_data().test_images, data.test_images)


def test_the_shipped_network_is_the_one_the_numbers_are_of(data):
    network = digits.shipped_network()
    assert network.fingerprint() == "2c168ab1b6eabcc0"
    exact = digits.exact_logits(network, data.test_images)
    assert exact.dtype == torch.float64 and int((exact.argmax(1) == data.test_labels).sum()) == 582


def test_the_exact_pass_is_that_of_float64(data):
    network = digits.shipped_network().to(torch.float64)
    images = data.test_images[:20].double()
    plain = torch.relu(images @ network.w1.T + network.b1) @ network.w2.T + network.b2
    hidden = images.abs() @ network.w1.T.abs() + network.b1.abs()
    size = hidden @ network.w2.T.abs() + network.b2.abs()
    exact = digits.exact_logits(digits.shipped_network(), data.test_images[:20])
    assert bool(((plain - exact).abs() <= 2 * gamma(64 + 256 + 2, torch.float64) * size).all())


@pytest.mark.parametrize("content", [b"", b"no tensors at all", None], ids=["empty", "other", "another network"])
def test_a_damaged_file_is_told(content, tmp_path, monkeypatch):
    from safetensors.torch import save

    (tmp_path / digits.FILE).write_bytes(save({"w1": torch.zeros(3)}) if content is None else content)
    monkeypatch.setattr(digits, "files", lambda package: tmp_path)
    with pytest.raises(StudyError, match="Install gemmsim again"):
        digits.shipped_network()


def test_a_missing_file_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(digits, "files", lambda package: tmp_path)
    with pytest.raises(StudyError, match="cannot read the network"):
        digits.shipped_network()


def test_training_is_the_same_twice_whatever_the_threads(data):
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        first = make.train(data, epochs=2)
        torch.set_num_threads(2)
        torch.manual_seed(123)
        second = make.train(data, epochs=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert_bitwise_equal(first.w1, second.w1)
    assert first.fingerprint() == second.fingerprint()


def test_the_script_writes_a_file_that_is_read_back(data, tmp_path, monkeypatch, capsys):
    short = make.train(data, epochs=1)
    monkeypatch.setattr(make, "train", lambda data, **given: short)
    make.main(["--out", str(tmp_path / "made")])
    monkeypatch.setattr(digits, "files", lambda package: tmp_path / "made")
    read = digits.shipped_network()
    assert read.fingerprint() == short.fingerprint() and short.fingerprint() in capsys.readouterr().out
    make.main(["--retrain", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all(label in lines[1] for label in (*make.SHOWN, "exact", "seed 1"))


def test_the_script_asks_for_something_to_do(capsys):
    with pytest.raises(SystemExit) as stopped:
        make.main([])
    assert stopped.value.code == 2 and "nothing to do" in capsys.readouterr().err
