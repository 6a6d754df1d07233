"""Installs a wheel into a new environment that has no compiler, and checks what it computes there.

    python packaging/check_wheel.py wheelhouse/gemmsim-*_x86_64.whl

Runs in an environment with an installed gemmsim, whose results are the reference. Prints how long `pip install` of the
wheel and README's first example take next to an installed PyTorch, and fails if the example prints another table than
README, or if a product or cast has other bits than the reference on any instruction set.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DIGESTS = ROOT / "packaging" / "result_digests.py"
#: Goal for installing the wheel and running the first example, in seconds.
GOAL = 15.0


class CheckError(Exception):
    """The wheel does not do what a release promises."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, whose programs find nothing outside it on PATH."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, *words: object, cwd: Path | None = None) -> str:
        """Run this environment's Python and return what it printed.

        Raises:
            CheckError: if it fails.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GEMMSIM", "PYTHON", "CXX"))}
        kept["PATH"] = str(self.folder / "bin")
        return run([self.python, *words], kept, cwd or self.folder)


def run(command: Sequence[object], environment: dict[str, str], cwd: Path) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise CheckError(f"{' '.join(words)[:300]} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def first_example(readme: str) -> tuple[str, str]:
    """Return README's first Python block, and the first block of text, which is what it prints first."""
    code = re.search(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    table = re.search(r"^```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    if code is None or table is None:
        raise CheckError("README.md has no first example, or no output of it")
    return code[1], table[1]


def make_environment(folder: Path, torch: str, borrow: bool, pip: Sequence[str]) -> Environment:
    """Make an environment with PyTorch: a new installation, or the packages of the environment that runs this."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    made = Environment(folder)
    if borrow:
        own = next(folder.glob("lib/python*/site-packages"))
        (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    else:
        made.run("-m", "pip", "install", "--quiet", *pip, f"torch=={torch}")
        made.run("-c", "import torch")  # bytecode, which an installed PyTorch has
    return made


def seconds(action: str, made: Environment, *words: object, cwd: Path | None = None) -> tuple[float, str]:
    """Run Python in the environment; return how long it takes by the clock, and what it prints."""
    start, before = time.perf_counter(), os.times()
    printed = made.run(*words, cwd=cwd)
    taken, after = time.perf_counter() - start, os.times()
    busy = after.children_user - before.children_user + after.children_system - before.children_system
    print(f"{action}: {taken:.1f} s ({busy:.1f} s of CPU)", flush=True)
    return taken, printed


def install_and_run(made: Environment, wheel: Path, borrow: bool, pip: Sequence[str]) -> None:
    """Install the wheel, run the example, say how long both take, and compare what it prints.

    Raises:
        CheckError: if README shows another table.
    """
    alone = ["--no-deps", "--ignore-installed"] if borrow else []
    installing, _ = seconds("pip install", made, "-m", "pip", "install", "--quiet", *alone, *pip, wheel)
    code, table = first_example((ROOT / "README.md").read_text(encoding="utf-8"))
    running, printed = seconds("README's first example", made, "-c", code)
    total = installing + running
    print(f"together: {total:.1f} s (goal: {GOAL:g} s; {'met' if total <= GOAL else 'missed'})", flush=True)
    if not printed.startswith(table):
        raise CheckError(f"README's first example printed\n{printed}\ninstead of\n{table}")


def compare(reference: dict[str, Any], found: dict[str, Any]) -> str:
    """Return how many results are equal on which instruction sets.

    Raises:
        CheckError: if some are not, or if nothing was compared.
    """
    expected: dict[str, str] = next(iter(reference["digests"].values()), {})
    differ = [
        f"{case} on {isa}, {which['gemmsim']}"
        for which in (reference, found)
        for isa, digests in which["digests"].items()
        for case in sorted(expected.keys() | digests.keys())
        if digests.get(case) != expected.get(case)
    ]
    if not expected or not found["digests"]:
        raise CheckError("nothing was compared")
    if differ:
        raise CheckError(f"{len(differ)} results differ: {'; '.join(differ[:10])}")
    return (
        f"{len(expected)} results have equal bits: wheel ({found['build']}) on {', '.join(found['digests'])}; "
        f"reference ({reference['build']}) on {', '.join(reference['digests'])}"
    )


def check(wheel: Path, folder: Path, torch: str, borrow: bool, pip: Sequence[str]) -> None:
    """Make an environment in ``folder``, install the wheel there and check it.

    Raises:
        CheckError: with what is wrong.
    """
    made = make_environment(folder / "environment", torch, borrow, pip)
    install_and_run(made, wheel, borrow, pip)
    found = json.loads(made.run(DIGESTS, cwd=folder))
    if not Path(found["gemmsim"]).is_relative_to(made.folder):
        raise CheckError(f"the environment imported {found['gemmsim']}, not the wheel")
    reference = json.loads(run([sys.executable, DIGESTS], dict(os.environ), folder))
    if reference["library"] == found["library"]:
        print("note: the reference has the wheel's own library; `make WHEELS= install` compiles one")
    print(compare(reference, found))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--torch", default="2.13.0", help="the version of PyTorch to install")
    parser.add_argument("--borrow", action="store_true", help="take PyTorch and numpy from this environment instead")
    parser.add_argument("--pip", default="", help="arguments for pip, for example an --index-url")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gemmsim_check_") as folder:
        try:
            check(options.wheel.resolve(), Path(folder), options.torch, options.borrow, options.pip.split())
        except CheckError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
