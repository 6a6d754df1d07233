"""Loading the library, forcing an instruction set, and refusing what it cannot do."""

from __future__ import annotations

import subprocess

import pytest
import torch
from support.cpu import isas
from support.fork import run_forked

from gemmsim.arithmetic import GemmSpec, UnsupportedSpec
from gemmsim.backends import cpu
from gemmsim.backends.cpu import shared_library as library
from gemmsim.formats import parse_cast

CODE = "from gemmsim.backends import cpu; print(cpu.isa())"


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return run_forked(CODE)


def test_the_environment_forces_an_instruction_set():
    for name in isas():
        assert run(GEMMSIM_ISA=name).stdout.strip() == name


def test_an_unknown_instruction_set_is_refused_with_the_known_ones():
    result = run(GEMMSIM_ISA="avx1024")
    assert result.returncode != 0
    assert (
        "avx1024" in result.stderr
        and "avx512, avx2, neon, baseline" in result.stderr
        and "GEMMSIM_ISA" in result.stderr
    )
    with pytest.raises(cpu.LibraryError, match="not a known name"):
        cpu.set_isa("neon9")


def test_a_missing_library_says_how_to_build_it(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "_candidates", lambda: [tmp_path / "libgemmsim_cpu.so"])
    with pytest.raises(cpu.LibraryError, match="not installed.*pip install"):
        library._load()


def test_a_library_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(library, "_ABI", 999)
    with pytest.raises(cpu.LibraryError, match="ABI"):
        library._load()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (":fixed(16,8,unbounded)", "bounds"),
        (":e9m10, arithmetic=fp32", "fp32"),
        (":binary16p2", "float64"),
    ],
)
def test_unsupported_specs_say_why(text, reason):
    try:
        spec = GemmSpec.of(text)
    except ValueError as error:  # refused even earlier, with the same kind of reason
        assert reason in str(error)
        return
    assert reason in str(cpu.refuses(spec))
    with pytest.raises(UnsupportedSpec, match=reason):
        cpu.gemm(torch.ones(1, 1), torch.ones(1, 1), spec, torch.empty(1, 1))


def test_casts_that_float64_cannot_hold_are_refused():
    with pytest.raises(UnsupportedSpec, match="float64"):
        cpu.quantize(torch.ones(2), parse_cast("binary16p2"), torch.empty(2))


def test_too_many_dimensions_are_refused():
    spec = GemmSpec.of(":e5m10")
    shape = (1,) * 17
    with pytest.raises(ValueError, match="at most 16"):
        cpu.gemm(torch.ones(*shape, 2, 2), torch.ones(*shape, 2, 2), spec, torch.empty(*shape, 2, 2))
