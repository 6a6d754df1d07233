"""Draws README's pictures: ``python docs/pictures/make.py`` writes them next to this file, the same bytes each time."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import torch
from torch import nn

import gemmsim as gs

matplotlib.use("svg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
STYLE = {
    "svg.hashsalt": "gemmsim",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
}


def save(figure: plt.Figure, name: str) -> None:
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def lost_by_accumulators() -> None:
    """Relative error of sums of uniform numbers against their length."""
    hopper = "hw(h100, wgmma, e4m3)"
    lines = (
        (":bf16", "bfloat16", RED, "o"),
        (":fp16", "float16", ORANGE, "s"),
        (hopper, "H100, FP8 instruction", BLUE, "^"),
        (":bf16/sr", "bfloat16, stochastic", GREY, "x"),
        (f"promote({hopper}, 128)", "H100, promoted every 128", GREEN, "v"),
    )
    torch.manual_seed(0)
    lengths = [2**n for n in range(4, 17)]
    a, b = torch.rand(64, lengths[-1]), torch.rand(lengths[-1], 64)
    a, b = (gs.quantize(x, "e4m3") for x in (a, b))  # so that every line adds the same terms
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    for spec, label, colour, marker in lines:
        errors = []
        for k in lengths:
            exact = a[:, :k].double() @ b[:k].double()
            got = gs.qmatmul(a[:, :k], b[:k], spec, seed=1)
            errors.append(((got - exact) / exact).mean().abs().item())
        axes.loglog(lengths, errors, color=colour, marker=marker, markersize=4, label=label)
    axes.set(xlabel="terms of each sum (K)", ylabel="mean relative error", title="What each accumulator loses")
    axes.set_xscale("log", base=2)
    axes.set_ylim(1e-6, 2)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, "accumulators")


def different_results() -> None:
    """How many outputs of one FP8 product, rounded to bfloat16, differ between five computations of it."""
    hopper = "hw(h100, wgmma, e4m3)"
    ways = {
        "float32,\nin order": "e4m3 : fp32 -> bf16",
        "L40S": "e4m3 : hw(ada, mma, e4m3) -> bf16",
        "H100": f"e4m3 : {hopper} -> bf16",
        "H100,\npromoted\nevery 128": f"e4m3 : promote({hopper}, 128) -> bf16",
        "B200": "e4m3 : hw(blackwell, tcgen05, e4m3) -> bf16",
    }
    torch.manual_seed(0)
    a, b = torch.randn(256, 4096), torch.randn(4096, 256)
    results = [gs.qmatmul(a, b, spec) for spec in ways.values()]
    percent = torch.tensor([[100 * (x != y).float().mean() for y in results] for x in results])
    figure, axes = plt.subplots(figsize=(5.2, 4.2))
    axes.imshow(percent, cmap="Blues", vmin=0, vmax=2 * percent.max())
    for row in range(len(ways)):
        for column in range(len(ways)):
            part = percent[row, column].item()
            text = "same" if row == column else f"{part:.1f} %" if part >= 0.1 or part == 0 else "< 0.1 %"
            axes.text(column, row, text, ha="center", va="center")
    axes.set_xticks(range(len(ways)), ways, fontsize=8.5)
    axes.set_yticks(range(len(ways)), ways, fontsize=8.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("Outputs that differ: one FP8 product, K = 4096")
    save(figure, "different_results")


def narrowest() -> None:
    """Error of the digits network against the mean width of its accumulators, for three orders of summation."""
    from gemmsim.study.networks.digits import load_data, shipped_network

    network, images = shipped_network(), load_data().test_images
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    model.load_state_dict({"0.weight": network.w1, "0.bias": network.b1, "2.weight": network.w2, "2.bias": network.b2})
    orders = {
        "{}": ("in order", RED, "o"),
        "chunked(64, {})": ("chunks of 64", BLUE, "^"),
        "kahan({})": ("Kahan", GREEN, "v"),
    }
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    for order, (label, colour, marker) in orders.items():
        found = gs.search(model, images, at_most=0.05, order=order)
        widths = [point.bits for point in found.front]
        errors = [point.predicted for point in found.front]
        axes.semilogy(
            widths, errors, color=colour, marker=marker, markersize=4, label=f"{label}: {found.chosen.bits:.1f} bits"
        )
    axes.axhline(0.05, color=GREY, linewidth=1, linestyle="--")
    axes.text(axes.get_xlim()[1], 0.053, "allowed error", ha="right", fontsize=9, color=GREY)
    axes.set(
        xlabel="mean width of the accumulators (bits)",
        ylabel="predicted error of the logits",
        title="How narrow a digits network may go",
    )
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9)
    save(figure, "narrowest")


if __name__ == "__main__":
    with plt.rc_context(STYLE):
        lost_by_accumulators()
        different_results()
        narrowest()
