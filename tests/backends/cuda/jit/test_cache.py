"""The folder of compiled kernels: found, shared, damaged, full, forbidden. Whatever is wrong with it, kernels are right."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import warnings
from importlib import import_module
from pathlib import Path

import pytest
from support.cuda import tiny_kernel

from gemmsim.backends import cuda
from gemmsim.backends.cuda.jit import cache as cache_module
from gemmsim.backends.cuda.jit import cache_dir as folder_module
from gemmsim.backends.cuda.jit.cache import EntryInfo, pack_entry, unpack_entry

ARCH = "sm_90a"


@pytest.fixture
def counted(monkeypatch):
    """The kernels that were really compiled."""
    done = []
    real = cache_module.compile_kernel

    def compile_kernel(source, arch):
        done.append(source.name)
        return real(source, arch)

    monkeypatch.setattr(cache_module, "compile_kernel", compile_kernel)
    return done


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_folder_is_the_environments_or_the_users(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("GEMMSIM_CACHE_DIR", str(tmp_path / "mine"))
    assert cuda.cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("GEMMSIM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cuda.cache_folder() == tmp_path / "xdg" / "gemmsim"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the XDG specification
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cuda.cache_folder() == tmp_path / ".cache" / "gemmsim"
    assert not (tmp_path / "mine").exists()


def test_no_home_folder_is_a_typed_error(monkeypatch):
    """In a container under a number that no user has: only a folder that is named will do."""

    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "home", home)
    monkeypatch.delenv("GEMMSIM_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(cuda.CudaError, match="Set GEMMSIM_CACHE_DIR to a writable folder"):
        cuda.cache_folder()
    assert folder_module.keep_failed_source(tiny_kernel(), ARCH, "log") is None, "the compiler's log is what is told"


def test_an_entry_is_sound_or_none():
    info = EntryInfo("test", "tiny", ARCH, 0.1, "00")
    entry = pack_entry(b"\x7fELF machine code", info)
    assert unpack_entry(entry) == (b"\x7fELF machine code", info)
    assert entry.startswith(b"\x7fELF"), "NVIDIA's tools read the file as it is"
    for cut in range(len(entry)):
        assert unpack_entry(entry[:cut]) is None
    for at in range(len(entry)):
        damaged = bytearray(entry)
        damaged[at] ^= 1
        assert unpack_entry(bytes(damaged)) is None
    assert unpack_entry(entry + b"more") is None


@pytest.mark.cuda
def test_nothing_is_created_before_the_first_compile(cache_dir, counted):
    cache = cuda.kernel_cache()
    assert list(cache.entries()) == [] and cache.clear() == 0 and not cache_dir.exists()
    cache.get(tiny_kernel(), ARCH)
    assert len(files(cache_dir)) == 1 and counted == ["tiny 1"]


@pytest.mark.cuda
def test_a_kernel_is_compiled_once_and_told_apart(cache_dir, counted):
    cache = cuda.KernelCache(cache_dir)
    first = cache.get(tiny_kernel(), ARCH)
    assert first.seconds > 0 and cache.get(tiny_kernel(), ARCH).seconds == 0
    assert cuda.KernelCache(cache_dir).get(tiny_kernel(), ARCH).cubin == first.cubin
    assert counted == ["tiny 1"]
    cache.get(tiny_kernel(), "sm_80")
    cache.get(tiny_kernel(2), ARCH)
    assert len(counted) == 3 and len(files(cache_dir)) == 3
    found = {(info.name, info.arch) for _, info, _ in cache.entries()}
    assert found == {("tiny 1", ARCH), ("tiny 1", "sm_80"), ("tiny 2", ARCH)}
    assert cache.clear() == 3 and list(cache.entries()) == []
    cache.get(tiny_kernel(), ARCH)
    assert len(counted) == 4


@pytest.mark.cuda
def test_other_headers_or_versions_do_not_find_the_old_kernel(cache_dir, counted, monkeypatch):
    cuda.KernelCache(cache_dir).get(tiny_kernel(), ARCH)
    tools = cuda.toolchain()
    changed = cuda.Toolchain(tools.include_dirs, tools.versions, b"another digest")
    monkeypatch.setattr(import_module("gemmsim.backends.cuda.jit.compile"), "toolchain", lambda: changed)
    cuda.KernelCache(cache_dir).get(tiny_kernel(), ARCH)
    assert len(counted) == 2 and len(files(cache_dir)) == 2


@pytest.mark.cuda
def test_a_lookup_in_memory_reads_no_file_and_one_on_disk_compiles_nothing(cache_dir, counted):
    """What makes them quick; benchmarks/launch.py measures how quick."""
    cache = cuda.KernelCache(cache_dir)
    first = cache.get(tiny_kernel(), ARCH)
    (entry,) = files(cache_dir)
    assert cuda.KernelCache(cache_dir).get(tiny_kernel(), ARCH).cubin == first.cubin
    entry.unlink()
    assert cache.get(tiny_kernel(), ARCH).cubin == first.cubin and files(cache_dir) == []
    assert counted == ["tiny 1"]


@pytest.mark.cuda
@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "foreign"])
def test_a_damaged_entry_is_replaced_with_one_warning(cache_dir, counted, damage):
    good = cuda.KernelCache(cache_dir).get(tiny_kernel(), ARCH)
    (path,) = files(cache_dir)
    data = path.read_bytes()
    flipped = data[:100] + bytes([data[100] ^ 1]) + data[101:]
    path.write_bytes({"cut": data[:-7], "empty": b"", "flipped": flipped, "foreign": b"\x7fELF"}[damage])
    with pytest.warns(cuda.CacheWarning, match="corrupt and will be replaced") as caught:
        again = cuda.KernelCache(cache_dir).get(tiny_kernel(), ARCH)
    assert again.cubin == good.cubin and len(caught) == 1 and len(counted) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cuda.KernelCache(cache_dir).get(tiny_kernel(), ARCH).cubin == good.cubin
    assert len(counted) == 2


@pytest.mark.cuda
@pytest.mark.parametrize("folder", ["/proc/gemmsim", "FILE", "FILE/below"])
def test_a_folder_that_cannot_be_made_costs_one_warning(folder, tmp_path, counted):
    (tmp_path / "file").write_text("not a folder")
    cache = cuda.KernelCache(Path(folder.replace("FILE", str(tmp_path / "file"))))
    with pytest.warns(cuda.CacheWarning, match=r"could not be .*GEMMSIM_CACHE_DIR") as caught:
        first = cache.get(tiny_kernel(), ARCH)
        cache.get(tiny_kernel(2), ARCH)
    assert len(caught) == 1 and first.cubin[:4] == b"\x7fELF"
    assert cache.get(tiny_kernel(), ARCH).cubin == first.cubin and counted == ["tiny 1", "tiny 2"]


@pytest.mark.cuda
def test_a_read_only_folder_is_read_and_not_written(counted):
    """As another user, because root may write anywhere."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become someone else")
    folder = Path(tempfile.mkdtemp(prefix="gemmsim_readonly_"))
    try:
        known = cuda.KernelCache(folder).get(tiny_kernel(), ARCH)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        os.seteuid(65534)
        try:
            cache = cuda.KernelCache(folder)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert cache.get(tiny_kernel(), ARCH).cubin == known.cubin
            with pytest.warns(cuda.CacheWarning, match="could not be written"):
                assert cache.get(tiny_kernel(2), ARCH).seconds > 0
        finally:
            os.seteuid(0)
        assert counted == ["tiny 1", "tiny 2"] and len(files(folder)) == 1
    finally:
        shutil.rmtree(folder)


