"""Products of block formats: the fast path bit for bit as the reference, which works on codes with exact integers.

Codes are made up, not encoded: any element code under any scale code, so that NaN, zero and extreme scales meet.
"""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
from support import GOLDEN, assert_bitwise_equal

import gemmsim as gs
from gemmsim import hardware, mx
from gemmsim.arithmetic import GemmSpec, SpecError
from gemmsim.backends import cpu
from gemmsim.formats import E8M0, FixedFormat, parse
from gemmsim.ops.errors import GradError, ShapeError
from gemmsim.reference import Blocked, gemm

ISAS = pytest.mark.parametrize("isa", cpu.ISAS)
PAIRS = [
    ("mxfp8_e4m3", "mxfp8_e4m3"), ("mxfp8_e5m2/b16", "mxfp4"), ("nvfp4", "nvfp4"), ("nvfp4/tensor", "nvfp4/tensor"),
    ("mxint8", "mxfp6_e3m2/b8"), ("mxfp6_e2m3", None), (None, "nvfp4/tensor"), ("mx(e4m3,e5m2)/b12", "mxint4/b20"),
]  # fmt: skip
ACCUMULATORS = [
    "fp32", "e5m10", "e6m9/sr8", "chunked(16, e5m10, fp32)", "exact()", "scaled(fp32)", "scaled(fp32, n=2)",
    "scaled(fp32, fp32, n=1)", "scaled(e5m10, e6m9/rtz)", "scaled(exact(), fp32)", "scaled(pairwise(bf16), e8m9)",
    "scaled(e6m9/sr8, e6m9/sr8)", "scaled(kahan(bf16), fp64)", "scaled(fixed(24, 8, overflow=wrap), fp32)",
    "scaled(chunked(2, e5m10, fp32), fp64)", "scaled(fp64, bf16/ftz)",
]  # fmt: skip


@pytest.fixture(autouse=True)
def restore_isa():
    before = cpu.isa()
    yield
    cpu.set_isa(before)


def use(isa):
    try:
        cpu.set_isa(isa)
    except cpu.LibraryError:
        pytest.skip(f"no {isa} here")


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    kind = {8: torch.int64, 4: torch.int32}[got.element_size()]
    return bool(((got.view(kind) == want.view(kind)) | (got.isnan() & want.isnan())).all())


