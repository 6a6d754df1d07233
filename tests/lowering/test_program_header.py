"""The numbers that Python writes into records and kernel texts are the enumerators of the C++ headers."""

from __future__ import annotations

import re

import pytest
from support import ROOT

from gemmsim.lowering import abi_constants, orders

HEADERS = ROOT / "cutlass_kernels" / "include" / "gemmsim"
ENUM = re.compile(r"\benum (?P<name>\w+) : int32_t \{(?P<body>[^}]*)\}")
VALUE = re.compile(r"^\s*(?P<name>\w+)\s*=\s*(?P<value>-?\w+)\s*$")


def enumerators(header: str, enum: str) -> dict[str, int]:
    """Those with a number of their own; combinations of others are left out."""
    text = re.sub(r"//[^\n]*", "", (HEADERS / header).read_text())
    bodies = {found["name"]: found["body"] for found in ENUM.finditer(text)}
    found = (VALUE.match(one) for one in bodies[enum].split(","))
    return {one["name"]: int(one["value"]) for one in found if one is not None and one["value"].lstrip("-").isdigit()}


def upper(values: dict[str, int], prefix: str = "") -> dict[str, int]:
    return {prefix + name.upper(): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("enum", "python"),
    [
        ("Method", {one.name: one.value for one in abi_constants.Method}),
        ("Order", {one.name: one.value for one in orders.Order}),
        ("HardwareKind", {f"HW_{one.name}": one.value for one in abi_constants.HardwareKind}),
        ("HardwareOut", upper(abi_constants.HARDWARE_OUTS, "HW_")),
    ],
)
def test_programs_have_one_set_of_numbers(enum: str, python: dict[str, int]) -> None:
    assert enumerators("program.h", enum) == python


def test_places_of_an_addend_have_one_set_of_numbers() -> None:
    assert list(enumerators("program.h", "Init").values()) == list(abi_constants.INITS.values())


def test_casts_have_one_set_of_numbers() -> None:
    assert enumerators("types.h", "CastFlags") == {one.name: one.value for one in abi_constants.CastFlag}
    assert enumerators("types.h", "Mode") == {mode.name: value for mode, value in abi_constants.MODES.items()}


def test_as_many_wrappers_as_python_nests() -> None:
    found = re.search(r"\bMAX_WRAPPERS = (\d+)", (HEADERS / "program.h").read_text())
    assert found is not None and int(found[1]) == abi_constants.MAX_WRAPPERS


@pytest.mark.parametrize("enum", ["Method", "Order", "Init", "HardwareKind", "HardwareOut", "Mode", "CastFlags"])
def test_no_second_set_of_numbers(enum: str) -> None:
    files = [path for path in (ROOT / "cutlass_kernels").rglob("*.h") if f"enum {enum} :" in path.read_text()]
    assert len(files) == 1
