"""Messages about names show them as they were written, put first what may have been meant, and leave the grammar out."""

from __future__ import annotations

import re

import pytest

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import FormatError, parse, parse_cast, parse_overflow, parse_rounding
from gemmsim.formats.errors import AsWritten

X = "FP8 On H100"


@pytest.mark.parametrize("read, text, shown", [
    (parse, X, X),
    (parse_cast, f"{X} / RNE", X),
    (parse_cast, f"{X}/ftz", X),
    (parse_cast, "bf16 / Round Ties To Up", "Round Ties To Up"),
    (parse, "E4M3 / FZT", "/FZT"),
    (parse, "Fixed( 8, X)", "X"),
    (parse, "Fixed(8, 4, Symetric)", "Symetric"),
    (parse, "Float(P=3, Emim=0)", "Emim=0"),
    (parse, "Posit(8, Q)", "Posit(8, Q)"),
    (parse, "Binary8(3, Unsignd)", "Unsignd"),
    (parse, "SuperNormal(4,3,Satur)", "Satur"),
    (parse, "BFP(8, 16, Foo)", "Foo"),
    (parse, "MXFP8_E4M4", "MXFP8_E4M4"),
    (parse, "mxfp4/RCiel", "RCiel"),
    (parse, "MX( E4M9x )", "E4M9x"),
    (parse, "Torch.Float17", "Torch.Float17"),
    (parse_rounding, "Neerest", "Neerest"),
    (parse_overflow, "Saturat", "Saturat"),
    (GemmSpec.parse, f": {X}", X),
    (GemmSpec.parse, "BF16 x BF16", "BF16 x BF16"),
    (GemmSpec.parse, "RTX 4090 : fp32", "RTX 4090"),
    (GemmSpec.parse, ":Kahn(fp16)", "Kahn"),
    (GemmSpec.parse, "hw(Hoper, wgmma, e4m3)", "Hoper"),
    (GemmSpec.parse, "hw(hopper, WGMa, e4m3)", "WGMa"),
    (GemmSpec.parse, "hw(hopper, wgmma, E4N3)", "E4N3"),
    (GemmSpec.parse, "fused(4, 23, a=FP17)", "FP17"),
])  # fmt: skip
def test_names_are_shown_as_they_were_written(read, text, shown):
    with pytest.raises(ValueError) as caught:
        read(text)
    assert repr(shown) in str(caught.value)


def test_case_and_blanks_still_do_not_matter():
    for text, name in (("Fixed( 8, 4 )", "fixed(8,4)"), ("MX( E3M2 , E8M0 )", "mxfp6_e3m2"), ("BFP( 8, Tensor )", "bfp(8,tensor)"),
                       ("Torch.FLOAT16", "e5m10"), ("FLOAT(P=3, EMIN=-2, EMAX=4, Specials=None)", "e3m2")):  # fmt: skip
        assert parse(text) == parse(name)
    assert (
        str(parse_cast("BFP( 8, 1 ) / SR8")) == "bfp(8,1)/sr8"
        and str(parse_cast(" E4M3 / FTZ / Sat ")) == "e4m3/ftz/sat"
    )
    assert GemmSpec.parse("HW(H100, WGMMA, F16, out=F32)") == GemmSpec.parse("hw(hopper, wgmma, fp16)")
    word = AsWritten(" Round To\tOdd ")
    assert word == "roundtoodd" and repr(word) == "'Round To\\tOdd'" and word.written == "Round To\tOdd"


@pytest.mark.parametrize("text, hint", [
    ("fp8", "Did you mean 'e4m3' or 'e5m2'?"),
    ("Float8", "Did you mean 'e4m3' or 'e5m2'?"),
    ("fp6", "Did you mean 'e3m2' or 'e2m3'?"),
    ("bf8", "Did you mean 'e5m2'?"),
    ("exact", "Did you mean the accumulator exact()?"),
    ("kahan", "Did you mean the accumulator kahan(fmt)?"),
    ("deepgemm", "Did you mean the accumulator deepgemm(n=128)?"),
    ("kahan(fp16)", "'kahan' makes an accumulator, where a format is asked for."),
    ("cublas_fp32(h100)", "'cublas_fp32' makes an accumulator, where a format is asked for."),
    ("hopper_fp8", "Did you mean the recipe 'hopper_fp8', which is a spec by itself?"),
    ("hoper_fp8", "Did you mean the recipe 'hopper_fp8', which is a spec by itself?"),
    ("h100", "'h100' is a chip: did you mean its instruction, such as hw(h100, "),
    ("NVIDIA H100 80GB HBM3", "'NVIDIA H100 80GB HBM3' is a chip: did you mean its instruction, such as hw(h100, "),
    ("MI325X", "'MI325X' is a chip: did you mean its instruction, such as hw(mi325x, mfma, "),
    ("tpu v4", "'tpu v4' is a chip: the tables have no model of Google TPU"),
    ("e4m33x", "Did you mean 'e4m3'"),
])  # fmt: skip
def test_what_may_have_been_meant_comes_first(text, hint):
    with pytest.raises(FormatError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith(f"unknown format {text!r}. {hint}") and "eXmY" not in message
    first, last = message.split("\n")
    assert (
        first.endswith(("?", ".")) and last.startswith("  Formats allowed: ") and "`gemmsim formats` lists them" in last
    )
    with pytest.raises(FormatError) as caught:
        GemmSpec.parse(f"{text} : fp32")
    assert str(caught.value) == f"GemmSpec, a: {message}"


def test_a_context_says_first_what_may_have_been_meant():
    with pytest.raises(gs.FormatError, match=r"unknown format 'exact'. Did you mean the accumulator exact\(\)\?\n"):
        gs.emulate("exact")


def test_a_name_like_none_says_where_the_names_are():
    with pytest.raises(FormatError) as caught:
        parse("Nonsense !")
    assert str(caught.value) == (
        "unknown format 'Nonsense !'; allowed: names such as e4m3, bf16, e5m10 and fixed(8,4).\n"
        "  `gemmsim formats` lists them, and so does gemmsim.formats.names()."
    )


def test_no_suggestion_is_what_was_written():
    from gemmsim.formats.errors import suggestion

    assert suggestion("e4m3", ["e4m3"]) == "" and "'e4m3'" not in suggestion("e4m3", ["e4m3", "e4m3fn"])
    for text in (":chunked(64, fp16, kahan(fp16))", ":chunked(16, int(18), int(24))", "kahan(fp16) : fp32", "nvfp4"):
        with pytest.raises(gs.SpecError) as caught:
            GemmSpec.parse(text)
        meant = re.findall(r"Did you mean (.*?)\?", str(caught.value))
        assert not meant, text


def test_errors_of_qmatmul_name_it():
    import torch

    a = torch.ones(2, 3)
    for call, error in (
        (lambda: gs.qmatmul(a, a, ":fp32"), gs.ShapeError),
        (lambda: gs.qmatmul(a, a, "mxfp8_e4m3 : fp32"), gs.ShapeError),
        (lambda: gs.qmatmul(a.cfloat(), a.T, ":fp32"), gs.DTypeError),
        (lambda: gs.qmatmul(torch.ones(2, 2, 3), torch.ones(3, 3, 2), ":fp32"), gs.ShapeError),
        (lambda: gs.qmatmul(a, a.T, ":fp32", out_dtype=torch.int32), gs.DTypeError),
    ):
        with pytest.raises(error, match="^qmatmul: "):
            call()
