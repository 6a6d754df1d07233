"""A library that is none, and the part of the GPU check that asks it: a script for a process on the stand-in for a GPU.

``python library_stub.py FOLDER SETTINGS``: settings are a JSON object. It chooses configurations by a rule of its own and
computes what gemmsim's profile of an H100 says, but for ``wrong``, an ALGO_ID whose results have another last bit.
With ``compiled``, the path of a shared library, that is loaded and found as PyTorch's own would be.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path

import library_check
import torch
from gpu_results import Results

import gemmsim as gs
from gemmsim.libraries import Call, Config, Header, LibraryError, UnknownPlan
from gemmsim.libraries.recording import append_rows

#: Kernels of every scheme, with a residue; a vector above the largest output with a plan; a lost tail and a kept one.
MORE = [(20 + i, 62, 200 + i) for i in range(8)] + [(1, 8500, 260), (40, 16, 1160), (40, 16, 1096)]


def chosen(call: Call) -> Config:
    """Every family, with and without slices, and an algorithm that no plan is known for."""
    if call.a == "e4m3":
        s = 4 if call.K >= 1024 else 1
        return Config(66, 0, s, 2 * (s > 1), 0, 0, 36, 0, 0)
    if 1 in (call.M, call.N):
        option = (10, 11, 36, 41, 49)[call.K % 5]
        return Config(14, 0, 8, 0, 0, 0, 0, 0, 0) if call.K % 3 == 0 else Config(13, 0, 1, 0, 0, option, 0, 0, 0)
    if call.M <= 16 and call.K <= 1200:
        return Config(11, 0, 1, 0, 0, call.K % 2, 0, 0, 0)
    if call.N % 8:
        s = 3 if call.K >= 64 else 1
        scheme = (0, 1, 2, 4)[call.K % 4] if s > 1 else 0
        return Config(21, 0, s, scheme, 0, 0, (0, 10, 15, 20)[call.M % 4], 0, 0)
    if call.M % 64 == 0:
        return Config(41, 0, 1, 0, 0, 0, 10, 0, 0)
    s = 9 if call.K >= 640 else 1
    return Config(66, 0, s, 2 * (s > 1), 0, 0, 35, 0, 0)


class Stub:
    """As ``gemmsim.libraries.here`` makes one."""

    def __init__(self, workspace: int, settings: dict) -> None:
        self.workspace, self.settings = workspace, settings
        self.profile = gs.libraries.cublaslt("h100", version="13.1.1", workspace=workspace)
        self.plan = self.profile.plan

    def __str__(self) -> str:
        return f"stub of {self.profile}"

    def record(self, shapes, path, a, b, out, *, fast_accumulation):
        if self.settings.get("slow"):
            time.sleep(self.settings["slow"])
        calls = [Call(*shape, a, b, out, fast_accumulation) for shape in shapes]
        header = Header("h100", "13.1.1", self.workspace, 132)
        return append_rows(Path(path), header, calls, chosen)

    def run(self, a, b, config, *, out, fast_accumulation):
        assert a.is_cuda and b.is_cuda and out in (torch.float32, torch.float16, torch.bfloat16)
        assert a.is_contiguous() and (b.t() if a.dtype.itemsize == 1 else b).is_contiguous()
        config = Config(*config)
        if out == torch.float32 and config.ALGO_ID == 13 and config.CUSTOM_OPTION != 10:
            raise LibraryError(
                "cublasLtMatmulAlgoCheck: status 15, not supported; allowed: 0.\n  Ask for another output."
            )
        call = (a.shape[0], b.shape[1], a.shape[1], a.dtype, b.dtype, out)
        try:
            spec = self.plan(*call, config=config, fast_accumulation=fast_accumulation).spec
        except UnknownPlan:
            spec = "interleaved(26, fp32, halves, width=4)" if config.ALGO_ID == 13 else "interleaved(2, fp32)"
        made = gs.qmatmul(a.cpu().float(), b.cpu().float(), spec).to(out)
        if config.ALGO_ID == self.settings.get("wrong"):
            raw = made.view(torch.int32 if out == torch.float32 else torch.int16)
            raw[0, 0] ^= 1
        return made.cuda()


def missing(workspace: int) -> Stub:
    """On a machine without the library."""
    raise LibraryError("here() on a machine without libcublasLt; allowed: PyTorch with CUDA.\n  Install it.")


def main() -> None:
    """Runs the part and prints its verdict."""
    folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    sizes = library_check.Sizes(
        shapes=settings.get("shapes", 24), workspaces=(32 << 20, 0), of_a_kind=2, elements=2_400_000, edge=6, losses=6,
        exact_edge=48, sums=((8, 8, 64),), slices=2,
    )  # fmt: skip
    library_check.FORMATS = library_check.FORMATS[1:3]
    some = library_check.shapes
    library_check.shapes = lambda count, step: some(count, step) + (MORE if step == 1 else [])
    results = Results(folder)
    results.begin({"gpu": "stand-in"}, "test")
    results.end = time.monotonic() + settings.get("seconds", 3600)
    make = missing if settings.get("missing") else lambda workspace: Stub(workspace, settings)
    if "compiled" in settings:
        loaded = ctypes.CDLL(settings["compiled"])
        (ctypes.c_long * 9).in_dll(loaded, "stub_config")[:] = [66, 0, 1, 0, 0, 0, 35, 0, 0]
        make = None
    library_check.libraries(results, make, sizes)
    print(json.dumps(library_check.verdict(results)))


if __name__ == "__main__":
    main()
