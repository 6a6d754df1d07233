"""The register after every step is that of the exact reference, step by step."""

from __future__ import annotations

import random

import pytest
import torch

import gemmsim as gs
from gemmsim.vectors import Register, registers_of
from gemmsim.vectors.registers import count_register_words

SPECS = [
    ": e5m4",
    ": e5m4/rtz",
    ": e5m2/sr6",
    ": mul=e4m3/sat, add=e5m4",
    ": fp32",
    ": fp16/ftz",
    ": int(12)",
    ": int(12, saturate)",
    ": int(11, saturate, shift=2)",
    ": int(13, signed=false)",
    ": fixed(12, 1, rounding=rne)",
    ": fixed(12, -2, rounding=rtz, overflow=wrap)",
    ": fixed(12,-1)",
    ": chunked(3, e5m4)",
    ": chunked(4, e5m3, e5m10)",
    ": chunked(1, e5m4, e5m4)",
    ": chunked(64, e5m4, e5m10)",
    ": promote(int(11, saturate), 5, fixed(14,0))",
    ": chunked(4, chunked(2, int(13, saturate), fixed(14,0)), fixed(15,0))",
    ": chunked(6, chunked(3, chunked(2, e5m2, e5m3), e5m4), e5m5)",
    ": fused(4, 13)",
    ": promote(fused(2, 10), 6, fp32)",
    ": hw(volta, mma, fp16)",
    ": promote(hw(ada, mma, e4m3), 32)",
    ": chunked(4, e5m4, e5m4/sr4)",
]


def operands(seed: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-31, 32, (2, k), generator=g).double(), torch.randint(-15, 16, (k, 3), generator=g).double()


def of_the_reference(a, b, spec, at, seed) -> list[list[float]]:
    """Values of the registers, innermost first, as ``gs.trace`` tells them."""
    story = gs.trace(a, b, spec, at=at, seed=seed)
    depth = 1 + str(spec.accumulator).count("chunked") + str(spec.accumulator).count("promote")
    found: list[list[float]] = [[] for _ in range(depth)]
    for step in story.steps:
        if step.kind in ("add", "instruction"):
            found[0].append(float(step.value))  # of an instruction in two steps the second one ends it
        elif step.kind == "combine":
            found[depth - 1 - len(step.run)].append(float(step.value))
    if isinstance(getattr(spec.accumulator, "inner", None), gs.arithmetic.Hardware):
        found[0] = found[0][1::2]
    return found


@pytest.mark.parametrize("text", SPECS)
@pytest.mark.parametrize("k", [1, 2, 7, 37])
def test_registers_are_those_of_the_trace(text, k):
    spec = gs.GemmSpec.parse(text)
    a, b = operands(k, k)
    found = registers_of(a, b, spec, seed=5)
    result = gs.qmatmul(a, b, spec, seed=5, out_dtype=torch.float64)
    assert torch.equal(found[-1].values[..., -1], result)
    for at in ((0, 0), (1, 2)):
        want = of_the_reference(a, b, spec, at, 5)
        assert len(found) == len(want)
        for one, values in zip(found, want, strict=True):
            assert one.values[at].tolist() == values, (one.name, at)
    assert sum(one.values.numel() for one in found) == count_register_words(spec, 2, 3, k)


def test_names_steps_and_resets():
    found = registers_of(
        *operands(0, 20), gs.GemmSpec.parse(": chunked(8, chunked(4, int(17, saturate), fixed(18,0)))")
    )
    told = [(one.name, one.every, one.reset, str(one.format)) for one in found]
    assert told == [
        ("steps", 1, 4, "fixed(17,0)"),
        ("totals_1", 4, 8, "fixed(18,0)"),
        ("totals_2", 8, None, "fixed(18,0)"),
    ]
    assert all(isinstance(one, Register) for one in found)


def test_integer_registers_by_plain_integers():
    """An independent model: Python's integers, wrapped by a remainder and saturated by comparisons."""
    rng = random.Random(3)
    for _ in range(20):
        k, bits, saturates = rng.randrange(1, 40), rng.randrange(8, 20), rng.random() < 0.5
        x = [rng.randrange(-128, 128) for _ in range(k)]
        y = [rng.randrange(-128, 128) for _ in range(k)]
        spec = gs.GemmSpec.parse(f"int8 : int({bits}, {'saturate' if saturates else 'wrap'})")
        (found,) = registers_of(torch.tensor([x]), torch.tensor([y]).T, spec)
        register, half, want = 0, 1 << (bits - 1), []
        for p, q in zip(x, y, strict=True):
            register += p * q
            if saturates:
                register = max(-half, min(half - 1, register))
            else:
                register = (register + half) % (2 * half) - half
            want.append(register)
        assert found.values[0, 0].tolist() == want


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (": kahan(bf16)", "kahan.e8m7. does not have one accumulator per step"),
        (": pairwise(bf16)", "does not have one accumulator per step"),
        (": interleaved(2, bf16)", "does not have one accumulator per step"),
        (": exact()", "does not have one accumulator per step"),
        (": int(20, when=end)", "does not have one accumulator per step"),
        (": shuffled(bf16, 1)", "does not have one accumulator per step"),
        (": fused(4, 10, first=8)", "does not have one accumulator per step"),
        (": chunked(4, bf16, kahan(bf16))", "partial sums are combined by kahan"),
        (": chunked(4, e5m4/sr4)", "uses random bits"),
    ],
)
def test_others_are_refused_with_what_is_allowed(text, why):
    with pytest.raises(gs.SpecError, match=f"{why}.*; allowed: formats and sequential.*\n  Leave steps out"):
        registers_of(*operands(0, 8), gs.GemmSpec.parse(text))


def random_accumulator(rng: random.Random, depth: int) -> str:
    """Text of a leaf, or of runs of what has one level less."""
    fmt = f"e{rng.randrange(3, 9)}m{rng.randrange(1, 12)}" + rng.choice(
        ["", "/rtz", "/ru", "/rd", "/ro", "/sat", "/ftz"]
    )
    bits = rng.randrange(6, 25)
    overflow = rng.choice(["wrap", "saturate"])
    if depth:
        outer = rng.choice([fmt, f"fixed({bits},0)"])
        return f"chunked({rng.randrange(1, 9)}, {random_accumulator(rng, depth - 1)}, {outer})"
    return rng.choice(
        [
            fmt,
            f"int({bits}, {overflow}, shift={rng.choice([0, 0, 1, 3])})",
            f"fixed({bits}, {rng.randrange(-3, 5)}, rounding={rng.choice(['rne', 'rtz', 'rd'])}, overflow={overflow})",
            f"sequential({fmt}, mul=e{rng.randrange(4, 7)}m{rng.randrange(2, 6)})",
            f"fused({rng.randrange(1, 9)}, {rng.randrange(4, 30)})",
        ]
    )


def test_random_accumulators():
    rng, compared = random.Random(11), 0
    while compared < 150:
        text = random_accumulator(rng, rng.choice([0, 0, 1, 1, 2, 3]))
        try:
            spec = gs.GemmSpec.parse(f": {text}")
        except gs.SpecError:  # a format that there is not
            continue
        a, b = operands(compared, rng.randrange(1, 30))
        for one, values in zip(registers_of(a, b, spec), of_the_reference(a, b, spec, (1, 1), 0), strict=True):
            assert list(map(repr, one.values[1, 1].tolist())) == list(map(repr, values)), (text, one.name)
        compared += 1
