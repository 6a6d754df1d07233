"""The library of a process, asked and run: a shared library compiled here stands for libcublasLt."""

from __future__ import annotations

import ctypes
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import gemmsim as gs
from gemmsim.libraries import Call, Config, LibraryError, TableError, UnknownPlan, live, read_table
from gemmsim.libraries.live import LiveCublasLt, Machine, here
from gemmsim.libraries.lt_library import LtLibrary, Pointers

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc)")
SOURCE = Path(__file__).with_name("stub_cublaslt.c")
CONFIG = Config(66, 21, 4, 2, 1, 3, 35, 7, 65535)
CALL = Call(64, 48, 8192, "fp16", "fp16", "fp16", False)
STATUSES = {name: number for number, name in enumerate(
    ("Create", "MatmulDescCreate", "MatrixLayoutCreate", "MatmulPreferenceCreate", "SetAttribute",
     "MatmulAlgoGetHeuristic", "MatmulAlgoConfigGetAttribute", "MatmulAlgoInit", "MatmulAlgoConfigSetAttribute",
     "MatmulAlgoCheck", "Matmul"), 1,
)}  # fmt: skip


class Described(ctypes.Structure):
    """An object of the library as the stub keeps it."""

    _fields_ = [(name, ctypes.c_int) for name in ("kind", "type", "scale", "transa", "fast", "order")]
    _fields_ += [(name, ctypes.c_uint64) for name in ("rows", "columns", "workspace")] + [("ld", ctypes.c_int64)]


