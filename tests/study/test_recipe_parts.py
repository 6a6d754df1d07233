"""Recipes without one of their parts: each edit takes away what it says, and nothing else."""

from __future__ import annotations

import pytest

import gemmsim as gs
from gemmsim.study.errors import StudyError
from gemmsim.study.recipe_parts import BASELINE, FULL, PARTS, RECIPES, part_names, variant, variants

ROLES = ("fprop", "dgrad", "wgrad")
ALL = [(recipe, part.name) for recipe, parts in PARTS.items() for part in parts]


def products(one):
    formats = gs.QAffineFormats.of(one.formats)
    return {role: str(getattr(formats, role)) for role in ROLES}


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_whole_recipe_is_the_recipe(recipe):
    whole = variant(recipe, FULL)
    assert gs.QAffineFormats.of(whole.formats) == getattr(gs.recipes, recipe)()
    assert whole.keeps_layers and whole.label == recipe
    assert [one.without for one in variants(recipe, part_names())] == [FULL, *(part.name for part in PARTS[recipe])]
    assert [one.without for one in variants(recipe, ())] == [FULL]


@pytest.mark.parametrize(("recipe", "part"), ALL)
def test_every_part_is_taken_away(recipe, part):
    whole, less = variant(recipe, FULL), variant(recipe, part)
    assert (less.formats != whole.formats) is (part != "bf16-layers")
    assert less.keeps_layers is (part != "bf16-layers")
    assert less.label == f"{recipe} without {part}"


V3, HOPPER = "scaled(hw(hopper, wgmma, e4m3))", "hw(hopper, wgmma, e4m3)"
SR = "e2m1/sr16/sat@1x16/nvfp4"
#: What products are changed, and to what.
CHANGED = {
    ("hopper_fp8_current", "scales"): {
        "fprop": f"e4m3/sat : {HOPPER}",
        "dgrad": "e5m2/sat * e4m3/sat : promote(hw(hopper, wgmma, e5m2, e4m3), 128)",
        "wgrad": "e5m2/sat * e4m3/sat : promote(hw(hopper, wgmma, e5m2, e4m3), 128)",
    },
    ("hopper_fp8_current", "e5m2"): {
        "dgrad": f"e4m3/sat@tensor : scaled(promote({HOPPER}, 128))",
        "wgrad": f"e4m3/sat@tensor : scaled(promote({HOPPER}, 128))",
    },
    ("hopper_fp8_current", "promotion"): {
        "dgrad": "e5m2/sat@tensor * e4m3/sat@tensor : scaled(hw(hopper, wgmma, e5m2, e4m3))",
        "wgrad": "e5m2/sat@tensor * e4m3/sat@tensor : scaled(hw(hopper, wgmma, e5m2, e4m3))",
    },
    ("deepseek_v3", "blocks"): {
        "fprop": f"e4m3/sat@tensor/divide : scaled(promote({HOPPER}, 128))",
        "dgrad": f"e4m3/sat@tensor/divide : scaled(promote({HOPPER}, 128))",
        "wgrad": "e4m3/sat@tensor/divide * e4m3/sat@tensor/divide/stored(e4m3/sat@tensor/divide) : "
        f"scaled(promote({HOPPER}, 128))",
    },
    ("deepseek_v3", "square-weights"): {
        "fprop": f"e4m3/sat@1x128/divide : {V3}",
        "dgrad": f"e4m3/sat@1x128/divide : {V3}",
    },
    ("deepseek_v3", "promotion"): {
        "fprop": f"e4m3/sat@row/divide * e4m3/sat@128xall/divide : {V3}",
        "dgrad": f"e4m3/sat@row/divide * e4m3/sat@128xall/divide : {V3}",
        "wgrad": f"e4m3/sat@row/divide * e4m3/sat@row/divide/stored(e4m3/sat@row/divide) : {V3}",
    },
    ("deepseek_v3", "stored"): {"wgrad": f"e4m3/sat@1x128/divide : {V3}"},
    ("mxfp8_pretraining", "round-up"): dict.fromkeys(ROLES, "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)"),
    ("mxfp8_pretraining", "e4m3-gradients"): dict.fromkeys(ROLES[1:], "mxfp8_e5m2/rceil * mxfp8_e4m3/rceil : hw(blackwell, mxf8f6f4, e5m2, e4m3)"),
    ("mxfp8_pretraining", "blocks"): dict.fromkeys(ROLES, "e4m3/sat@tensor/divide/pow2 : scaled(hw(blackwell, tcgen05, e4m3))"),
    ("mxfp8_pretraining", "bf16-layers"): {},
    ("nvfp4_pretraining", "hadamard"): {"wgrad": f"{SR} * e2m1/sat@1x16/nvfp4 : hw(blackwell, mxf4nvf4, e2m1)"},
    ("nvfp4_pretraining", "stochastic"): {
        "dgrad": "e2m1/sat@1x16/nvfp4 * e2m1/sat@16x16/nvfp4 : hw(blackwell, mxf4nvf4, e2m1)",
        "wgrad": "e2m1/sat@1x16/nvfp4/hadamard(16,0) : hw(blackwell, mxf4nvf4, e2m1)",
    },
    ("nvfp4_pretraining", "square-weights"): {
        "fprop": "e2m1/sat@1x16/nvfp4 : hw(blackwell, mxf4nvf4, e2m1)",
        "dgrad": f"{SR} * e2m1/sat@1x16/nvfp4 : hw(blackwell, mxf4nvf4, e2m1)",
    },
    ("nvfp4_pretraining", "bf16-layers"): {},
    ("mxfp4_hadamard", "hadamard"): dict.fromkeys(ROLES[1:], "e2m1/sr16/sat@1x32/floor/gain(0.75) : hw(blackwell, mxf4, e2m1)"),
    ("mxfp4_hadamard", "stochastic"): dict.fromkeys(ROLES[1:], "e2m1/sat@1x32/floor/hadamard(64,0)/gain(0.75) : hw(blackwell, mxf4, e2m1)"),
    ("mxfp4_hadamard", "gain"): dict.fromkeys(ROLES[1:], "e2m1/sr16/sat@1x32/floor/hadamard(64,0) : hw(blackwell, mxf4, e2m1)"),
    ("mxfp4_hadamard", "all-three"): dict.fromkeys(ROLES[1:], "e2m1/sat@1x32/floor : hw(blackwell, mxf4, e2m1)"),
    ("torchao_tensorwise", "scales"): {
        "fprop": f"e4m3/sat : {HOPPER}",
        "dgrad": "e5m2/sat * e4m3/sat : promote(hw(hopper, wgmma, e5m2, e4m3), 128)",
        "wgrad": "e5m2/sat * e4m3/sat : promote(hw(hopper, wgmma, e5m2, e4m3), 128)",
    },
    ("torchao_rowwise", "rows"): {
        "fprop": f"e4m3/sat@tensor/pow2/least(1e-12) : {V3}",
        "dgrad": f"e4m3/sat@tensor/pow2/least(1e-12) : scaled(promote({HOPPER}, 128))",
        "wgrad": f"e4m3/sat@tensor/pow2/least(1e-12) : scaled(promote({HOPPER}, 128))",
    },
    ("torchao_rowwise_gw_hp", "bf16-wgrad"): {
        "wgrad": f"e4m3/sat@row/pow2/least(1e-12) : scaled(promote({HOPPER}, 128))"
    },
}  # fmt: skip


