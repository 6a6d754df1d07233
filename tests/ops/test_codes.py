"""Codes of tensors against the codecs of single numbers: every code of every kind of format, both ways."""

from __future__ import annotations

import math

import pytest
import torch
from support import LONG, assert_bitwise_equal

import gemmsim as gs
from gemmsim import formats
from gemmsim.formats import FormatError

#: Every kind: IEEE-like, NaN only, none, fnuz, scales, P3109 signed and unsigned, without subnormals, powers, fixed point.
EVERY = [
    *(
        "e4m3",
        "e5m2",
        "ieee_e4m3",
        "e4m3fnuz",
        "e5m2fnuz",
        "e4m3b11fnuz",
        "e3m2",
        "e2m3",
        "e2m1",
        "e8m0",
        "ue4m3",
        "e3m4",
    ),
    *("binary8p1", "binary8p3", "binary8p4f", "binary8p3ue", "binary8p4uf", "binary6p3", "binary10p4"),
    *("e4m3/ftz", "e5m10", "e8m7", "e5m10/ftz", "e6m9", "e1m6", "e8m0", "float(p=3,emin=-2,emax=5,specials=none)"),
    *("float(p=1,emin=-4,emax=4,unsigned,specials=none)", "float(p=5,emin=-9,emax=12,specials=nan_only)"),
    *("supernormal(4,3)", "supernormal(3,2,2,3)", "supernormal(5,2,saturate)"),
    *("binary8(3)", "binary8(1)", "binary8(8,unsigned)", "binary8(4,unsigned,saturate_infty)"),
    *("int8", "uint8", "int4", "fixed(8,4)", "fixed(6,-3,symmetric)", "ufixed(12,20)", "fixed(16,8)"),
]
EVERY += ["posit(8,2)", "nf4", "codebook(-3,-1,1,3|-2.5,0.125,3|odd|nan)"]
EVERY += ["binary8(3)/ftz", "binary8(1)/ftz", "binary8(4,unsigned)/ftz"]
#: Too wide to list; random codes and the edges.
WIDE = [
    "e8m23",
    "e11m52",
    "fixed(32,16)",
    "fixed(53,1000)",
    "supernormal(4,6)",
    "supernormal(3,8,2,1)",
    "e11m20",
    "float(p=30,emin=-200,emax=300)",
]


def same(x: float, y: float) -> bool:
    return (math.isnan(x) and math.isnan(y)) or (x == y and math.copysign(1, x) == math.copysign(1, y))


def scalar(fmt, code):
    try:
        return fmt.decode(code)
    except FormatError:
        return None


@pytest.mark.parametrize("name", EVERY)
def test_every_code_is_decoded_and_encoded_as_one_by_one(name):
    fmt = formats.parse_scalar(name)
    step = 1 if fmt.bits <= 12 else 13 if LONG else 67  # of 16 bits some: one by one is slow
    known = {code: value for code in range(0, 1 << fmt.bits, step) if (value := scalar(fmt, code)) is not None}
    assert sorted(known) == [code for code in fmt.codes() if code % step == 0]
    codes = torch.tensor(list(known))
    values = fmt.decode(codes)
    assert all(same(x, y) for x, y in zip(values.tolist(), known.values(), strict=True))
    back = fmt.encode(values)
    assert back.tolist() == [fmt.encode(value) for value in known.values()]
    unused = [code for code in range(0, 1 << fmt.bits, step) if code not in known]
    for code in unused[:3] + unused[-3:]:
        with pytest.raises(FormatError, match="not used|left out|code"):
            fmt.decode(torch.tensor([codes[0].item(), code]))


