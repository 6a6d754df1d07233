"""gemmsim's accumulators as atoms of CuTe: cute::gemm with them, run on the host, has the reference's bits."""

from __future__ import annotations

import functools
import re

import pytest
import torch
from support import ROOT, assert_bitwise_equal
from support.cute import cute_kernels, run_atoms, run_program

import gemmsim as gs
from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import RoundingMode

pytestmark = pytest.mark.cuda
ATOMS = cute_kernels().ATOMS
M, N, K, SEED = 33, 18, 64, 0x1234_5678_9ABC


def wide(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    """Float32 numbers of all sizes, whose products and sums leave narrow formats at both ends."""
    x = torch.randn(shape, generator=generator)
    x[1::5] *= 2.0**9
    x[2::5] *= 2.0**-13
    x[3::5, ::3] = -0.0
    return x


@functools.cache
def operands(k: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Any numbers, with infinities and NaN; e4m3's, none of them special."""
    g = torch.Generator().manual_seed(k)
    a, b = wide((M, k), g), wide((k, N), g)
    a[7, 3], a[8, 1], a[9, 2], b[5, 4], b[6, 9] = torch.inf, -torch.inf, torch.nan, torch.inf, torch.nan
    e4m3 = [gs.quantize(torch.randn(shape, generator=g), "e4m3") for shape in ((M, k), (k, N))]
    return [(a, b), (e4m3[0], e4m3[1])]


def computed(k: int) -> torch.Tensor:
    return run_atoms(operands(k), SEED)


@pytest.mark.parametrize("which", range(len(ATOMS)), ids=[atom.spec for atom in ATOMS])
def test_an_atom_has_the_bits_of_its_spec(which):
    atom = ATOMS[which]
    a, b = operands(K)[atom.data]
    got = computed(K)[which]
    assert_bitwise_equal(got, gs.qmatmul(a, b, atom.spec, seed=SEED), context=atom.text)
    rows = [0, 1, 2] if "/sr" in atom.spec else [0, 7, 8, M - 1]  # random bits belong to a row's number
    want = torch.tensor(reference.gemm(a[rows].tolist(), b.tolist(), atom.spec, seed=SEED))
    assert_bitwise_equal(got[rows], want.float(), context=atom.text)


@pytest.mark.parametrize("which", range(len(ATOMS)), ids=[atom.spec for atom in ATOMS])
def test_zeros_that_fill_up_a_tile_change_nothing_but_minus_zero(which):
    atom = ATOMS[which]
    a, b = operands(37)[atom.data]
    want = gs.qmatmul(a, b, atom.spec, seed=SEED)
    assert_bitwise_equal(computed(37)[which] + 0.0, want + 0.0, context=atom.text)


def test_every_rounding_is_an_atom():
    """Of gemmsim's own kernels: all modes there are."""
    modes = {GemmSpec.of(atom.spec).accumulator.add_cast.rounding.mode for atom in ATOMS if "(" not in atom.spec}
    assert modes == set(RoundingMode)


def test_the_example_runs_and_finds_its_loops_bits(compiled_before, tmp_path):
    if compiled_before((cute_kernels().program_source(), "host")):
        return
    lines = run_program(tmp_path).splitlines()
    assert len(lines) == 4 and all(line.endswith(": 0 of 7200 outputs differ") for line in lines)


def test_the_page_shows_what_is_compiled():
    made = cute_kernels()
    compiled = {line.strip() for path in (made.EXAMPLE, made.PROGRAM) for line in path.read_text().splitlines()}
    page = (ROOT / "docs" / "howto" / "cute.md").read_text()
    shown = re.findall(r"^```cpp\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert shown and [line for text in shown for line in text.splitlines() if line.strip() not in compiled] == []
    named = re.findall(r"`(\w+Mma)<", page)
    assert {"StepMma", "ChunkMma", "PackedMma", "InstructionMma"} == set(named)
