"""The page's example of a recipe under Hugging Face's Trainer, as it stands there, and one that is stopped and resumed."""

from __future__ import annotations

import math
import re
import shutil

import pytest
import torch
from support import ROOT

import gemmsim as gs

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

PAGE = ROOT / "docs" / "recipes" / "build_your_own.md"


def test_the_example_of_the_page(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    code = next(one for one in re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL) if "Trainer" in one)
    names: dict[str, object] = {}
    exec(code, names)
    assert math.isfinite(names["loss"])
    assert (tmp_path / "out" / "checkpoint-2" / "gemmsim_steps_0.json").is_file()


def train(folder, steps, resume=None):
    """The weights after some steps of delayed scaling, with checkpoints after each."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        bos_token_id=0,
        eos_token_id=0,
        vocab_size=32,
        n_positions=16,
        n_embd=16,
        n_layer=1,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model = transformers.GPT2LMHeadModel(config)
    tokens = torch.arange(17) % 32
    data = [{"input_ids": (tokens[:16] + i) % 32, "labels": (tokens[:16] + i) % 32} for i in range(12)]
    args = transformers.TrainingArguments(
        str(folder), max_steps=steps, per_device_train_batch_size=2, use_cpu=True, report_to=[], save_steps=1,
        disable_tqdm=True, lr_scheduler_type="constant",
    )  # fmt: skip
    recipe = gs.recipes.hopper_fp8_delayed(2)
    linear = [("*lm_head", None), ("*", recipe)]
    with gs.emulate(linear, seed=93, root=model):
        callbacks = [gs.train.trainer_callback()]
        transformers.Trainer(model, args, train_dataset=data, callbacks=callbacks).train(resume_from_checkpoint=resume)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_a_resumed_run_has_the_same_bits(tmp_path, capfd):
    fresh = gs.emulation.state_dict()
    whole = train(tmp_path / "whole", 4)
    gs.emulation.load_state_dict(fresh)
    train(tmp_path / "first", 2)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    gs.emulation.load_state_dict(fresh)  # as in a new process
    assert torch.equal(train(tmp_path / "second", 4, str(tmp_path / "second" / "checkpoint-2")), whole)