@pytest.mark.parametrize("name", WIDE)
def test_codes_of_wide_formats(name):
    fmt = formats.parse_scalar(name)
    g = torch.Generator().manual_seed(1)
    picked = [int(x) % (1 << fmt.bits) for x in torch.randint(-(2**63), 2**63 - 1, (2000,), generator=g)]
    picked += [edge + near for edge in (0, (1 << fmt.bits) // 2, 1 << fmt.bits) for near in range(-40, 40)]
    known = {code: value for code in picked if 0 <= code < 1 << fmt.bits and (value := scalar(fmt, code)) is not None}
    codes = torch.tensor([code - (1 << 64) if code >= 1 << 63 else code for code in known])
    values = fmt.decode(codes)
    assert all(same(x, y) for x, y in zip(values.tolist(), known.values(), strict=True))
    encoded = fmt.encode(values)
    want = [fmt.encode(value) for value in known.values()]
    assert [code % (1 << fmt.bits) for code in encoded.tolist()] == want


#: A number of every region, ties, specials, and what float64 has beyond.
NUMBERS = [0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 1e-310, 5e-324, 1e308, 2.0**-149, 2.0**-133]
NUMBERS += [s * m * 2.0**e for e in range(-30, 31) for m in (1.0, 1.0625, 1.25, 1.375, 1.5, 1.999) for s in (1.0, -1.0)]


@pytest.mark.parametrize("name", EVERY)
def test_without_rounding_exactly_the_values_have_codes(name):
    fmt = formats.parse_scalar(name)
    held = [value for value in NUMBERS if fmt.is_representable(value)]
    assert fmt.encode(torch.tensor(held, dtype=torch.float64)).tolist() == [fmt.encode(value) for value in held]
    others = [value for value in NUMBERS if not fmt.is_representable(value)]
    for value in [*others[:12], *others[12::40]]:
        with pytest.raises(FormatError):
            fmt.encode(torch.tensor([value], dtype=torch.float64))


ROUNDINGS = ["rne", "rna", "rnd", "rnu", "rtz", "ru", "rd", "ro", "sr8", "srb8", "src8"]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(
    "name", ["e4m3", "e5m2fnuz", "e2m1", "e5m10", "e8m0", "binary8p3ue", "supernormal(4,3)", "fixed(8,4)"]
)
def test_rounded_codes_are_those_of_quantize(name, rounding):
    overflow = "sat" if rounding in ("rna", "rtz", "sr8") else "infinity"
    fmt = formats.parse_scalar(name)
    x = torch.randn(500, generator=torch.Generator().manual_seed(2)) * torch.logspace(-8, 3, 500, base=2)
    x = torch.cat([x, torch.tensor([0.0, -0.0, 1e30, -1e30, math.inf, -math.inf])])
    if not fmt.signed:
        x = x.abs()
    if name == "e8m0":
        x = x[x > 0]
    rounded = gs.quantize(x.double(), fmt, rounding=rounding, overflow=overflow, seed=5)
    if not all(fmt.is_representable(value) for value in rounded.tolist()):
        x = x[torch.isfinite(x)]  # an infinity stays one, or becomes NaN, and has no code
        rounded = gs.quantize(x.double(), fmt, rounding=rounding, overflow=overflow, seed=5)
    held = [fmt.is_representable(value) for value in rounded.tolist()]
    if not all(held):
        with pytest.raises(FormatError, match="is not one of its values"):
            fmt.encode(x, rounding=rounding, overflow=overflow, seed=5)
        return
    codes = fmt.encode(x, rounding=rounding, overflow=overflow, seed=5)
    assert codes.tolist() == [fmt.encode(value) for value in rounded.tolist()]


def test_dtypes_of_codes():
    found = {
        formats.parse_scalar(name).encode(torch.ones(2)).dtype: name
        for name in ("e4m3", "fixed(15,4)", "e5m10", "e8m23", "e11m52")
    }
    assert set(found) == {torch.uint8, torch.int16, torch.int32, torch.int64}
    assert formats.FP16.encode(torch.tensor([-1.0])).tolist() == [0xBC00] and formats.FP64.encode(
        torch.tensor([-0.0])
    ).tolist() == [-(2**63)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_torchs_own_dtypes_are_read_from_their_bits(dtype):
    fmt = formats.parse_scalar(str(dtype))
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    if dtype.itemsize == 2:
        bits = torch.arange(-(2**15), 2**15).to(torch.int16)
    else:
        bits = torch.randint(torch.iinfo(integers).min, torch.iinfo(integers).max, (5000,), dtype=integers)
    x = bits.view(dtype)
    x = x[~x.isnan()]
    assert_bitwise_equal(fmt.decode(x.view(integers), dtype=dtype), x)
    assert torch.equal(fmt.encode(x).to(integers), x.view(integers))
    assert_bitwise_equal(fmt.decode(fmt.encode(x), dtype=dtype), x)


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
)
def test_torchs_float8_dtypes_hold_the_same_codes(name):
    dtype, codes = getattr(torch, name), torch.arange(256).to(torch.uint8)
    got, want = formats.parse_scalar(name).decode(codes), codes.view(dtype).to(torch.float32)
    assert torch.equal(got.isnan(), want.isnan())
    assert_bitwise_equal(got[~got.isnan()], want[~want.isnan()])


def test_shapes_strides_and_devices():
    fmt = formats.E4M3
    x = torch.randn(3, 4, 5).permute(2, 0, 1)[::2]
    codes = fmt.encode(x, rounding="rne")
    assert codes.shape == x.shape and torch.equal(codes, fmt.encode(x.contiguous(), rounding="rne"))
    assert_bitwise_equal(fmt.decode(codes.mT), gs.quantize(x, "e4m3").mT.contiguous())
    assert fmt.encode(torch.ones(())).shape == () and fmt.encode(torch.ones(0, 3)).shape == (0, 3)
    meta = fmt.encode(torch.ones(2, 3, device="meta"), rounding="rne")
    assert meta.device.type == "meta" and meta.dtype is torch.uint8 and fmt.decode(meta).dtype is torch.float32
    big = torch.randn(3 << 20)
    assert_bitwise_equal(fmt.decode(fmt.encode(big, rounding="rtz")), gs.quantize(big, "e4m3/rtz"))


def test_compiled_mapped_and_checked_as_operators():
    fmt = formats.E4M3
    x = torch.randn(4, 6)

    def both(t):
        return fmt.decode(fmt.encode(t, rounding="sr8", seed=3))

    assert_bitwise_equal(torch.compile(both, fullgraph=True, backend="aot_eager")(x), both(x))
    assert_bitwise_equal(torch.vmap(lambda t: fmt.decode(fmt.encode(t, rounding="rne")))(x), gs.quantize(x, "e4m3"))
    exact = gs.quantize(x, "e4m3")
    torch.library.opcheck(torch.ops.gemmsim.encode.default, (exact, "e4m3"))
    torch.library.opcheck(torch.ops.gemmsim.decode.default, (fmt.encode(exact), "e4m3", torch.float32))
    assert not fmt.encode(x.requires_grad_(), rounding="rne").requires_grad


def test_what_has_no_code_is_named():
    for call, words in (
        (
            lambda: formats.E4M3.encode(torch.tensor([1.0, 0.3, 0.7])),
            r"0\.3\d* is not one of its values.*\n.*rounding='rne'",
        ),
        (
            lambda: formats.E2M1.encode(torch.tensor([math.nan]), rounding="rne"),
            "nan is not one of its values.*\n.*NaN",
        ),
        (lambda: formats.E4M3.decode(torch.tensor([300])), "code=300"),
        (lambda: formats.E4M3.decode(torch.tensor([-1])), "code=-1"),
        (lambda: formats.parse("float(p=3,emin=-2,emax=5,specials=none)").decode(torch.tensor([63])), "not used"),
        (lambda: formats.parse_scalar("bfp(8,1)").encode(torch.ones(2)), "code"),
        (lambda: formats.parse("fixed(8,4,unbounded)").encode(torch.ones(2)), "unbounded"),
        (lambda: formats.parse("binary16p2").encode(torch.ones(2)), "float64"),
        (lambda: formats.E4M3.encode(0.3, rounding="rne"), "rounding='rne' with a single number"),
        (lambda: formats.E4M3.decode(3, dtype=torch.float32), "dtype=torch.float32 with a single number"),
    ):
        with pytest.raises(FormatError, match=words):
            call()
    for call, words in (
        (lambda: formats.E4M3.decode(torch.ones(2)), "codes have dtype torch.float32"),
        (lambda: formats.E4M3.decode(torch.ones(2, dtype=torch.uint8), dtype=torch.int32), "dtype=torch.int32"),
        (lambda: formats.FP32.decode(torch.ones(2, dtype=torch.int32), dtype=torch.float16), "dtype=torch.float16"),
        (lambda: formats.E4M3.encode(torch.ones(2, dtype=torch.int32)), "x has dtype torch.int32"),
    ):
        with pytest.raises(gs.DTypeError, match=words):
            call()
