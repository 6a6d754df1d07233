"""CUTLASS' own mainloop: its machine code, its parameters, which tiles its blocks take, when it is used."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from support import ROOT, assert_bitwise_equal
from support.collective import ALL, fake_hopper, mapped  # noqa: F401
from support.tensor_cores import fake_gpu, run_on_gpu  # noqa: F401

import gemmsim as gs
from gemmsim import acc
from gemmsim.arithmetic import GemmSpec, Hardware
from gemmsim.backends import cpu, cuda, cutlass, route
from gemmsim.backends.cuda.jit.elf_constants import exported
from gemmsim.backends.cuda.tensor_cores import cutlass_mainloop, cutlass_params
from gemmsim.backends.cuda.tensor_cores.cutlass_mainloop import Collective, collective_of, collective_source
from gemmsim.backends.cuda.tensor_cores.cutlass_params import Lines, check_layout, grid_of, params_of
from gemmsim.backends.cuda.tensor_cores.native_mma import chain_of
from gemmsim.backends.product import Product

BF16, PROMOTED = cutlass_mainloop._LISTED


@pytest.mark.cuda
@pytest.mark.parametrize(("one", "instruction", "waits"), [(BF16, "HGMMA", 2), (PROMOTED, "QGMMA", 5)], ids=str)
def test_machine_code_and_the_layout_that_it_exports(one, instruction, waits, tmp_path, compiled_before):
    """TMA brings, warp groups multiply, nothing is spilled, no wgmma waits for the one before it; and the parameters lie
    where they are written."""
    from gemmsim.backends.cuda.jit import sass_report

    source = collective_source(one)
    if compiled_before((source, "sm_90a")):
        return
    compiled = cuda.compile_kernel(source, "sm_90a")
    facts = sass_report.inspect_kernel(compiled)
    assert (facts.spills, facts.stack) == (0, 0)
    (tmp_path / "k.cubin").write_bytes(compiled.cubin)
    text = sass_report._output("nvdisasm", "-c", str(tmp_path / "k.cubin"))
    names = sass_report._parse(text).names
    assert names.count(instruction) == 8 and names.count("UTMALDG") == 2 and "CALL" not in names
    assert text.count("WARPGROUP.DEPBAR") == waits, "ptxas waits after each wgmma where a kernel calls anything"
    check_layout(compiled.cubin, one.tiling, "it")
    with pytest.raises(cuda.CudaError, match="stages is 4, not 3|stages is 7, not 3"):
        check_layout(compiled.cubin, replace(one.tiling, stages=3), "it")
    with pytest.raises(cuda.CudaError, match="exports no gemmsim_nothing"):
        exported(compiled.cubin, "gemmsim_nothing")
    with pytest.raises(cuda.CudaError, match="incomplete machine code"):
        exported(compiled.cubin[:5000], "gemmsim_layout")


def test_machine_code_that_is_none():
    with pytest.raises(cuda.CudaError, match="not an ELF file"):
        exported(b"text", "gemmsim_layout")


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 12, 16, 33, 100, 641, 4096, 65537, 999983, 2**31 - 1])
def test_divisions_by_multiplication(divisor):
    found = cutlass_params._divide(divisor)
    for x in (0, 1, divisor - 1, divisor, divisor + 1, 7 * divisor - 1, 12345678901, 2**40 - 1, 2**62 + 12345):
        high = (x + found.round_up) * found.multiplier >> 64 if found.multiplier else x
        assert high >> found.shift_right == x // divisor, x


def lines(count, terms, batch=1, size=2, kind="UINT16"):
    return Lines(0x1000, terms, count, batch, terms * size, count * terms * size, kind)


def taken(args, grid):
    """The tile (m, n, batch) of each step of each block, as CUTLASS' persistent scheduler finds it from the record
    (cutlass/gemm/kernel/static_tile_scheduler.hpp, sm90_tile_scheduler.hpp)."""
    along_n = args.raster == 1
    for x in range(grid[0]):
        for y in range(grid[1]):
            at = x + y * grid[0] if along_n else x * grid[1] + y
            while at < args.blocks:
                batch, rest = divmod(at, args.batch.divisor)
                cluster, inside = divmod(rest >> args.minor.shift_right, args.major.divisor)
                swizzled, offset = cluster >> args.log_swizzle, cluster & ((1 << args.log_swizzle) - 1)
                across, along = divmod(swizzled, args.along.divisor)
                minor = ((across << args.log_swizzle) + offset) * args.minor.divisor + (x % 2 if along_n else 0)
                if along_n:
                    yield minor, along * args.major.divisor + inside, batch
                else:  # the other block of a cluster is the next along M
                    yield along * args.major.divisor + inside, minor, batch
                at += grid[0] * grid[1]


@pytest.mark.parametrize(
    ("m", "n", "batch"), [(1, 1, 1), (4096, 4096, 1), (300, 5000, 3), (5000, 300, 2), (2048, 4096, 1), (2037, 4093, 1)]
)
@pytest.mark.parametrize("one", [BF16, PROMOTED], ids=str)
def test_blocks_take_every_tile_once(fake_hopper, one, m, n, batch):  # noqa: F811
    size = one.tiling.element
    args = params_of(lines(m, 256, batch, size), lines(n, 256, batch, size), 0, (n, m * n), one.tiling, 132)
    grid = grid_of(m, n, batch, one.tiling, 132)
    assert grid[0] % 2 == 0 and grid[0] * grid[1] <= 132
    found = list(taken(args, grid))
    assert len(found) == len(set(found)) == args.blocks == args.tiles_m * 2 * args.tiles_n * batch
    wanted = {(i, j, k) for i in range(-(-m // 128)) for j in range(-(-n // one.tiling.n)) for k in range(batch)}
    assert wanted <= set(found) and len(found) <= len(wanted) + args.tiles_n * batch, (
        "at most one row of tiles too many"
    )


def test_the_record(fake_hopper):  # noqa: F811
    args = params_of(lines(300, 72), lines(500, 72), 0x4000, (500, 150000), BF16.tiling, 132)
    assert ctypes.sizeof(args) == 704 and list(args.problem) == [300, 500, 72, 1]
    assert (args.out, args.out_row, args.out_batch, args.processors) == (0x4000, 500, 150000, 132)
    assert (args.bytes_a, args.bytes_b, args.bytes) == (16384, 32768, 49152)
    promoted = params_of(lines(300, 80, size=1), lines(500, 80, size=1), 0, (1, 1), PROMOTED.tiling, 132)
    assert promoted.promotion == 4 and promoted.bytes == 32768


def by_cpu(a, b, spec, dtype=torch.float32):
    out = torch.empty(*a.shape[:-1], b.shape[-1], dtype=dtype)
    cpu.gemm(a, b, spec, out, 5)
    return out


def operands(k=200, batch=(), m=37, n=21):
    g = torch.Generator().manual_seed(k)
    a, b = torch.randn(*batch, m, k, generator=g), torch.randn(*batch, k, n, generator=g)
    return a * torch.exp2(torch.randint(-9, 9, (k,), generator=g)), b


def by_gpu(a, b, spec, dtype=torch.float32, **fields):
    out = torch.full((*a.shape[:-1], b.shape[-1]), 3.0, dtype=dtype)
    return out, run_on_gpu(Product(a, b, spec, out, 5, **fields))


@pytest.mark.kept(by="nothing")
@pytest.mark.parametrize("accumulator", [acc.cublas_fp32(), acc.cublas_fp32("hopper", "fp16"), acc.deepgemm(), acc.hopper_fp8_fast("e4m3", "e5m2")], ids=str)  # fmt: skip
def test_a_mainloop_equal_to_the_model_is_used(fake_hopper, accumulator):  # noqa: F811
    """By itself, where a product is large; the comparison has ragged ends, many tiles and long chains."""
    spec = GemmSpec(accumulator=accumulator)
    for k in (1, 200, 513):
        a, b = operands(k)
        got, ran = by_gpu(a, b, spec)
        assert_bitwise_equal(got, by_cpu(a, b, spec), context=f"k={k}")
        assert "gemm_collective<" in str(ran) and "those of its model in all" in str(ran)
    (verdict,) = cuda.verdicts().values()
    assert verdict.equal and len(fake_hopper.launches) == 3 + 8, "the instruction's own kernel is not asked"


def test_a_mainloop_that_differs_is_not_used(fake_hopper):  # noqa: F811
    fake_hopper.accumulator = Hardware("ampere", "mma", "bf16", "bf16")
    spec, (a, b) = GemmSpec(accumulator=acc.cublas_fp32()), operands()
    got, ran = by_gpu(a, b, spec)
    assert_bitwise_equal(got, by_cpu(a, b, spec))
    assert "gemm_instruction<" in str(ran) and "CUTLASS mainloop bf16 by bf16 not used: the instruction differs" in str(
        ran
    )
    assert sorted(verdict.equal for verdict in cuda.verdicts().values()) == [False, True], "a verdict for each kernel"


def test_small_products_and_other_chains_are_the_instructions_own(fake_hopper):  # noqa: F811
    a, b = operands(m=4, n=4, k=8)
    _, ran = by_gpu(a, b, GemmSpec(accumulator=acc.cublas_fp32()))
    assert "gemm_instruction<" in str(ran) and "not used" not in str(ran) and not fake_hopper.launches
    for other in (
        acc.cublas_fp32("hopper", "tf32"),
        acc.fp16_accumulate(),
        acc.hopper_fp8_2xacc(256),
        acc.cublas_fp32("ampere"),
    ):
        assert not isinstance(collective_of(chain_of(other)), Collective)


@pytest.mark.parametrize(
    "text",
    [
        "bf16 : fp32",
        "fp16 : fp32",
        "e4m3 : fp32",
        "e5m2 * e4m3 : fp32 -> bf16",
        ":hw(hopper, wgmma, bf16)",
        "e4m3 : hw(hopper, wgmma, e4m3)",
    ],
)
def test_asked_for(fake_hopper, text):  # noqa: F811
    """The bits are those of the chip's chains, which the model here says; no comparison is made."""
    a, b = operands(300, (3,))
    spec = GemmSpec.of(text)
    found = cutlass.mainloop_of(spec, torch.float32, torch.float32)
    if found == ("bf16", "bf16", 0):
        a, b = a.bfloat16(), b.bfloat16()
    with gs.cutlass_acceleration():
        got, ran = by_gpu(a, b, spec)
        shared, _ = by_gpu(a, b[:1].expand_as(b), spec)
    assert ran.backend == "cutlass" and "CUTLASS mainloop" in str(ran) and not cuda.verdicts()
    name, other, promoted = cutlass.mainloop_of(spec, a.dtype, b.dtype)
    inner = Hardware("hopper", "wgmma", *({"f16": "fp16"}.get(x, x) for x in (name, other)))
    chain = replace(spec, accumulator=acc.promote(inner, promoted) if promoted else inner)
    assert_bitwise_equal(got, by_cpu(a, b, chain))
    assert_bitwise_equal(shared, by_cpu(a, b[:1].expand_as(b), chain))


