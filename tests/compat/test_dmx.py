"""d-Matrix's formats: stored values, grammar, attributes, refusals."""

from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import GOLDEN, assert_bitwise_equal, assert_values_equal

import gemmsim as gs
from gemmsim.compat import dmx

with np.load(GOLDEN / "dmx_formats.npz") as stored:
    DATA = {key: stored[key] for key in stored.files}
ROWS = json.loads(str(DATA["index_json"]))
IDS = [f"{row[0]}-{row[2]}" for row in ROWS]


def mask(key: str, text: str, x: torch.Tensor) -> torch.Tensor | None:
    """Where the stored values agree with the definition; where no mask is stored the two departures left are known."""
    if f"{key}__exact" in DATA:
        found = np.unpackbits(DATA[f"{key}__exact"])[: DATA[key].size].astype(bool)
        return torch.from_numpy(found).view(DATA[key].shape)
    if "|0," in text:
        return ~x.isnan()
    if text.startswith("SBFP") and ",7](FN)" not in text:
        # scales beyond the largest number of a scaler of another bias
        fmt = dmx.Format.from_shorthand(text)
        most = x.abs().view(-1, fmt.block_size).amax(1, keepdim=True) / 7
        return (most <= fmt.scaler_format.operand.max).expand(-1, fmt.block_size).reshape(x.shape)
    return None


@pytest.mark.parametrize("key, given_key, text, dim", ROWS, ids=IDS)
def test_stored_values(key, given_key, text, dim):
    fmt, x, want = dmx.Format.from_shorthand(text), torch.from_numpy(DATA[given_key]), torch.from_numpy(DATA[key])
    assert_values_equal(fmt.cast(x, dim), want, mask(key, text, x), context=text)
    assert_values_equal(fmt.cast(x, dim, bug_compatible=True), want, None, context=f"{text} bug_compatible")


def test_the_aliases_are_published_formats():
    assert len(dmx.aliases.ALIASES) == 76
    assert dmx.aliases.BFP16_64 is dmx.format.BFP16_64 is dmx.aliases.ALIASES["BFP16_64"]
    for name, fmt in dmx.aliases.ALIASES.items():
        again = dmx.Format.from_shorthand(repr(fmt))
        assert again == fmt and hash(again) == hash(fmt) and repr(again) == repr(fmt), name
        assert pickle.loads(pickle.dumps(fmt)) == fmt == copy.deepcopy(fmt)
        if name != "SAME":
            assert gs.formats.parse(str(fmt)) in (fmt.operand, getattr(fmt.operand, "format", None))


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("XP[8,3](U_S)", "XP[8,+3](__S)"),
        ("XP[8,-2](CSU)", "XP[8,-2](CSU)"),
        ("XP[8,+0](CSN)", "XP[8,0](CSN)"),
        ("BFP[8|8]{64}(AN)", "BFP[8|8]{64}(_N)"),
        ("BFP[8|8]{64,-1}(SD)", "BFP[8|8]{64,-1}(SD)"),
        ("MXFP8[E4M3]{32,0}", "MXFP8[E4M3]{32,0}"),
        ("SAMEfoo", "SAME"),
        ("FP[2|4|3,+7](XN)", "FP[1|4|3,7](_N)"),
    ],
)
def test_canonical_shorthand(text, canonical):
    assert repr(dmx.Format.from_shorthand(text)) == canonical
    assert dmx.Format.from_shorthand(text) == dmx.Format.from_shorthand(canonical)


@pytest.mark.parametrize(
    "text",
    ["", "INT8", " XP[8,0](CSN)", "XP[8,0](CSN) ", "XP[8,0](CS)", "XP[8,0](CSX)", "xp[8,0](CSN)", "XP[25,0](CSN)",
     "FP[1|9|3,7](FN)", "FP[1|4|24,7](FN)", "FP[1|8|3,126](FN)", "BFP[8|7]{64}(SN)", "BFP[26|8]{64}(SN)",
     "BFP[8|8]{0}(SN)", "MXFP9[E4M3]{32}", "SBFP<XP[4,1](CSN)><FP[0|4|4,7](FN)>{16}", "MXINT8"],
)  # fmt: skip
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="allowed"):
        dmx.Format.from_shorthand(text)