def exit_codes(count: int, work, *arguments: object) -> list[int | None]:
    """Of ``count`` processes that inherit the loaded compiler and run ``work``."""
    cuda.compile_kernel(tiny_kernel(9), ARCH)
    processes = [multiprocessing.get_context("fork").Process(target=work, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    return [process.exitcode for process in processes]


def _write_with_a_full_disk(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    with pytest.warns(cuda.CacheWarning, match="could not be written") as caught:
        kernel = cuda.KernelCache(folder).get(tiny_kernel(), ARCH)
    assert len(caught) == 1 and kernel.cubin[:4] == b"\x7fELF" and len(kernel.cubin) > 1000


@pytest.mark.cuda
def test_a_full_disk_leaves_no_part_of_an_entry(cache_dir):
    """A limit on the size of files stands for it: writing fails in the middle of the entry."""
    assert exit_codes(1, _write_with_a_full_disk, cache_dir) == [0]
    assert files(cache_dir) == []


def _race(folder: Path) -> None:
    warnings.simplefilter("error")
    for turn in range(6):
        cache = cuda.KernelCache(folder)
        for value in range(4):
            if turn % 3 == 2:
                cache._compile(tiny_kernel(value), ARCH)  # replaces what others read
            else:
                assert cache.get(tiny_kernel(value), ARCH).cubin[:4] == b"\x7fELF"


@pytest.mark.cuda
def test_eight_processes_may_race_for_one_folder(cache_dir):
    """All compile and write the same kernels at once; readers meanwhile see whole entries or none."""
    assert exit_codes(8, _race, cache_dir) == [0] * 8
    assert len(files(cache_dir)) == 4 == len(list(cuda.KernelCache(cache_dir).entries()))


@pytest.mark.cuda
def test_threads_that_want_one_kernel_compile_it_once(cache_dir, counted):
    from concurrent.futures import ThreadPoolExecutor

    cache = cuda.KernelCache(cache_dir)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cache.get(tiny_kernel(), ARCH).cubin, range(32)))
    assert len(set(found)) == 1 and counted == ["tiny 1"]
