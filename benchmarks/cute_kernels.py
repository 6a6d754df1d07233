"""Kernels with gemmsim's atoms in CuTe's TiledMMA and cute::gemm: ``examples/cute``'s, and one of every kind of atom.

They are no kernels that gemmsim launches, so that they are in no family of its registry: ``benchmarks/kernels.py``
compiles them beside those, and tests run them on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gemmsim.backends.cuda import KernelSource
from gemmsim.backends.cuda.jit.source import cast_literal
from gemmsim.formats import parse_cast
from gemmsim.lowering.casts import cast_numbers

EXAMPLE = Path(__file__).parents[1] / "examples" / "cute" / "gemm.h"
PROGRAM = EXAMPLE.with_name("main.cu")
FAMILY = "cute"
#: Of the kernel of all atoms: outputs of a block each way, terms in a tile.
SIDE, TERMS = 32, 32


@dataclass(frozen=True)
class Atom:
    """``spec``: what the atom means. ``text``: its type. ``data``: 0 any float32 operands, 1 e4m3 numbers, finite.
    ``promoted``: what totals are rounded to every ``TERMS`` terms."""

    spec: str
    text: str
    data: int = 0
    promoted: str = ""

    def product(self) -> str:
        """The type that computes it."""
        if self.promoted:
            return f"PromotedGemm<{self.text}, float, float, {self.promoted}, {TERMS}, {SIDE}, {TERMS}>"
        return f"Gemm<{self.text}, float, float, {SIDE}, {TERMS}>"


def _step(spec: str, add: str, more: str = "") -> Atom:
    return Atom(spec, f"StepMma<multiply_add<float, float>({add}){more}>", int(spec.startswith("e4m3 :")))


_FP8 = "multiply_add<cutlass::float_e4m3_t, cutlass::float_e4m3_t>"
_SR8 = "cast_to(E5M10, SR, 8)"
ATOMS = (
    _step(":e5m10", "cast_to(E5M10)"),
    _step(":fp32", "cast_to(FP32)"),
    _step(":e5m10/ftz", "cast_to(FloatFormat{5, 10, Specials::IEEE, false})"),
    _step(":e6m9/rtz", "cast_to(FloatFormat{6, 9}, RTZ)"),
    _step(":e6m9/ru", "cast_to(FloatFormat{6, 9}, RU)"),
    _step(":e5m10/rd", "cast_to(E5M10, RD)"),
    _step(":e5m2/rna", "cast_to(E5M2, RNA)"),
    _step(":e5m10/ro", "cast_to(E5M10, RO)"),
    _step(":e5m10/rnd", "cast_to(E5M10, RND)"),
    _step(":e5m10/rnu", "cast_to(E5M10, RNU)"),
    _step(":e8m22", "cast_to(FloatFormat{8, 22})"),
    _step(":fixed(16,8)", "fixed_point(16, 8)"),
    _step(":e5m10/sr8", _SR8),
    _step(":e8m7/srb8", "cast_to(E8M7, SRB, 8)"),
    _step(":e4m3/src5", "cast_to(E4M3, SRC, 5)"),
    _step("e4m3 : e4m3/sat", "cast_to(E4M3, RNE, 0, Overflow::SATURATE)"),
    _step("e4m3 : e4m3", "cast_to(E4M3)"),
    Atom("e4m3 : e6m9", f"StepMma<{_FP8}(cast_to(FloatFormat{{6, 9}})), Range::IN_RANGE>", 1),
    Atom("e4m3 : e6m9/rtz", f"StepMma<{_FP8}(cast_to(FloatFormat{{6, 9}}, RTZ)), Range::IN_RANGE>", 1),
    _step("e4m3 : e5m10", "cast_to(E5M10)", ", Range::ON_GRID"),
    Atom("e4m3 : e5m10/sr8", f"StepMma<{_FP8}({_SR8}), Range::IN_RANGE>", 1),
    Atom(":e5m10, arithmetic=fp32", "StepMma<in_fp32(multiply_add<float, float>(cast_to(E5M10)))>"),
    Atom(
        ":mul=e5m10, add=e6m9", "StepMma<multiply_then_add<float, float>(cast_to(E5M10), cast_to(FloatFormat{6, 9}))>"
    ),
    Atom(":mul=e4m3/sr20, add=e5m10/sr8", f"StepMma<multiply_then_add<float, float>(cast_to(E4M3, SR, 20), {_SR8})>"),
    Atom("e4m3 : e5m10", "PackedMma<cutlass::half_t>", 1),
    Atom("e4m3 : e8m7", "PackedMma<cutlass::bfloat16_t>", 1),
    Atom(":chunked(8, e5m10, fp32)", "ChunkMma<multiply_add<float, float>(cast_to(E5M10)), 8, cast_to(FP32)>"),
    Atom(
        ":chunked(4, e5m10/sr8, e6m9/sr20)",
        f"ChunkMma<multiply_add<float, float>({_SR8}), 4, cast_to(FloatFormat{{6, 9}}, SR, 20)>",
    ),
    Atom(
        "e4m3 : promote(e8m13/rtz, 32, fp32)",
        f"StepMma<holding({_FP8}(cast_to(E8M13, RTZ)), cast_to(FP32))>",
        1,
        "cast_to(FP32)",
    ),
    Atom(
        ":chunked(32, e5m10, e5m10/sr8)",
        "StepMma<multiply_add<float, float>(cast_to(E5M10)), Range::ANY, true>",
        0,
        _SR8,
    ),
    Atom(
        "e4m3 : fused(16, 20, e6m9/rtz, a=e4m3)",
        "InstructionMma<fused_products(16, 20, E4M3, E4M3), cast_to(FloatFormat{6, 9}, RTZ)>",
        1,
    ),
    Atom("e4m3 : promote(hw(hopper, wgmma, e4m3), 32)", "InstructionMma<wgmma_fp8(E4M3, E4M3)>", 1, "cast_to(FP32)"),
)
#: Casts in C++ and as Python reads them.
CASTS = {
    "cast_to(FP32)": "fp32", "cast_to(FP64)": "fp64", "cast_to(E5M10)": "e5m10", "cast_to(E8M7)": "e8m7",
    "cast_to(E5M2)": "e5m2", "cast_to(E4M3)": "e4m3", "cast_to(E3M2)": "e3m2", "cast_to(E2M3)": "e2m3",
    "cast_to(E2M1)": "e2m1", "cast_to(E8M13, RTZ)": "e8m13/rtz", "cast_to(E5M10, RU)": "e5m10/ru",
    "cast_to(E5M10, RD)": "e5m10/rd", "cast_to(E5M10, RNA)": "e5m10/rna", "cast_to(E5M10, RO)": "e5m10/ro",
    "cast_to(E4M3, RO)": "e4m3/ro", "cast_to(E4M3, RU)": "e4m3/ru", "cast_to(E4M3, RTZ)": "e4m3/rtz",
    "cast_to(E5M10, SR, 8)": "e5m10/sr8", "cast_to(E8M7, SRB, 8)": "e8m7/srb8", "cast_to(E4M3, SRC, 5)": "e4m3/src5",
    "cast_to(E5M10, RNE, 0, Overflow::SATURATE)": "e5m10/sat",
    "cast_to(E2M1, RTZ, 0, Overflow::SATURATE)": "e2m1/rtz/sat",
    "cast_to(E4M3, RD, 0, Overflow::SATURATE)": "e4m3/rd/sat",
    "cast_to(FloatFormat{5, 10, Specials::IEEE, false})": "e5m10/ftz", "cast_to(FloatFormat{4, 3})": "ieee_e4m3",
    "cast_to(E5M10, RNU)": "e5m10/rnu", "cast_to(E5M10, RNE, 0, Overflow::CLAMP)": "e5m10/clamp",
    "cast_to(E5M10, RND, 0, Overflow::CLAMP)": "e5m10/rnd/clamp", "fixed_point(16, 8, RNU)": "fixed(16,8)/rnu",
    "fixed_point(16, 8)": "fixed(16,8)", "fixed_point(8, 12, SR, 4)": "fixed(8,12)/sr4",
}  # fmt: skip

_SAME = """
constexpr bool same(const Cast& x, const Cast& y) {
    return x.p == y.p && x.emin == y.emin && x.mode == y.mode && x.rbits == y.rbits && x.flags == y.flags &&
           x.emax == y.emax && same_number(x.lo, y.lo) && same_number(x.hi, y.hi) &&
           same_number(x.over_neg, y.over_neg) && same_number(x.over_pos, y.over_pos) &&
           same_number(x.inf_neg, y.inf_neg) && same_number(x.inf_pos, y.inf_pos);
}
"""
_ATOMS = """
struct AtomArgs {
    const void *a[2], *b[2];  // operands of each kind
    float* c;                 // the products, one after the other
    int m, n, k, unused;
    unsigned long long seed;
};
template <class PRODUCT> GEMMSIM_CALL void product(const AtomArgs& g, int data, int which, int tid, int x, int y) {
    const ::GemmArgs one = {g.a[data], g.b[data], g.c + (size_t)which * g.m * g.n, g.m, g.n, g.k, g.seed};
    PRODUCT::run(one, *(typename PRODUCT::Shared*)shared_memory(), tid, x, y);
}
"""


def _example() -> str:
    return EXAMPLE.read_text(encoding="utf-8").replace("#pragma once\n", "") + "using namespace gemmsim;\n"


def example_source() -> KernelSource:
    """FP8 numbers in bfloat16 tensors (sm_80 has no FP8) and a register of 10 bits: the example's first product."""
    atom = f"StepMma<{_FP8}(cast_to(FloatFormat{{6, 9}})), Range::IN_RANGE>"
    text = (
        f"{_example()}"
        f"typedef Gemm<{atom}, cutlass::bfloat16_t, cutlass::bfloat16_t> Product;\n"
        "static_assert(sizeof(Product::Shared) == 4352);\n"
        'extern "C" __global__ void __launch_bounds__(256) gemmsim_kernel(const ::GemmArgs args) {\n'
        "    Product::run(args, *(Product::Shared*)shared_memory(), threadIdx.x, blockIdx.x, blockIdx.y);\n"
        "}\n"
    )
    return KernelSource(FAMILY, "example, e4m3*e4m3 : e6m9, bf16, 64x64", text, 256, 4352, work=4 * 16, hot="loop")


