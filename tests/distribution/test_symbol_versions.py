"""Whether a library fits a manylinux tag, read from what readelf prints."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import symbol_versions

VERSION_INFO = """
  000000: Version: 1  File: libgomp.so.1  Cnt: 1
  0x0010:   Name: GOMP_4.0  Flags: none  Version: 9
  0x0020: Version: 1  File: libm.so.6  Cnt: 2
  0x0030:   Name: GLIBC_{glibc}  Flags: none  Version: 7
  0x0040:   Name: GLIBC_2.2.5  Flags: none  Version: 6
  0x0050:   Name: GLIBCXX_3.4.9  Flags: none  Version: 5
"""
DYNAMIC = """
 0x0000000000000001 (NEEDED)             Shared library: [libgomp.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [{needed}]
 0x000000000000000e (SONAME)             Library soname: [libgemmsim_cpu.so]
"""


@pytest.fixture
def printed(monkeypatch):
    def set_answers(glibc: str = "2.16", needed: str = "libm.so.6") -> Path:
        answers = {"--version-info": VERSION_INFO.format(glibc=glibc), "--dynamic": DYNAMIC.format(needed=needed)}
        monkeypatch.setattr(symbol_versions, "_readelf", lambda option, library: answers[option])
        return Path("libgemmsim_cpu.so")

    return set_answers


def test_the_newest_version_of_each_kind_is_found(printed):
    assert symbol_versions.check(printed()) == {"GOMP": (4, 0), "GLIBC": (2, 16), "GLIBCXX": (3, 4, 9)}


def test_versions_are_compared_as_numbers(printed):
    assert symbol_versions.check(printed(glibc="2.4"))["GLIBC"] == (2, 4)


def test_a_symbol_of_a_newer_c_library_is_refused(printed):
    with pytest.raises(ValueError, match=r"GLIBC_2\.29 is newer than 2\.28"):
        symbol_versions.check(printed(glibc="2.29"))


def test_a_library_that_manylinux_does_not_have_is_refused(printed):
    with pytest.raises(ValueError, match=r"libomp\.so\.5 is not allowed"):
        symbol_versions.check(printed(needed="libomp.so.5"))


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf")
def test_the_installed_library_is_read():
    from gemmsim.backends.cpu import shared_library

    library = next(path for path in shared_library._candidates() if path.exists())
    if library.suffix != ".so":
        pytest.skip("no ELF library")
    assert "GLIBC" in symbol_versions.versions(library)
    assert "libc.so.6" in symbol_versions.needed(library)


def test_paths_of_the_building_machine_are_found(tmp_path):
    library = tmp_path / "lib.so"
    library.write_bytes(b"\0/home/builder/gemmsim/api.cpp\0")
    assert symbol_versions.absolute_paths(library, [Path("/home/builder"), Path("/elsewhere")]) == ["/home/builder"]
