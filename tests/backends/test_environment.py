"""The package's environment variables: read in one place, and a word that is no answer is an error."""

from __future__ import annotations

import re

import pytest
from support import ROOT
from support.cpu import isas

from gemmsim.backends import environment
from gemmsim.backends.cpu import shared_library as library
from gemmsim.backends.cuda.jit import cache_dir
from gemmsim.backends.cuda.tensor_cores import route

#: Files that read variables of other systems, and which.
OTHERS = {
    "backends/cuda/jit/cache_dir.py": {"LOCALAPPDATA", "XDG_CACHE_HOME"},
    "backends/exact_blas/run.py": {
        "NVIDIA_TF32_OVERRIDE",
        "CUBLAS_EMULATE_SINGLE_PRECISION",
        "CUBLAS_EMULATE_DOUBLE_PRECISION",
        "DNNL_DEFAULT_FPMATH_MODE",
        "ONEDNN_DEFAULT_FPMATH_MODE",
    },
    "cli/env.py": {"for name in VARIABLES"},  # gemmsim env shows which of a list are set
    "compat/microxcaling/specs.py": {"MX_ASSERT"},
    "compat/torchmx/env_variables.py": {"MX_HARDWARE_EXACT_QUANTIZATION", "LOG_LEVEL", "LOG_FILE"},
}
#: Files that hand an emulation down to the processes of a program, by a variable that is no setting of anybody's: the
#: start of such a process reads it before it has this package.
HANDED_DOWN = ("cli/processes.py", "cli/scripts.py", "cli/start/reach.py")
INTERNAL = {"GEMMSIM_RUN"}
#: Read by the compilation alone; messages name it.
COMPILATION = {"GEMMSIM_ISAS"}


def test_no_other_file_reads_the_environment():
    for path in (ROOT / "gemmsim").rglob("*.py"):
        name = path.relative_to(ROOT / "gemmsim").as_posix()
        text = path.read_text(encoding="utf-8")
        if name == "backends/environment.py" or re.search(r"os\.environ|getenv|from os import", text) is None:
            continue
        if name in HANDED_DOWN:
            assert set(re.findall(r"GEMMSIM_[A-Z_]+", text)) <= INTERNAL
            continue
        assert name in OTHERS, f"{name} reads the environment: use gemmsim.backends.environment"
        for line in text.splitlines():
            if "os.environ" in line or "getenv" in line:
                assert "GEMMSIM" not in line, f"{name}: {line.strip()}"
                assert any(known in line for known in OTHERS[name]), f"{name}: {line.strip()}"


def test_every_name_of_a_variable_is_known():
    found = set()
    for path in (ROOT / "gemmsim").rglob("*.py"):
        found |= set(re.findall(r"GEMMSIM_[A-Z_]+", path.read_text(encoding="utf-8")))
    assert found == set(environment.VARIABLES) | INTERNAL | COMPILATION


YES, NO = ("1", "true", "YES", "on", " On "), ("0", "false", "No", "off", "OFF")


@pytest.mark.parametrize("word", YES + NO)
def test_a_switch_takes_the_usual_words(monkeypatch, word):
    monkeypatch.setattr(route, "_allowed", None)
    monkeypatch.setenv("GEMMSIM_ALLOW_TENSOR_CORES", word)
    assert route.tensor_cores_allowed() is (word in YES)
    assert environment.flag("GEMMSIM_ALLOW_TENSOR_CORES", False) is (word in YES)


@pytest.mark.parametrize("word", ["2", "nein", "disable", "0.0", "x" * 1000])
def test_a_switch_refuses_other_words(monkeypatch, word):
    monkeypatch.setattr(route, "_allowed", None)
    monkeypatch.setenv("GEMMSIM_ALLOW_TENSOR_CORES", word)
    allowed = "GEMMSIM_ALLOW_TENSOR_CORES=.*allowed: 1, true, yes, on, 0, false, no, off"
    with pytest.raises(environment.VariableError, match=allowed) as caught:
        route.tensor_cores_allowed()
    assert len(str(caught.value)) < 400


def test_what_the_process_says_comes_before_the_variable(monkeypatch):
    monkeypatch.setenv("GEMMSIM_ALLOW_TENSOR_CORES", "nonsense")
    monkeypatch.setattr(route, "_allowed", True)
    assert route.tensor_cores_allowed()


def test_an_empty_variable_counts_as_unset(monkeypatch):
    for name in environment.VARIABLES:
        monkeypatch.setenv(name, "")
        assert environment.text(name) is None
    assert environment.flag("GEMMSIM_ALLOW_TENSOR_CORES", True)
    assert cache_dir.cache_folder().name
    library._load()


def test_instruction_sets_and_folders_are_taken_without_blanks(monkeypatch, tmp_path):
    narrowest = isas()[-1]
    monkeypatch.setenv("GEMMSIM_ISA", f" {narrowest.title()} ")
    library.set_isa(isas()[0])
    library._load()
    assert library.isa() == narrowest
    monkeypatch.setenv("GEMMSIM_ISA", "avx1024")
    with pytest.raises(library.LibraryError, match="'avx1024' cannot be used.*Unset GEMMSIM_ISA"):
        library._load()
    monkeypatch.setenv("GEMMSIM_CACHE_DIR", f" {tmp_path} ")
    assert cache_dir.cache_folder() == tmp_path
    isas()  # takes the widest again
