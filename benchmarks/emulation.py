"""A training step of models under ``gs.emulate``: what Python costs beyond PyTorch's own step, and the whole.

Times are processor time of one thread, the least of all rounds: steps are the same work each time, and neighbours only
add to it. ``python`` is what the emulated step takes beyond the native one where kernels take nothing, the same layer
of width 16 with 4 tokens, over the native step of the size that is named. ``ratio`` is the whole, kernels and
attention's unfused steps included. Before anything is timed the context's output and gradients are compared, bit for
bit, with those of the converted model. A dry run's seconds are those of the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from harness import Report, measure, options
from torch import Tensor, nn

import gemmsim as gs
from gemmsim.emulation import convert, undo

SPEC = ":fp32"
#: width, tokens, most that Python may add to the native step (None: nothing asked).
LAYERS = [(128, 128, None), (256, 256, 0.15), (512, 512, 0.05)]
#: Most of a step of the Llama, and of a step under rules that leave everything to PyTorch, over the native step.
MOST_LLAMA, MOST_NONE = 1.4, 1.05
#: Seconds of a dry run of a Llama of 7 billion parameters.
MOST_DRY = 1.0

Step = Callable[[], list[Tensor]]


def encoder(width: int, tokens: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """One encoder layer and its input."""
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    return layer, (torch.randn(1, tokens, width),)


def llama(width: int, tokens: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A Llama of two layers and tokens."""
    import transformers

    sizes = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=256, num_key_value_heads=2, **sizes))
    return model, (torch.randint(0, 256, (1, tokens)),)


def step_of(model: nn.Module, inputs: tuple[Tensor, ...]) -> Step:
    """A training step without an optimizer: the output and all gradients."""

    def step() -> list[Tensor]:
        model.zero_grad()
        out: Any = model(*inputs)
        out = out if isinstance(out, Tensor) else out[0]
        out.square().mean().backward()
        return [out.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    return step


def under(config: Any, step: Step) -> Step:
    """The step in a context of its own."""

    def run() -> list[Tensor]:
        with gs.emulate(config):
            return step()

    return run


def same_bits(model: nn.Module, step: Step) -> None:
    """That the context computes what the converted model computes."""
    want = [t.clone() for t in under(SPEC, step)()]
    convert(model, SPEC)
    found = [t.clone() for t in step()]
    undo(model)
    if not all(torch.equal(a, b) for a, b in zip(found, want, strict=True)):
        raise AssertionError("emulate and convert differ")


def least(step: Step, rounds: int) -> dict[str, float]:
    """Least processor time of the step: native, emulated, and under rules that leave everything to PyTorch."""
    runs = {"native": step, "emulated": under(SPEC, step), "none": under([("*", None)], step)}
    times = measure(runs, rounds=rounds, clock=time.process_time)
    return {name: min(found) for name, found in times.items()}


def dry_run(report: Report, rounds: int, quick: bool) -> None:
    """A report on a Llama of 7 billion parameters, forward and backward, of shapes alone."""
    import transformers

    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**({"num_hidden_layers": 2} if quick else {})))
    ids = torch.zeros(1, 2048, dtype=torch.int64)
    size = sum(p.numel() for p in model.parameters())
    linear = sum(part.weight.numel() for part in model.modules() if isinstance(part, nn.Linear))
    seconds = []
    for _ in range(1 + rounds):  # the first one imports
        start = time.perf_counter()
        found = gs.audit.dry_run(model, ids, SPEC)
        seconds.append(time.perf_counter() - start)
        assert not found.native and found.total_macs > 3 * linear * ids.numel()  # and attention's
    report.add(
        bench="emulation", model="Llama, dry run", parameters=size, seconds=min(seconds[1:]), first=seconds[0],
        asked=MOST_DRY, met=min(seconds[1:]) <= MOST_DRY,
    )  # fmt: skip


def main() -> None:
    args = options(__doc__ or "")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    report = Report(args.out)
    tiny = least(step_of(*encoder(16, 4)), 20 * args.rounds)
    beyond = tiny["emulated"] - tiny["native"]
    for width, tokens, most in LAYERS[:1] if args.quick else LAYERS:
        model, inputs = encoder(width, tokens)
        step = step_of(model, inputs)
        same_bits(model, step)
        t = least(step, args.rounds)
        python = beyond / t["native"]
        report.add(
            bench="emulation", model="encoder layer", width=width, tokens=tokens, python=python, asked=most,
            met=most is None or python <= most, ratio=t["emulated"] / t["native"], none=t["none"] / t["native"],
            met_none=t["none"] / t["native"] <= MOST_NONE, **{f"{name}_ms": 1e3 * v for name, v in t.items()},
        )  # fmt: skip
    try:
        model, inputs = llama(*((32, 24) if args.quick else (256, 256)))
    except ImportError:
        report.close()
        return
    step = step_of(model, inputs)
    same_bits(model, step)
    t = least(step, args.rounds)
    report.add(
        bench="emulation", model="Llama", width=model.config.hidden_size, tokens=inputs[0].shape[1],
        ratio=t["emulated"] / t["native"], asked=MOST_LLAMA, met=t["emulated"] / t["native"] <= MOST_LLAMA,
        none=t["none"] / t["native"], met_none=t["none"] / t["native"] <= MOST_NONE,
        **{f"{name}_ms": 1e3 * v for name, v in t.items()},
    )  # fmt: skip
    dry_run(report, 2 if args.quick else 5, args.quick)
    report.close()


if __name__ == "__main__":
    main()
