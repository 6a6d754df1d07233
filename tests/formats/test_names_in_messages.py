"""Messages about names show them as they were written, put first what may have been meant, and leave the grammar out."""

from __future__ import annotations

import re

import pytest
import torch

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
    ("kahan(fp16)", "'kahan' makes an accumulator; here a format is needed."),
    ("cublas_fp32(h100)", "'cublas_fp32' makes an accumulator; here a format is needed."),
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
    for text in (
        ":chunked(64, fp16, kahan(fp16/sr8))",
        ":chunked(16, int(18), int(24))",
        "kahan(fp16) : fp32",
        "nvfp4",
    ):
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


@pytest.mark.parametrize("text, said", [
    ("rn", "'rn' is a rounding mode, which follows a format: 'bf16/rn'."),
    ("SR8", "'SR8' is a rounding mode, which follows a format: 'bf16/sr8'."),
    ("sat", "'sat' is an overflow policy, which follows a format: 'bf16/sat'."),
    ("ftz", "'ftz' is an option, which follows a format: 'bf16/ftz'."),
    ("table", "A format that is a list of values needs the values: 'codebook(-1, 0, 1)'."),
    ("table(4)", "A format that is a list of values needs the values: 'codebook(-1, 0, 1)'."),
    ("palette(4)", "A format that is a list of values needs the values: 'codebook(-1, 0, 1)'."),
    ("codebook", "A format that is a list of values needs the values: 'codebook(-1, 0, 1)'."),
    ("bf16 * bf16", "That is the spec of a product, such as 'bf16 * bf16 : fp32'; here one format is needed."),
    ("bf16 : fp32", "That is the spec of a product, such as 'bf16 * bf16 : fp32'; here one format is needed."),
    ("bf16->fp16", "That is the spec of a product, such as 'bf16 * bf16 : fp32'; here one format is needed."),
])  # fmt: skip
def test_words_of_specs_that_are_no_formats_say_where_they_stand(text, said):
    for read in (parse, parse_cast, lambda text: gs.quantize(torch.ones(1), text)):
        with pytest.raises(FormatError) as caught:
            read(text)
        first, _, rest = str(caught.value).partition("\n")
        assert first.startswith(f"unknown format {text!r}. {said}") and rest.startswith("  Formats allowed: ")
    advised = re.findall("'(bf16/[^']+|codebook[^']+)'", said)
    assert all(parse_cast(one) for one in advised)


@pytest.mark.parametrize("text", ["mxfp12", "mxfp8_e4m4", "mxfp6", "mxqqq"])
def test_an_unknown_block_format_names_the_nearest_and_the_list(text):
    """The same wherever it stands, in a few words, and no matter whether blocks may stand there."""
    for read in (parse, parse_cast, lambda text: GemmSpec.parse(f"{text} : fp32"), GemmSpec.parse):
        with pytest.raises(FormatError) as caught:
            read(text)
        said = str(caught.value)
        assert f"unknown block format {text!r}" in said and "`gemmsim formats` lists them" in said and len(said) < 260
        assert ("Did you mean 'mxfp" in said) == (text != "mxqqq")


@pytest.mark.parametrize("text", ["mxfp4", "mxint8", "mxfp6_e3m2/b16", "mx(e3m2)"])
@pytest.mark.parametrize("read", [GemmSpec.parse, gs.emulate, gs.acc.chunked], ids=["spec", "emulate", "chunked"])
def test_blocks_as_an_accumulator_advise_a_spec_that_is_read(text, read):
    with pytest.raises(FormatError, match="is a format of blocks, which operands have") as caught:
        read(text) if read is not gs.acc.chunked else read(4, text)
    advised = re.findall("'([^']+)'", str(caught.value))[-1]
    a, b = torch.randn(4, 32), torch.randn(32, 4)
    assert advised == f"{text} : fp32" and gs.qmatmul(a, b, advised).shape == (4, 4)
