"""``gemmsim.mx.compare_modes``: outcomes are those of encode and decode, differences where the systems have them."""

from __future__ import annotations

import pytest
import torch

import gemmsim as gs
from gemmsim.mx.compare import MODES, main


@pytest.mark.parametrize(
    "fmt", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "mxint8", "mxfp4/b16"]
)
def test_every_outcome_is_what_encode_and_decode_give(fmt):
    cases = gs.mx.compare_modes(fmt)
    assert len(cases) == 13 and sum(case.differs for case in cases) >= 7
    size = gs.formats.parse(fmt).block_size
    for case in cases:
        assert [mode in case.outcomes for mode in MODES] == [
            not (mode == "torchmx" and "e5m2" in fmt) for mode in MODES
        ]
        dtype = torch.bfloat16 if "bfloat16" in case.what else torch.float32
        x = torch.zeros(size, dtype=dtype)
        x[: len(case.block)] = torch.tensor(case.block)
        for name, text in case.outcomes.items():
            encoded = gs.mx.encode(x, f"{fmt}/{name}", packing="bytes")
            code, values = text.split(": ")
            assert int(code) == encoded.scales.item()
            got = [float.fromhex(v) if "x" in v else float(v) for v in values.split()]
            want = gs.mx.decode(encoded, f"{fmt}/{name}", packing="bytes")[: len(got)]
            assert torch.equal(torch.tensor(got).view(torch.int32) & -1, want.view(torch.int32)) or want.isnan().any()


def test_the_command(capsys):
    assert main(["mxfp4"]) == 0
    out = capsys.readouterr().out
    assert "just below half of the least element: 4 0x1.fffffep-3\n" in out and "  127: 4 0.5  microxcaling\n" in out
    assert main(["nvfp4"]) == 2 and main(["mxfp4", "mxfp8"]) == 2
    errors = capsys.readouterr().err
    assert "e8m0" in errors and "usage" in errors
