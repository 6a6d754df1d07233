"""The kind hardware with chips that take different operand formats: who refuses which, and what to write instead."""

from __future__ import annotations

import shlex

import pytest

from gemmsim import study
from gemmsim.study.errors import StudyError

#: archs, dtype, who refuses, what to write instead.
REFUSED = [
    ("h100/wgmma mi300/mfma", "e4m3", "mi300/mfma does not take e4m3", "h100/wgmma mi300/mfma/e4m3fnuz"),
    ("h100 mi300x fp32", "e4m3", "mi300x/mfma does not take e4m3", "h100/wgmma mi300x/mfma/e4m3fnuz 'fp32 = :e8m23'"),
    ("h100/wgmma mi300/mfma", "e4m3fnuz", "h100/wgmma does not take e4m3fnuz", "h100/wgmma/e4m3 mi300/mfma"),
    ("h100/wgmma mi300/mfma", "e5m2", "mi300/mfma does not take e5m2", "h100/wgmma mi300/mfma/e5m2fnuz"),
    ("a100/mma/xf32 mi300", "tf32", "a100/mma does not take xf32", "a100/mma/tf32 mi300/mfma"),
    ("h100/wgmma a100", "e4m3", "a100/mma does not take e4m3", "h100/wgmma a100/mma/f16"),
    ("v100/mma t4/mma", "e4m3", "t4/mma does not take e4m3", "v100/mma/f16 t4/mma/f16"),
    ("'x = h100' 'y = mi300/mfma'", "e4m3", "y = cdna3/mfma does not", "'x = hopper/wgmma' 'y = cdna3/mfma/e4m3fnuz'"),
    ("h100/wgmma mi300/mfma", "e4m3/row", "mi300/mfma does not", "e4m3fnuz/row --archs h100/wgmma/e4m3 mi300/mfma"),
]


@pytest.mark.parametrize(("archs", "dtype", "who", "do"), REFUSED, ids=[f"{a}, {d}" for a, d, _, _ in REFUSED])
def test_a_chip_that_refuses_a_format_is_named_and_what_to_write_does(archs, dtype, who, do):
    given = {"archs": shlex.split(archs), "dtype": dtype if "/" in dtype else f"{dtype}/none"}
    with pytest.raises(StudyError) as caught:
        study.kind("hardware")(**given).cells()
    text = str(caught.value)
    assert who in text and "; allowed there: " in text and do in text
    assert ("than 240 are NaN in e4m3fnuz" in text) == ("mfma/e4m3fnuz" in do)
    words = shlex.split(text.partition("--dtype ")[2].partition("\n")[0])
    assert words[1] == "--archs" and study.kind("hardware")(dtype=words[0], archs=words[2:], K=32).cells()


def test_nothing_is_offered_where_no_format_does():
    with pytest.raises(StudyError, match="v100/mma does not take bf16; allowed there: f16.\n  Leave it out") as caught:
        study.kind("hardware")(archs=["v100", "a100"], dtype="bf16").cells()
    assert "--archs" not in str(caught.value)
