"""``QAffineFormats`` as a value: what it reads, how it compares, prints, pickles, and what follows from it."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
import torch

import gemmsim as gs
from gemmsim import QAffineFormats as Q
from gemmsim.formats import E4M3, E5M2, FixedFormat, Rounding, parse_cast


def spec(text):
    return gs.GemmSpec.of(text)


def named_function(t):
    return t


SAME = [
    (Q("e5m10"), Q(fprop=":e5m10")),
    (Q(("e5m10",)), Q(fprop=":e5m10")),
    (Q(gs.formats.parse("e5m10")), Q(fprop=":e5m10")),
    (Q(("e5m10", "e5m7")), Q(fprop=":mul=e5m7, add=e5m10")),
    (Q(()), Q()),
    (Q(None, "e5m2"), Q(dgrad=":e5m2", wgrad=":e5m2")),
    (Q("e5m10", fwd_rnd="truncate"), Q(fprop=":e5m10/rtz")),
    (Q("e5m10/ru", fwd_rnd="rtz"), Q(fprop=":e5m10/rtz")),
    (Q("e5m10/ru"), Q(fprop=":e5m10/ru")),
    (Q(("e5m10", "e5m7"), None, ("sr", "rtz")), Q(fprop=":mul=e5m7/rtz, add=e5m10/sr16")),
    (Q("e5m10", None, "stochastic", rbits=8), Q(fprop=":e5m10/sr8")),
    (Q(("e5m10", "e5m7"), None, "sr", rbits=(8, 4)), Q(fprop=":mul=e5m7/sr4, add=e5m10/sr8")),
    (Q(weight_quant="e4m3"), Q(weight_quant=E4M3)),
    (Q(weight_quant=(E4M3, "truncate")), Q(weight_quant="e4m3/rtz")),
    (Q(weight_quant=("e4m3", Rounding.RU)), Q(weight_quant=parse_cast("e4m3/ru"))),
    (Q(weight_quant=("e4m3", "sr"), rbits=(8, 4)), Q(weight_quant="e4m3/sr8")),
    (Q(fprop=gs.acc.sequential("e5m10", "e5m7")), Q(fprop=spec(":mul=e5m7, add=e5m10"))),
    (Q(weight_quant=named_function), Q(weight_quant=named_function)),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_two_ways_of_saying_it_are_one_value(left, right):
    assert left == right and hash(left) == hash(right) and left.plan == right.plan


def test_different_meanings_differ():
    values = [
        Q(),
        Q("e5m10"),
        Q(None, "e5m10"),
        Q("e5m10", use_scaling=True),
        Q("e5m10", seed=1),
        Q("e5m10", scale_margin=1),
    ]
    assert len(set(values)) == len(values)


FULL = Q(
    fprop="e4m3 * e5m2 : mul=e5m7, add=e5m10/sr8 -> bf16",
    dgrad="e5m2 : e5m3",
    weight_quant="e4m3/rtz",
    bias_quant="bf16",
    input_quant="fixed(8,4)",
    output_quant="e5m10/sat",
    grad_quant="e5m2/sr4",
    use_scaling=True,
    scale_margin=2,
    seed=2**64 - 1,
)


@pytest.mark.parametrize("formats", [Q(), Q("e5m10", "e5m2"), FULL, Q.of("e4m3 : e5m10")], ids=repr)
def test_round_trips(formats):
    assert pickle.loads(pickle.dumps(formats)) == formats
    assert copy.deepcopy(formats) == formats == copy.copy(formats)
    assert Q.from_dict(formats.to_dict()) == formats
    assert eval(repr(formats), {"QAffineFormats": Q}) == formats
    assert dataclasses.replace(formats) == formats
    assert pickle.loads(pickle.dumps(formats)).plan == formats.plan


def test_to_dict_is_text_and_numbers():
    import json

    assert json.loads(json.dumps(FULL.to_dict())) == FULL.to_dict()
    assert Q().to_dict() == {}
    blocks = Q(fwd_mac=("bfp(8,1)", "bfp(6,1)/sr8"), input_quant="bfp(8,16)", weight_quant="MXFP8[E4M3]{32}")
    assert Q.from_dict(blocks.to_dict()) == blocks
    with pytest.raises(gs.FormatError, match="function"):
        Q(weight_quant=named_function).to_dict()
    with pytest.raises(gs.SpecError, match="wieght_quant"):
        Q.from_dict({"wieght_quant": "e4m3"})


def test_functions_pickle_by_name_and_modules_with_formats_save():
    import io

    assert pickle.loads(pickle.dumps(Q(weight_quant=torch.round))) == Q(weight_quant=torch.round)
    module = torch.nn.Linear(2, 2)
    module.formats = FULL
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=False).formats == FULL
    assert list(module.state_dict()) == ["weight", "bias"]


def test_values_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        FULL.scale_margin = 3


def test_scaled_formats_follow_quantisers_then_specs():
    both = Q(fprop="e5m2 * e3m2 : e5m10", input_quant="e4m3", weight_quant=("e4m3", "rtz"), grad_quant=E5M2)
    assert (both.input_scaled_format, both.weight_scaled_format, both.grad_scaled_format) == (E4M3, E4M3, E5M2)
    specs = Q(fprop="e5m2 * e4m3 : e5m10", dgrad="e5m2 * e4m3 : e5m10")
    assert (specs.input_scaled_format, specs.weight_scaled_format, specs.grad_scaled_format) == (E5M2, E4M3, E5M2)
    assert Q(input_quant="fixed(8,4)").input_scaled_format is None
    assert Q(input_quant=named_function, fprop="e4m3 : e5m10").input_scaled_format is None
    given = Q(input_quant="e4m3", input_scaled_format="fixed(8,4)")
    assert given.input_scaled_format == FixedFormat(8, 4)


def test_of_a_spec_drops_operand_formats_in_the_backward_pass():
    formats = Q.of("e4m3 * e5m2 : e5m10 -> bf16, arithmetic=fp32")
    assert formats.fprop == spec("e4m3 * e5m2 : e5m10 -> bf16, arithmetic=fp32")
    assert formats.dgrad == formats.wgrad == spec(":e5m10 -> bf16, arithmetic=fp32")
    assert Q.of(formats) is formats and Q.of(None) == Q()
    assert Q.of("e4m3 : e5m10") is Q.of("e4m3 : e5m10")


def test_which_directions_are_pytorchs_own():
    assert (Q().fwd_use_default_prec, Q().bwd_use_default_prec) == (True, True)
    assert (Q("e5m10").fwd_use_default_prec, Q("e5m10").bwd_use_default_prec) == (False, True)
    assert not Q(wgrad=":e5m10").bwd_use_default_prec


def test_with_arithmetic_changes_every_product():
    formats = Q("e5m10", "e5m2").with_arithmetic("fp32")
    assert all(getattr(formats, role).arithmetic == "fp32" for role in ("fprop", "dgrad", "wgrad"))
    assert Q().with_arithmetic("fp32") == Q()
