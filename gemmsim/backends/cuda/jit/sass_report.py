"""Reports what the compiler made of a kernel, from its machine code: registers, spills, instructions per result.

This needs ``cuobjdump`` and ``nvdisasm`` (the extra ``gemmsim[inspect]``), and no GPU.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from ..errors import CudaError, PackageError, message
from .compile import CompiledKernel
from .sass_loop_count import Block, shortest_pass
from .source import ENTRY
from .toolchain import nvidia_folders

__all__ = ["KernelFacts", "inspect_kernel", "innermost_loops", "instructions_of_chunk", "regressions"]

_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z][A-Z0-9_]*)(?P<rest>[^;]*);")
_LABEL = re.compile(r"^(?P<name>\.L_x_\d+):")
#: Width in bits of a read of shared memory, where it is not 32.
_WIDTH = re.compile(r"\.(?P<bits>64|128)\b")
_TARGET = re.compile(r"`\((?P<name>\.L_x_\d+)\)")
#: A call of a label in the kernel is a jump to it. The compiler for sm_80 writes one where a loop over chunks ends.
_JUMPS = ("BRA", "CALL")
#: The instructions that multiply and add.
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
    """Measurements of one kernel for one architecture.

    ``per_result``: instructions of its hot part for each result. ``whole``: instructions for each product of a pass of
    its loop over chunks, with loads, barrier and the choice of the innermost loop; 0 where that is not counted.
    """

    kernel: str
    arch: str
    registers: int
    spills: int  # loads and stores of local memory
    stack: int  # bytes
    instructions: int  # in the whole kernel
    per_result: float
    whole: float = 0.0

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
    names: list[str]  # names of all instructions, in order of address
    labels: dict[str, int]  # position of the instruction that follows
    branches: list[tuple[int, str]]  # position and target
    always: set[int]  # positions of jumps without a condition
    reads: list[int]  # words of shared memory that each instruction reads


def _parse(text: str) -> _Listing:
    listing = _Listing([], {}, [], set(), [])
    for line in text.splitlines():
        label = _LABEL.match(line)
        if label:
            listing.labels[label["name"]] = len(listing.names)
        instruction = _INSTRUCTION.match(line)
        if instruction:
            target = _TARGET.search(instruction["rest"])
            goes = bool(target) and instruction["name"] in _JUMPS
            if target and goes:
                listing.branches.append((len(listing.names), target["name"]))
            jumps = goes and instruction["rest"].partition(" ")[2].startswith("`")
            if (jumps or instruction["name"] in ("EXIT", "RET")) and "@" not in line:
                listing.always.add(len(listing.names))
            width = _WIDTH.search(instruction["rest"])
            words = int(width["bits"]) // 32 if width else 1
            listing.reads.append(words if instruction["name"] == "LDS" else 0)
            listing.names.append(instruction["name"])
    return listing


def _innermost(listing: _Listing) -> list[tuple[int, int]]:
    spans = []
    for at, target in listing.branches:
        start = listing.labels.get(target, at + 1)
        if start < at:
            spans.append((start, at + 1))
    return [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]


def innermost_loops(text: str) -> list[list[str]]:
    """Return the instruction names of each innermost loop in nvdisasm's text. A jump to itself is not a loop."""
    listing = _parse(text)
    return [listing.names[a:b] for a, b in _innermost(listing)]


def _blocks(listing: _Listing) -> tuple[list[Block], list[int]]:
    """Return the instructions as blocks, without padding, and the position where each block starts."""
    ends = {at + 1: target for at, target in listing.branches}
    cuts = sorted({0, *listing.labels.values(), *ends, *(at + 1 for at in listing.always)})
    starts = [at for at in cuts if at < len(listing.names)]
    index, blocks = {at: i for i, at in enumerate(starts)}, []
    for i, start in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else len(listing.names)
        following = [i + 1] if end - 1 not in listing.always and end in index else []
        target = listing.labels.get(ends[end]) if end in ends else None
        if target in index:
            following.append(index[target])
        blocks.append(Block(tuple(n for n in listing.names[start:end] if n != "NOP"), tuple(following)))
    return blocks, starts


def instructions_of_chunk(text: str, terms: int, work: int, loads: int) -> int | None:
    """Return the instructions of a pass of the loop over chunks, from nvdisasm's text; ``None`` without such a loop.

    In a pass a thread computes ``terms`` products, ``work`` of them in each pass of its innermost loop, and reads
    global memory ``loads`` times.
    """
    listing = _parse(text)
    loops = _innermost(listing)
    if not loops:
        return None
    first, last = _meant(listing, loops, reading=True)
    blocks, starts = _blocks(listing)
    hot = range(bisect_right(starts, first) - 1, bisect_right(starts, last - 1))
    return shortest_pass(blocks, hot, terms // work, loads)


def _arithmetic(names: list[str]) -> int:
    return sum(name.lstrip("U") in _OPERATIONS for name in names)


def _meant(listing: _Listing, loops: list[tuple[int, int]], reading: bool) -> tuple[int, int]:
    """Return the loop that computes the products: it is unrolled, so that it has the most arithmetic operations.

    If that loop reads factors, the result is the shortest of the loops that read the most. It is the loop for
    well-behaved numbers. ``reading``: the kernel's loop reads factors, so loops that do not (offsets of batches, which
    take divisions) are excluded.
    """
    reads = {(a, b): sum(listing.reads[a:b]) for a, b in loops}
    able = [one for one in loops if reads[one]] if reading else []
    most = max(able or loops, key=lambda span: _arithmetic(listing.names[span[0] : span[1]]))
    if not reads[most]:
        return most
    return min((one for one in loops if reads[one] == max(reads.values())), key=lambda span: span[1] - span[0])


def inspect_kernel(kernel: CompiledKernel) -> KernelFacts:
    """Return the measurements of ``kernel``'s machine code.

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
        listing = _parse(text)
        loops = _innermost(listing)
        if not loops:
            raise CudaError(f"{kernel.source} for {kernel.arch} has no loop, but says that its loop is what to count")
        first, last = _meant(listing, loops, reading=kernel.source.chunk > 0)
        hot = listing.names[first:last]
    chunk = kernel.source.chunk
    found = instructions_of_chunk(text, chunk, kernel.source.work, kernel.source.loads) if chunk else None
    return KernelFacts(
        kernel=str(kernel.source),
        arch=kernel.arch,
        registers=int(usage["registers"]),
        spills=sum(name in ("LDL", "STL") for name in names),
        stack=int(usage["stack"]),
        instructions=len(names),
        per_result=round(len(hot) / kernel.source.work, 3),
        whole=round(found / chunk, 3) if found is not None else 0.0,
    )


def regressions(now: list[KernelFacts], before: list[KernelFacts], tolerance: float = 0.02) -> list[str]:
    """Return what is worse in ``now`` than in ``before``, one line each; empty if nothing is.

    Worse means any more spills or stack, more registers or instructions per result beyond ``tolerance``, and kernels
    that are new or gone.
    """
    old, new = {fact.key: fact for fact in before}, {fact.key: fact for fact in now}
    lines = [f"{key}: not in the baseline" for key in new.keys() - old.keys()]
    lines += [f"{key}: only in the baseline" for key in old.keys() - new.keys()]
    for key in new.keys() & old.keys():
        for name in ("registers", "spills", "stack", "per_result", "whole"):
            slack = 0.0 if name in ("spills", "stack") else tolerance
            was, is_now = getattr(old[key], name), getattr(new[key], name)
            if is_now > was * (1 + slack):
                lines.append(f"{key}: {name} {was} -> {is_now}")
    return sorted(lines)
