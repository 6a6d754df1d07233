"""ResNet-20 (He et al., CVPR 2016, section 4.2) on handwritten digits, in FP8 with narrow accumulators.

python examples/digits_resnet20.py            a minute on a CPU
python examples/digits_resnet20.py --smoke    seconds
"""

from __future__ import annotations

from common import arguments, classify, with_formats
from torch import Tensor, nn
from torch.nn import functional

import gemmsim as gs
from gemmsim.optim import QSGD, QOptim

#: FP8 training as usual: e4m3 forward, e5m2 gradients; the accumulator is what differs.
RUNS = {
    "float32": None,
    "FP8, fp32 accumulator": "fp32",
    "FP8, e6m7 accumulator": "e6m7",
    "FP8, e6m4 accumulator": "e6m4",
}


def formats(accumulator: str | None) -> gs.QAffineFormats | None:
    if accumulator is None:
        return None
    backward = f"e5m2 * e4m3 : {accumulator}"
    # A power of two for each matrix keeps small gradients within e5m2.
    return gs.QAffineFormats(fprop=f"e4m3 : {accumulator}", dgrad=backward, wgrad=backward, use_scaling=True)


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut without parameters."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.stride, self.more = stride, out - channels

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        if self.more:
            x = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        return functional.relu(x + y)


def resnet20(width: int = 16) -> nn.Module:
    """Three stages of three blocks, 20 layers with weights."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    channels = width
    for stage in range(3):
        for number in range(3):
            out = width << stage
            layers.append(Block(channels, out, 2 if stage and not number else 1))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def main() -> None:
    options = arguments(__doc__ or "", epochs=6, batch=64)

    def optimizer(model: nn.Module, accumulator: str | None) -> QOptim | QSGD:
        inner = QSGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
        return inner if accumulator is None else QOptim(inner, momentum_quant="bf16", acc_quant="bf16/sr")

    classify(
        "resnet20",
        options,
        RUNS,
        lambda run: with_formats(resnet20(4 if options.smoke else 16), formats(run)),
        optimizer,
        "ResNet-20 on handwritten digits: FP8 products, bfloat16 weights rounded stochastically",
    )


if __name__ == "__main__":
    main()
