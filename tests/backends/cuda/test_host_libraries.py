"""Libraries that stand for kernels on the host are built once, and again whenever something they are made of changes."""

from __future__ import annotations

import pytest
from support import host as support_host
from support.host import host_library

pytestmark = pytest.mark.cuda


def text(value: int) -> str:
    return f'extern "C" int answer() {{ return {value}; }}\n'


@pytest.fixture
def build(tmp_path, monkeypatch):
    """``build`` in a folder of this test's own, which stands for the project's."""
    monkeypatch.setattr(support_host, "ROOT", tmp_path)
    support_host._folder.cache_clear()
    yield tmp_path / "build" / "host"
    support_host._folder.cache_clear()


def made(build):
    return {path: path.stat().st_mtime_ns for path in build.rglob("*.so")}


def test_a_library_is_built_once_for_each_text(build):
    assert host_library(text(1), "one").answer() == 1
    first = made(build)
    assert host_library(text(1), "one").answer() == 1 and made(build) == first
    assert host_library(text(2), "two").answer() == 2 and len(made(build)) == 2
    with pytest.raises(AssertionError, match="three does not compile"):
        host_library("nonsense", "three")
    assert len(made(build)) == 2


def test_other_headers_are_another_folder_and_the_last_ones_stay(build, monkeypatch):
    for state in "abcd":
        monkeypatch.setattr(support_host, "_state", lambda compiler, state=state: state)
        support_host._folder.cache_clear()
        host_library(text(1), "one")
    assert sorted(path.name for path in build.iterdir()) == ["b", "c", "d"]


@pytest.mark.kept(by="nothing")
def test_the_state_is_that_of_headers_and_flags(monkeypatch, tmp_path):
    states = [support_host._state("g++")]
    monkeypatch.setattr(support_host, "LONG", not support_host.LONG)
    states.append(support_host._state("g++"))
    root = tmp_path / "cutlass_kernels"
    monkeypatch.setattr(support_host, "header_root", lambda: root)
    for folder in ("include", "gemm", "cpu"):
        (root / folder).mkdir(parents=True)
        (root / folder / "new.h").write_text(folder)
        states.append(support_host._state("g++"))
    assert states[-1] == states[-2] and len(set(states)) == len(states) - 1  # of the CPU library's headers it is not
