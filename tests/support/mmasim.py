"""The package ``mmasim`` (MIT, Microsoft), an independent model of the same instructions, on operands given as codes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

from gemmsim.hardware import Instruction, Operand

ARCHITECTURES = {
    "ada": "Ada Lovelace",
    "rtx_blackwell": "RTX Blackwell",
    "cdna1": "CDNA1",
    "cdna2": "CDNA2",
    "cdna3": "CDNA3",
}
_DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "tf32": torch.float32,
    "xf32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
    "ue4m3": torch.float8_e4m3fn,
    "ue8m0": torch.float8_e8m0fnu,
}
INTEGERS = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


def operation(row: Instruction) -> Any | None:
    """Its model of ``row``; None where it has none."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it compiles by ninja
    from mmasim import amd, nv_ptx

    classes = {
        "mma": nv_ptx.MMA,
        "wgmma": nv_ptx.WGMMA,
        "tcgen05mma": nv_ptx.TCGen05MMA,
        "mma_block_scale": nv_ptx.MMABlockScale,
        "tcgen05mma_block_scale": nv_ptx.TCGen05MMABlockScale,
        "mfma": amd.MFMA,
    }
    arch = ARCHITECTURES.get(row.arch, row.arch.capitalize())
    try:
        return classes[row.unit](arch, row.name.removeprefix(f"{row.unit}."))
    except AssertionError as error:
        assert "Unsupported" in str(error)
        return None


def numbers(codes: torch.Tensor, kind: Operand) -> torch.Tensor:
    """``codes`` (integers of the container's width) in the dtype that it takes."""
    return codes.view(_DTYPES[kind.name]) if kind.name in _DTYPES else codes


def dots(
    row: Instruction, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: list[torch.Tensor]
) -> torch.Tensor:
    """The codes of D for each row of a (n, k), b (n, k), c (n) and of the scales (n, k / block)."""
    a_kind, b_kind, c_kind, d_kind = row.operands
    start = numbers(c, c_kind)
    start = start.float() if (row.c, row.d) == ("f16", "f32") else start
    given = [one.view(_DTYPES[row.scale or ""]) for one in scales]
    found = operation(row).dpa(numbers(a, a_kind), numbers(b, b_kind), start, *given)
    return found.view(INTEGERS[d_kind.width])
