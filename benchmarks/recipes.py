"""What scales, blocks, transforms and random bits of training recipes cost: a step of a small GPT under each recipe.

Beside each recipe the same products run without scales: elements cast alone, in the instruction's register. Before the
time counts, a linear layer under the recipe is compared with ``gemmsim.reference`` bit for bit.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

import torch
from harness import Report, measure, options, ratio

import gemmsim as gs
from gemmsim.arithmetic.scaled import Scaled
from gemmsim.formats import BlockFormat, Cast, ScaledCast
from gemmsim.reference import gemm
from gemmsim.study.language_model import load_text, model_of

RECIPES = [name for name in gs.recipes.__all__ if name not in ("all_products", "rules", "svg")]


def alone(spec: gs.GemmSpec) -> gs.GemmSpec:
    """The same elements and register without scales."""

    def cast(fmt: object) -> Cast | None:
        if isinstance(fmt, ScaledCast):
            return fmt.cast
        return gs.formats.parse_cast(f"{fmt.element}/sat") if isinstance(fmt, BlockFormat) else fmt  # type: ignore[return-value]

    a, b = cast(spec.a), cast(spec.b)
    if isinstance(spec.accumulator, Scaled):
        return gs.GemmSpec(a, b, accumulator=spec.accumulator.inner, out=spec.out)
    if getattr(spec.accumulator, "op", "").startswith("mx"):
        assert a is not None and b is not None
        return gs.GemmSpec(
            a, b, accumulator=gs.acc.hw("blackwell", "f8f6f4", str(a.format), str(b.format)), out=spec.out
        )
    return replace(spec, a=a, b=b)


def without_scales(formats: gs.QAffineFormats) -> gs.QAffineFormats:
    return gs.QAffineFormats(**{role: alone(getattr(formats, role)) for role in ("fprop", "dgrad", "wgrad")})


def check(formats: gs.QAffineFormats) -> None:
    """Each product of the recipe against the reference."""
    torch.manual_seed(0)
    a, b = torch.randn(3, 70), torch.randn(70, 4)
    for role in ("fprop", "dgrad", "wgrad"):
        text = str(getattr(formats, role)).replace("/delayed(1024)", "")  # here the scale of the tensor itself
        spec = gs.GemmSpec.parse(text)
        expected = torch.tensor(gemm(a.tolist(), b.tolist(), spec, 5), dtype=torch.float64).float()
        assert torch.equal(gs.qmatmul(a, b, spec, seed=5), expected), f"{role}: {spec}"


def main() -> None:
    asked = options(__doc__ or "")
    report = Report(asked.out)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", gs.FormatsWarning)  # the products without scales lose gradients, as they must
    text = load_text()
    torch.manual_seed(0)
    characters = torch.randint(0, len(text.characters), (2 if asked.quick else 16, 33))
    for name in RECIPES[: 2 if asked.quick else None]:
        formats = gs.QAffineFormats.of(name)
        check(formats)

        def step(formats: gs.QAffineFormats) -> None:
            model = model_of(len(text.characters), None, None, 0)
            with gs.emulate(gs.recipes.rules(model, formats), seed=1):
                model(characters[:, :-1]).square().mean().backward()

        plain = without_scales(formats)
        runs = {"recipe": lambda f=formats: step(f), "without scales": lambda f=plain: step(f)}
        times = measure(runs, rounds=1 if asked.quick else asked.rounds, clock=time.process_time)
        report.add(
            bench="recipes", recipe=name, seconds=min(times["recipe"]), without_scales=min(times["without scales"]),
            times=1 / ratio(times, "without scales", "recipe"),
        )  # fmt: skip
    report.close()


if __name__ == "__main__":
    main()