def test_operands_lie_as_tma_reads_them(fake_hopper):  # noqa: F811
    """Lines start at multiples of 16 bytes and no stride is 0, whatever the tensors are."""
    a, b = operands(72, m=5)
    spec = GemmSpec.of("fp16 : fp32")
    chain = replace(spec, accumulator=acc.cublas_fp32("hopper", "fp16"))
    cases = [
        (a, b),
        (a[:, 1:], b[1:]),
        (a[:1], b),
        (a[:1].expand(7, 72), b),
        (a.t().contiguous().t(), b),
        (a[..., ::3], b[::3]),
    ]
    with gs.cutlass_acceleration():
        for left, right in cases:
            left, right = left.half(), right.half()
            got, ran = by_gpu(left, right, spec)
            assert ran.backend == "cutlass"
            assert_bitwise_equal(got, by_cpu(left, right, chain))


def test_refusals(fake_hopper, monkeypatch):  # noqa: F811
    a, b = operands(40)

    def plan(text, **fields):
        with gs.cutlass_acceleration(True):
            return str(by_gpu(a[:, : fields.pop("k", 40)], b[: fields.pop("rows", 40)], GemmSpec.of(text), **fields)[1])

    told = "cutlass_acceleration refused: "
    assert told + "no mainloop of CUTLASS is built for native type fp32; there are bf16/fp32" in plan(":fp32")
    assert told + "there is no native product of e5m2 by e5m2" in plan("e5m2 : fp32")
    assert told + "no native type multiplies e8m23 by e8m23" in plan(":e5m10")
    assert told + "the spec names another architecture than Hopper" in plan(":hw(ampere, mma, bf16)")
    assert told + "K = 0" in plan("e4m3 : fp32", k=0, rows=0)
    assert told + "native products do not take an addend" in plan(
        "e4m3 : sequential(fp32, init=c_first)", c=torch.ones(37, 21)
    )
    fake = cuda.tensor_cores.cutlass_mainloop
    monkeypatch.setattr(fake, "device_arch", lambda index: "sm_100a")
    assert told + "its mainloops are built for sm_90a (Hopper); cpu is sm_100a" in plan("e4m3 : fp32")
    monkeypatch.setattr(fake, "_is_gpu", lambda device: False)
    assert told + "CUTLASS runs on GPUs of compute capability 9.0, not on cpu" in plan("e4m3 : fp32")