def atoms_source() -> KernelSource:
    """Every kind of atom: block z of the grid computes ``ATOMS[z]``."""
    pairs = (f"static_assert(same({c}, Cast{cast_literal(cast_numbers(parse_cast(p)))}));" for c, p in CASTS.items())
    calls = "\n".join(
        f"    case {i}: return product<{atom.product()}>(args, {atom.data}, {i}, threadIdx.x, blockIdx.x, blockIdx.y);"
        for i, atom in enumerate(ATOMS)
    )
    body = f"    switch (blockIdx.z) {{\n{calls}\n    }}\n"
    kernel = f'extern "C" __global__ void __launch_bounds__(256) gemmsim_kernel(const AtomArgs args) {{\n{body}}}\n'
    text = "\n".join([_example(), _SAME, *pairs, _ATOMS, kernel])
    return KernelSource(FAMILY, "atoms of every kind, 32x32", text, 256, 8 * SIDE * (TERMS + 1))


def program_source() -> KernelSource:
    """The example's program, as a text that stands for both of its files; no kernel that NVRTC compiles."""
    program = PROGRAM.read_text(encoding="utf-8").replace('#include "gemm.h"\n', "")
    return KernelSource(FAMILY, "program of the example", _example() + program, 256)


def sources() -> Iterator[KernelSource]:
    yield example_source()
    yield atoms_source()