def test_attributes():
    f = dmx.Format.from_shorthand
    assert (f("BFP[8|8]{64}(SN)").bit_precision, f("BFP[8|8]{64}(SN)").bytes_per_elem) == (8.125, 8.125 / 8)
    sbfp = f("SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}")
    assert (sbfp.bit_precision, sbfp.bytes_per_elem, sbfp.bfp_id) == (4.5, 0.5703125, 10044)
    assert (f("MXFP8[E4M3]{32}").bit_precision, f("MXFP8[E4M3]{32}").bytes_per_elem) == (8.25, 1.03125)
    assert (f("FP[0|4|4,7](FN)").bit_precision, f("FP[0|4|4,7](FN)").bytes_per_elem) == (8, 9 / 8)
    assert f("SAME").bit_precision is None and f("SAME").bfp_id is None and f("MXFP8[E4M3]{32}").bfp_id is None
    assert f("FP[1|4|3,9](_N)").largest_representable_power_of_two == 2.0**8
    ids = {"BFP32_1": 10001, "BFP24_16": 10004, "BFP16_128": 10005, "BFP12_16": 10016, "BFP14A_128": 10017}
    for name, number in {**ids, "BFP12A_16": 10024, "MXINT8_K32": 10007, "SBFP12_16_18": 10055}.items():
        assert dmx.aliases.ALIASES[name].bfp_id == number
    with pytest.raises(dmx.FormatIdError, match="allowed: BFP32_1"):
        _ = f("BFP[9|8]{64}(SN)").bfp_id
    assert dmx.FloatingPoint().bias == 127 and dmx.ROUNDING_MODE.inverse["nearest"] == "N"
    assert f("MXINT8{32}").blocked and isinstance(f("MXINT8{32}"), dmx.BlockFloatingPoint)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 1000), st.integers(1, 9), st.sampled_from(["BFP[6|8]{%d}(SN)", "MXFP6[E3M2]{%d}", "MXINT5{%d}"]))
def test_blocks_lie_along_any_dimension(seed, size, text):
    x = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(seed))
    fmt = dmx.Format.from_shorthand(text % size)
    for dim in range(-3, 3):
        moved = fmt.cast(x.movedim(dim, -1).contiguous(), -1).movedim(-1, dim)
        assert_bitwise_equal(fmt.cast(x, dim), moved)
        assert_bitwise_equal(fmt.cast(x, dim, bug_compatible=True), moved)


def test_dtypes_specials_and_the_generator():
    fmt = dmx.aliases.BFP16_16
    x = torch.tensor([1.0, math.inf, math.nan, -0.0, 3.4e38])
    assert_bitwise_equal(fmt.cast(x, 0)[1:3], x[1:3], nan_is_nan=True)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        given_x = torch.randn(4, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(dtype)
        assert_bitwise_equal(fmt.cast(given_x, 1), fmt.cast(given_x.float(), 1))
    same = torch.randn(3)
    assert dmx.aliases.FLOAT32.cast(same) is same
    assert dmx.aliases.SAME.cast(same) is not same
    drawn = [
        dmx.Format.from_shorthand("XP[8,+2](CSS)").cast(same, generator=torch.Generator().manual_seed(5)) for _ in "ab"
    ]
    assert torch.equal(*drawn)
    assert fmt.cast(torch.empty(0, 3), 1).shape == (0, 3)


def test_errors():
    fmt = dmx.aliases.BFP16_64
    with pytest.raises(ValueError, match="block_dim"):
        fmt.cast(torch.ones(3))
    with pytest.raises(IndexError):
        fmt.cast(torch.ones(3), 1)
    with pytest.raises(IndexError):
        fmt.cast(torch.tensor(1.0), 0)
    with pytest.raises(TypeError, match="float"):
        fmt.cast(torch.ones(3, dtype=torch.int32), 0)
    with pytest.raises(ValueError, match="draws"):
        dmx.Format.from_shorthand("XP[8,0](CSS)").cast(torch.ones(3), bug_compatible=True)
    for text in ("BFP[23|8]{16}(SN)", "BFP[25|8]{16}(SN)", "MXINT24{8}", "BFP[25|8]{1}(SN)"):
        with pytest.raises(ValueError, match="or fewer"):
            dmx.Format.from_shorthand(text).cast(torch.ones(3), 0, bug_compatible=True)
    with pytest.raises(ValueError, match="default bias"):
        dmx.MXFP(dmx.FloatingPoint(3, 4, 8))


def test_the_scalers_bias_from_a_tensor():
    fmt = dmx.Format.from_shorthand("SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}")
    x = torch.randn(64, generator=torch.Generator().manual_seed(3)) / 1000
    assert fmt.cast(x, 0).count_nonzero() == 0
    fmt.determine_scaler_exponent_bias_from(x, 0)
    assert fmt.scaler_format_exponent_bias_determined and fmt.scaler_format.bias > 7
    most = x.abs().max() / 7
    assert most <= fmt.scaler_format.operand.max < 4 * most
    assert fmt.cast(x, 0).count_nonzero() > 50


def test_cast_to_and_specs():
    layer = dmx.CastTo(format="BFP[8|8]{16}(SN)")
    x = torch.randn(4, 32, dtype=torch.bfloat16, requires_grad=True)
    y = layer(x)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    a, b = torch.randn(4, 32), torch.randn(32, 5)
    fmt = dmx.aliases.BFP16_16
    want = gs.qmatmul(fmt.cast(a, -1), fmt.cast(b, 0), ":fp32")
    assert_bitwise_equal(gs.qmatmul(a, b, f"{fmt} : fp32"), want)
    assert_bitwise_equal(gs.qmatmul(a, b, gs.GemmSpec(fmt.operand, fmt.operand)), want)


def test_cast_to_wants_a_format():
    with pytest.raises(TypeError, match="CastTo: format is a int; allowed: a Format"):
        dmx.CastTo(format=3)
    assert dmx.CastTo(dmx.aliases.BFP16_64).format == dmx.aliases.BFP16_64
