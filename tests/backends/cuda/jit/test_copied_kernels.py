"""A folder of kernels that is copied to another machine is found there: the key is of what the machine code depends on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.cuda import tiny_kernel

from gemmsim.backends import cuda
from gemmsim.backends.cuda import PackageError
from gemmsim.backends.cuda.jit import cache as cache_module
from gemmsim.backends.cuda.jit.compile import OPTIONS, kernel_key, program_options

#: The package has a function of that name.
toolchain_module = import_module("gemmsim.backends.cuda.jit.toolchain")
compile_module = import_module("gemmsim.backends.cuda.jit.compile")
ARCH = "sm_90a"

pytestmark = pytest.mark.cuda


@pytest.fixture
def install(monkeypatch, tmp_path) -> Callable[[str], Path]:
    """Puts the same headers below a prefix, and makes the toolchain find those there and no others."""
    own, folders = toolchain_module.header_root(), toolchain_module._package_folders

    def at(name: str) -> Path:
        prefix = tmp_path / name
        if not prefix.exists():
            shutil.copytree(own, prefix / "cutlass_kernels", ignore=shutil.ignore_patterns("cpu"))
            for module in ("nvidia.cu13", "cutlass_library"):
                (prefix / module).mkdir()
                for i, folder in enumerate(folders(module)):
                    (prefix / module / str(i)).symlink_to(folder, target_is_directory=True)
        monkeypatch.setattr(toolchain_module, "header_root", lambda: prefix / "cutlass_kernels")
        monkeypatch.setattr(toolchain_module, "_package_folders", lambda module: sorted((prefix / module).iterdir()))
        toolchain_module.toolchain.cache_clear()
        assert all(folder.startswith(str(prefix)) for folder in cuda.toolchain().include_dirs)
        return prefix

    yield at
    monkeypatch.undo()
    toolchain_module.toolchain.cache_clear()


def test_the_key_is_that_of_the_same_headers_elsewhere(install):
    install("here")
    first, flags = kernel_key(tiny_kernel(), ARCH), program_options(cuda.toolchain(), ARCH).as_bytes("nvrtc")
    install("there")
    assert kernel_key(tiny_kernel(), ARCH) == first
    assert program_options(cuda.toolchain(), ARCH).as_bytes("nvrtc") != flags, "the include path is another one"


def test_a_copied_folder_is_found_where_headers_lie_elsewhere(install, monkeypatch, tmp_path):
    install("here")
    made = cuda.KernelCache(tmp_path / "kernels").get(tiny_kernel(), ARCH)
    assert made.seconds > 0
    shutil.copytree(tmp_path / "kernels", tmp_path / "copied")
    install("there")
    monkeypatch.setattr(cache_module, "compile_kernel", lambda *_: pytest.fail("compiled again"))
    copied = cuda.KernelCache(tmp_path / "copied")
    assert copied.holds(tiny_kernel(), ARCH) and copied.get(tiny_kernel(), ARCH).cubin == made.cubin


def test_text_architecture_and_options_are_told_apart(install, monkeypatch):
    install("here")
    keys = {kernel_key(tiny_kernel(value), arch) for value in (1, 2) for arch in (ARCH, "sm_80")}
    assert len(keys) == 4
    monkeypatch.setitem(OPTIONS, "fma", True)
    assert kernel_key(tiny_kernel(), ARCH) not in keys


def test_an_edited_header_changes_the_key(install):
    header = install("here") / "cutlass_kernels" / "include" / "gemmsim" / "types.h"
    first = kernel_key(tiny_kernel(), ARCH)
    header.write_text(header.read_text() + "// edited\n")
    toolchain_module.toolchain.cache_clear()
    assert kernel_key(tiny_kernel(), ARCH) != first


@pytest.mark.parametrize("package", toolchain_module.PACKAGES)
def test_versions_of_compiler_and_headers_change_the_key_and_those_of_callers_do_not(install, monkeypatch, package):
    """cuda-core, -bindings and -pathfinder have other versions under another Python."""
    install("here")
    first, version = kernel_key(tiny_kernel(), ARCH), toolchain_module.version
    monkeypatch.setattr(toolchain_module, "version", lambda name: "0" if name == package else version(name))
    toolchain_module.toolchain.cache_clear()
    assert (kernel_key(tiny_kernel(), ARCH) != first) == package.startswith("nvidia-")


def test_the_compiler_that_is_loaded_is_asked(monkeypatch):
    """The package that is found first need not be the one whose library another package has loaded already."""
    first = kernel_key(tiny_kernel(), ARCH)
    monkeypatch.setattr(compile_module, "compiler_version", lambda: "13.9")
    assert kernel_key(tiny_kernel(), ARCH) != first


def test_without_a_compiler_the_extra_is_named(monkeypatch):
    def missing():
        raise RuntimeError("libnvrtc.so.13 not found\nlooked in ...")

    compile_module.compiler_version.cache_clear()
    monkeypatch.setattr(compile_module, "nvrtc", lambda: SimpleNamespace(nvrtcVersion=missing))
    with pytest.raises(PackageError, match=r"libnvrtc.so.13 not found\).*\n.*gemmsim\[cuda\]"):
        compile_module.compiler_version()
    compile_module.compiler_version.cache_clear()
