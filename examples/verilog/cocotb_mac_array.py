"""The same comparison from Python: cocotb drives mac_array.sv with the words that gemmsim exported.

    pip install cocotb
    python examples/verilog/cocotb_mac_array.py vectors

words.json of the folder has all words as integers; spec.json has their shapes and formats. Written for cocotb 2 and
Icarus Verilog.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from simulate import SOURCES, parameters


def packed(words: list[int], bits: int) -> int:
    """Words next to each other, the first one lowest, as in the ports."""
    return sum(word << (bits * place) for place, word in enumerate(words))


@cocotb.test()
async def registers_have_the_exported_words(dut) -> None:
    """Every register after every step, and the result."""
    folder = Path(os.environ["VECTORS"])
    words = json.loads((folder / "words.json").read_text(encoding="utf-8"))
    of = parameters(folder)
    M, K, N, P = of["M"], of["K"], of["N"], of["P"]

    dut.clear.value, dut.enable.value, dut.a_column.value, dut.b_row.value = 1, 0, 0, 0
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    await FallingEdge(dut.clk)
    dut.clear.value, dut.enable.value = 0, 1
    sums = 0
    for k in range(K):
        dut.a_column.value = packed([words["a"][m * K + k] for m in range(M)], of["A_BITS"])
        dut.b_row.value = packed([words["b"][k * N + n] for n in range(N)], of["B_BITS"])
        await FallingEdge(dut.clk)
        sums = dut.sums.value.to_unsigned()
        for at in range(M * N):
            found = sums >> (at * P) & ((1 << P) - 1)
            wanted = words["steps"][at * K + k]
            assert found == wanted, f"element ({at // N}, {at % N}), step {k}: {found:x}, expected {wanted:x}"
    assert sums == packed(words["expected"], P)
    dut._log.info("%d registers after %d steps", M * N, K)


def main(folder: Path) -> int:
    """Builds and simulates; the exit code."""
    from cocotb_tools.runner import get_results, get_runner

    runner = get_runner("icarus")
    with tempfile.TemporaryDirectory() as build:
        array = {name: value for name, value in parameters(folder).items() if name != "K"}
        runner.build(sources=SOURCES[:2], hdl_toplevel="mac_array", parameters=array, build_dir=build, always=True)
        results = runner.test(
            test_module=Path(__file__).stem,
            hdl_toplevel="mac_array",
            build_dir=build,
            test_dir=Path(__file__).parent,
            results_xml=str(Path(build) / "results.xml"),
            extra_env={"VECTORS": str(folder.resolve()), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        tests, failures = get_results(results)
    return int(failures > 0 or not tests)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
