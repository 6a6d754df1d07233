"""Where the loader refuses the CPU library, the error says what happened and what to do."""

from __future__ import annotations

import sys

import pytest

from gemmsim.backends import cpu
from gemmsim.backends.cpu import shared_library as library

#: What glibc says when a library needs something that is missing, and a part of the remedy.
REFUSALS = [
    ("libgomp.so.1: cannot open shared object file: No such file or directory", "apt-get install libgomp1"),
    ("/lib/libm.so.6: version `GLIBC_2.38' not found (required by lib.so)", "newer system libraries.*--no-binary"),
    ("/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by lib.so)", "newer system libraries"),
    ("lib.so: wrong ELF class: ELFCLASS32", "another platform"),
    ("lib.so: undefined symbol: exp", "Install gemmsim again"),
]


@pytest.fixture
def load(monkeypatch, tmp_path):
    path = tmp_path / "libgemmsim_cpu.so"
    monkeypatch.setattr(library, "_candidates", lambda: [path])

    def from_bytes(data: bytes):
        path.write_bytes(data)
        return library._load()

    return from_bytes


@pytest.mark.parametrize(("message", "remedy"), REFUSALS)
def test_the_loaders_message_comes_with_a_remedy(load, monkeypatch, message, remedy):
    def refuse(path):
        raise OSError(message)

    monkeypatch.setattr(library.ctypes, "CDLL", refuse)
    with pytest.raises(cpu.LibraryError, match=remedy) as caught:
        load(b"")
    assert message in str(caught.value) and "libgemmsim_cpu.so cannot be loaded" in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="messages of glibc")
@pytest.mark.parametrize("data", [b"", b"no library", b"version https://git-lfs.github.com/spec/v1\n" * 100])
def test_a_damaged_file_is_called_damaged(load, data):
    with pytest.raises(cpu.LibraryError, match="damaged or was built for another platform"):
        load(data)


@pytest.mark.skipif(sys.platform != "linux", reason="messages of glibc")
def test_a_library_of_another_processor_is_called_one_of_another_platform(load):
    own = next(
        path for path in (folder / "lib" / "libgemmsim_cpu.so" for folder in library.package_folders()) if path.exists()
    )
    machine = 18  # offset of the processor's number in an ELF file
    data = bytearray(own.read_bytes())
    data[machine : machine + 2] = (243).to_bytes(2, sys.byteorder)  # RISC-V
    with pytest.raises(cpu.LibraryError, match="another platform"):
        load(bytes(data))
