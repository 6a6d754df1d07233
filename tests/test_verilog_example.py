"""The array in examples/verilog has the exported words after every step, and so has a model in plain integers."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys

import pytest
import torch
from support import ROOT
from torch import nn

import gemmsim as gs

EXAMPLE = ROOT / "examples" / "verilog"
needs_icarus = pytest.mark.skipif(
    shutil.which("iverilog") is None or shutil.which("vvp") is None,
    reason="needs Icarus Verilog: bash tests/support/install_iverilog.sh",
)

#: Operand formats and register.
ARRAYS = [
    ("int8 * int8", "int(18)"),
    ("int8 * int8", "int(17, saturate)"),
    ("uint8 * int4", "int(12)"),
    ("int4 * uint8", "int(13, saturate)"),
    ("uint4 * uint4", "int(9, saturate)"),
    ("int16 * int12", "int(40, saturate)"),
    ("int2 * int5", "int(5)"),
]


def read(path) -> list[int]:
    """As $readmemh does."""
    lines = [line.partition("//")[0].strip() for line in path.read_text().splitlines()]
    return [int(word, 16) for word in lines if word]


def signed(word: int, bits: int, is_signed: bool) -> int:
    return word - (1 << bits) if is_signed and word >> (bits - 1) else word


def model(folder) -> tuple[list[int], list[int]]:
    """The words of steps and result by Python's integers, from the operands' files and the text of the spec alone."""
    about = json.loads((folder / "spec.json").read_text())
    M, K, N = about["M"], about["K"], about["N"]
    operands = []
    for name in "ab":
        entry = about["files"][name]
        is_signed = entry["format"].startswith("fixed")
        operands.append([signed(word, entry["bits"], is_signed) for word in read(folder / f"{name}.hex")])
    a, b = operands
    bits, saturates = int(about["spec"].split("int(")[1].split(",")[0].rstrip(")")), "saturate" in about["spec"]
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    steps, result = [], []
    for m in range(M):
        for n in range(N):
            register = 0
            for k in range(K):
                register += a[m * K + k] * b[k * N + n]
                if saturates:
                    register = max(-half, min(half - 1, register))
                else:
                    register = (register + half) % (2 * half) - half
                steps.append(register & mask)
            result.append(register & mask)
    return steps, result


def exported(folder, operands, register):
    spec = gs.GemmSpec.parse(f"{operands} : {register}")
    g = torch.Generator().manual_seed(len(str(spec)))
    a, b = (
        torch.randint(int(cast.format.min), int(cast.format.max) + 1, shape, generator=g)
        for cast, shape in ((spec.a, (3, 20)), (spec.b, (20, 2)))
    )
    return gs.export_vectors(a, b, spec, folder, steps=True, directed=True)


def simulated(*folders):
    return subprocess.run(
        [sys.executable, str(EXAMPLE / "simulate.py"), *map(str, folders)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("operands", "register"), ARRAYS)
def test_a_model_in_plain_integers_gives_the_exported_words(tmp_path, operands, register):
    folders = exported(tmp_path, operands, register)
    assert len(folders) >= 3
    for folder in folders:
        steps, result = model(folder)
        assert steps == read(folder / "steps.hex") and result == read(folder / "expected.hex")


@needs_icarus
@pytest.mark.parametrize(("operands", "register"), ARRAYS)
def test_the_array_has_the_exported_words(tmp_path, operands, register):
    folders = exported(tmp_path, operands, register)
    done = simulated(*folders)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for folder, line in zip(folders, lines, strict=True):
        words = len(read(folder / "steps.hex")) + len(read(folder / "expected.hex"))
        assert line == f"{folder}: PASS: {words} words"


@needs_icarus
def test_a_captured_convolution_in_the_array(tmp_path):
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 4, 3, stride=2, bias=False)
    with gs.capture(conv, convolutions="im2col", to=tmp_path / "o.safetensors"):
        conv(torch.randn(1, 2, 5, 5))
    found = gs.vectors.captured_product(tmp_path / "o.safetensors")
    spec = "int8 : int(16, saturate)"
    a, b = (gs.vectors.scaled_to(x, spec, side)[0] for side, x in enumerate((found.a, found.b)))
    (folder,) = gs.export_vectors(a, b, spec, tmp_path / "vectors", steps=True)
    assert model(folder)[0] == read(folder / "steps.hex")
    done = simulated(folder)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_icarus
@pytest.mark.parametrize("file", ["steps", "expected", "a"])
def test_a_wrong_word_is_found(tmp_path, file):
    folder = exported(tmp_path, "int8 * int8", "int(18)")[0]
    lines = (folder / f"{file}.hex").read_text().splitlines()
    lines[5] = f"{int(lines[5], 16) ^ 1:x}"
    (folder / f"{file}.hex").write_text("\n".join(lines) + "\n")
    done = simulated(folder)
    assert done.returncode == 1 and "FAIL" in done.stdout and "expected" in done.stdout


def test_vectors_of_another_array_are_refused(tmp_path):
    if shutil.which("iverilog") is None:
        pytest.skip("needs Icarus Verilog: bash tests/support/install_iverilog.sh")
    for spec, steps, says in (
        ("int8 : int(18)", False, "no steps"),
        ("e4m3 : fp32", True, "this array has int"),
        ("int8 : int(18, shift=1)", True, "without shift"),
        ("fixed(8,1) : int(18)", True, "this array has integers"),
    ):
        gs.export_vectors([[2.0, 4.0]], [[1.0], [2.0]], spec, tmp_path, steps=steps)
        done = simulated(tmp_path)
        assert done.returncode == 1 and says in done.stderr


@needs_icarus
@pytest.mark.skipif(importlib.util.find_spec("cocotb_tools") is None, reason="needs cocotb 2: pip install cocotb")
def test_the_cocotb_example_runs(tmp_path):
    folder = exported(tmp_path, "int8 * int8", "int(17, saturate)")[0]
    command = [sys.executable, str(EXAMPLE / "cocotb_mac_array.py"), str(folder)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    words = json.loads((folder / "words.json").read_text())
    words["steps"][7] ^= 1
    (folder / "words.json").write_text(json.dumps(words))
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
