"""gs.quantize and gs.qmatmul against values stored from another system (tests/golden/README.md).

That system's "exp, man" floats are IEEE-like in every width, so (4, 3) is ieee_e4m3; its binary8 is P3109's binary8
with the infinities given or withheld by the overflow policy. Its GEMMs go k = 0, 1, ... from +0.

Two kinds of element are left out where binary8 is taken for P3109's: negative inputs of unsigned formats, and truncation
beyond the largest value, where that system's draft differs. ``binary8(P)`` has the draft's rules and leaves out nothing.
No stored case has P = 1.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from support import GOLDEN, assert_values_equal

import gemmsim as gs
from gemmsim.formats import (
    Binary8Format,
    Binary8Policy,
    BlockFloatFormat,
    Cast,
    FixedFormat,
    FloatFormat,
    Overflow,
    Rounding,
    Sharing,
    SupernormalFormat,
)

ROUNDINGS = {"nearest": Rounding.RNE, "truncate": Rounding.RTZ}
#: binary8 overflow policy -> (name's domain, overflow policy of ours).
BINARY8 = {
    "saturate_infty": ("e", Overflow.INFINITY),
    "saturate_maxfloat": ("e", Overflow.CLAMP),
    "saturate_maxfloat2": ("f", Overflow.CLAMP),
}


def load(name: str) -> tuple[dict[str, torch.Tensor], list[dict]]:
    with np.load(GOLDEN / name) as stored:
        meta = json.loads(bytes(stored["meta"]))
        return {key: torch.from_numpy(stored[key]) for key in stored.files if key != "meta"}, meta


def cases(name: str, *ops: str) -> list:
    _, meta = load(name)
    chosen = [(number, case) for number, case in enumerate(meta) if case["op"] in ops]
    return [pytest.param(number, case, id=f"{number:04d}-{case['op']}") for number, case in chosen]


QUANTIZERS, _ = load("mptorch_quantizers.npz")
GEMMS, _ = load("mptorch_gemm.npz")


def ieee(exponent_bits: int, trailing_bits: int, *, subnormals: bool) -> FloatFormat:
    fmt = gs.formats.parse(f"ieee_e{exponent_bits}m{trailing_bits}")
    return fmt if subnormals else FloatFormat(fmt.p, fmt.emin, fmt.emax, subnormals=False)


def float_cast(case: dict, suffix: str = "") -> Cast:
    fmt = ieee(case[f"exp{suffix}"], case[f"man{suffix}"], subnormals=case["subnormals"])
    return Cast(fmt, Rounding.RNE, Overflow.SATURATE if case["saturate"] else Overflow.INFINITY)


@pytest.mark.parametrize("number, case", cases("mptorch_quantizers.npz", "float_quantize"))
def test_float_quantize(number, case):
    got = gs.quantize(QUANTIZERS[f"{number:04d}/x"], float_cast(case))
    assert_values_equal(got, QUANTIZERS[f"{number:04d}/y"], context=str(float_cast(case)))


@pytest.mark.parametrize("number, case", cases("mptorch_quantizers.npz", "fixed_point_quantize"))
def test_fixed_point_quantize(number, case):
    fmt = FixedFormat(case["wl"], case["fl"], symmetric=case["symmetric"] and case["clamp"], clamp=case["clamp"])
    got = gs.quantize(QUANTIZERS[f"{number:04d}/x"], fmt)
    assert_values_equal(got, QUANTIZERS[f"{number:04d}/y"], context=str(fmt))


@pytest.mark.parametrize("number, case", cases("mptorch_quantizers.npz", "binary8_quantize"))
def test_binary8_quantize(number, case):
    domain, overflow = BINARY8[case["overflow_policy"]]
    fmt = gs.formats.parse(f"binary8p{case['P']}{'s' if case['is_signed'] else 'u'}{domain}")
    cast = Cast(fmt, ROUNDINGS[case["rounding"]], overflow)
    x, want = QUANTIZERS[f"{number:04d}/x"], QUANTIZERS[f"{number:04d}/y"]
    valid = torch.ones_like(x, dtype=torch.bool)
    if not fmt.signed:
        valid &= ~(x < 0)
    if cast.rounding is Rounding.RTZ or cast.rounding == Rounding.RTZ:
        valid &= ~(x.abs() > fmt.max)
    assert int(valid.sum()) > 100
    assert_values_equal(gs.quantize(x, cast), want, valid, context=str(cast))


@pytest.mark.parametrize("number, case", cases("mptorch_quantizers.npz", "binary8_quantize"))
def test_binary8_by_the_old_rules(number, case):
    fmt = Binary8Format(case["P"], case["is_signed"], case["subnormals"], Binary8Policy(case["overflow_policy"]))
    got = gs.quantize(QUANTIZERS[f"{number:04d}/x"], Cast(fmt, ROUNDINGS[case["rounding"]]))
    assert_values_equal(got, QUANTIZERS[f"{number:04d}/y"], context=str(fmt))


@pytest.mark.parametrize("number, case", cases("mptorch_quantizers.npz", "superfp_quantize"))
def test_supernormal_quantize(number, case):
    fmt = supernormal(case)
    got = gs.quantize(QUANTIZERS[f"{number:04d}/x"], fmt)
    assert_values_equal(got, QUANTIZERS[f"{number:04d}/y"], context=str(fmt))


@pytest.mark.parametrize("number, case", cases("mptorch_quantizers.npz", "block_quantize"))
def test_block_quantize(number, case):
    whole = case["dim"] == -1
    sharing = Sharing.TENSOR if whole else Sharing.INDEX
    fmt = BlockFloatFormat(case["wl"], dim=0 if whole else case["dim"], sharing=sharing)
    got = gs.quantize(QUANTIZERS[f"{number:04d}/x"], fmt)
    valid = QUANTIZERS[f"{number:04d}/valid"]
    assert int(valid.sum()) > 100
    assert_values_equal(got, QUANTIZERS[f"{number:04d}/y"], valid, context=str(fmt))


def supernormal(case: dict, suffix: str = "") -> SupernormalFormat:
    binades = case[f"binades{suffix}"]
    lower, upper = (binades, binades) if isinstance(binades, int) else (binades[0], binades[-1])
    return SupernormalFormat(case[f"exp{suffix}"], case[f"man{suffix}"], lower, upper, case["saturate"])


def gemm_spec(case: dict) -> gs.GemmSpec:
    add: FixedFormat | SupernormalFormat | Cast
    mul: FixedFormat | SupernormalFormat | Cast
    if case["op"] == "superfp_mm":
        add = mul = supernormal(case)
    elif case["op"] == "fxp_mm":
        add, mul = FixedFormat(case["wl_add"], case["fl_add"]), FixedFormat(case["wl_mul"], case["fl_mul"])
    else:
        add, mul = float_cast(case, "_add"), float_cast(case, "_mul")
    return gs.GemmSpec(accumulator=gs.acc.sequential(add, None if case["fma"] else mul))


@pytest.mark.parametrize("number, case", cases("mptorch_gemm.npz", "float_mm", "fxp_mm", "float_bmm", "superfp_mm"))
def test_gemm(number, case):
    a, b = GEMMS[f"{number:04d}/a"], GEMMS[f"{number:04d}/b"]
    if case["op"] == "float_bmm":
        b = b.mT  # stored as (batch, N, K)
    spec = gemm_spec(case)
    got = gs.qmatmul(a, b, spec)
    assert_values_equal(got, GEMMS[f"{number:04d}/y"], GEMMS[f"{number:04d}/valid"], context=str(spec))