def test_a_driver_that_refuses_a_map(fake_hopper, monkeypatch):  # noqa: F811
    def refuse(*arguments):
        raise cuda.DriverError("no map")

    monkeypatch.setattr(cutlass_params, "encode_map", refuse)
    a, b = operands()
    got, ran = by_gpu(a, b, GemmSpec(accumulator=acc.cublas_fp32()))
    assert "instruction not used: not checked, the model is used: no map" in str(ran), "its kernel needs maps, too"
    with gs.cutlass_acceleration(), pytest.raises(cuda.DriverError):
        by_gpu(a, b, GemmSpec.of("e4m3 : fp32"))


def test_block_formats_are_decoded_once(fake_hopper):  # noqa: F811
    """Operands in block formats are multiplied as bfloat16, where that holds their values."""
    a, b = operands(128)
    left, right = (gs.mx.quantize(x, "mxfp8_e4m3", dim=dim) for x, dim in ((a, -1), (b, -2)))
    with gs.cutlass_acceleration():
        got, ran = by_gpu(left.bfloat16(), right.bfloat16(), GemmSpec.of("bf16 : fp32"))
    assert ran.backend == "cutlass"
    assert_bitwise_equal(got, by_cpu(left, right, GemmSpec(accumulator=acc.cublas_fp32())))


