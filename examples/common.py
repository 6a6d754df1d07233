"""What the examples share: their command line, the digits, and runs of one model under several arithmetics."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gemmsim import train
from gemmsim.nn import QConv2d, QLinear, call_children


def arguments(description: str, *, epochs: int, batch: int) -> argparse.Namespace:
    """--out, --epochs, --batch, --seed, --only and --smoke (a few seconds, to see that it runs)."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of metrics, checkpoints and the plot")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="name of a run; may be repeated")
    parser.add_argument("--smoke", action="store_true", help="little data, one epoch")
    found = parser.parse_args()
    if found.smoke:
        found.epochs = 1
    return found


def digits(smoke: bool) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """scikit-learn's 1,797 handwritten digits, 8 x 8 pixels: (train, test), every third one for testing."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.tensor(bunch.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(bunch.target, dtype=torch.int64)
    test = torch.arange(len(labels)) % 3 == 0
    count = 48 if smoke else len(labels)
    return (images[~test][:count], labels[~test][:count]), (images[test][:count], labels[test][:count])


def accuracy_on(images: Tensor, labels: Tensor) -> Callable[[nn.Module], dict[str, float]]:
    """Metrics of a classifier on the test images."""

    def evaluate(model: nn.Module) -> dict[str, float]:
        outputs = torch.cat([model(part) for part in images.split(200)])
        return {
            "accuracy": float((outputs.argmax(1) == labels).double().mean()),
            "test_loss": float(nn.functional.cross_entropy(outputs, labels)),
        }

    return evaluate


def classify(
    name: str, options: argparse.Namespace, runs: Mapping[str, Any], make: Callable[[Any], nn.Module],
    make_optimizer: Callable[[nn.Module, Any], torch.optim.Optimizer], title: str,
) -> None:  # fmt: skip
    """Train ``make(run)`` for each of ``runs`` on the digits and plot them together."""
    (images, labels), (test_images, test_labels) = digits(options.smoke)
    found = {}
    for run, chosen in runs.items():
        if options.only and run not in options.only:
            continue
        print(f"{name}: {run}", flush=True)
        torch.manual_seed(options.seed)
        model = make(chosen)
        optimizer = make_optimizer(model, chosen)
        found[run] = train.fit(
            model,
            optimizer,
            lambda model, x, y: nn.functional.cross_entropy(model(x), y),
            train.Batches(images, labels, size=options.batch, seed=options.seed),
            epochs=options.epochs,
            evaluate=accuracy_on(test_images, test_labels),
            scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs),
            folder=options.out / name / run.replace(" ", "_").replace("*", "x").replace("/", "-"),
            setting=vars_of(options, run),
        )
    picture = options.out / f"{name}.png"
    percent = {run: [{**row, "accuracy": 100 * row["accuracy"]} for row in rows] for run, rows in found.items()}
    train.curves_plot(percent, picture, {"loss": "training loss", "accuracy": "test accuracy (%)"}, title=title)
    for run, rows in found.items():
        print(f"{run:44} loss {rows[-1]['loss']:.4f}  test accuracy {100 * rows[-1]['accuracy']:.1f} %")
    print(f"plot: {picture}")


def vars_of(options: argparse.Namespace, run: str) -> dict[str, Any]:
    """What a checkpoint must agree on to be resumed."""
    return {"run": run, "epochs": options.epochs, "batch": options.batch, "seed": options.seed, "smoke": options.smoke}


def with_formats(model: nn.Module, formats: Any) -> nn.Module:
    """``model`` with each convolution and linear layer computed as ``formats`` says; None leaves PyTorch's own."""
    if formats is None:
        return model
    classes = {nn.Conv2d: QConv2d, nn.Linear: QLinear}
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) in classes:
                setattr(module, name, classes[type(child)].from_float(child, formats))
    return call_children(model)
