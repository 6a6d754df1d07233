"""What the compiler made of a kernel: registers, spills, instructions per result, read from its machine code.

Needs ``cuobjdump`` and ``nvdisasm`` (the extra ``gemmsim[inspect]``), and no GPU.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..errors import CudaError, PackageError, message
from .compile import CompiledKernel
from .source import ENTRY
from .toolchain import nvidia_folders

__all__ = ["KernelFacts", "inspect_kernel", "innermost_loops", "regressions"]

_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z][A-Z0-9_]*)(?P<rest>[^;]*);")
_LABEL = re.compile(r"^(?P<name>\.L_x_\d+):")
_TARGET = re.compile(r"`\((?P<name>\.L_x_\d+)\)")
#: Multiplications and additions.
_OPERATIONS = {
    "FFMA",
    "FMUL",
    "FADD",
    "DFMA",
    "DMUL",
    "DADD",
    "HFMA2",
    "HADD2",
    "HMUL2",
    "IMAD",
    "IADD3",
    "FFMA2",
    "FMUL2",
}
_USAGE = re.compile(rf"Function {ENTRY}:\s*\n\s*REG:(?P<registers>\d+) STACK:(?P<stack>\d+)")


@dataclass(frozen=True)
class KernelFacts:
    """One kernel for one architecture. ``per_result``: instructions of its hot part for each result it makes."""

    kernel: str
    arch: str
    registers: int
    spills: int  # loads and stores of local memory
    stack: int  # bytes
    instructions: int  # of the whole kernel
    per_result: float

    @property
    def key(self) -> str:
        return f"{self.kernel} {self.arch}"


def _tool(name: str) -> Path:
    for folder in nvidia_folders():
        if (folder / "bin" / name).is_file():
            return folder / "bin" / name
    do = "Install it: pip install 'gemmsim[inspect]'"
    raise PackageError(message(f"inspecting kernels without {name}", "the packages of gemmsim[inspect]", do))


def _output(tool: str, *arguments: str) -> str:
    done = subprocess.run([str(_tool(tool)), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CudaError(f"{tool} failed: {done.stderr.strip()}")
    return done.stdout


@dataclass
class _Listing:
    names: list[str]  # of every instruction, in order of address
    labels: dict[str, int]  # position of the instruction that follows
    branches: list[tuple[int, str]]  # position and target


def _parse(text: str) -> _Listing:
    listing = _Listing([], {}, [])
    for line in text.splitlines():
        label = _LABEL.match(line)
        if label:
            listing.labels[label["name"]] = len(listing.names)
        instruction = _INSTRUCTION.match(line)
        if instruction:
            target = _TARGET.search(instruction["rest"])
            if instruction["name"] == "BRA" and target:
                listing.branches.append((len(listing.names), target["name"]))
            listing.names.append(instruction["name"])
    return listing


def innermost_loops(text: str) -> list[list[str]]:
    """Instruction names of each loop without another inside, from nvdisasm's text. A jump to itself is none."""
    listing = _parse(text)
    spans = []
    for at, target in listing.branches:
        start = listing.labels.get(target, at + 1)
        if start < at:
            spans.append((start, at + 1))
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    return [listing.names[a:b] for a, b in inner]


def _arithmetic(names: list[str]) -> int:
    """Arithmetic operations of a loop: the unrolled one that products are meant to run through has the most."""
    return sum(name.lstrip("U") in _OPERATIONS for name in names)


def inspect_kernel(kernel: CompiledKernel) -> KernelFacts:
    """Facts about ``kernel``'s machine code.

    Raises:
        PackageError: if cuobjdump or nvdisasm is not installed.
        CudaError: if they do not understand it.
    """
    with tempfile.TemporaryDirectory(prefix="gemmsim_") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(kernel.cubin)
        usage = _USAGE.search(_output("cuobjdump", "--dump-resource-usage", str(path)))
        text = _output("nvdisasm", "-c", str(path))
    if usage is None:
        raise CudaError(f"cuobjdump tells nothing about {kernel.source} for {kernel.arch}")
    names = [name for name in _parse(text).names if name != "NOP"]
    hot = names
    if kernel.source.hot == "loop":
        loops = innermost_loops(text)
        if not loops:
            raise CudaError(f"{kernel.source} for {kernel.arch} has no loop, but says that its loop is what to count")
        hot = max(loops, key=_arithmetic)
    return KernelFacts(
        kernel=str(kernel.source),
        arch=kernel.arch,
        registers=int(usage["registers"]),
        spills=sum(name in ("LDL", "STL") for name in names),
        stack=int(usage["stack"]),
        instructions=len(names),
        per_result=round(len(hot) / kernel.source.work, 3),
    )


def regressions(now: list[KernelFacts], before: list[KernelFacts], tolerance: float = 0.02) -> list[str]:
    """What is worse in ``now`` than in ``before``, a line each: any spill or stack more, more registers or instructions
    per result beyond ``tolerance``, kernels that are new or gone. Empty if nothing is.
    """
    old, new = {fact.key: fact for fact in before}, {fact.key: fact for fact in now}
    lines = [f"{key}: not in the baseline" for key in new.keys() - old.keys()]
    lines += [f"{key}: only in the baseline" for key in old.keys() - new.keys()]
    for key in new.keys() & old.keys():
        for name, slack in (("registers", tolerance), ("spills", 0.0), ("stack", 0.0), ("per_result", tolerance)):
            was, is_now = getattr(old[key], name), getattr(new[key], name)
            if is_now > was * (1 + slack):
                lines.append(f"{key}: {name} {was} -> {is_now}")
    return sorted(lines)