def made_up(rng: random.Random, name: str | None, lines: int, k: int, hard: bool = True):
    """(lines, K) codes with scales as the reference and as ``gemmsim.mx`` take them; None: plain numbers."""
    if name is None:
        x = torch.tensor([[rng.choice([0.0, -0.0, 1e-40, 3e38]) if rng.random() < 0.1 else rng.gauss(0, 1)
                           for _ in range(k)] for _ in range(lines)], dtype=torch.float32)  # fmt: skip
        return x.tolist(), x
    fmt = parse(name)
    bits = fmt.element.bits
    codes = [[rng.randrange(1 << bits) for _ in range(k)] for _ in range(lines)]
    special = {(1 << bits) - 1, (1 << bits - 1) - 1, 1 << bits - 1} | ({0x7C, 0x7E, 0xFD} if bits == 8 else set())
    unused = 1 << bits - 1 if isinstance(fmt.element, FixedFormat) else None
    codes = [
        [1 if c == unused else c if hard and rng.random() < 0.02 or c not in special else 1 for c in line]
        for line in codes
    ]
    middle = 127 if fmt.scale == E8M0 else fmt.scale.encode(1.0)
    edges = [0, 1, 254, 255] if fmt.scale == E8M0 else [0, 1, 0x7F, 0x80, 0xB3, 0x7E]
    scales = [
        [rng.choice(edges) if hard and rng.random() < 0.15 else middle + rng.randint(-6, 6) for _ in range(-(-k // fmt.block_size))]
        for _ in range(lines)
    ]  # fmt: skip
    second = float(np.float32(rng.uniform(0.001, 3))) if fmt.tensor_scale else 1.0
    scale_of = None if not fmt.tensor_scale else torch.tensor(second)
    encoded = mx.Encoded(torch.tensor(codes, dtype=torch.uint8), torch.tensor(scales, dtype=torch.uint8), scale_of)
    return Blocked(codes, scales, fmt, second), encoded


def turned(encoded):
    """Lines as columns, in the default packing along them."""
    if isinstance(encoded, torch.Tensor):
        return encoded.mT
    return mx.Encoded(encoded.codes.mT, encoded.scales.mT, encoded.tensor_scale)


def packed(encoded, name: str | None, dim: int):
    """Codes of four bits two a byte along ``dim``, as ``encode`` gives them."""
    if name is None or mx.arguments.check_packing("test", parse(name), None) != "lo_first":
        return encoded
    codes = encoded.codes.movedim(dim, -1)
    codes = torch.nn.functional.pad(codes, (0, codes.shape[-1] % 2))
    codes = codes[..., ::2] | (codes[..., 1::2] << 4)
    return mx.Encoded(codes.movedim(-1, dim), encoded.scales, encoded.tensor_scale)


class Known:
    """An encoded tensor with the attributes that ``matmul`` looks at."""

    def __init__(self, encoded, name, dim, shape, dtype=torch.float32):
        self.codes, self.scales, self.tensor_scale = packed(encoded, name, dim)
        self.format, self.dim, self.shape, self.dtype = parse(name), dim, torch.Size(shape), dtype
        self.packing = mx.arguments.check_packing("test", self.format, None)


def product(a, b, names, accumulator, **more):
    right = turned(b)
    if names[0] is not None:
        a = Known(a, names[0], -1, a.codes.shape)
    if names[1] is not None:
        right = Known(right, names[1], -2, right.codes.shape)
    return mx.matmul(a, right, accumulator, **more)


def reference(a, b, names, accumulator, seed=0):
    spec = f"{names[0] or ''} * {names[1] or ''} : {accumulator}"
    right = b if isinstance(b, Blocked) else [list(line) for line in zip(*b, strict=True)]
    return torch.tensor(gemm(a, right, spec, seed=seed), dtype=torch.float64)


@pytest.mark.kept
@ISAS
@pytest.mark.parametrize("names", PAIRS, ids=lambda pair: f"{pair[0]}*{pair[1]}")
def test_every_accumulator_on_made_up_codes_is_the_references(names, isa):
    use(isa)
    rng = random.Random(str(names))
    for accumulator in ACCUMULATORS:
        for hard in (False, True):
            k = rng.choice([1, 23, 40, 64, 75])
            a, left = made_up(rng, names[0], 3, k, hard)
            b, right = made_up(rng, names[1], 5, k, hard)
            got = product(left, right, names, accumulator, out_dtype=torch.float64, seed=11)
            want = reference(a, b, names, accumulator, seed=11)
            assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{accumulator}, {k} terms, hard: {hard}")


@pytest.mark.kept
@ISAS
@pytest.mark.parametrize(
    ("names", "accumulator"),
    [
        (("mxfp8_e4m3", "mxfp8_e5m2"), "hw(blackwell, mxf8f6f4, e4m3, e5m2)"),
        (("mxfp8_e4m3", None), "hw(rtx_blackwell, mxf8f6f4, e4m3)"),
        (("mxfp4", "mxfp4"), "hw(blackwell, mxf4, e2m1)"),
        (("mxfp4/b16", "mxfp4/b16"), "hw(rtx_blackwell, mxf4nvf4, e2m1)"),
        (("nvfp4", "nvfp4"), "hw(blackwell, mxf4nvf4, e2m1)"),
        (("nvfp4/tensor", "nvfp4"), "hw(blackwell, mxf4nvf4, e2m1)"),
        (("mxfp8_e4m3", "mxfp8_e4m3"), "scaled(hw(hopper, wgmma, e4m3))"),
    ],
    ids=str,
)
def test_instructions_take_codes_and_scales_as_they_are(names, accumulator, isa):
    use(isa)
    rng = random.Random(accumulator)
    for k in (5, 40, 64, 100):
        a, left = made_up(rng, names[0], 4, k)
        b, right = made_up(rng, names[1], 5, k)
        if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
            right = right.clamp(-100, 100)
            b = right.tolist()
        got = product(left, right, names, accumulator, out_dtype=torch.float64)
        assert_bitwise_equal(got, reference(a, b, names, accumulator), nan_is_nan=True, context=f"{k} terms")


INSTRUCTIONS = [
    ("mxfp8_e4m3", "mxfp8_e4m3", "mxf8f6f4, e4m3, e4m3"),
    ("mxfp8_e5m2", "mxfp8_e4m3", "mxf8f6f4, e5m2, e4m3"),
    ("mxfp4", "mxfp4", "mxf4, e2m1"),
    ("mxfp4/b16", "mxfp4/b16", "mxf4nvf4, e2m1"),
    ("nvfp4", "nvfp4", "mxf4nvf4, e2m1"),
]


def whole_tiles(generator: torch.Generator, name: str, lines: int, k: int, kind: str):
    """Codes (one a byte) and scales of ``lines``: near 1, anywhere, or anywhere with NaN in some."""
    fmt = parse(name)
    codes = torch.randint(1 << fmt.element.bits, (lines, k), generator=generator, dtype=torch.uint8)
    if fmt.element.bits == 8:
        infinite = (codes & 0x7C == 0x7C) if "e5m2" in name else (codes & 0x7F == 0x7F)
        rare = torch.rand(codes.shape, generator=generator) < (0.002 if kind == "nan" else 0)
        codes = torch.where(infinite & ~rare, codes & 0x38, codes)
    codes[: lines // 3, : k // 2] &= codes.new_tensor(1 << fmt.element.bits - 1)  # zeros of both signs
    e8m0 = fmt.scale == E8M0
    low, high = {"near": (121, 134), "any": (0, 255), "nan": (0, 255)}[kind] if e8m0 else (0, 256)
    shape = (lines, -(-k // fmt.block_size))
    scales = torch.randint(low, high, shape, generator=generator, dtype=torch.uint8)
    if not e8m0:
        scales = torch.where(scales & 0x7F == 0x7F, scales & 0x47, scales)
    if kind == "nan":
        bad = torch.rand(shape, generator=generator) < 0.05
        scales = torch.where(bad, 0xFF if e8m0 else 0x7F, scales)
    return codes, scales


@ISAS
@pytest.mark.parametrize("case", INSTRUCTIONS, ids=lambda case: "-".join(case[:2]))
@pytest.mark.parametrize("kind", ["near", "any", "nan"])
def test_vector_kernels_of_instructions_have_the_models_bits_on_whole_tiles(case, kind, isa):
    """Rows and columns beyond one tile, K of several instructions, scales to both ends; -0, zeros, infinite registers."""
    use(isa)
    left_name, right_name, arguments = case
    accumulator = gs.GemmSpec.of(f"{left_name} * {right_name} : hw(blackwell, {arguments})").accumulator
    generator = torch.Generator().manual_seed(len(left_name) * 100 + len(kind))
    fp4 = "fp4" in left_name
    k, m, n = (256 if fp4 else 128), 19, 41
    a, sa = whole_tiles(generator, left_name, m, k, kind)
    b, sb = whole_tiles(generator, right_name, n, k, kind)
    packed_a, packed_b = (x[:, ::2] | x[:, 1::2] << 4 if fp4 else x for x in (a, b))
    zero = torch.zeros(m, n, dtype=torch.uint32)
    name = accumulator.scaled_instruction(parse(left_name)).name
    want = hardware.mma("blackwell", name, packed_a, packed_b.mT, zero, scale_a=sa, scale_b=sb.mT)
    left, right = (packed_a, sa), (packed_b.mT, sb.mT)
    got = mx.matmul(left, right, accumulator, a_format=left_name, b_format=right_name)
    assert same(got, want.view(torch.float32))
    if kind == "near":
        assert got.isfinite().all() and got.abs().amax() > 0


def scaled_vectors() -> list[dict]:
    with np.load(GOLDEN / "mmasim_public.npz") as data:
        return [case for case in json.loads(bytes(data["meta"]))["cases"] if case["scale"]]


@pytest.mark.parametrize("case", scaled_vectors(), ids=lambda case: f"{case['arch']}-{case['instr']}")
def test_operands_of_the_public_vectors_as_a_product(case):
    """C is 0 in a product: ``hardware.mma``, which gives the vectors' D from their C, gives this one from 0."""
    element, fp4 = case["a"].removesuffix("x2"), case["a"].startswith("e2m1")
    kind = {"e4m3": "mxfp8_e4m3", "e5m2": "mxfp8_e5m2", "e2m1": "mxfp4"}
    names = [kind[case[x].removesuffix("x2")] + ("/b16" if case["block"] == 16 else "") for x in "ab"]
    if case["instr"].endswith("ue4m3"):
        names = ["nvfp4", "nvfp4"]
    op = "mxf4nvf4" if fp4 else "mxf8f6f4"
    accumulator = gs.acc.hw(case["arch"].lower().replace(" ", "_"), op, element, case["b"].removesuffix("x2"))
    with np.load(GOLDEN / "mmasim_public.npz") as data:
        keys = [key for key in (case["id"], case["id"] + "L") if f"{key}_A" in data]
        for key in keys:
            a, b, c, sa, sb = (torch.from_numpy(data[f"{key}_{part}"]) for part in ("A", "B", "C", "SA", "SB"))
            want = hardware.mma(
                case["arch"], f"{case['unit']}.{case['instr']}", a, b, torch.zeros_like(c), scale_a=sa, scale_b=sb
            )
            left, right = ((x.view(torch.uint8), s.view(torch.uint8)) for x, s in ((a, sa), (b, sb)))
            got = mx.matmul(left, right, accumulator, a_format=names[0], b_format=names[1])
            assert same(got, want.view(torch.float32)), key


def test_scales_in_each_product_are_the_product_of_the_values():
    x, y = torch.randn(9, 70), torch.randn(70, 11)
    values = mx.quantize(x, "mxfp8_e4m3"), mx.quantize(y, "nvfp4", dim=-2)
    for accumulator in ("fp32", "e5m10", "pairwise(bf16)"):
        got = gs.qmatmul(x, y, f"mxfp8_e4m3 * nvfp4 : {accumulator}")
        assert same(got, gs.qmatmul(*values, f": {accumulator}"))


def test_exact_groups_in_a_wide_total_are_the_exact_sum():
    torch.manual_seed(3)
    x, y = torch.randn(9, 96), torch.randn(96, 11)
    for n in (1, 2, 32):
        got = gs.qmatmul(x, y, f"mxfp8_e4m3 : scaled(exact(fp64), fp64, n={n})", out_dtype=torch.float64)
        assert same(got, gs.qmatmul(x, y, "mxfp8_e4m3 : exact(fp64)", out_dtype=torch.float64))


def test_values_beyond_float32_are_exact():
    """448 * 2^127 and its kin: infinite only where the register is."""
    codes, scales = torch.full((1, 32), 0x7E, dtype=torch.uint8), torch.full((1, 1), 254, dtype=torch.uint8)
    tiny = torch.full((32, 1), 2.0**-140)
    got = mx.matmul((codes, scales), tiny, a_format="mxfp8_e4m3")
    assert got.item() == 448 * 2.0**127 * 32 * 2.0**-140
    values = mx.matmul((codes, scales), torch.ones(32, 1), "fp64", a_format="mxfp8_e4m3", out_dtype=torch.float64)
    assert values.item() == 448 * 2.0**127 * 32


@pytest.mark.parametrize(
    "spec",
    ["mxfp8_e4m3 : scaled(e5m10/sr8)", "nvfp4/tensor : scaled(fp32)", "mxfp4 : e5m10/sr8",
     "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)", "nvfp4/tensor : hw(blackwell, mxf4nvf4, e2m1)"],
)  # fmt: skip
def test_batches_threads_and_strides_do_not_change_bits(spec):
    torch.manual_seed(4)
    x, y = torch.randn(3, 17, 80), torch.randn(80, 21)
    one = gs.qmatmul(x, y, spec, seed=5)
    assert same(gs.qmatmul(x.mT.contiguous().mT, y.mT.contiguous().mT, spec, seed=5), one)
    assert same(gs.qmatmul(x, y.expand(3, 80, 21).contiguous(), spec, seed=5), one)
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert same(gs.qmatmul(x, y, spec, seed=5), one)
    finally:
        torch.set_num_threads(threads)


def test_gradients_encode_each_operand_along_the_contraction_of_each_product():
    torch.manual_seed(5)
    x, w = torch.randn(6, 40, requires_grad=True), torch.randn(8, 40, requires_grad=True)
    grad = torch.randn(6, 8)
    for accumulator in ("fp32", "scaled(e5m10, fp32)"):
        x.grad = w.grad = None
        y = gs.qlinear(x, w, None, f"mxfp8_e4m3 * mxfp4 : {accumulator}")
        y.backward(grad)
        values, weights = x.detach(), w.detach()
        assert same(y.detach(), gs.qmm(values, weights.mT, f"mxfp8_e4m3 * mxfp4 : {accumulator}"))
        assert same(x.grad, gs.qmm(grad, weights, f"mxfp8_e4m3 * mxfp4 : {accumulator}"))
        assert same(w.grad, gs.qmm(grad.mT, values, f"mxfp4 * mxfp8_e4m3 : {accumulator}"))


def test_compiled_vmapped_and_counted_products_are_the_ordinary_ones():
    torch.manual_seed(6)
    x, y = torch.randn(3, 6, 40), torch.randn(40, 5)
    spec = "nvfp4/tensor : scaled(fp32)"
    one = gs.qmatmul(x[0], y, spec)
    compiled = torch.compile(lambda a, b: gs.qmatmul(a, b, spec), fullgraph=True, backend="aot_eager")
    assert same(compiled(x[0], y), one)
    assert same(torch.vmap(lambda a: gs.qmatmul(a, y, spec))(x)[0], one)
    a, b = mx.encode(x[0], "mxfp4"), mx.encode(y, "mxfp8", dim=-2)
    mm = torch.compile(lambda *t: mx.matmul(t[:2], t[2:], a_format="mxfp4", b_format="mxfp8"), backend="aot_eager")
    assert same(mm(*a[:2], *b[:2]), mx.matmul(a, b, a_format="mxfp4", b_format="mxfp8"))
    arguments = (
        a[0],
        a[1],
        None,
        "lo_first",
        b[0],
        b[1],
        None,
        "bytes",
        40,
        "mxfp4 * mxfp8 : fp32",
        None,
        torch.float32,
    )
    torch.library.opcheck(torch.ops.gemmsim.mx_mm.default, arguments)
    counts = gs.count_overflows(x[0], y, "mxint8 : scaled(fixed(14, 12, overflow=wrap), fp32)")
    assert counts.sum() > 0 and gs.count_overflows(x[0], y, "mxint8 : scaled(fixed(40, 12, overflow=wrap))").sum() == 0


def known(x, name, dim):
    return Known(mx.encode(x, name, dim=dim, packing="bytes"), name, dim, x.shape, x.dtype)


def test_encoded_tensors_know_their_format_and_blocks_along_another_dimension_raise():
    x, y = torch.randn(4, 64, dtype=torch.float64), torch.randn(64, 32)
    got = mx.matmul(known(x, "nvfp4/tensor", -1), known(y, "mxfp8_e4m3", -2), "scaled(fp32)")
    want = mx.matmul(x, y, "scaled(fp32)", a_format="nvfp4/tensor", b_format="mxfp8_e4m3")
    assert got.dtype == torch.float64 and same(got, want)
    with pytest.raises(ShapeError, match="along dimension -1.*\n.*[Rr]equantise"):
        mx.matmul(x, known(y, "mxfp8_e4m3", -1))
    with pytest.raises(ShapeError, match="[Rr]equantise"):
        mx.matmul(x, mx.encode(y, "mxfp8_e4m3"), b_format="mxfp8_e4m3")
    with pytest.raises(SpecError, match="one format"):
        mx.matmul(known(x, "mxfp4", -1), y, a_format="mxfp8_e4m3")
    with pytest.raises(SpecError, match="a_format"):
        mx.matmul(mx.encode(x, "mxfp4"), y)
    with pytest.raises(GradError, match="detach"):
        mx.matmul(known(x, "mxfp4", -1), y.requires_grad_())
    with pytest.raises(ShapeError, match="contracted"):
        mx.matmul(known(x, "mxfp8_e4m3", -1), torch.randn(65, 3))


def test_packed_codes_of_an_odd_contraction_take_its_size_from_the_other_operand():
    x, y = torch.randn(4, 33), torch.randn(33, 5)
    got = mx.matmul(mx.encode(x, "mxfp4"), mx.encode(y, "mxfp8", dim=-2), a_format="mxfp4", b_format="mxfp8")
    assert same(got, gs.qmatmul(x, y, "mxfp4 * mxfp8 : fp32"))


def test_empty_products_and_k_of_zero():
    assert gs.qmatmul(torch.randn(0, 40), torch.randn(40, 3), "mxfp8_e4m3 : scaled(fp32)").shape == (0, 3)
    got = gs.qmatmul(torch.randn(2, 0), torch.randn(0, 3), "nvfp4/tensor : scaled(fp32)")
    assert same(got, torch.zeros(2, 3))


def test_specs_with_block_formats_print_parse_and_say_what_they_do():
    for text in ("mxfp8_e4m3 * mxfp4 : fp32 -> bf16", "nvfp4/tensor : chunked(16, fp32)", "mxfp4/b64 * : scaled(e5m10, fp32, n=2)",
                 "mx(e3m2,e4m3)/b8 : scaled(pairwise(bf16), e6m9)", "nvfp4 : hw(blackwell, mxf4nvf4, e2m1)"):  # fmt: skip
        spec = GemmSpec.parse(text)
        assert GemmSpec.parse(str(spec)) == spec == GemmSpec.from_json(spec.to_json()) == eval(repr(spec))
        assert spec.transposed().transposed() == spec and "scale" in spec.explain()
        assert "cpu: yes" in gs.explain(spec)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("e4m3 : scaled(fp32)", "at least one operand in a block format"),
        ("mxfp8 : chunked(4, scaled(fp32))", "outermost"),
        ("mxfp8 : palette(scaled(fp32), fp32)", "by itself"),
        ("mxfp4 : scaled(fp32, n=5)", "divides 32"),
        ("mxfp4/b24 * mxfp4/b36 : scaled(fp32, n=8)", "divides 12"),
        ("mxint8 : scaled(int(24))", "fixed"),
        ("mxfp8 : scaled(fp32), arithmetic=fp32", "exact"),
        ("nvfp4 : hw(blackwell, mxf4, e2m1)", "ue8m0 for 32"),
        ("mxfp4 * nvfp4 : hw(blackwell, mxf4nvf4, e2m1)", "scales of one kind"),
        ("mxint8 : hw(blackwell, mxf4, e2m1)", "takes e2m1"),
        ("mxfp8 : hw(hopper, wgmma, e4m3)", "scaled"),
        ("mxfp8 : promote(hw(blackwell, mxf8f6f4, e4m3), 32)", "outermost"),
        ("mxfp9 : fp32", "unknown block format"),
        ("mxfp8 : mxfp8", "a format of single numbers"),
    ],
)
def test_what_has_no_meaning_says_what_has(text, message):
    with pytest.raises(SpecError, match=message):
        GemmSpec.parse(text)


@pytest.mark.parametrize("accumulator", ["scaled(e5m10)", "fp32"])
def test_products_of_plain_tensors_compile_whole(accumulator):
    def run(a, b):
        return mx.matmul(a, b, accumulator, a_format="mxfp8_e4m3", b_format="mxfp4")

    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(4, 64, generator=generator), torch.randn(64, 5, generator=generator)
    leaf, same_leaf = a.clone().requires_grad_(), a.clone().requires_grad_()
    torch._dynamo.reset()
    got, want = torch.compile(run, fullgraph=True, backend="aot_eager")(leaf, b), run(same_leaf, b)
    assert torch.equal(got, want)
    got.sum().backward()
    want.sum().backward()
    assert torch.equal(leaf.grad, same_leaf.grad)


@pytest.mark.parametrize(
    "second", [2.0**-5, 1.5, 2.0**-96, float(2**17 + 1), float(2**18 + 1), 0.1, 2.0**118, 2.0**-140]
)
def test_tensor_scales_of_few_bits_give_the_same_values_in_float32(second):
    """Up to 18 bits, with 2 of e2m1 and 4 of e4m3, fit binary32, where no product leaves its range."""
    from gemmsim.backends.encoded_operand import Coded
    from gemmsim.backends.encoding import values_of

    fmt = parse("nvfp4/tensor")
    scales = torch.tensor([c for c in range(256) if c & 0x7F != 0x7F], dtype=torch.uint8)[:, None]
    codes = torch.arange(16, dtype=torch.uint8).expand(len(scales), 16)
    values = values_of(Coded(codes, scales, fmt, -1, 16, "bytes", second))
    exact = [[float(fmt.element.decode(int(c))) for c in codes[0]]]
    want = torch.tensor(exact, dtype=torch.float64) * torch.tensor(
        [[fmt.scale.decode(int(s))] for s in scales], dtype=torch.float64
    )
    assert torch.equal(values.double(), want * second)
    assert torch.equal(values.signbit(), (want * second).signbit())
    narrow = second in (2.0**-5, 1.5, 2.0**-96, float(2**17 + 1))
    assert values.dtype == (torch.float32 if narrow else torch.float64)
