"""Compiling without a GPU or driver: architectures, errors that say what to do, the headers every kernel may use."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError

import pytest
from support import ROOT, run_python
from support.cuda import broken_kernel, tiny_kernel

from gemmsim.backends import cuda
from gemmsim.backends.cuda.jit import arch as arch_module
from gemmsim.backends.cuda.jit.launch import LoadedKernel

#: The package has a function of that name.
toolchain_module = import_module("gemmsim.backends.cuda.jit.toolchain")
ARCHS = ["sm_80", "sm_90a", "sm_100a", "sm_120a"]


@pytest.mark.cuda
@pytest.mark.parametrize("arch", ARCHS)
def test_machine_code_for_each_architecture_without_a_gpu(arch, caplog):
    with caplog.at_level(logging.INFO, logger="gemmsim.cuda"):
        compiled = cuda.compile_kernel(tiny_kernel(), arch)
    assert compiled.cubin[:4] == b"\x7fELF" and compiled.arch == arch and compiled.seconds > 0
    assert caplog.messages == [f"compiling test<tiny 1> for {arch}; cached afterwards"]


@pytest.mark.cuda
def test_cute_and_our_headers_go_together():
    """The pinned CUTLASS, CCCL and NVRTC accept each other, and C++20."""
    text = (
        "#include <cute/tensor.hpp>\n"
        '#include "gemmsim/device/round_cast.h"\n'
        "struct Args { float* out; };\n"
        'extern "C" __global__ void gemmsim_kernel(const Args args) {\n'
        "    auto layout = cute::make_layout(cute::make_shape(cute::Int<4>{}, cute::Int<8>{}));\n"
        "    args.out[layout(threadIdx.x % 4, 1)] = gemmsim::Split<float, 11>::apply(args.out[0]);\n"
        "}\n"
    )
    compiled = cuda.compile_kernel(cuda.KernelSource("test", "cute", text, threads=32), "sm_90a")
    assert compiled.cubin[:4] == b"\x7fELF"


@pytest.mark.parametrize("name", ["sm_75", "sm_70", "sm_99", "sm_80a", "sm_90f", "compute_90", "90a", "", "sm_90A"])
def test_other_architectures_are_refused_with_the_oldest_supported(name):
    with pytest.raises(cuda.ArchitectureError, match=r"sm_80 \(the oldest\)") as caught:
        cuda.check_arch(name)
    assert repr(name) in str(caught.value) and isinstance(caught.value, cuda.CudaError)


def test_a_device_compiles_for_exactly_itself():
    of = arch_module.arch_of_capability
    assert [of(8, 0), of(8, 9), of(9, 0), of(10, 0), of(12, 0)] == ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"]
    with pytest.raises(cuda.ArchitectureError, match=r"7\.5 .*oldest"):
        of(7, 5)
    with pytest.raises(cuda.ArchitectureError, match="newer gemmsim"):
        of(13, 0)


@pytest.mark.cuda
def test_a_compile_error_shows_the_log_and_keeps_the_source(cache_dir):
    with pytest.raises(cuda.CompileError) as caught:
        cuda.compile_kernel(broken_kernel(), "sm_90a")
    error = caught.value
    assert 'identifier "nonsense" is undefined' in error.log and error.log in str(error)
    assert error.source_path is not None and error.source_path in str(error)
    kept = (cache_dir / "failed").iterdir()
    text = next(kept).read_text()
    assert broken_kernel().text in text and "nonsense" in text.split("// ", 1)[1] and next(kept, None) is None


@pytest.mark.cuda
def test_a_compile_error_is_told_even_where_nothing_can_be_written(monkeypatch):
    monkeypatch.setenv("GEMMSIM_CACHE_DIR", "/proc/gemmsim")
    with pytest.raises(cuda.CompileError, match="could not be written") as caught:
        cuda.compile_kernel(broken_kernel(), "sm_90a")
    assert caught.value.source_path is None and broken_kernel().text in str(caught.value)


@pytest.fixture
def fresh_toolchain():
    toolchain_module.toolchain.cache_clear()
    yield
    toolchain_module.toolchain.cache_clear()


def test_a_missing_package_is_named_with_the_extra(monkeypatch, fresh_toolchain):
    def version(package: str) -> str:
        if package in ("cuda-core", "nvidia-cutlass"):
            raise PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(toolchain_module, "version", version)
    with pytest.raises(
        cuda.PackageError, match=r"without cuda-core, nvidia-cutlass;.*\n.*pip install 'gemmsim\[cuda\]'"
    ):
        cuda.toolchain()


@pytest.mark.cuda
def test_missing_headers_name_their_package(monkeypatch, fresh_toolchain, tmp_path):
    monkeypatch.setattr(toolchain_module, "_package_folders", lambda module: [tmp_path])
    with pytest.raises(cuda.PackageError, match="nvidia-cuda-cccl without its header cccl/cuda/std/cstdint"):
        cuda.toolchain()
    monkeypatch.setattr(toolchain_module, "_package_folders", lambda module: [])
    with pytest.raises(cuda.PackageError, match=r"no folder of sys\.path has"):
        cuda.toolchain()


@pytest.mark.cuda
@pytest.mark.parametrize("apart", ["cccl", "include"])
def test_packages_may_lie_in_several_folders(monkeypatch, fresh_toolchain, tmp_path, apart):
    """As after `pip install --target`, or `--user` beside a PyTorch for all users: CCCL, or the runtime, elsewhere.

    The other place still has both, of which only the one that comes first may be read.
    """
    # Of all folders on sys.path, however many there are: of each name the first.
    found = [path for folder in toolchain_module.nvidia_folders() for path in (folder / "include").glob("*")]
    first = {path.name: path for path in reversed(found)}
    whole, here = tmp_path / "whole", tmp_path / "nvidia" / "cu13" / "include"
    for include, names in (
        (whole / "include", set(first)),
        (here, {name for name in first if (name == "cccl") == (apart == "cccl")}),
    ):
        include.mkdir(parents=True)
        for name in names:
            (include / name).symlink_to(first[name])
    folders = toolchain_module._package_folders
    monkeypatch.setattr(
        toolchain_module,
        "_package_folders",
        lambda module: [here.parent, whole] if module == "nvidia.cu13" else folders(module),
    )
    dirs = cuda.toolchain().include_dirs[-3:]
    cccl, runtime = (here, whole / "include") if apart == "cccl" else (whole / "include", here)
    assert dirs == (str(cccl), str(runtime), str(cccl / "cccl"))
    text = '#include <cute/layout.hpp>\n#include <cuda_fp8.h>\nextern "C" __global__ void gemmsim_kernel() {}\n'
    compiled = cuda.compile_kernel(cuda.KernelSource("test", "apart", text, threads=32), "sm_90a")
    assert compiled.cubin[:4] == b"\x7fELF"


@pytest.mark.cuda
def test_the_digest_follows_headers_and_versions(monkeypatch, fresh_toolchain, tmp_path):
    first = cuda.toolchain()
    root = tmp_path / "cutlass_kernels"
    for path in toolchain_module._own_headers(toolchain_module.header_root()):
        copy = root / path.relative_to(toolchain_module.header_root())
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (root / "cpu").mkdir()
    (root / "cpu" / "unrelated.h").write_text("// the CPU library's headers are no part of a kernel")
    monkeypatch.setattr(toolchain_module, "header_root", lambda: root)
    toolchain_module.toolchain.cache_clear()
    assert cuda.toolchain().digest == first.digest, "the same headers elsewhere"
    header = root / "cast" / "cast.h"
    header.write_text(header.read_text() + "// edited\n")
    toolchain_module.toolchain.cache_clear()
    edited = cuda.toolchain().digest
    assert edited != first.digest
    monkeypatch.setattr(toolchain_module, "version", lambda package: "0")
    toolchain_module.toolchain.cache_clear()
    assert cuda.toolchain().digest not in (edited, first.digest)


def test_importing_gemmsim_and_the_backend_loads_no_cuda_package():
    code = (
        "import sys, torch; before = set(sys.modules)\n"
        "import gemmsim; gemmsim.quantize(torch.ones(3), 'e4m3')\n"
        "assert not any(m.startswith('gemmsim.backends.cuda') for m in sys.modules)\n"
        "import gemmsim.backends.cuda\n"
        "new = {m.split('.')[0] for m in set(sys.modules) - before}\n"
        "assert 'cuda' not in new and 'cutlass_library' not in new, new\n"
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.cuda
def test_what_cannot_be_loaded_is_a_driver_error():
    """Without a driver nothing can be; with one, this is no machine code."""
    with pytest.raises(cuda.DriverError, match=r"running test<tiny 1> on CUDA device 0 .*\n.*nvidia-smi"):
        LoadedKernel(tiny_kernel(), 0, b"no machine code")


@pytest.mark.cuda
def test_the_first_import_may_come_from_several_threads():
    """cuda-core replaces its own names while it is imported; ours are the locks around that."""
    code = (
        "import threading; from gemmsim.backends import cuda\n"
        "from gemmsim.backends.cuda.jit.bindings import cuda_core\n"
        "seen = []\n"
        "def run(): barrier.wait(); seen.append(hasattr(cuda_core(), 'ProgramOptions'))\n"
        "barrier = threading.Barrier(8); threads = [threading.Thread(target=run) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert seen == [True] * 8, seen\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_headers_are_found_in_a_source_tree_and_in_an_installed_package(monkeypatch, tmp_path):
    import gemmsim

    assert toolchain_module.header_root() == ROOT / "cutlass_kernels"
    package = tmp_path / "site-packages" / "gemmsim"
    monkeypatch.setattr(gemmsim, "__path__", [str(package)])
    with pytest.raises(cuda.PackageError, match="kernel sources"):
        toolchain_module.header_root()
    types = package / "cutlass_kernels" / "include" / "gemmsim" / "types.h"
    types.parent.mkdir(parents=True)
    types.write_text("// installed")
    assert toolchain_module.header_root() == package / "cutlass_kernels"
