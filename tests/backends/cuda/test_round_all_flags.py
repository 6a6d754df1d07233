"""The bodies of cast kernels for every combination of a format's flags and a rounding, run on the host.

One library has the kernels of many casts; ``tests/backends/cpu/test_all_flags.py`` has more formats and uses. The reference
decides.
"""

from __future__ import annotations

import ctypes
import random

import pytest
import torch
from support import LONG, assert_bitwise_equal
from support.cuda import run_on_host
from support.flags import POLICIES, ROUNDINGS, SHAPES, casts, float_formats, points

from gemmsim import reference
from gemmsim.backends.cuda.casts.cast import CastArgs, cast_args, cast_blocks, cast_source
from gemmsim.backends.cuda.jit.source import KernelSource
from gemmsim.formats import Cast, Specials
from gemmsim.lowering.abi_constants import Site

SEED = 5


class Args(ctypes.Structure):
    _fields_ = [("cast", CastArgs), ("which", ctypes.c_int32)]


def kernels(several: list[Cast], dtype: torch.dtype) -> KernelSource:
    """All of ``cast_source``'s kernels for contiguous tensors in one: ``which`` is the index of the cast."""
    lines = ['#include "cast/cast.h"']
    for i, cast in enumerate(several):
        config = cast_source(cast, dtype, dtype).text.splitlines()[1]
        lines.append(config.replace("kConfig", f"kConfig{i}"))
    lines.append("struct Args { gemmsim::CastArgs cast; int which; };")
    lines.append('extern "C" __global__ void gemmsim_kernel(const Args a) {\n    switch (a.which) {')
    body = "gemmsim::cast_body<kConfig{0}>(a.cast, threadIdx.x, blockIdx.x)"
    lines += [f"    case {i}: return {body.format(i)};" for i in range(len(several))]
    return KernelSource("test", f"{len(several)} casts of {dtype}", "\n".join([*lines, "    }\n}\n"]), threads=256)


def chosen(shape: str, subnormals: bool) -> list[Cast]:
    """Casts of all formats of a shape, or of those without subnormals, and all roundings, each with one policy or, in a long
    run, with all."""
    formats = [fmt for specials in Specials for fmt in float_formats(SHAPES[shape], specials)]
    rng, found = random.Random(shape), []
    for fmt in formats:
        if subnormals or not fmt.subnormals:
            of_format = list(casts(fmt))
            for rounding in ROUNDINGS:
                policy = rng.choice(POLICIES)
                found += [c for c in of_format if c.rounding == rounding and (LONG or c.overflow is policy)]
    return found


#: Shapes whose values float32 holds, and those of doubles; formats with subnormals, too; how many casts.
CASES = {"small": (torch.float32, True, 22 * 12), "below": (torch.float64, False, 11 * 12)}


@pytest.mark.parametrize("shape", CASES)
def test_kernels_of_all_flags_and_roundings(shape):
    dtype, subnormals, count = CASES[shape]
    several = chosen(shape, subnormals)
    assert len(several) == count * (len(POLICIES) if LONG else 1)
    assert {c.overflow for c in several} == set(POLICIES) and {c.rounding for c in several} == set(ROUNDINGS)
    assert {c.format.has_negative_zero for c in several if not c.format.subnormals} == {True, False}
    source = kernels(several, dtype)
    for which, cast in enumerate(several):
        x = points(cast.format, dtype, 2)
        out = torch.empty_like(x)
        args = Args(cast_args(x.data_ptr(), out.data_ptr(), len(x), SEED, Site.QUANTIZE), which)
        run_on_host(source, (cast_blocks(cast, dtype, dtype, True, len(x)), 1, 1), args, fibers=False)
        want = reference.quantize(x.double().tolist(), cast, seed=SEED)
        assert_bitwise_equal(out, torch.tensor(want, dtype=torch.float64).to(dtype), context=str(cast))
