"""mptorch.utils: its training loop over ``gemmsim.train``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.train import curves_plot, fit

__all__ = ["evaluate_accuracy", "get_lr", "trainer", "try_gpu"]


def try_gpu(i: int = 0) -> torch.device:
    """CUDA device ``i`` if the machine has it, else the CPU.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> mptorch.utils.try_gpu(1000)
        device(type='cpu')
    """
    return torch.device(f"cuda:{i}") if torch.cuda.device_count() > i else torch.device("cpu")


def get_lr(optimizer: torch.optim.Optimizer) -> float:
    """The learning rate of the first parameter group.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> mptorch.utils.get_lr(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))
        0.1
    """
    return float(optimizer.param_groups[0]["lr"])


@torch.no_grad()
def evaluate_accuracy(net: nn.Module, data_iter: Iterable[Any], device: Any = None) -> float:
    """The fraction of inputs whose largest output is their label, in evaluation mode; 0 without inputs.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> batch = torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1])
        >>> mptorch.utils.evaluate_accuracy(torch.nn.Identity(), [batch])
        0.5
    """
    training = net.training
    net.eval()
    correct, count = 0, 0
    try:
        for x, y in data_iter:
            x, y = (t if device is None else t.to(device) for t in (x, y))
            correct += int((net(x).argmax(dim=-1) == y).sum())
            count += y.numel()
    finally:
        net.train(training)
    return correct / count if count else 0.0


def trainer(
    net: nn.Module,
    train_loader: Iterable[Any],
    test_loader: Iterable[Any],
    num_epochs: int,
    lr: float,
    batch_size: int,
    start_epoch: int = 0,
    start_acc: float = 0,
    loss: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    device: Any = None,
    scheduler: Any = None,
    plot_file: str | Path | None = None,
    init_scale: float | None = None,
    log_wandb: bool = False,
    checkpoint: bool = False,
) -> list[dict[str, Any]]:
    """Train ``net`` for the epochs from ``start_epoch`` to ``num_epochs``; returns a row of metrics for each epoch.

    ``loss(output, label)`` is the mean cross entropy by default, ``optimizer`` is SGD with ``lr``, and ``device`` is
    ``try_gpu()``. ``init_scale``: on CUDA, the scale of the loss, which ``torch.amp.GradScaler`` adapts. ``plot_file``
    receives a PNG. ``log_wandb`` sends each row to wandb, which must be installed. ``checkpoint`` keeps the state with
    the best test accuracy above ``start_acc`` in ``checkpoint/ckpt.pt``. ``batch_size`` is accepted and ignored, since
    the loaders have their own.

    Example:
        >>> from gemmsim.compat import mptorch
        >>> batches = [(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))]
        >>> rows = mptorch.utils.trainer(torch.nn.Linear(2, 2), batches, batches, num_epochs=1, lr=0.1, batch_size=2)
        epoch 1: loss ..., test accuracy ...
    """
    device = try_gpu() if device is None else torch.device(device)
    net.to(device)
    criterion = nn.CrossEntropyLoss() if loss is None else loss
    chosen = torch.optim.SGD(net.parameters(), lr=lr) if optimizer is None else optimizer
    scaled = init_scale is not None and device.type == "cuda"
    scaling = _ScaledStep(chosen, float(init_scale or 1)) if scaled else None
    best = {"accuracy": float(start_acc)}

    def batch_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        value: Tensor = criterion(model(x.to(device)), y.to(device))
        return value

    rows: list[dict[str, Any]] = []
    for epoch in range(start_epoch, num_epochs):
        if scaling is None:
            row = fit(net, chosen, batch_loss, train_loader, epochs=1, scheduler=scheduler, progress=False)[0]
        else:
            row = {"loss": scaling.epoch(net, batch_loss, train_loader), "lr": get_lr(chosen)}
            if scheduler is not None:
                scheduler.step()
        row.update(epoch=epoch + 1, accuracy=evaluate_accuracy(net, test_loader, device))
        rows.append(row)
        print(f"epoch {epoch + 1}: loss {row['loss']:.4f}, test accuracy {row['accuracy']:.4f}", flush=True)
        if log_wandb:
            import wandb  # type: ignore[import-not-found]

            wandb.log(row)
        if checkpoint and row["accuracy"] > best["accuracy"]:
            best["accuracy"] = row["accuracy"]
            _save(net, chosen, row)
    if plot_file is not None and rows:
        curves_plot({"": rows}, plot_file, {"loss": "training loss", "accuracy": "test accuracy"})
    return rows


class _ScaledStep:
    """An epoch whose loss is scaled so that narrow gradients do not underflow."""

    def __init__(self, optimizer: torch.optim.Optimizer, scale: float) -> None:
        self.optimizer, self.scaler = optimizer, torch.amp.GradScaler("cuda", init_scale=scale)

    def epoch(self, net: nn.Module, loss: Any, batches: Iterable[Any]) -> float:
        """The mean loss."""
        net.train()
        total, count = 0.0, 0
        for x, y in batches:
            self.optimizer.zero_grad()
            value = loss(net, x, y)
            self.scaler.scale(value).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            total, count = total + float(value.detach()) * len(x), count + len(x)
        return total / max(count, 1)


def _save(net: nn.Module, optimizer: torch.optim.Optimizer, row: dict[str, Any]) -> None:
    folder = Path("checkpoint")
    folder.mkdir(exist_ok=True)
    state = {
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "acc": row["accuracy"],
        "epoch": row["epoch"],
    }
    temporary = folder / "ckpt.pt.new"
    torch.save(state, temporary)
    temporary.replace(folder / "ckpt.pt")
