"""Every family's specs give the bits of the kernels read thread by thread: registers, before anything is rounded for output.

Rounded outputs would not tell orders apart: of two orders' results 1 % differ then, or none.
"""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from libraries.draws import FAMILIES, Draw
from libraries.operands import KINDS, operands
from support import LONG, assert_bitwise_equal

import gemmsim as gs
from gemmsim.reference import gemm

#: Elements of a family in a short run, a few seconds each; in a long run 20,000.
ELEMENTS = dict.fromkeys(FAMILIES, 20000 if LONG else 1500)
if not LONG:
    ELEMENTS |= {"gemv": 600, "dot": 400}
#: Elements of one draw: as many rows and columns, of which the matching ones are read.
COUNT = 10


def generator(name: str, part: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(f"{name}, {part}".encode()))


def drawn(name: str, part: str, elements: int) -> Iterator[tuple[Draw, str, np.ndarray, np.ndarray]]:
    """Draws with their operands (COUNT, K) each, until there are so many elements."""
    rng = generator(name, part)
    for index in range(-(-elements // COUNT)):
        draw, kind = FAMILIES[name](rng), KINDS[index % len(KINDS)]
        yield draw, kind, *operands(rng, kind, COUNT, draw.K, draw.formats)


def readings(draw: Draw, x: np.ndarray, y: np.ndarray) -> torch.Tensor:
    """(COUNT,) float32: row i by column i."""
    return torch.tensor(np.array([draw.read(list(a), list(b)) for a, b in zip(x, y, strict=True)]))


@pytest.mark.parametrize("name", FAMILIES)
def test_products_have_the_bits_of_the_reading(name):
    kinds: Counter[str] = Counter()
    for draw, kind, x, y in drawn(name, "products", ELEMENTS[name]):
        got = gs.qmatmul(torch.tensor(x), torch.tensor(y).t(), draw.spec).diagonal()
        want = readings(draw, x, y)
        assert_bitwise_equal(got, want, context=f"{draw.spec}, K = {draw.K}, {kind}:")
        kinds[kind] += len(want)
    assert len(kinds) == len(KINDS)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_reference_has_the_bits_of_the_reading(name):
    """Fewer and shorter ones: it takes every number as a fraction."""
    rng = generator(name, "reference")
    done = 0
    while done < (400 if LONG else 24):
        draw = FAMILIES[name](rng)
        if draw.K > (4000 if LONG else 700):
            continue
        x, y = operands(rng, KINDS[done // 2 % len(KINDS)], 2, draw.K, draw.formats)
        got = gemm(x.tolist(), y.T.tolist(), draw.spec)
        got = torch.tensor([got[0][0], got[1][1]], dtype=torch.float32)
        assert_bitwise_equal(got, readings(draw, x, y), context=f"{draw.spec}, K = {draw.K}:")
        done += 2


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "linear layers"])
def test_plans_have_the_bits_of_the_reading(name):
    """The library's plan for the draw's configuration, whatever its text is."""
    for draw, kind, x, y in drawn(name, "plans", ELEMENTS[name] // 3):
        plan = planned(draw)
        spec = dataclasses.replace(plan.spec, out=None)
        got = gs.qmatmul(torch.tensor(x), torch.tensor(y).t(), spec).diagonal()
        context = f"{draw.call}, {spec}, K = {draw.K}, {kind}:"
        assert_bitwise_equal(got, readings(draw, x, y), context=context)


def planned(draw: Draw):
    call = draw.call
    library = gs.libraries.cublaslt(call.gpu, version="12.8" if call.gpu == "rtx4060" else "13.1")
    return library.plan(
        call.M, call.N, draw.K, *draw.formats, out=call.out, config=call.config, fast_accumulation=call.fast
    )


#: What a family's specs could be mistaken for: a pattern in the text and what takes its place.
MISTAKES = [
    ("nvjet, 16 bits", r", share=floor", ""),
    ("nvjet, 16 bits", r"splitk\((\d+), (.*), fp32, grain=64.*", r"\2"),
    ("nvjet, FP8", r", share=floor", ""),
    ("nvjet, FP8", r"promote\((hw.*?\)), 128\)", r"\1"),
    ("nvjet, FP8", r", grain=128", ", grain=64"),
    ("cutlass", r", first=\d+", ""),
    ("cutlass", r"first=128", "first=64"),
    ("cutlass", r"first=64", "first=32"),
    ("cutlass", r"fused\(8, ", "fused(16, "),
    ("cutlass", r"/via\(fp32\)", ""),
    ("cutlass", r", partial=fp32", ""),
    ("cutlass", r"fp32(, grain=\d+), partial=\w+", r"fp32\1"),
    ("cutlass", r"grain=8", "grain=16"),
    ("gemmsn", r"splitk\((\d), (.*), fp32\)", r"\2"),
    ("gemmsn", r"chunked\(\d+, fp32\)", "fp32"),
    ("gemv", r", halves", ""),
    ("gemv", r", halves", ", pairwise"),
    ("gemv", r", width=\d+", ""),
    ("gemv", r"chunked\(\d+, fp32\)", "fp32"),
    ("dot", r"interleaved\(2, fp32\)", "fp32"),
    ("dot", r"halves", "pairwise"),
    ("dot", r"interleaved\(64, fp32, interleaved\(32, fp32, interleaved\(4, fp32\)\)\)", "halves"),
    ("dot", r"interleaved\(128, fp32, interleaved\(64.*\)\)\)\)", "fp32"),
    ("Ada FP8", r"tree\(.*\), fp32\)", "fp32"),
    ("Ada FP8", r"promote\((hw.*?\)), 128\)", r"\1"),
    ("Ada FP8", r", width=64", ", width=128"),
    ("linear layers", r"interleaved\(2, (.*), width=32\)", r"\1"),
    ("linear layers", r"/via\(fp32\)", ""),
    ("linear layers", r"partial=bf16", "partial=fp32"),
]


@pytest.mark.parametrize(("name", "pattern", "instead"), MISTAKES, ids=lambda text: text)
def test_the_operands_tell_each_rule_from_its_neighbours(name, pattern, instead):
    """Equal bits above would say little if other orders had them, too."""
    for draw, _, x, y in drawn(name, "mistakes", 4000):
        wrong = re.sub(pattern, instead, draw.spec)
        if wrong == draw.spec:
            continue
        got = gs.qmatmul(torch.tensor(x), torch.tensor(y).t(), wrong).diagonal()
        if not torch.equal(got, gs.qmatmul(torch.tensor(x), torch.tensor(y).t(), draw.spec).diagonal()):
            return
    pytest.fail(f"no element shows that {name} is not {wrong}")
