"""The bill of materials of a wheel."""

from __future__ import annotations

import dataclasses
import json

from sbom import Build, bill_of_materials

BUILD = Build(
    version="1.0",
    wheel="gemmsim-1.0-py3-none-manylinux_2_24_x86_64.whl",
    library="ab" * 32,
    sources="cd" * 32,
    needed=frozenset({"libc.so.6", "libgomp.so.1"}),
    requirements=("torch>=2.13", "numpy>=1.26"),
    tools={"compiler": "g++ 12.2.0", "cmake": "4.4.5"},
    epoch=1_700_000_000,
)


def test_equal_builds_give_equal_bytes_and_others_another_identifier():
    assert bill_of_materials(BUILD) == bill_of_materials(dataclasses.replace(BUILD))
    other = json.loads(bill_of_materials(dataclasses.replace(BUILD, library="00" * 32)))
    assert other["serialNumber"] != json.loads(bill_of_materials(BUILD))["serialNumber"]


def test_it_names_the_package_the_library_and_the_tools():
    document = json.loads(bill_of_materials(BUILD))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert document["metadata"]["component"]["version"] == "1.0"
    assert {tool["name"] for tool in document["metadata"]["tools"]["components"]} == {"compiler", "cmake"}
    library = document["components"][0]
    assert library["hashes"] == [{"alg": "SHA-256", "content": BUILD.library}]
    assert library["properties"] == [{"name": "gemmsim:library_sources", "value": BUILD.sources}]


def test_what_the_wheel_does_not_contain_is_marked_so():
    document = json.loads(bill_of_materials(BUILD))
    outside = document["components"][1:]
    assert {part["name"] for part in outside} == {"libc.so.6", "libgomp.so.1", "torch>=2.13", "numpy>=1.26"}
    assert all({"name": "gemmsim:bundled", "value": "false"} in part["properties"] for part in outside)


def test_every_dependency_is_a_part_of_the_document():
    document = json.loads(bill_of_materials(BUILD))
    parts = {part["bom-ref"] for part in document["components"]} | {"gemmsim"}
    assert len(parts) == len(document["components"]) + 1
    for entry in document["dependencies"]:
        assert {entry["ref"], *entry["dependsOn"]} <= parts