class Stub:
    """What the compiled library was told and saw."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._lib = ctypes.CDLL(self.path)

    def _variable(self, name: str):
        return ctypes.c_long.in_dll(self._lib, f"stub_{name}")

    def __getitem__(self, name: str) -> int:
        return self._variable(name).value

    def __setitem__(self, name: str, value: int) -> None:
        self._variable(name).value = value

    def answer(self, config) -> None:
        (ctypes.c_long * 9).in_dll(self._lib, "stub_config")[:] = list(config)

    def described(self, name: str) -> Described:
        return Described.in_dll(self._lib, f"stub_{name}")

    def asked(self) -> list[int]:
        return list((ctypes.c_long * 9).in_dll(self._lib, "stub_asked"))


@pytest.fixture
def stub(tmp_path):
    path = tmp_path / "libcublasLt.so.13"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", str(SOURCE), "-o", str(path)], check=True)
    made = Stub(path)
    made.answer(CONFIG)
    return made


def machine(stub, name="NVIDIA H100 80GB HBM3", capability="sm_90", sms=132) -> Machine:
    return Machine(name, capability, sms, stub.path)


@pytest.fixture
def library(stub, monkeypatch) -> LiveCublasLt:
    monkeypatch.setattr(live, "find_machine", lambda: machine(stub))
    return here()


def test_the_heuristic_is_asked(stub):
    found = LtLibrary(stub.path)
    assert found.version == "13.1.1"
    assert found.configuration(CALL, 12345) == CONFIG
    assert ctypes.c_uint64.in_dll(stub._lib, "stub_allowed").value == 12345
    desc, a, b, d = (stub.described(name) for name in ("desc", "a", "b", "d"))
    assert (desc.type, desc.scale, desc.transa) == (68, 0, 0)
    assert [(one.type, one.order, one.rows, one.columns, one.ld) for one in (a, b, d)] == [
        (2, 1, 64, 8192, 8192), (2, 1, 8192, 48, 48), (2, 1, 64, 48, 48),
    ]  # fmt: skip
    assert stub["alive"] == 0  # everything was destroyed


def test_fp8_is_asked_as_the_transposed_problem(stub):
    found = LtLibrary(stub.path)
    found.configuration(Call(64, 48, 512, "e4m3", "e5m2", "bf16", True), 0)
    desc, a, b, d = (stub.described(name) for name in ("desc", "a", "b", "d"))
    assert (desc.transa, desc.fast) == (1, 1)
    assert [(one.type, one.order, one.rows, one.columns, one.ld) for one in (a, b, d)] == [
        (29, 0, 512, 48, 512), (28, 0, 512, 64, 512), (14, 0, 48, 64, 48),
    ]  # fmt: skip
    found.configuration(Call(64, 48, 512, "e4m3", "e4m3", "fp32", False), 0)
    assert stub.described("desc").fast == 0
    for out in ("e4m3", "e5m2"):  # the addend of which is in fp16
        assert found.configuration(Call(64, 48, 512, "e4m3", "e5m2", out, False), 0) == CONFIG
        assert found.workspace_of(Call(64, 48, 512, "e4m3", "e5m2", out, False), CONFIG) == 0


@pytest.mark.parametrize("function", [name for name in STATUSES if name not in ("Create",)])
def test_a_status_is_an_error_that_names_the_function(stub, function):
    found = LtLibrary(stub.path)
    stub["failing"], stub["status"] = STATUSES[function], 13
    out = torch.zeros(2, 2)
    pointers = Pointers(out.data_ptr(), out.data_ptr(), out.data_ptr(), 0, 0)
    with pytest.raises(LibraryError, match=f"{function}: status 13, execution failed"):
        found.configuration(CALL, 0)
        found.multiply(Call(2, 2, 1, "bf16", "bf16", "fp32", False), CONFIG, pointers, 1 << 20)
    assert stub["alive"] == 0


def test_a_library_that_cannot_be_started(stub):
    stub["failing"], stub["status"] = STATUSES["Create"], 1
    with pytest.raises(LibraryError, match="Create: status 1, not initialised"):
        LtLibrary(stub.path)


def test_calls_without_an_algorithm_are_unknown(stub):
    found = LtLibrary(stub.path)
    for name, value in (("count", 0), ("state", 15)):
        before = stub[name]
        stub[name] = value
        with pytest.raises(UnknownPlan, match="no algorithm"):
            found.configuration(CALL, 0)
        stub[name] = before
    stub["failing"], stub["status"] = STATUSES["MatmulAlgoGetHeuristic"], 15
    with pytest.raises(UnknownPlan):
        found.configuration(CALL, 0)


def test_attributes_of_another_size_are_refused(stub):
    stub["short_attribute"] = 7
    with pytest.raises(LibraryError, match="INNER_SHAPE_ID of 1 bytes"):
        LtLibrary(stub.path).configuration(CALL, 0)


@pytest.mark.parametrize(("number", "text"), [(130101, "13.1.1"), (120803, "12.8.3"), (130002, "13.0.2")])
def test_versions(stub, number, text):
    stub["version"] = number
    assert LtLibrary(stub.path).version == text


def test_files_that_are_no_such_library(stub, tmp_path):
    stub["version"] = 111103
    with pytest.raises(LibraryError, match="CUDA 12 or 13"):
        _ = LtLibrary(stub.path).version
    (tmp_path / "text.so").write_text("no library")
    for path in (tmp_path / "text.so", tmp_path / "nothing.so", ctypes.util.find_library("m") or "libm.so.6"):
        with pytest.raises(LibraryError, match="libcublasLt"):
            LtLibrary(str(path))


def test_one_algorithm_is_run(stub):
    found = LtLibrary(stub.path)
    g = torch.Generator().manual_seed(2)
    a, b = torch.randn(3, 5, generator=g).bfloat16(), torch.randn(5, 4, generator=g).bfloat16()
    out = torch.full((3, 4), -1.0)
    pointers = Pointers(a.data_ptr(), b.data_ptr(), out.data_ptr(), 0, 0)
    call = Call(3, 4, 5, "bf16", "bf16", "fp32", False)
    stub["workspace"] = 100
    assert found.workspace_of(call, CONFIG) == 100
    found.multiply(call, CONFIG, pointers, 100)
    assert torch.allclose(out, a.float() @ b.float(), atol=1e-5)
    assert stub.asked() == list(CONFIG)
    found.multiply(call, Config(21, STAGES_ID=13), pointers, 100)
    assert stub.asked() == [21, 0, 0, 0, 0, 0, 13, 0, 0] and stub["products"] == 2
    with pytest.raises(LibraryError, match="100 bytes of workspace"):
        found.multiply(call, CONFIG, pointers, 99)
    with pytest.raises(LibraryError, match="fp64"):
        found.configuration(call._replace(out="fp64"), 0)


def test_plans_ask_the_library_once_a_call(stub, library):
    assert str(library) == "cublaslt('h100', version='13.1.1', workspace=33554432, table='the live library')"
    plan = library.plan(64, 48, 8192, "fp16")
    assert (plan.source, plan.config, plan.evidence) == ("live", CONFIG, "silicon")
    assert library.plan(64, 48, 8192, "fp16") is plan and stub["heuristics"] == 1
    assert library.choice(64, 48, 8192, "fp16") == CONFIG
    stub.answer((41, 0, 1, 0, 0, 0, 0, 0, 0))
    with pytest.raises(UnknownPlan, match="ALGO_ID 41"):
        library.plan(64, 48, 8191, "fp16")
    assert library.plan(64, 48, 8191, "fp16", assume="chain").source == "assumed"
    assert library.choice(64, 48, 8191, "fp16").ALGO_ID == 41
    again = pickle.loads(pickle.dumps(library))
    assert again == library and hash(again) == hash(library) and type(again) is LiveCublasLt
    assert library != gs.libraries.cublaslt("h100")


def test_what_it_says_is_recorded(stub, library, tmp_path):
    shapes = [(64, 48, 8192), (64, 48, 4096), (64, 48, 8192)]
    assert library.record(shapes, tmp_path / "t.jsonl", "fp16") == 2
    asked = stub["heuristics"]
    assert library.record(shapes, tmp_path / "t.jsonl", torch.float16) == 0 and stub["heuristics"] == asked
    assert library.record([(64, 64, 4096)], tmp_path / "t.jsonl", "e4m3", out="bf16", fast_accumulation=True) == 1
    table = read_table(tmp_path / "t.jsonl")
    assert table.header == gs.libraries.Header("h100", "13.1.1", 32 << 20, 132)
    assert table.find(CALL) == CONFIG and len(table) == 3
    plan = gs.libraries.cublaslt("h100", table=tmp_path / "t.jsonl").plan(64, 48, 4096, "fp16")
    assert plan.config == CONFIG
    stub["count"] = 0
    assert library.record([(1, 1, 1)], tmp_path / "t.jsonl", "fp16") == 0
    with pytest.raises(LibraryError, match="M=0"):
        library.record([(0, 1, 1)], tmp_path / "t.jsonl")
    with pytest.raises(TableError, match="workspace"):
        here(workspace=0).record(shapes, tmp_path / "t.jsonl")


def test_run_takes_operands_on_a_gpu(library):
    a = torch.ones(4, 4).half()
    with pytest.raises(LibraryError, match="one CUDA device"):
        library.run(a, a, CONFIG)
    assert library.device == "cuda"


# Which GPU and library


@pytest.mark.parametrize(
    ("name", "capability", "sms", "gpu"),
    [
        ("NVIDIA H100 80GB HBM3", "sm_90", 132, "h100"),
        ("NVIDIA H100 PCIe", "sm_90", 114, "h100-pcie"),
        ("NVIDIA GB200", "sm_100", 152, "gb200"),
        ("NVIDIA GB300", "sm_103", 152, "gb300"),
        ("NVIDIA GeForce RTX 4060", "sm_89", 24, "rtx4060"),
        ("NVIDIA H100 80GB HBM3", "sm_90", 16, None),
        ("NVIDIA H200", "sm_90", 132, "h200"),
        ("NVIDIA GH200 480GB", "sm_90", 132, None),
        ("NVIDIA GeForce RTX 4060 Ti", "sm_89", 34, None),
    ],
)
def test_gpus_are_told_by_name_capability_and_sms(stub, monkeypatch, name, capability, sms, gpu):
    monkeypatch.setattr(live, "find_machine", lambda: machine(stub, name, capability, sms))
    stub["version"] = {"rtx4060": 120803, "h100-pcie": 120803}.get(gpu, 130101)
    if gpu is None:
        with pytest.raises(LibraryError, match=rf"{sms} SMs.*not measured"):
            here()
        return
    assert here().gpu == gpu and not here().is_assumed


def test_another_gpu_or_version_may_be_taken_for_a_profile(stub, monkeypatch, tmp_path):
    monkeypatch.setattr(live, "find_machine", lambda: machine(stub, "NVIDIA GH200"))
    stub["version"] = 130002
    with pytest.raises(LibraryError, match="Name the profile"):
        here("h100")
    library = here("h100", "13.1")
    assert library.names == ("gh200", "13.0.2") and library.is_assumed
    plan = library.plan(64, 48, 8192, "fp16")
    assert plan.evidence == "inferred" and "gh200 13.0.2 is assumed to behave the same" in plan.explain()
    library.record([(64, 48, 8192)], tmp_path / "t.jsonl")
    assert read_table(tmp_path / "t.jsonl").header[:2] == ("gh200", "13.0.2")
    for gpu, version in (("h300", None), ("h100", "12"), ("h100", "13.x")):
        with pytest.raises(LibraryError):
            here(gpu, version)
    with pytest.raises(LibraryError, match="workspace="):
        here("h100", "13.1", workspace=-1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_what_to_do():
    with pytest.raises(LibraryError, match=r"cublaslt\('h100'"):
        here()


def test_the_loaded_library_is_found_first(stub, monkeypatch, tmp_path):
    ctypes.CDLL(stub.path)
    assert Path(live.find_library()).name.startswith("libcublasLt.so")
    wheel = tmp_path / "site" / "nvidia" / "cublas" / "lib"
    wheel.mkdir(parents=True)
    (wheel / "libcublasLt.so.12").write_bytes(b"")
    monkeypatch.setattr(live, "Path", _WithoutMaps)
    monkeypatch.setattr("sys.path", [str(tmp_path / "site")])
    assert live.find_library() == str(wheel / "libcublasLt.so.12")
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setattr(live.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(LibraryError, match="no libcublasLt"):
        live.find_library()


class _WithoutMaps(type(Path())):
    def exists(self, **keywords):
        return False if str(self) == "/proc/self/maps" else super().exists(**keywords)
