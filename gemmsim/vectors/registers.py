"""The registers of an accumulator after every step, computed by the product's own kernels.

The register after k terms is the result of the first k terms, for accumulators whose order of additions is that of k.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import Accumulator, Chunked, Fixed, Fused, Hardware, Integer, Lookup, Promote, Sequential
from gemmsim.formats import Cast, Format

__all__ = ["Register", "check_registers", "count_register_words", "registers_of"]

_ALLOWED = (
    "formats and sequential(...), int(...) and fixed(...) judged at every step, lookup(...) of these, fused(...) and "
    "hw(...) without first, and chunked(...), promote(...) and adder_tree(...) of these with partial sums added in "
    "order in one format"
)


@dataclass(frozen=True)
class Register:
    """The values of one accumulator, a register of the hardware.

    Attributes:
        name: "steps" for the innermost one, "totals_1", "totals_2", ... for those around it.
        every: terms between two values: 1 after each multiply-add. It is n for the partial sums of chunks of n terms,
            and for an int(...) that overflows only at the end of such a chunk, as the first adders of a tree do.
        reset: terms after which it starts from +0 again; None: never.
        format: of its values.
        values: float64 (M, N, S): its value after each of S steps. A step has fewer terms where a chunk ends.

    Example:
        >>> spec = gs.GemmSpec.parse("chunked(2, fp16, fp32)")
        >>> for one in gs.vectors.registers_of(torch.ones(1, 4), torch.ones(4, 1), spec):
        ...     print(one.name, one.every, one.reset, one.values.flatten().tolist())
        steps 1 2 [1.0, 2.0, 1.0, 2.0]
        totals_1 2 None [2.0, 4.0]
    """

    name: str
    every: int
    reset: int | None
    format: Format
    values: Tensor


@takes_spec()
def registers_of(a: Tensor, b: Tensor, spec: gs.GemmSpec, seed: int = 0) -> list[Register]:
    """The accumulators of ``qmatmul(a, b, spec, seed=seed)``, innermost first; operands are in their format already.

    Raises:
        SpecError: for an accumulator that does not have one value per step.

    Example:
        >>> steps = gs.vectors.registers_of(torch.ones(1, 3), torch.ones(3, 1), gs.GemmSpec.parse("fp16"))
        >>> steps[0].values.flatten()
        tensor([1., 2., 3.], dtype=torch.float64)
    """
    check_registers(spec)
    bare = dataclasses.replace(spec, a=None, b=None, out=None)
    found = _registers(a.double(), b.double(), bare, seed)
    return [dataclasses.replace(one, name=f"totals_{level}" if level else "steps") for level, one in enumerate(found)]


def check_registers(spec: gs.GemmSpec) -> None:
    """``SpecError`` unless the accumulator has one register a step, or one for each level of runs."""
    accumulator = spec.accumulator
    while isinstance(accumulator, (Chunked, Promote)):
        if not isinstance(accumulator.how, Cast):
            raise _refused(spec, f"partial sums are combined by {accumulator.how}")
        if accumulator.inner.is_stochastic:
            raise _refused(spec, "the accumulator inside chunks uses random bits, which belong to the whole product")
        accumulator = accumulator.inner
    inside = accumulator is not spec.accumulator
    if _terms_a_step(accumulator) is None and not (inside and isinstance(accumulator, Integer)):
        raise _refused(spec, f"{accumulator} does not have one accumulator per step")


def count_register_words(spec: gs.GemmSpec, m: int, n: int, k: int) -> int:
    """How many words the registers of a product have."""
    return m * n * _count_steps(spec.accumulator, k)


def _count_steps(accumulator: Accumulator, k: int) -> int:
    """Steps of all registers over k terms."""
    if not isinstance(accumulator, (Chunked, Promote)):
        return -(-k // (_terms_a_step(accumulator) or k))
    n = accumulator.n
    inside = (k // n) * _count_steps(accumulator.inner, n) if k >= n else 0
    return -(-k // n) + inside + (_count_steps(accumulator.inner, k % n) if k % n else 0)


def _refused(spec: gs.GemmSpec, why: str) -> gs.SpecError:
    return gs.SpecError(
        f"the accumulator after every step of {spec.accumulator}: {why}; allowed: {_ALLOWED}.\n"
        "  Leave steps out, or trace single elements with gemmsim.trace."
    )


def _terms_a_step(accumulator: Accumulator) -> int | None:
    """Terms of one step; None where there is not one register after it."""
    if isinstance(accumulator, Lookup):
        return _terms_a_step(accumulator.inner) if not isinstance(accumulator.inner, (Fused, Hardware)) else None
    if isinstance(accumulator, Integer):
        return 1 if accumulator.when == "every" else None
    if isinstance(accumulator, (Sequential, Fixed)):
        return 1
    if isinstance(accumulator, Fused) and accumulator.first is None:
        return accumulator.n
    if isinstance(accumulator, Hardware) and accumulator.first is None:
        return int(accumulator.instruction.k)
    return None


def _registers(a: Tensor, b: Tensor, spec: gs.GemmSpec, seed: int) -> list[Register]:
    """Registers of (..., M, K) and (..., K, N); their values are (..., M, N, steps)."""
    accumulator, terms = spec.accumulator, a.shape[-1]
    own: Any = accumulator
    every = own.n if isinstance(accumulator, (Chunked, Promote)) else _terms_a_step(accumulator) or terms
    ends = [*range(every, terms, every), terms]
    values = torch.stack([_product(a[..., :k], b[..., :k, :], spec, seed) for k in ends], -1)
    outer = Register("", every, None, accumulator.add_cast.format, values)
    if not isinstance(accumulator, (Chunked, Promote)):
        return [outer]
    inner = dataclasses.replace(spec, accumulator=accumulator.inner)
    return [*_inside(a, b, inner, every, seed), outer]


def _inside(a: Tensor, b: Tensor, inner: gs.GemmSpec, n: int, seed: int) -> list[Register]:
    """Registers of the runs of n terms, one run behind the other."""
    whole = a.shape[-1] // n
    parts = []
    if whole:
        full = whole * n
        runs_a = a[..., :full].unflatten(-1, (whole, n)).movedim(-2, 0)
        runs_b = b[..., :full, :].unflatten(-2, (whole, n)).movedim(-3, 0)
        found = _registers(runs_a, runs_b, inner, seed)
        parts.append([dataclasses.replace(one, values=one.values.movedim(0, -2).flatten(-2)) for one in found])
    if a.shape[-1] % n:
        parts.append(_registers(a[..., whole * n :], b[..., whole * n :, :], inner, seed))
    return [
        dataclasses.replace(same[0], reset=same[0].reset or n, values=torch.cat([one.values for one in same], -1))
        for same in zip(*parts, strict=True)
    ]


def _product(a: Tensor, b: Tensor, spec: gs.GemmSpec, seed: int) -> Tensor:
    return gs.qmatmul(a, b, spec, seed=seed, out_dtype=torch.float64)
