"""Specs and formats that reach every kind of run, order, grid, rounding and step."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from gemmsim import formats
from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.hardware import Hardware
from gemmsim.hardware import OPS, instructions

__all__ = [
    "ACCELERATED",
    "BLOCKS",
    "BLOCK_FORMATS",
    "LISTED",
    "TENSOR_FORMATS",
    "casts",
    "grid",
    "hardware",
    "named",
    "random_specs",
]

GRIDS = """supernormal(4,3) supernormal(4,3,2,1) supernormal(5,2,1,3,saturate) supernormal(4,3,1,1,even_exponent)
binary8(3) binary8(1) binary8(4,unsigned) binary8(3,saturate_infty) binary8(3)/ftz binary8(3,saturate_maxfloat)
fixed(8,4,symmetric) fixed(8,4,unbounded) ufixed(8,4) fixed(53,10) fixed(12,-3) fixed(4,20) binary8p1uf e8m0
bfp(8,1) bfp(4,1,asymmetric) bfp(1,1) bfp(30,1,inf)""".split()
ROUNDINGS = "rne rna rnd rnu rtz ru rd ro sr4 sr16 sr20 srb8 src8".split()
POLICIES = ["", "/sat", "/satprop", "/clamp"]
PLACES = [
    "{} : e5m10", "bf16*{} : fp32", ":{}", ":mul={}, add=e5m10", ":fp32 -> {}", ":{}, arithmetic=fp32", ":kahan({})",
    ":chunked(4, {})", ":pairwise({}, 2)", ":interleaved(3, {}, combine=pairwise)", ":splitk(2, fp32, {})",
    ":exact({})", ":shuffled({}, 3)", ":two_sum({})", ":binned({})", ":mul={}, add=e8m22", ":palette({}, fp32)",
    ":chunked(4, fp32, {})",
]  # fmt: skip

LISTED = [
    ":e5m10", ":bf16", ":fp32", ":fp64", ":e5m2/sat", ":e4m3", ":e5m10/ftz", ":e6m9/rna", ":e5m10/rtz", ":e11m40",
    ":bf16/ru", ":mul=e5m10, add=bf16", ":e5m2/sr8", ":mul=e4m3/sr20, add=e5m10/sr4", ":e5m10, arithmetic=fp32",
    "e4m3 : fp32", "e4m3 : e5m10 -> bf16", "e4m3/sr8 : e5m10/sr8 -> e4m3/sr8", "e4m3*e5m2/sat : bf16 -> e4m3/sat",
    "bf16/rnd : fp32", "e4m3 : bf16/sr8", ":sequential(e5m10, init=c_first)",
    ":sequential(bf16, init=c_last)", "e4m3 : sequential(fp32, e5m10/sr8, init=c_first)",
    ":chunked(8, e5m10)", ":chunked(5, bf16, fp32)", ":chunked(4, e5m2/sr8, e5m10/sr8)", ":promote(e4m3, 16)",
    ":pairwise(e5m10)", ":pairwise(bf16/sr8, 3)", ":interleaved(16, e5m10)", ":interleaved(4, bf16)",
    ":interleaved(5, e5m2/sr8, combine=pairwise)", ":splitk(3, e5m10, bf16)", ":shuffled(chunked(8, e5m10), 7)",
    ":chunked(12, pairwise(kahan(e5m2), 4), bf16)", ":kahan(e5m10)", ":neumaier(bf16)", ":two_sum(e4m3, mul=e5m2)",
    ":fast_two_sum(fp32)", ":kahan(e5m2/sr8)", ":exact(bf16)", ":exact()", ":chunked(8, exact(e5m2/sr8))",
    ":binned(e5m2, carry=2)", ":chunked(9, binned(e5m2/sr8, carry=1), e5m10)", ":binned(fp32)",
    "int8 : int(32)", "int8 : int(10)", "int8 : int(10, saturate)", "int8 : int(12, when=end, shift=2)",
    "int8 : chunked(8, int(10), fixed(16,0))", "int8 : int(40, wrap, signed=False)", "int16*int8 : int(32, saturate)",
    ":fixed(12, 4, rounding=rne)", ":fixed(12, 4, rounding=sr8, overflow=wrap)", ":fixed(16, 8)",
    ":chunked(3, e5m10)", ":chunked(8, e5m2/sr8, e6m9/sr8)", ":pairwise(e5m10, 1)",
    ":shuffled(interleaved(4, bf16), 5)",
    ":shuffled(interleaved(4, chunked(2, e4m3, bf16/sr8)), 5)", ":promote(e5m10, 4, fp32)",
    ":chunked(8, interleaved(2, pairwise(e5m2/sr8, 2)), bf16/rtz)", ":splitk(2, chunked(5, fp32, fp64/rtz), bf16)",
    ":chunked(4, binary8p1, e5m10/srb8)", ":pairwise(chunked(2, e5m10/sr8, e5m2/sr8), 2), arithmetic=fp32",
    ":chunked(2, chunked(2, chunked(2, chunked(2, chunked(2, fp32)))))", ":chunked(4, shuffled(fp32, 3), bf16)",
    ":palette(e5m10, kahan(bf16), shuffled(fp32, 2))", ":palette(int(8), fixed(9, 1))",
    ":bfp(8,1)", ":mul=bfp(6,1), add=bfp(9,1,inf)/rnd", ":kahan(bfp(8,1))", ":chunked(4, bfp(8,1), bfp(12,1))",
    ":promote(hw(hopper, wgmma, e4m3), 8, fp32)", ":chunked(32, hw(cdna3, mfma, fp16), bf16)",
    "nf4*bf16 : fp32", "bf16 : fp32 -> nf4", ":chunked(8, hw(hopper, wgmma, bf16), fp32)",
    "fp32 : fp32", "fp64 : fp64", "fp16 : fp32", "bf16 : bf16", "int8 : int(24)", "e4m3 : exact(fp64)",
]  # fmt: skip

#: Operands in block formats, and accumulators that take values or elements under scales.
BLOCKS = [
    f"{pair} : {accumulator}"
    for pair in (
        "mxfp8_e4m3", "mxfp8_e5m2/b16*mxfp4", "nvfp4", "nvfp4/tensor", "mxint8*mxfp6_e3m2/b8", "mxfp6_e2m3*bf16",
        "mx(e4m3,e5m2)/b12*mxint4/b20", "mxint8/torchmx",
    )
    for accumulator in (
        "fp32", "e5m10", "e6m9/sr8", "chunked(16, e5m10, fp32)", "exact()", "scaled(fp32)", "scaled(fp32, n=2)",
        "scaled(e5m10, e6m9/rtz)", "scaled(exact(), fp32)", "scaled(pairwise(bf16), e8m9)",
        "scaled(e6m9/sr8, e6m9/sr8)", "scaled(kahan(bf16), fp64)", "scaled(fixed(24, 8, overflow=wrap), fp32)",
        "scaled(chunked(2, e5m10, fp32), fp64)", "scaled(fp64, bf16/ftz)",
    )
] + [
    "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)", "mxfp8_e5m2*mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e5m2, e4m3)",
    "nvfp4 : hw(blackwell, mxf4nvf4, e2m1)", "nvfp4/tensor : hw(blackwell, mxf4nvf4, e2m1)",
    "mxfp4 : hw(blackwell, mxf4, e2m1)", "mxfp8_e4m3 * : fp32 -> bf16", "mxfp4/b16 : hw(blackwell, mxf4nvf4, e2m1)",
]  # fmt: skip

BLOCK_FORMATS = [
    f"{name}{more}"
    for name in ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "mxint8", "mxint4", "mxint2")
    for more in (
        "", "/ceil", "/even", "/rceil", "/rtz", "/rna", "/b16", "/torchao-0.18", "/rceil/torchao-0.18",
        "/torchao-0.6.1", "/torchmx", "/microxcaling", "/rna/microxcaling/flush",
    )
] + ["nvfp4", "nvfp4/tensor", "mx(e4m3,e5m2)/b12"]  # fmt: skip

TENSOR_FORMATS = [
    "bfp(8,16)", "bfp(1,2,dim=-2,asymmetric)", "bfp(32,64,inf)/src5", "bfp(4,tensor)/rtz", "bfp(8,64)/sr8",
    "bfp(4,index=-2,asymmetric,inf)", "FP[1|4|3,7](_N)", "FP[1|5|2,15](FS)", "FP[0|4|4,7](FN)", "MXFP8[E4M3]{32}",
    "MXFP6[E2M3]{16}", "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}", "BFP[8|8]{64}(SN)",
]  # fmt: skip

#: What a native library may be asked for, and what it refuses.
ACCELERATED = [
    *("fp32", "fp64", ":fp32", ":fp64", ":bf16", "bf16 : fp32", "fp16 : fp32", "e4m3 : fp32", "tf32 : fp32"),
    *("fp16 : fp16", "bf16 : fp32 -> bf16", "int8 : int(32)", "int8 : int(32, saturate)", "e5m10 : exact()"),
    *("fp32 : fp32, arithmetic=fp32", ":kahan(bf16)", ":chunked(8, e5m10)", "e4m3*e5m2 : fp32", "mxfp8_e4m3 : fp32"),
    *("nvfp4 : scaled(fp32)", ":hw(hopper, wgmma, bf16)", ":fp32/rtz", ":e5m2/sr8", "bf16 : fp64", "int8 : fp32"),
]


def named(text: str) -> GemmSpec | None:
    """The spec, or None where the text means nothing."""
    try:
        return GemmSpec.of(text)
    except ValueError:
        return None


def _formats() -> list[str]:
    return sorted({*formats.names(), *GRIDS, "e5m10/ftz", "e4m3b3", "e5m0", "e11m0", "e2m52", "binary16p8se", "e1m5"})


def grid() -> Iterator[GemmSpec]:
    """Every format with every rounding, places and policies taking turns."""
    places, policies = itertools.cycle(PLACES), itertools.cycle(POLICIES)
    for fmt, rounding in itertools.product(_formats(), ROUNDINGS):
        for _ in range(2):
            spec = named(next(places).format(f"{fmt}/{rounding}{next(policies)}"))
            if spec is not None:
                yield spec


def casts() -> list[str]:
    """Casts: every format, roundings and policies taking turns."""
    roundings, policies = itertools.cycle(["", *ROUNDINGS]), itertools.cycle(POLICIES)
    found = []
    for fmt in _formats():
        found += [
            f"{fmt}/{rounding}{next(policies)}".replace("//", "/").strip("/")
            for rounding in itertools.islice(roundings, 3)
        ]
    return found


def hardware() -> Iterator[GemmSpec]:
    """A product by each instruction that takes plain operands."""
    found = {}
    for one in instructions():
        for op, takes in OPS.items():
            if takes.takes_in(one) and takes.scale is None:
                spec = GemmSpec(accumulator=Hardware(one.arch, op, one.a, one.b, out=one.d))
                found[str(spec)] = spec
    yield from found.values()


def random_specs(count: int) -> Iterator[GemmSpec]:
    """Registers and products of a few formats, in any mode, between operand and output casts."""
    rng = random.Random(17)
    kinds = """e5m10 e5m2 e4m3 ieee_e4m3 e8m7 tf32 e6m9 e2m1 fp32 e5m21 fp64 e11m40 e5m0 fixed(16,8) ufixed(12,4)
    int16""".split()
    modes = ["", "", "", "/rtz", "/ru", "/rd", "/rna", "/sr8", "/sr20", "/srb8", "/ro"]
    orders = "{};{};chunked(3, {}, {});pairwise({}, 2);interleaved(4, {});splitk(2, {}, {});kahan({})".split(";")

    def cast() -> str:
        return rng.choice(kinds) + rng.choice(modes) + rng.choice(["", "", "/sat", "/satprop"])

    while count:
        operands = rng.choice(["", "", "e4m3", "bf16*e4m3", "e5m10/rtz", "e4m3/sr", "fixed(8,4)", "e8m0"])
        order, out = rng.choice(orders), rng.choice(["", "", "", " -> bf16", " -> e4m3/sat", " -> e5m10/sr"])
        inner = f"mul={cast()}, add={cast()}" if order == "{}" and rng.random() < 0.3 else order.format(cast(), cast())
        spec = named(f"{operands} : {inner}{out}" + (", arithmetic=fp32" if rng.random() < 0.2 else ""))
        if spec is not None:
            count -= 1
            yield spec
