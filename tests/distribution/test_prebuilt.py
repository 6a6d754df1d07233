"""`make` takes the CPU library out of a wheel only where it fits the machine and was compiled from the same sources."""

from __future__ import annotations

import prebuilt
import pytest
from source_digest import RECORDED_AS
from wheel_archive import LIBRARY, write_wheel

DIGEST = "ab" * 32
INFO = "gemmsim-1.0.dist-info"


def make_wheel(folder, name="gemmsim-1.0-py3-none-manylinux_2_24_x86_64.whl", digest=DIGEST, library=b"code"):
    files = {f"{INFO}/METADATA": b"", f"{INFO}/{RECORDED_AS}": f"{digest}\n".encode(), LIBRARY: library}
    write_wheel(folder / name, files, 1_700_000_000)
    return folder / name


@pytest.fixture
def found(monkeypatch, tmp_path):
    """What make gets from a folder of wheels, on a machine with glibc 2.36 and sources with ``DIGEST``."""
    monkeypatch.setattr(prebuilt.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(prebuilt, "glibc", lambda: (2, 36))
    monkeypatch.setattr(prebuilt, "source_digest", lambda root: DIGEST)
    return lambda **environment: prebuilt.prebuilt(tmp_path, tmp_path / "out", environment)


def test_a_wheel_of_the_same_sources_gives_its_library_and_one_line_says_so(found, tmp_path, capsys):
    wheel = make_wheel(tmp_path)
    library = found()
    assert library == tmp_path / "out" / "libgemmsim_cpu.so" and library.read_bytes() == b"code"
    assert str(wheel) in capsys.readouterr().err


def test_a_wheel_of_other_sources_is_not_used_and_one_line_says_so(found, tmp_path, capsys):
    make_wheel(tmp_path, digest="cd" * 32)
    assert found() is None
    assert "compiled from other C++ sources" in capsys.readouterr().err


def test_a_damaged_wheel_and_one_without_a_digest_are_not_used(found, tmp_path, capsys):
    make_wheel(tmp_path).write_bytes(b"no archive")
    assert found() is None and "cannot be read" in capsys.readouterr().err
    files = {f"{INFO}/METADATA": b"", LIBRARY: b"code"}
    write_wheel(tmp_path / "gemmsim-1.0-py3-none-manylinux_2_24_x86_64.whl", files, 1_700_000_000)
    assert found() is None and RECORDED_AS in capsys.readouterr().err


def test_a_later_wheel_that_fits_is_found(found, tmp_path):
    make_wheel(tmp_path, "gemmsim-0.9-py3-none-manylinux_2_24_x86_64.whl", digest="cd" * 32)
    make_wheel(tmp_path, library=b"this one")
    assert found().read_bytes() == b"this one"


@pytest.mark.parametrize("name", ["CXX", "CXXFLAGS"])
def test_a_compiler_or_flags_of_the_user_compile(found, tmp_path, name):
    make_wheel(tmp_path)
    assert found(**{name: "clang++"}) is None and found(**{name: ""}) is not None


def test_named_instruction_sets_compile_and_native_or_all_do_not(found, tmp_path):
    make_wheel(tmp_path)
    assert found(GEMMSIM_ISAS="avx2") is None
    assert found(GEMMSIM_ISAS="native") is not None and found(GEMMSIM_ISAS="all") is not None


@pytest.mark.parametrize(
    ("tag", "machine", "libc", "answer"),
    [
        ("manylinux_2_24_x86_64", "x86_64", (2, 24), True),
        ("manylinux_2_24_x86_64", "x86_64", (2, 100), True),
        ("manylinux_2_24_x86_64", "x86_64", (2, 17), False),
        ("manylinux_2_24_x86_64", "x86_64", None, False),
        ("manylinux_2_24_x86_64", "aarch64", (2, 36), False),
        ("manylinux_2_17_aarch64", "aarch64", (2, 36), True),
        ("linux_x86_64", "x86_64", (2, 36), False),
        ("macosx_11_0_arm64", "arm64", (2, 36), False),
    ],
)
def test_the_platform_tag_is_compared_with_the_processor_and_glibc(tag, machine, libc, answer):
    assert prebuilt.fits(tag, machine, libc) is answer


def test_an_empty_or_missing_folder_gives_nothing(found, tmp_path):
    assert found() is None
    assert prebuilt.prebuilt(tmp_path / "nowhere", tmp_path / "out", {}) is None
    assert not (tmp_path / "out").exists()
