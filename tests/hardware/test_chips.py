"""Chips by the names people type: each is an architecture of the tables, or an error says that it has no model."""

from __future__ import annotations

import re

import pytest

import gemmsim as gs
from gemmsim import hardware
from gemmsim.hardware.chips import chip_key, without_model
from gemmsim.hardware.devices import CAPABILITIES

NAMES = {
    "volta": "V100; Tesla V100-SXM2-16GB; TITAN V; sm_70; sm70; sm_72",
    "turing": "T4; Tesla T4; RTX 2080 Ti; NVIDIA GeForce RTX 2060 SUPER; Quadro RTX 6000; sm_75; compute_75",
    "ampere": """A100; a800; A2; A10; A10G; nvidia a10; A30; A40; NVIDIA A100-SXM4-80GB; RTX 3060; rtx-3070; RTX_3080;
        GeForce RTX 3080 Ti; rtx3090; RTX A6000; A6000; 3090; sm_80; sm_86; SM87; Jetson AGX Orin""",
    "ada": """L4; L40; L40S; RTX 1000 Ada; RTX 4060; RTX 4070 Ti SUPER; RTX 4080; RTX 4090; 4090; Ada Lovelace;
        NVIDIA RTX 6000 Ada Generation; NVIDIA GeForce RTX 4090 Laptop GPU; sm_89""",
    "hopper": "H20; H100; H100 NVL; H100NVL; h100-pcie; H200SXM; Grace Hopper; H200; H800; GH200; NVIDIA GH200 480GB; NVIDIA H100 80GB HBM3; sm_90; sm_90a; sm90",
    "blackwell": "B200; GB200; NVIDIA B200; sm_100; sm_100a; sm_100f",
    "rtx_blackwell": """RTX 5060; RTX 5070 Ti; RTX 5080; RTX 5090; RTX PRO 6000; RTX-Blackwell; GB10; DGX Spark; sm_120; sm_121a;
        NVIDIA RTX PRO 6000 Blackwell Workstation Edition""",
    "cdna1": "MI100; AMD Instinct MI100; gfx908; CDNA 1",
    "cdna2": "MI210; MI250; MI250X; gfx90a",
    "cdna3": "MI300; MI300A; MI300X; AMD Instinct MI300X; mi-325x; gfx940; gfx941; gfx942; MI308; mi300x-oam",
}
PAIRS = [(name.strip(), arch) for arch, names in NAMES.items() for name in names.split(";")]
WITHOUT = {
    "B300": "blackwell (b200)",
    "NVIDIA GB300": "blackwell (b200)",
    "sm_103": "blackwell (b200)",
    "sm_103a": "blackwell (b200)",
    "MI350X": "cdna3 (mi300x)",
    "AMD Instinct MI355X": "cdna3 (mi300x)",
    "gfx950": "cdna3 (mi300x)",
    "RX 7900 XTX": "cdna3 (mi300x)",
    "Radeon RX 9070 XT": "cdna3 (mi300x)",
    "RDNA4": "cdna3 (mi300x)",
    "gfx1100": "cdna3 (mi300x)",
    "gfx1201": "cdna3 (mi300x)",
    "P100": "volta (v100)",
    "TPU v5e": None,
    "Gaudi 3": None,
    "Intel Max 1550": None,
}


@pytest.mark.parametrize(("name", "arch"), PAIRS, ids=[name for name, _ in PAIRS])
def test_a_name_is_its_architecture_wherever_one_is_asked_for(name, arch):
    op = "mfma" if arch.startswith("cdna") else "mma"
    spec = gs.GemmSpec.parse(f"hw({name}, {op}, f16)")
    assert spec == gs.GemmSpec.parse(f"hw({arch}, {op}, f16)") and spec.key == f"e5m10 : hw({arch}, {op}, e5m10)"
    assert hardware.instructions(name) == hardware.instructions(arch) and without_model(name) is None


def test_every_chip_of_the_list_is_read_in_any_spelling():
    assert set(hardware.CHIPS.values()) == set(hardware.ARCHITECTURES)
    for chip, arch in hardware.CHIPS.items():
        for spelt in (chip, chip.upper(), f" {chip} ", re.sub(r"(?<=[a-z])(?=\d{2})", " ", chip), f"NVIDIA {chip}"):
            assert chip_key(spelt) == chip and hardware.families(spelt)[0].arch == arch
    for arch in hardware.ARCHITECTURES:
        assert chip_key(arch) == arch and arch not in hardware.CHIPS


def test_compute_capabilities_are_those_of_the_devices():
    """103 is left out: a device of it may be found equal to Blackwell, which says nothing before it is asked."""
    named = {int(chip[3:]): arch for chip, arch in hardware.CHIPS.items() if chip.startswith("sm_")}
    assert named == {n: arch for arch, numbers in CAPABILITIES.items() for n in numbers if n != 103}


@pytest.mark.parametrize(("name", "near"), WITHOUT.items())
def test_a_chip_without_a_model_says_so_and_names_the_nearest(name, near):
    with pytest.raises(hardware.HardwareError) as caught:
        hardware.instructions(name)
    hint, _, rest = str(caught.value).partition("Architectures allowed: ")
    assert "the tables have no model of" in hint and (f"nearest is {near}" if near else "nor of anything near") in hint
    assert "Did you mean" not in str(caught.value) and "fused(n, kept, out)" in rest
    with pytest.raises(gs.SpecError, match="the tables have no model"):
        gs.GemmSpec.parse(f"hw({name}, mma, f16)")
    with pytest.raises(gs.SpecError, match="the tables have no model"):
        gs.GemmSpec.parse(f"{name} : fp32")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("h1000", "h100"),
        ("hoper", "hopper"),
        ("mi30", "mi300"),
        ("rtx 6000", "rtx6000ada"),
        ("sm_88", "sm_89"),
        ("x", ""),
    ],
)
def test_an_unknown_chip_is_told_near_ones_first_and_how_to_write_its_own(name, near):
    with pytest.raises(hardware.HardwareError) as caught:
        hardware.instructions(name)
    text = str(caught.value)
    hint, _, rest = text.partition(" Architectures allowed: ")
    assert f"architecture {name!r} is not known." in hint and (f"{near!r}" in hint if near else "mean" not in hint)
    assert len(text) < 600 and all(arch in rest for arch in hardware.ARCHITECTURES) and "hardware.CHIPS" in rest
    assert gs.GemmSpec.parse(text.partition("such as '")[2].partition("'")[0]).accumulator.name == "fused"


def test_formats_are_no_chips():
    for name in (*gs.formats.names(), "fp4", "inf", "max", "q", "m4", "int4", ""):
        assert without_model(name) is None and chip_key(name) not in hardware.CHIPS, name
