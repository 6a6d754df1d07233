"""A LeNet-style network on handwritten digits: how narrow may the accumulator be?

python examples/digits_lenet.py            less than a minute on a CPU
python examples/digits_lenet.py --smoke    seconds
"""

from __future__ import annotations

from common import arguments, classify, with_formats
from torch import nn

from gemmsim.optim import QSGD

#: (formats of the products, format of the weights in the optimizer).
RUNS = {
    "float32": (None, None),
    "e4m3 operands, fp16 accumulator": ("e4m3 : fp16", None),
    "e4m3 operands, e6m5 accumulator": ("e4m3 : e6m5", None),
    "e4m3 operands, e6m3 accumulator": ("e4m3 : e6m3", None),
    "e6m3 accumulator, stochastic": ("e4m3 : e6m3/sr8", "bf16/sr"),
}


def lenet() -> nn.Module:
    """Two convolutions and three linear layers, for 8 x 8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def main() -> None:
    options = arguments(__doc__ or "", epochs=12, batch=32)
    classify(
        "lenet",
        options,
        RUNS,
        lambda run: with_formats(lenet(), run[0]),
        lambda model, run: QSGD(model.parameters(), lr=0.05, momentum=0.9, acc_quant=run[1]),
        "LeNet on handwritten digits: forward and backward products in narrow formats",
    )


if __name__ == "__main__":
    main()
