"""Schedules: every term once, within the bound of the stack, and as many additions as the definition makes."""

from __future__ import annotations

import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas
from support.orders import operands, specs

import gemmsim as gs
from gemmsim import reference
from gemmsim.arithmetic import UnsupportedSpec
from gemmsim.backends import cpu
from gemmsim.lowering import events
from gemmsim.lowering.accumulators import program
from gemmsim.lowering.refusal import Refusal
from gemmsim.lowering.schedule import Operation, innermost, keeps_order, schedule, schedule_casts, stack_bound

#: What each operation does to the height of the stack.
_CHANGE = {0: 1, 1: 1, 2: -1, 3: 0, 4: -1, 5: -1}


@pytest.mark.parametrize("seed", range(4))
def test_every_term_is_read_once_within_the_stack(seed):
    rng = random.Random(seed)
    for spec in specs(rng, 150):
        found = program(spec.accumulator)
        if isinstance(found, Refusal) or found.scheduled is None:
            continue
        inner = innermost(found.scheduled)
        for k in (0, 1, 2, 7, 40, 131):
            made = schedule(found.scheduled, k)
            terms = range(k) if made.terms is None else made.terms
            assert sorted(terms) == list(range(k)), spec
            assert sum(made.runs) == k - spec.accumulator.lost(k), spec
            if keeps_order(found.scheduled, inner):
                used = list(terms)[: sum(made.runs)]
                assert used == sorted(used), spec
            height = depth = 0
            for at in range(0, len(made.operations), 4):
                code, cast = made.operations[at], made.operations[at + 1]
                height += _CHANGE[code]
                depth = max(depth, height)
                assert 0 <= cast < len(schedule_casts(found.scheduled, inner))
            assert height == 1 and depth == made.depth <= stack_bound(found.scheduled, inner) + 1, spec
            runs = [
                made.operations[at + 2]
                for at in range(0, len(made.operations), 4)
                if made.operations[at] == Operation.RUN
            ]
            assert tuple(runs) == made.runs


@pytest.mark.parametrize("seed", range(6))
def test_random_orders_equal_the_reference(seed):
    rng = random.Random(100 + seed)
    computed = 0
    for spec in specs(rng, 60):
        shape = rng.choice([(1, 0, 2), (1, 1, 1), (2, 5, 3), (9, 17, 5), (3, 40, 33), (2, 67, 3), (2, 130, 3)])
        a, b = operands(rng, spec, shape)
        try:
            found = gs.qmatmul(a, b, spec, seed=7)
        except UnsupportedSpec:
            continue
        want = torch.tensor(reference.gemm(a.numpy(), b.numpy(), spec, seed=7), dtype=torch.float64)
        assert_bitwise_equal(found, want.reshape(found.shape).float(), context=f"{spec} {shape}")
        computed += 1
    assert computed > 50


def test_random_orders_on_every_instruction_set():
    rng = random.Random(7)
    cases = [(spec, *operands(rng, spec, (11, 50, 37))) for spec in specs(rng, 60)]
    cases = [case for case in cases if cpu.refuses(case[0]) is None]
    want = [gs.qmatmul(a, b, spec, seed=2) for spec, a, b in cases]
    first, *others = isas()
    try:
        for isa in others:
            cpu.set_isa(isa)
            for (spec, a, b), one in zip(cases, want, strict=True):
                assert_bitwise_equal(gs.qmatmul(a, b, spec, seed=2), one, context=f"{spec} {isa}")
    finally:
        cpu.set_isa(first)


def test_additions_are_those_of_the_definition():
    rng = random.Random(3)
    counted = 0
    for spec in specs(rng, 120):
        if events.refuses(spec, "CPU backend") is not None:
            continue
        for k in (1, 9, 30):
            a, b = operands(rng, spec, (1, k, 1))
            ((want,),) = reference.count_events(a.numpy(), b.numpy(), spec)
            assert events.additions(spec, k) == want.additions, spec
        counted += 1
    assert counted > 10


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("interleaved(4, chunked(2, fp16/sr4), combine=halves)", "with random bits inside"),
        ("interleaved(4, exact(fp16/sr4), combine=halves)", "with random bits inside"),
        ("palette(fp16, chunked(2, fp16, kahan(fp16)))", "in a palette"),
    ],
)
def test_what_kernels_refuse(text, reason):
    spec = gs.GemmSpec.parse(text)
    assert reason in str(cpu.refuses(spec))
    reference.gemm([[1.0, 2.0]], [[1.0], [2.0]], spec, select=[[0]] if "palette" in text else None)


def test_scales_are_applied_to_runs_alone():
    spec = gs.GemmSpec.parse("mxfp8_e4m3 : scaled(interleaved(4, fp16, combine=halves), fp32)")
    with pytest.raises(UnsupportedSpec, match="inside scaled"):
        gs.qmatmul(torch.ones(2, 64), torch.ones(64, 2), spec)
