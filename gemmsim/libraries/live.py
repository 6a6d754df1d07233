"""The library of this process: its GPU, its libcublasLt, asked and run."""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .call import FP8, Call, read_call
from .configuration import Config, read_config
from .cublas import CublasLt, Target
from .errors import UnknownPlan, library_error
from .lt_library import LtLibrary, Pointers
from .profile import load
from .recording import append_rows
from .table import Header
from .versions import check_version, is_prefix, matching, newest

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LiveCublasLt", "Machine", "here"]


class Machine(NamedTuple):
    """The GPU as PyTorch names it, its capability as "sm_90", its number of SMs, and the path of libcublasLt."""

    name: str
    capability: str
    sms: int
    path: str


class Heuristic:
    """The heuristic of a loaded library in the place of a table: asked for every call, kept by the plans."""

    __slots__ = ("_path", "_workspace", "name")
    source = "live"

    def __init__(self, path: str, workspace: int) -> None:
        self._path, self._workspace = path, workspace
        self.name = "the live library"

    @property
    def library(self) -> LtLibrary:
        """The loaded library."""
        return _loaded(self._path)

    def find(self, call: Call) -> Config | None:
        """The configuration that the library chooses; UnknownPlan where it has none."""
        return self.library.configuration(call, self._workspace)

    def splits_nothing(self, call: Call) -> bool:
        """Never: the library is asked."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Heuristic) and (self._path, self._workspace) == (other._path, other._workspace)

    def __hash__(self) -> int:
        return hash((self._path, self._workspace))

    def __reduce__(self) -> tuple[Any, ...]:
        return Heuristic, (self._path, self._workspace)


class LiveCublasLt(CublasLt):
    """cuBLASLt of this process; ``here`` makes it.

    Its plans come from the library's own heuristic. ``record`` writes the answers of the heuristic to a table; ``run``
    executes one algorithm.

    Example:
        >>> library = gs.libraries.here()  # doctest: +SKIP
        >>> issubclass(gs.libraries.LiveCublasLt, gs.libraries.CublasLt)  # it has plan, spec and matmul, too
        True
    """

    __slots__ = ("machine",)

    def __init__(self, target: Target, machine: Machine) -> None:
        self.machine = machine
        super().__init__(target, Heuristic(machine.path, target.workspace))

    def __reduce__(self) -> tuple[Any, ...]:
        return LiveCublasLt, (self._target, self.machine)

    @property
    def device(self) -> str:
        """The device of the operands of ``run``."""
        return "cuda"

    @property
    def _loaded(self) -> LtLibrary:
        return _loaded(self.machine.path)

    def choice(
        self, M: int, N: int, K: int, a: Any, b: Any = None, out: Any = None, *, fast_accumulation: bool = False
    ) -> Config:
        """The configuration that the library chooses for a call, even for one without a plan.

        Raises:
            UnknownPlan: where the library has no algorithm. LibraryError: as ``plan``.
        """
        return self._loaded.configuration(read_call(M, N, K, a, b, out, fast_accumulation), self.workspace)

    def record(
        self,
        shapes: Iterable[tuple[int, int, int]],
        path: str | Path,
        a: Any = "fp16",
        b: Any = None,
        out: Any = None,
        *,
        fast_accumulation: bool = False,
    ) -> int:
        """Queries the heuristic for every (M, N, K) and appends the answers to a table; returns the number of new rows.

        Calls that the table has are not queried again, so that you can continue a recording that ended. Calls for which
        the library has no algorithm are left out. Rows are appended as whole lines, also by several processes.
        ``cublaslt(..., table=path)`` reads the table.

        Raises:
            LibraryError: for sizes and formats that mean nothing. TableError: for a file of another library, and for a
                name that is not one of JSON lines.
        """
        calls = [read_call(*shape, a, b, out, fast_accumulation) for shape in shapes]
        gpu, version = self._target.names
        layout = "tn" if any(call.a in FP8 for call in calls) else "nn"
        header = Header(gpu, version, self.workspace, self.machine.sms, layout)
        return append_rows(Path(path), header, calls, self._asked)

    def _asked(self, call: Call) -> Config | None:
        try:
            return self._loaded.configuration(call, self.workspace)
        except UnknownPlan:
            return None

    def run(
        self, a: Tensor, b: Tensor, config: Any = None, *, out: Any = None, fast_accumulation: bool = False
    ) -> Tensor:
        """``a @ b`` by exactly one algorithm of the library, on its GPU, on the current stream.

        Args:
            a: M x K. b: K x N, for FP8 with contiguous columns. config: nine fields; None: what the heuristic chooses.
            out: dtype of the result.

        Raises:
            LibraryError: for tensors that are not on a GPU, layouts that were not measured, and what the library
                refuses. UnknownPlan: where the heuristic has no algorithm.
        """
        import torch

        from .product import dtype_of

        if not (a.is_cuda and b.is_cuda and a.device == b.device):
            raise library_error(
                f"run: operands on {a.device} and {b.device}", "one CUDA device", "Move them: a.cuda()."
            )
        if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
            raise library_error(f"run: shapes {tuple(a.shape)}, {tuple(b.shape)}", "M x K and K x N", "Reshape them.")
        call = _call_of(a, b, out, fast_accumulation)
        columns = b.t() if call.a in FP8 else b
        if not (a.is_contiguous() and columns.is_contiguous()):
            wanted = "contiguous a, and b with contiguous columns" if call.a in FP8 else "contiguous operands"
            raise library_error("run: strided operands", wanted, "Call .contiguous() on them, or on the transposed b.")
        chosen = self._loaded.configuration(call, self.workspace) if config is None else read_config(config)
        made = torch.empty(call.M, call.N, dtype=dtype_of(call.out), device=a.device)
        needed = max(self.workspace, self._loaded.workspace_of(call, chosen))
        space = torch.empty(max(1, needed), dtype=torch.uint8, device=a.device)
        with torch.cuda.device(a.device):
            stream = torch.cuda.current_stream().cuda_stream
            pointers = Pointers(a.data_ptr(), b.data_ptr(), made.data_ptr(), space.data_ptr(), stream)
            self._loaded.multiply(call, chosen, pointers, needed)
        return made


def _call_of(a: Tensor, b: Tensor, out: Any, fast: bool) -> Call:
    """The call of two matrices."""
    return read_call(a.shape[0], b.shape[1], a.shape[1], a.dtype, b.dtype, out, fast)


def here(gpu: str | None = None, version: str | None = None, *, workspace: int = 32 << 20) -> LiveCublasLt:
    """cuBLASLt of this process, whose heuristic is queried for each call.

    Args:
        gpu, version: the profile that says what configurations mean. The default is that of this machine. Another one
            is assumed to behave the same; evidence is at most "inferred" then.
        workspace: bytes that the caller allows.

    Raises:
        LibraryError: without a GPU or libcublasLt, and where neither this GPU nor this version was measured: the
            message says which profile to name.

    Example:
        >>> library = gs.libraries.here()  # doctest: +SKIP
        >>> print(library.plan(64, 64, 8192, "fp16").explain())  # doctest: +SKIP
    """
    machine = find_machine()
    actual = _profile_gpu(machine) or _slug(machine.name)
    running = _loaded(machine.path).version
    chosen_gpu = gpu or actual
    measured = sorted(one for name, one in load() if name == chosen_gpu)
    if not measured:
        names = ", ".join(sorted({name for name, _ in load()}))
        raise library_error(
            f"{machine.name} ({machine.capability}, {machine.sms} SMs), which was not measured",
            names,
            "Name the profile to use for it: gemmsim.libraries.here('h100').",
        )
    asked = check_version("version", version) if version is not None else running
    found = matching(asked, measured) or [one for one in measured if is_prefix(one, asked) or is_prefix(asked, one)]
    if not found:
        raise library_error(
            f"cuBLASLt {asked} on {chosen_gpu}, which was not measured",
            ", ".join(measured),
            f"Name the profile to use for it: gemmsim.libraries.here({chosen_gpu!r}, {newest(measured)!r}).",
        )
    profile = newest(found)
    like = is_prefix(running, profile) or is_prefix(profile, running)
    target = Target(chosen_gpu, profile, workspace, None if chosen_gpu == actual else actual, None if like else running)
    if type(workspace) is not int or workspace < 0:
        raise library_error(f"workspace={workspace!r}", "bytes, 0 or more", "32 MiB are 32 << 20.")
    return LiveCublasLt(target, machine)


def find_machine() -> Machine:
    """The GPU of this process and its libcublasLt.

    Raises:
        LibraryError: where there is none.
    """
    import torch

    if not torch.cuda.is_available():
        raise library_error(
            "here() without a GPU that PyTorch can use",
            "a machine with an NVIDIA GPU and PyTorch with CUDA",
            "Name the library instead: cublaslt('h100', version='13.1').",
        )
    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    one = torch.ones(1, 1, device="cuda")
    one.mm(one)  # loads the library that PyTorch uses
    capability = f"sm_{facts.major}{facts.minor}"
    return Machine(facts.name, capability, facts.multi_processor_count, find_library())


def find_library() -> str:
    """The path of libcublasLt: that which this process has loaded, else NVIDIA's wheel's, else the linker's.

    Raises:
        LibraryError: where there is none.
    """
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    loaded = [
        line.split(maxsplit=5)[5] for line in lines if "libcublasLt.so" in line and len(line.split(maxsplit=5)) == 6
    ]
    folders = [Path(folder) / "nvidia" for folder in sys.path if folder]
    wheels = (path for folder in folders for path in sorted(folder.glob("*/lib/libcublasLt.so*")))
    found = next(iter(loaded), None) or next(map(str, wheels), None) or ctypes.util.find_library("cublasLt")
    if found is None:
        raise library_error(
            f"no libcublasLt in this process (pid {os.getpid()})", "PyTorch with CUDA", "pip install nvidia-cublas"
        )
    return found


@lru_cache(maxsize=8)
def _loaded(path: str) -> LtLibrary:
    return LtLibrary(path)


def _profile_gpu(machine: Machine) -> str | None:
    """The GPU of a profile with this capability and number of SMs whose chip is in the name; None for none."""
    words = machine.name.upper().replace("-", " ").split()
    chips = {*words, *(first + second for first, second in zip(words, words[1:], strict=False))}  # "RTX 4060"
    for profile in load().values():
        chip = profile.gpu.split("-")[0].upper()
        if (profile.capability, profile.sms) == (machine.capability, machine.sms) and chip in chips:
            return profile.gpu
    return None


def _slug(name: str) -> str:
    return "-".join(name.lower().replace("nvidia", "").replace("geforce", "").split())
