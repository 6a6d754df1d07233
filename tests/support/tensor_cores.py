"""A GPU made of Python: matrix instructions computed by ``gemmsim.hardware`` from the very records that a launch is given."""

from __future__ import annotations

import contextlib
import ctypes
import struct
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch import Tensor

from gemmsim import hardware
from gemmsim.arithmetic import GemmSpec, Hardware
from gemmsim.backends import cpu, cuda, device_tables, route
from gemmsim.backends.cuda import products
from gemmsim.backends.cuda.simt import encoded
from gemmsim.backends.cuda.tensor_cores import (
    block_scaled_mma,
    cutlass_params,
    native_mma,
    native_mma_block_scaled,
    self_check,
    wgmma_block_scaled,
)
from gemmsim.backends.cuda.tensor_cores import route as tensor_cores
from gemmsim.backends.encoded_operand import Coded
from gemmsim.backends.encoded_values import scale_table
from gemmsim.backends.product import Product, Ran
from gemmsim.hardware.devices import CAPABILITIES

#: What stands in a tensor map of ours: address, dimensions, strides, box.
MAP = "<Q3Q2Q3I"
#: Words of an operand by its width.
WORDS = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32}


def memory(address: int, size: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    """``size`` elements at ``address``."""
    return torch.frombuffer((ctypes.c_uint8 * (size * dtype.itemsize)).from_address(address), dtype=dtype)


def matrix(address: int, rows: int, pitch: int, size: int) -> Tensor:
    """(rows, size) bytes, rows ``pitch`` bytes apart."""
    if rows == 0 or size == 0:
        return torch.zeros(rows, size, dtype=torch.uint8)
    return memory(address, (rows - 1) * pitch + size).as_strided((rows, size), (pitch, 1)).clone()


def whole(codes: Tensor, multiple: int) -> Tensor:
    """Lines filled up with zeros."""
    return torch.nn.functional.pad(codes, (0, -codes.shape[-1] % multiple))


class FakeGpu:
    """Computes what kernels of matrix instructions should: ``row`` is the instruction that its silicon has."""

    def __init__(self, arch: str = "hopper") -> None:
        self.arch, self.launches, self.error = arch, [], None
        #: Another instruction in place of each, as on a chip whose arithmetic is not that of the tables.
        self.silicon = None

    def launch(self, source, device, blocks, args) -> None:
        if self.error is not None:
            raise self.error
        self.launches.append((source, blocks))
        if source.family == "gemm_instruction":
            self._plain(source, args)
        else:
            self._scaled(source, args)

    def _plain(self, source, args) -> None:
        name, _, promoted = source.name.partition(", promoted ")
        row = self.silicon or hardware.instruction(self.arch, name)
        run = int(promoted or 0) or max(args.k, 1)
        size = row.operands[0].width // 8
        sides = [_side(args, name) for name in "ab"]
        for batch in range(-(-args.m // 128) and self.launches[-1][1][0] // args.tiles_m):
            a, b = (
                matrix(address + batch * step, lines, pitch, args.k * size)
                for (address, pitch, step), lines in zip(sides, (args.m, args.n), strict=True)
            )
            word = WORDS[8 * size]
            if args.k:
                a, b = (x.view(word).to(torch.int64) for x in (a, b))
            total = torch.zeros(args.m, args.n)
            for first in range(0, args.k, run):
                left, right = (whole(x[:, first : first + run], row.k) for x in (a, b))
                sums = self._mma(row, left, right, word)
                total = total + sums if promoted else sums
            out = memory(args.out + 4 * batch * args.out_batch, args.m * args.n, torch.float32)
            out.copy_(torch.where(total.isnan(), torch.nan, total).flatten())

    def _mma(self, row, left: Tensor, right: Tensor, word: torch.dtype, **scales: Tensor) -> Tensor:
        kind = row.operands[3]
        if self.silicon is None and not scales:  # the same bits, faster
            spec = GemmSpec(accumulator=native_mma.Chain(row).accumulator)
            out = torch.empty(left.shape[0], right.shape[0])
            cpu.gemm(_values(left, row.a), _values(right, row.b).mT, spec, out, 0)
            return out
        c = torch.zeros(left.shape[0], right.shape[0], dtype=WORDS[kind.width])
        d = hardware.mma(row.arch, row.name, left.to(word), right.to(word).mT, c, **scales)
        if kind.width == 16:
            return d.view(torch.int16).view(torch.float16).float()
        return d.view(torch.int32).view(torch.float32)

    def _scaled(self, source, args) -> None:
        chain = next(found for found in self.chains if native_mma_block_scaled.source_of(found) == source)
        row = self.silicon or chain.instruction
        packed = 2 if chain.packing == "lo_first" else 1
        a, b = (
            whole(matrix(address, rows, pitch, -(-args.k // packed)), row.k // packed)
            for address, rows, pitch in ((args.a, args.m, args.a_row), (args.b, args.n, args.b_row))
        )
        blocks = -(-args.k // row.block)
        scale_a, scale_b = (
            whole(matrix(address, rows, pitch, blocks), row.k // row.block)
            for address, rows, pitch in (
                (args.scale_a, args.m, args.scale_a_row),
                (args.scale_b, args.n, args.scale_b_row),
            )
        )
        if self.silicon is None:  # the same bits, faster
            sums = self._scaled_by_cpu(chain, row, (a, scale_a), (b, scale_b))
        else:
            sums = self._mma(row, a, b, torch.uint8, scale_a=scale_a, scale_b=scale_b.mT)
        x = torch.ones((), dtype=torch.float64)
        for second in (args.second_a, args.second_b):
            if second:
                x = x * memory(second, 1, torch.float32).double()
        # Rounded once: a sum of fewer than 24 bits would hide a second rounding, so that exact fractions are taken.
        values = [_rounded(float(x), float(y)) for y in sums.flatten()] if args.second_a or args.second_b else None
        total = sums if values is None else torch.tensor(values).view(sums.shape)
        out = memory(args.out, args.m * args.n, torch.float32)
        out.copy_(torch.where(total.isnan(), torch.nan, total).flatten())

    def _scaled_by_cpu(self, chain, row, a, b) -> Tensor:
        sides = []
        for (codes, scales), fmt in ((a, chain.a), (b, chain.b)):
            if chain.packing == "lo_first":
                codes = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
            fmt = replace(fmt, tensor_scale=False)
            sides.append(Coded(codes, scales, fmt, -1, codes.shape[1]))
        left, right = sides
        right = right.transposed
        out = torch.empty(left.codes.shape[0], right.codes.shape[1])
        spec = GemmSpec(left.format, right.format, accumulator=Hardware(row.arch, self.op, row.a, row.b, out=row.d))
        simt_blocks(left, right, spec, out)
        return out


def _side(args, name: str) -> tuple[int, int, int]:
    """Address, bytes from line to line and from batch to batch of an operand, by its tensor map or without one."""
    if not hasattr(args, "map_a"):
        return getattr(args, name) or 0, getattr(args, f"{name}_row"), getattr(args, f"{name}_batch")
    address, *sizes = struct.unpack_from(MAP, bytes(getattr(args, f"map_{name}")))
    return address, sizes[3], sizes[4] * getattr(args, f"step_{name}")


def encode_map(kind, address, dims, strides, box):
    """A map that can be read again."""
    assert address % 16 == 0 and all(stride and stride % 16 == 0 for stride in strides) and all(dims)
    return struct.pack(MAP, address, *dims, *strides, *box).ljust(128, b"\0")


def simt_blocks(a, b, spec, out, seed=0, finish=None, row=0):
    """``gemm_blocks`` by the CPU backend."""
    scales = cpu.Scales(*_factors(a, b), a.format.block_size, b.format.block_size, _second(a, b), a.format.scale)
    return cpu.gemm(*(_elements(x.codes, x) for x in (a, b)), spec, out, seed, scales=scales, row=row)


def run_on_gpu(product: Product) -> Ran:
    """``product`` by the routes, as for tensors of a GPU."""
    with mock.patch.object(route, "backend_of", lambda x: cuda):
        return route.run(product)


def _values(codes: Tensor, name: str) -> Tensor:
    dtype = native_mma._ELEMENTS[name][1]
    word = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[dtype.itemsize]
    values = codes.to(word).view(dtype)
    return values.float() if dtype.itemsize == 1 else values


def _rounded(x: float, y: float) -> float:
    from fractions import Fraction

    from gemmsim.formats import FP32, Cast
    from gemmsim.reference import round_value

    if y != y or y in (float("inf"), -float("inf")) or y == 0:
        return y
    return float(round_value(Fraction(x) * Fraction(y), Cast(FP32)))


@pytest.fixture
def fake_gpu(monkeypatch) -> FakeGpu:
    """Tensors of the CPU pass for those of a GPU of ``fake_gpu.arch``; the model's kernels are the CPU backend's."""
    gpu = FakeGpu()
    gpu.chains = []
    find = native_mma_block_scaled.chain_of

    def chain_of(spec):
        found = find(spec)
        if isinstance(found, native_mma_block_scaled.ScaledChain):
            gpu.chains.append(found)
            gpu.op = spec.accumulator.op
        return found

    names = {80: "sm_80", 89: "sm_89", 90: "sm_90a", 100: "sm_100a", 120: "sm_120a"}
    number = lambda: CAPABILITIES[gpu.arch][0]  # noqa: E731
    monkeypatch.setattr(native_mma, "launch", gpu.launch)
    monkeypatch.setattr(block_scaled_mma, "launch", gpu.launch)
    monkeypatch.setattr(cutlass_params, "encode_map", encode_map)
    cutlass_params.tensor_map.cache_clear()
    monkeypatch.setattr(device_tables, "_is_gpu", lambda device: True)
    monkeypatch.setattr(tensor_cores, "simt", cpu.gemm)
    monkeypatch.setattr(products, "gemm", lambda a, b, spec, out, *rest: cpu.gemm(a, b, spec, out, *rest[:3]))
    monkeypatch.setattr(encoded, "gemm_blocks", simt_blocks)
    monkeypatch.setattr(native_mma_block_scaled, "simt", simt_blocks)
    monkeypatch.setattr(wgmma_block_scaled, "simt", simt_blocks)
    monkeypatch.setattr(wgmma_block_scaled, "launch", gpu.launch)
    monkeypatch.setattr(native_mma_block_scaled, "chain_of", chain_of)
    monkeypatch.setattr(tensor_cores, "device_arch", lambda index: names[number()])
    monkeypatch.setattr(tensor_cores, "_allowed", None)
    cache = SimpleNamespace(get=lambda source, arch: SimpleNamespace(cubin=source.text.encode()))
    monkeypatch.setattr(self_check, "kernel_cache", lambda: cache)
    monkeypatch.setattr(self_check, "_verdicts", {})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index=0: divmod(number(), 10))
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    return gpu


def _factors(a, b) -> tuple[Tensor, Tensor]:
    table = scale_table(a.format)
    return table[a.scales.long()], table[b.scales.long()]


def _second(a, b) -> float | None:
    seconds = [float(x.tensor_scale) for x in (a, b) if x.format.tensor_scale]
    return None if not seconds else seconds[0] * (seconds[1] if len(seconds) > 1 else 1.0)


def _elements(codes: Tensor, x) -> Tensor:
    table = torch.tensor([x.format.element.decode(code) for code in range(1 << x.format.element.bits)])
    return table[codes.long()]