def test_every_mainloop_has_a_kernel_of_its_own():
    assert len({collective_source(one) for one in ALL}) == len(ALL) == 10
    assert {source.family for source in cutlass_mainloop.sources()} == {"gemm_collective"}
    assert route.ROUTES, mapped


SCRIPT = """
import ctypes
import os
import shutil
import subprocess
import sys
from gemmsim.backends.cuda import DriverError
from gemmsim.backends.cuda.tensor_cores.cutlass_params import Lines, tensor_map

found = tensor_map(Lines(0x1000, 100, 300, 2, 208, 62400, "UINT16"), 64, 128)
ctypes.CDLL(None).fflush(None)
assert found == b"Z" * 128, found
try:
    tensor_map(Lines(0x666, 100, 300, 1, 112, 33600, "UINT8"), 128, 64)
except DriverError as error:
    ctypes.CDLL(None).fflush(None)
    print("error", error, flush=True)
"""


@pytest.mark.cuda
def test_the_driver_is_asked_for_the_right_maps(tmp_path):
    """By the real cuda-bindings, of a libcuda that says what it is asked: CUtensorMapDataType 1 is uint16 and 0 uint8, the
    swizzle 3 one of 128 bytes, and 2 the promotion of 128 bytes."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is needed to make a driver")
    driver = ROOT / "tests" / "backends" / "cuda" / "host" / "driver.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", str(driver), "-o", str(tmp_path / "libcuda.so.1")], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, second, error = done.stdout.splitlines()
    assert first == "map type 1 at 0x1000 dims 100 300 2 strides 208 62400 box 64 128 1 steps 1 1 1 modes 0 3 2 0"
    assert second == "map type 0 at 0x666 dims 100 300 1 strides 112 33600 box 128 64 1 steps 1 1 1 modes 0 3 2 0"
    assert error == (
        "error The CUDA driver made no tensor map of UINT8 at 0x666, sizes (100, 300, 1), strides (112, 33600), "
        "box (128, 64, 1): error 1."
    )
