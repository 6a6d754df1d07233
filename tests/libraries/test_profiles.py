"""Profiles: the schema refuses what does not fit and names file and row; rows are what the published tables have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gemmsim as gs
from gemmsim.libraries.evidence import LEVELS
from gemmsim.libraries.profile import FOLDER, load, read_profile

FILES = sorted(FOLDER.glob("*.json"))
PAIRS = [("gb200", "12.8.5"), ("gb200", "13.1.1"), ("gb300", "13.1.1"), ("h100", "13.1.1"), ("h200", "13.1.1")]
FP8_ONLY = [("h100-pcie", "12.8.3.14"), ("rtx4060", "12.8.3.14")]


def data() -> dict:
    return json.loads((FOLDER / "h100-13.1.1.json").read_text(encoding="utf-8"))


def test_there_is_one_file_for_each_gpu_and_version():
    assert [*load()] == sorted([*PAIRS, *FP8_ONLY])
    assert [path.stem for path in FILES] == [f"{gpu}-{version}" for gpu, version in sorted([*PAIRS, *FP8_ONLY])]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_chain_is_a_spec_of_its_operands(path):
    for row in read_profile(path.name, path.read_text(encoding="utf-8")).chains.values():
        for text in filter(None, (row.chain, row.promoted)):
            spec = gs.GemmSpec.parse(f"{row.a} * {row.b} : {text.replace('{first}', '128')} -> fp32")
            assert spec.accumulator.operand_casts is not None
            instruction = getattr(getattr(spec.accumulator, "inner", spec.accumulator), "instruction", None)
            if instruction is not None:
                assert instruction.model.products == row.step


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_row_says_how_sure_it_is(path):
    profile = read_profile(path.name, path.read_text(encoding="utf-8"))
    for rows in (profile.operands, profile.families, profile.stages, profile.chains, profile.merges):
        assert {row.evidence for row in rows.values()} <= set(LEVELS)
    assert all(0 <= row.equal <= row.of for row in profile.sources)
    assert any(row.of for row in profile.sources if profile.gpu != "gb200" or row.of)


CHANGES = {
    "another format": lambda d: d.update(format="gemmsim-library-profile/2"),
    "a missing list": lambda d: d.pop("stages"),
    "an unknown list": lambda d: d.update(extra=[]),
    "a number of SMs as text": lambda d: d.update(sms="132"),
    "a bool for a number of SMs": lambda d: d.update(sms=True),
    "stages: a list": lambda d: d.update(stages={}),
    "families[0]": lambda d: d["families"][0].pop("algo"),
    "stages[3]": lambda d: d["stages"][3].update(block=64.0),
    "stages[4]": lambda d: d["stages"][4].update(evidence="certain"),
    "stages[5]": lambda d: d["stages"].insert(5, dict(d["stages"][4])),
    "chains[1]": lambda d: d["chains"][1].update(colour="red"),
    "merges[2]": lambda d: d["merges"][2].update(how="atomic"),
    "gemmsn[1]": lambda d: d["gemmsn"].__setitem__(1, 7),
    "gemv[2]": lambda d: d["gemv"][2].update(options=["0"]),
    "gemv[4]": lambda d: d["gemv"][4].update(options=[0]),
    "caps[0]": lambda d: d["caps"][0].pop("outputs"),
    "operands[1]": lambda d: d["operands"].insert(1, dict(d["operands"][0])),
    "families[1].family": lambda d: d["families"][1].update(family="cutlas"),
}


@pytest.mark.parametrize("place", CHANGES)
def test_what_does_not_fit_the_schema_is_refused_by_file_and_row(place):
    changed = data()
    CHANGES[place](changed)
    with pytest.raises(gs.libraries.LibraryError, match=r"some\.json: ") as refusal:
        read_profile("some.json", json.dumps(changed))
    if "[" in place:
        assert place in str(refusal.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "{}", '"h100"', pytest.param("[" * 200_000, id="nested")])
def test_text_that_is_no_profile_is_refused(text):
    with pytest.raises(gs.libraries.LibraryError, match=r"some\.json: "):
        read_profile("some.json", text)


#: STAGES_ID -> k step of a thread block, products of an instruction, as published.
STAGES = {0: (32, 8), **dict.fromkeys((7, 8, 9, 10, 11, 12, 25), (32, 16)), **dict.fromkeys(range(13, 19), (64, 16))}
STAGES |= {19: (128, 16), 20: (128, 16)}
#: Options of gemv with halves: width, lanes -> options that all GPUs have, and those of sm_90 alone.
HALVES = {
    (1, 2): ((49, 57, 63, 95), ()),
    (1, 4): ((41, 51, 59, 65, 69), (111,)),
    (1, 8): ((43, 53, 61, 67), (89,)),
    (1, 16): ((35, 45, 55, 81, 91), (101,)),
    (1, 32): ((37, 47, 75, 83, 93), ()),
    (-64, 2): ((48, 56, 62), (102,)),
    (-64, 4): ((40, 50, 58, 86), (68, 96, 110)),
    (-64, 8): ((42, 52, 60, 66, 98), (106,)),
    (-64, 16): ((44, 54, 90), (72, 100)),
    (-64, 32): ((36, 46, 82), (74, 92)),
    (4, 32): ((10,), ()),
}
SINGLE = {"sm_100": {0: 0, 6: 0, 7: 0, 8: 0, 84: 0}, "sm_103": {0: 0, 6: 0, 7: 0, 8: 256, 84: 0}}
SINGLE["sm_90"] = {0: 512, 6: 0, 7: 256, 8: 256, 84: 0}


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_rows_are_the_published_ones(pair):
    profile = load()[pair]
    cutlass = {stage: (row.block, row.step) for (family, stage), row in profile.stages.items() if family == "cutlass"}
    assert cutlass == STAGES
    nvjet = {stage: (row.block, row.step) for (family, stage), row in profile.stages.items() if family == "nvjet"}
    assert nvjet == {35: (64, 16), 36: (128, 32)}
    on_hopper = profile.capability == "sm_90"
    for (width, lanes), (everywhere, hopper) in HALVES.items():
        options = everywhere + (hopper if on_hopper else ())
        rows = {option: row for option, row in profile.gemv.items() if row.combine == "halves"}
        found = [option for option, row in rows.items() if (row.width, row.lanes) == (width, lanes)]
        assert sorted(found) == sorted(options), (width, lanes)
    assert {o: row.chunk for o, row in profile.gemv.items() if row.lanes == 1} == SINGLE[profile.capability]
    assert {o: row.chunk for o, row in profile.gemv.items() if row.combine == "sequential"} == {
        5: 16, 11: 32, 12: 16, 13: 16, 14: 16,
    }  # fmt: skip
    assert len(profile.gemv) == (64 if on_hopper else 52)
    assert {algo: row.family for algo, row in profile.families.items() if row.family != "refused"} == {
        66: "nvjet", 21: "cutlass", 23: "cutlass", 24: "cutlass", 12: "cutlass", 11: "gemmsn", 16: "gemmsn",
        13: "gemv", 14: "dot",
    }  # fmt: skip
    assert {algo for algo, row in profile.families.items() if row.family == "refused"} == (
        {41, 56} if on_hopper else set()
    )
    assert {value: row.how for (family, value), row in profile.merges.items()} == {
        0: "serial", 1: "serial", 2: "compute", 4: "output",
    }  # fmt: skip
    assert profile.caps["gemv", 10].outputs == {"h100": 8448, "h200": 8448, "gb200": 9728, "gb300": 9728}[profile.gpu]


def test_what_differs_between_profiles():
    """Profiles share nothing; where they differ is a finding, and this is all of it."""
    base = load()["gb200", "13.1.1"]
    assert set(_differences(base, load()["gb200", "12.8.5"])) == {"version"}
    assert set(_differences(base, load()["gb300", "13.1.1"])) == {
        "gpu",
        "name",
        "capability",
        "gemv",
        "sources",
        "caps",
    }
    hopper = set(_differences(base, load()["h100", "13.1.1"]))
    assert hopper == {"gpu", "name", "capability", "sms", "families", "chains", "gemv", "caps", "sources"}


def test_the_h200_has_the_rules_of_the_h100_and_evidence_of_its_own():
    base, other = load()["h100", "13.1.1"], load()["h200", "13.1.1"]
    plain = ("capability", "sms", "version", "merge_fields", "caps", "unsplit", "splits")
    assert all(getattr(base, name) == getattr(other, name) for name in plain)
    for name in ("operands", "families", "stages", "chains", "merges", "gemmsn", "gemv"):
        mine, theirs = getattr(other, name), getattr(base, name)
        assert mine.keys() == theirs.keys()
        for key, row in mine.items():
            rest = {
                field: getattr(theirs[key], field)
                for field in row._fields
                if field in ("evidence", "split", "one_product")
            }
            assert row._replace(**rest) == theirs[key], (name, key)
    plans = [gs.libraries.cublaslt("h200").plan(*shape, fmt, config=config) for shape, fmt, config in (
        ((64, 64, 8192), "bf16", "66,,4,2,,,35"), ((64, 64, 8192), "bf16", "21,,1,0,,,13"),
    )]  # fmt: skip
    assert plans[0].family == "nvjet" and plans[1].evidence == "inferred"


def _differences(one, other) -> list[str]:
    return [name for name in one._fields if getattr(one, name) != getattr(other, name)]


def test_the_files_are_read_once_and_when_they_are_asked_for(tmp_path):
    assert load() is load()
    assert isinstance(FOLDER, Path)


def test_known_lists_every_profile():
    found = gs.libraries.known()
    assert [(row.gpu, row.version) for row in found] == [*load()]
    text = str(found)
    assert len(found) == 7 and "1,886,731 of 1,890,189 equal" in text and repr(found) == text
    assert "<table" in found._repr_html_()
    assert json.loads(json.dumps(found.to_list()))[3]["sms"] == 132
