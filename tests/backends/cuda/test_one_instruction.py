"""One ``mma.sync`` with its C, as a probe asks a chip: its text, its record, the machine code of NVIDIA's compiler."""

from __future__ import annotations

import ctypes
import re
from types import SimpleNamespace

import pytest

from gemmsim import hardware
from gemmsim.backends.cuda import CudaError, compile_kernel
from gemmsim.backends.cuda import one_mma as ask
from gemmsim.backends.cuda.jit import sass_report
from gemmsim.backends.cuda.tensor_cores import one_instruction

FP8 = [
    (arch, row)
    for arch, name in (("sm_90a", "hopper"), ("sm_100a", "blackwell"))
    for row in hardware.instructions(name)
    if isinstance(row.model, hardware.TwoBlocks)
]


@pytest.fixture
def asked(monkeypatch):
    """What is launched; the kernel writes ``answer``."""
    found = SimpleNamespace(answer=0, capability=(9, 0), arch=None, words=None, c=None, source=None)

    class Kernel:
        def __init__(self, source, device, cubin):
            found.source = source

        def __call__(self, blocks, args):
            assert blocks == (1, 1, 1) and found.source.threads == 32
            count = found.row.k * found.row.operands[0].width // 32
            read = [(ctypes.c_uint32 * count).from_address(p) for p in (args.a, args.b)]
            found.words, found.c = [list(one) for one in read], args.c
            ctypes.c_uint32.from_address(args.d).value = found.answer

    def get(source, arch):
        found.arch = arch
        return SimpleNamespace(cubin=b"")

    monkeypatch.setattr(one_instruction, "LoadedKernel", Kernel)
    monkeypatch.setattr(one_instruction, "kernel_cache", lambda: SimpleNamespace(get=get))
    monkeypatch.setattr(one_instruction, "device_arch", lambda index: "sm_90a")
    monkeypatch.setattr(one_instruction.torch, "device", lambda *name: "cpu")
    monkeypatch.setattr(one_instruction.torch.cuda, "get_device_capability", lambda index=0: found.capability)
    return found


def test_what_is_launched(asked):
    asked.row = row = hardware.instruction("hopper", "mma.m16n8k16.f16.f16.f16.f16")
    asked.answer = 0x1234ABCD
    assert ask(row, list(range(16)), [0x3C00] * 16, 0x0002) == 0xABCD
    assert asked.words == [[2 * i | (2 * i + 1) << 16 for i in range(8)], [0x3C003C00] * 8]
    assert (asked.c, asked.arch) == (0x00020002, "sm_90a")
    asked.row = row = hardware.instruction("hopper", "mma.m16n8k32.f32.e4m3.e5m2.f32")
    asked.answer = 0x3F800000
    assert ask(row, list(range(32)), [1] * 32, 0x40000000) == 0x3F800000
    assert asked.words[0][1] == 0x07060504 and asked.c == 0x40000000


def test_a_turing_chip_is_asked_too(asked):
    asked.capability, asked.row = (7, 5), hardware.instruction("turing", "mma.m8n8k4.f32.f16.f16.f32")
    ask(asked.row, [0] * 4, [0] * 4, 0)
    assert asked.arch == "sm_75" and "sm_75" in asked.source.archs


@pytest.mark.parametrize("arch, name", [
    ("hopper", "wgmma.m64n8k32.f32.e4m3.e4m3"), ("hopper", "mma.m16n8k16.f64.f64.f64.f64"),
    ("rtx_blackwell", "mma.m16n8k32.kind::f8f6f4.f32.e3m2.e3m2.f32"), ("cdna3", "mfma.f32_32x32x8_f16"),
])  # fmt: skip
def test_what_has_no_kernel_says_so(arch, name):
    with pytest.raises(CudaError, match="allowed: mma of f16"):
        ask(hardware.instruction(arch, name), [], [], 0)


def machine_code(row: hardware.Instruction, arch: str, folder) -> list[str]:
    """Instructions that convert, multiply and add floating-point numbers, in order."""
    (folder / "k.cubin").write_bytes(compile_kernel(one_instruction.one_instruction_source(row), arch).cubin)
    text = sass_report._output("nvdisasm", "-c", str(folder / "k.cubin"))
    return re.findall(r"^\s+/\*[0-9a-f]+\*/\s+((?:F2FP|HMMA|QMMA|FADD|HADD2)\b[^;]*);", text, re.MULTILINE)


@pytest.mark.cuda
@pytest.mark.parametrize("arch, row", FP8, ids=lambda x: x if isinstance(x, str) else x.name)
def test_fp8_without_a_unit_is_two_binary16_instructions_and_an_addition(arch, row, tmp_path):
    """The rule of ``hardware.TwoBlocks``, as NVIDIA's compiler writes it: each word of four FP8 numbers is unpacked to its
    lower two, k mod 4 in {0, 1}, and its upper two (.H1); the first product starts from zero, the second from the first; C
    is added last."""
    code = machine_code(row, arch, tmp_path)
    products = [one for one in code if one.startswith("HMMA")]
    shape, result = {16: "1688", 32: "16816"}[row.k], {"f32": "F32", "f16": "F16"}[row.d]
    assert len(products) == 2 and all(one.startswith(f"HMMA.{shape}.{result} ") for one in products)
    first, second = ([part.strip() for part in one.split(" ", 1)[1].split(",")] for one in products)
    assert first[3] == "RZ" and second[3].removesuffix(".reuse") == first[0]
    assert code[-1].startswith({"f32": "FADD", "f16": "HADD2"}[row.d]) and second[0] in code[-1]
    held: dict[str, str] = {}  # which half each register has, at the time of each product
    halves = []
    for one in code:
        name, _, rest = one.partition(" ")
        parts = [part.strip().removesuffix(".reuse") for part in rest.split(",")]
        if name.startswith("F2FP"):
            held[parts[0]] = "upper" if parts[1].endswith(".H1") else "lower"
        elif name.startswith("HMMA"):
            halves.append({held[parts[1]], held[parts[2]]})
    assert halves == [{"lower"}, {"upper"}]


@pytest.mark.cuda
def test_chips_with_a_unit_take_it(tmp_path):
    row = hardware.instruction("ada", "mma.m16n8k32.f32.e4m3.e4m3.f32")
    for arch in ("sm_89", "sm_120a"):
        assert [one.split(".")[0] for one in machine_code(row, arch, tmp_path)] == ["QMMA"]


@pytest.mark.cuda
def test_every_undecided_probe_can_be_asked(tmp_path):
    """Its kernel compiles for the probe's architecture and for others that have the instruction."""
    archs = {"hopper": ("sm_90a", "sm_100a"), "turing": ("sm_75",)}
    asked = {probe.instruction for probe in hardware.UNDECIDED}
    assert {source.name for source in one_instruction.sources()} == asked
    for probe in hardware.UNDECIDED:
        for arch in archs[probe.arch]:
            row = hardware.instruction(probe.arch, probe.instruction)
            assert compile_kernel(one_instruction.one_instruction_source(row), arch).cubin