@pytest.mark.parametrize(("recipe", "part"), CHANGED)
def test_nothing_else_is_taken_away(recipe, part):
    whole = products(variant(recipe, FULL))
    want = {role: str(gs.GemmSpec.of(text)) for role, text in CHANGED[recipe, part].items()}
    assert products(variant(recipe, part)) == whole | want


def test_torchaos_tensorwise_loses_the_same_parts_as_the_other_hopper_recipe():
    for part in ("e5m2", "promotion"):
        found = products(variant("torchao_tensorwise", part))
        other = products(variant("hopper_fp8_current", part))
        assert {role: text.replace("/least(1e-12)", "") for role, text in found.items()} == other


def test_stochastic_variants():
    random = {
        (one.recipe, one.without) for recipe in RECIPES for one in variants(recipe, part_names()) if one.stochastic
    }
    assert random == {
        *(("nvfp4_pretraining", part) for part in (FULL, "hadamard", "square-weights", "bf16-layers")),
        *(("mxfp4_hadamard", part) for part in (FULL, "hadamard", "gain")),
    }
    assert gs.QAffineFormats.of(BASELINE).wgrad == gs.GemmSpec.of("bf16 : fp32")


@pytest.mark.parametrize(
    ("recipe", "part", "said"),
    [
        ("nvfp4_pretrainin", FULL, "Did you mean 'nvfp4_pretraining'"),
        ("deepseek_v3", "hadamard", "allowed: blocks, square-weights, promotion, stored"),
        ("nvfp4_pretraining", "hadamar", "Did you mean 'hadamard'"),
    ],
)
def test_bad_input(recipe, part, said):
    with pytest.raises(StudyError, match=said):
        variant(recipe, part)
