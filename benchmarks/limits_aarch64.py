"""Instructions of the main loops on 64-bit Arm, counted in the machine code, where nothing can be timed.

    make aarch64                             # compiles the library into build/aarch64
    python benchmarks/limits_aarch64.py      # a row for each loop: instructions per vector of four MACs

Beside the count stands the method's own (docs/measurements/cpu.md, "64-bit Arm"), as limits.py has it for AVX-512. The
distance is loads, loop control, copies of registers and spills.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OBJECTS = Path(__file__).resolve().parent.parent / "build" / "aarch64" / "cutlass_kernels" / "cpu" / "CMakeFiles"
#: Vector instructions that compute; the others copy, load and store.
COPIES = {"mov", "ld1r", "ld1", "dup", "movi", "mvni", "ldr", "ldp", "str", "stp", "ldur", "stur"}
#: Random bits: seven and a half rounds of two products (two multiplications, two shuffles) and four XORs serve eight
#: steps.
PHILOX = 7.5 * (2 * 4 + 4) / 8


@dataclass(frozen=True)
class Instruction:
    address: int
    name: str
    operands: str

    @property
    def is_vector(self) -> bool:
        return re.search(r"\bv\d+\.", self.operands) is not None


@dataclass(frozen=True)
class Loop:
    """A loop to be found: the shortest of a function with so many multiplications of vectors."""

    spec: str
    what: str
    part: str
    function: str
    #: Vectors of MACs in one pass of the loop.
    vectors: int
    #: Instructions of the method for each.
    method: float
    multiplication: str = "fmla"
    #: Multiplications in one pass; 0: as many as there are vectors.
    multiplications: int = 0
    #: Instructions outside this loop, for each vector.
    outside: float = 0


def tile(step: int, kind: int) -> str:
    return f"::tile<gemmsim::neon::C32, {step}, {kind}>"


def speculative(kind: int, step: int = 1) -> str:
    """Eight rows whose fused sums are checked (tiles/nearest/speculative.h): step, kind, sums, rows, short."""
    return f"rows_speculative<gemmsim::neon::C32, {step}, {kind}, 2, 8, false>"


def directed(step: int, mode: int, rows: int = 8) -> str:
    return f"rows_directed<gemmsim::neon::C32, {step}, {mode}, false, {rows}>"


def stochastic() -> str:
    """Two terms of two rows, draws in halves (tiles/stochastic/stochastic.h)."""
    return "Stochastic<1, true, false>::run<(gemmsim::neon::Take)2>"


def kahan(kind: int, odd: str) -> str:
    return f"Compensated<gemmsim::neon::C32, 1, {kind}, {odd}>::run"


def kahan_directed(mode: int) -> str:
    """Four rows, kind FAST (tiles/compensated/compensated_modes.h)."""
    return f"CompensatedInMode<gemmsim::neon::C32, 1, 8, {mode}, true, 4>::run"


LOOPS = (
    Loop(":fp32", "carrier's own", "tiles32/tiles", tile(0, 0), 16, 1),
    Loop("e4m3 : e5m10", "proved exact", "tiles32/tiles", tile(0, 1), 16, 4),
    Loop("e4m3 : e5m10", "proved exact, subnormals", "tiles32/tiles", speculative(2, 0), 16, 6),
    Loop("e4m3 : e5m10/sat", "proved exact, a clamp", "tiles32/tiles", tile(0, 3), 16, 9),
    Loop("e4m3 : e5m10", "proved exact, to infinity", "tiles32/tiles", tile(0, 4), 16, 13),
    Loop(":e5m10", "speculative", "tiles32/tiles", speculative(1), 16, 6),
    Loop(":e5m10", "speculative, subnormals", "tiles32/tiles", speculative(2), 16, 8),
    Loop(":e5m10/rtz", "under a mode", "tiles32/tiles", directed(0, 2), 16, 4),
    Loop(":e5m10/rna", "under a mode", "tiles32/tiles", directed(0, 1), 16, 5),
    Loop(":e5m10/ru", "under a mode", "tiles32/tiles", directed(0, 3), 16, 11),
    Loop(":e5m10/sr16", "under a mode", "tiles32/tiles", stochastic(), 8, 8.5 + PHILOX, outside=PHILOX),
    Loop(":e5m10/ro", "under a mode", "tiles32/tiles", directed(1, 5), 16, 12),
    Loop(":kahan(fp32)", "carrier's own", "compensated/tiles/compensated", kahan(0, "false"), 8, 5, "fsub", 24),
    Loop(":kahan(e5m10)", "speculative", "compensated/tiles/compensated", kahan(2, "true"), 8, 21, "fmul", 32),
    Loop(":kahan(e5m10/rtz)", "under a mode", "compensated_modes/tiles/compensated", kahan_directed(2), 8, 17),
)  # fmt: skip


def instructions_of(path: Path) -> dict[str, list[Instruction]]:
    """The instructions of each function of an object file."""
    command = ["aarch64-linux-gnu-objdump", "-d", "-C", "--no-show-raw-insn", str(path)]
    found: dict[str, list[Instruction]] = {}
    body: list[Instruction] = []
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if title := re.match(r"^[0-9a-f]+ <(.*)>:$", line):
            body = found.setdefault(title[1], [])
        elif one := re.match(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$", line):
            body.append(Instruction(int(one[1], 16), one[2], one[3]))
    return found


def loops_of(body: list[Instruction]) -> Iterator[list[Instruction]]:
    """What lies between a branch back and its target."""
    places = {one.address: i for i, one in enumerate(body)}
    for i, one in enumerate(body):
        if re.fullmatch(r"b(\.\w+)?|cbn?z|tbn?z", one.name) and (target := re.search(r"([0-9a-f]+) <", one.operands)):
            start = places.get(int(target[1], 16), i)
            if start < i:
                yield body[start : i + 1]


def shortest(loop: Loop, functions: dict[str, list[Instruction]]) -> list[Instruction] | None:
    needed = loop.multiplications or loop.vectors
    found = [
        body
        for name, function in functions.items()
        if loop.function in name
        for body in loops_of(function)
        if sum(one.is_vector and one.name == loop.multiplication for one in body) >= needed
    ]
    return min(found, key=len, default=None)


def main() -> None:
    missing = []
    print(f"{'spec':18} {'kernel':26} {'counted':>8} {'arithmetic':>11} {'method':>7}")
    for loop in LOOPS:
        part, folder = loop.part.split("/", 1)
        source = "tiles" if part.startswith("tiles") else part
        functions = instructions_of(OBJECTS / f"neon_{part}.dir" / folder / f"{source}.cpp.o")
        body = shortest(loop, functions)
        if body is None:
            missing.append(loop)
            print(f"{loop.spec:18} {loop.what:26} not found")
            continue
        arithmetic = sum(one.is_vector and one.name not in COPIES for one in body)
        counts = [n / loop.vectors + loop.outside for n in (len(body), arithmetic)]
        print(f"{loop.spec:18} {loop.what:26} {counts[0]:8.1f} {counts[1]:11.1f} {loop.method:7.1f}")
    if missing:
        raise SystemExit(f"{len(missing)} of {len(LOOPS)} loops not found: were kernels renamed?")


if __name__ == "__main__":
    main()
