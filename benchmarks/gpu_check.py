"""Everything that only a GPU can show, in one command: ``make gpu-check``, or ``gpu_run.sh`` from a bundle.

In this order: what no recording of a chip has settled (ten seconds), smoke (one kernel of each family), the chip's
answers to the other probes, the verdict on each of its matrix instructions, what cuBLASLt chooses and computes, tests
marked ``gpu``, random products on CPU and GPU, timings, tensor cores. Every finding is a line of ``results.jsonl`` in
``--out`` when it is made. A second call goes on where the first one stopped, however it did.

Each part is a process. One that hangs is ended; one whose GPU is lost goes on in a new one. Exit code: 0 everything was
found and agrees; 1 something differs or failed; 2 it cannot run here, or smoke failed; 3 the time was over before the
end: call again; 143 it was ended by SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from gpu_machine import NotReady, check_ready, code_of, machine
from gpu_process import GPU_LOST, MARK, SMOKE_READY, Busy, die_with_parent, end_leftovers, locked, run
from gpu_results import Results, write_whole

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
#: Parts in order, and the share of the time that is left which each has.
PARTS = {
    "probes": 0.05,
    "verdicts": 0.1,
    "libraries": 0.4,
    "tests": 0.4,
    "random": 0.12,
    "timings": 0.25,
    "tensor cores": 0.08,  # last: hangs and faults are likeliest there
}
#: Seconds of the undecided probes, with the start of Python and PyTorch. Whatever comes of them, the check goes on.
UNDECIDED = 60.0
#: Seconds of smoke, and of smoke under compute-sanitizer, both with the start of Python and PyTorch. Smoke waits for
#: its kernels where they are compiled ahead, so long at most; without a list of kernels it compiles them one by one.
SMOKE, SANITIZER, SMOKE_KERNELS, SMOKE_COMPILING = 60.0, 60.0, 150.0, 240.0
#: A part whose GPU was lost is started again so often.
MOST_STARTS = 20


class Stopped(Exception):
    """SIGTERM or SIGINT."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(signal.Signals(number).name)


def gpu_tests() -> list[str]:
    """The files with tests marked ``gpu``: others need packages that a machine with a GPU may lack."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if "mark.gpu" in path.read_text(encoding="utf-8")]


class Check:
    """One call of the check: results, the time it has, and what a bundle brings."""

    def __init__(self, results: Results, end: float, options: argparse.Namespace) -> None:
        self.results, self.end = results, end
        self.kernels, self.draws, self.times = options.kernels, options.draws, options.times
        self.patience, self.sanitizer = options.patience, not options.no_sanitizer
        self.only = [name for name in PARTS if name in (options.only or PARTS)]
        self.environment = {**os.environ, MARK: str(results.folder.resolve()), "PYTHONUNBUFFERED": "1"}
        path = self.environment.get("PYTHONPATH")
        self.environment["PYTHONPATH"] = str(HERE) + (os.pathsep + path if path else "")
        self.ahead: subprocess.Popen[bytes] | None = None
        self.said = 0  # bytes of the compiler's log that are of an earlier call
        self.log = results.folder / "run.log"

    def left(self) -> float:
        return self.end - time.monotonic()

    def part_command(self, name: str, seconds: float) -> list[str]:
        """The process of a part."""
        if name == "tests":
            workers = max(1, min(14, (os.cpu_count() or 2) - 2))
            command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "-p", "gpu_pytest"]
            command += ["--continue-on-collection-errors", "-o", "faulthandler_timeout=60"]
            if workers > 1 and find_spec("xdist") is not None:
                command += ["-n", str(workers), "--maxschedchunk", "1", "--max-worker-restart", "100"]
            return [*command, *gpu_tests()]
        own = [sys.executable, str(HERE / "gpu_check.py"), "--part", name, "--seconds", f"{seconds:.1f}"]
        own += ["--out", str(self.results.folder)]
        return own if self.draws is None else [*own, "--draws", str(self.draws)]

    def compile_ahead(self, arch: str) -> None:
        """Starts to compile every kernel of the bundle's list that the folder of kernels does not have."""
        if self.kernels is None:
            return
        command = [sys.executable, str(HERE / "gpu_kernels.py"), str(self.kernels), "--arch", arch]
        with (self.results.folder / "compile.log").open("ab") as log:
            self.said = log.tell()
            self.ahead = subprocess.Popen(
                command,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def await_smoke(self) -> None:
        """Waits until the compiler that runs ahead has the kernels of smoke."""
        end = time.monotonic() + min(self.patience * SMOKE_KERNELS, self.left() / 3)
        while self.ahead is not None and self.ahead.poll() is None and time.monotonic() < end:
            if SMOKE_READY.encode() in (self.results.folder / "compile.log").read_bytes()[self.said :]:
                return
            time.sleep(0.1)

    def stop_compiling(self) -> None:
        if self.ahead is not None:
            self.ahead.kill()
            self.ahead.wait()

    def undecided(self) -> None:
        """Asks the chip what no recording has settled, before all else."""
        if not self.results.run.is_done("undecided"):
            seconds = min(self.patience * UNDECIDED, self.left() / 4)
            code = run(self.part_command("undecided", seconds), seconds, self._environment(), ROOT, self.log)
            self._read()
            done = code == 0 and len(self.results.run.part("undecided")) > 0
            self._state("undecided", "done" if done else "ended", "" if done else f"exit code {code}")

    def smoke(self) -> str:
        """Why smoke failed; "" where it did not. Under compute-sanitizer, too, where there is one that works."""
        if not self.results.run.is_done("smoke"):
            self.await_smoke()
            most = SMOKE if self.kernels is not None else SMOKE_COMPILING
            seconds = min(self.patience * most, self.left())
            reason = self._smoke("smoke", self.part_command("smoke", seconds), seconds)
            if reason:
                return reason
        tool = shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
        if tool is None or not self.sanitizer or self.results.run.is_done("sanitizer"):
            return ""
        before = ["--tool", "memcheck", "--error-exitcode", "99", "--target-processes", "application-only"]
        seconds = min(self.patience * SANITIZER, self.left() / 4)
        return self._smoke("sanitizer", [tool, *before, *self.part_command("sanitizer", seconds)], seconds)

    def _smoke(self, part: str, command: list[str], seconds: float) -> str:
        before = self.log.stat().st_size if self.log.exists() else 0
        code = run(command, seconds, self._environment(), ROOT, self.log)
        found = self._read().run.part(part)
        wrong = [f"{key}: {one.error}" for key, one in found.items() if not one.ok]
        end = self.log.read_bytes()[before:][-1500:].decode(errors="replace")
        if part == "sanitizer" and (code is None or not found or "Device not supported" in end):
            # It did not run: too slow, or it refuses the machine. That says nothing of the kernels.
            self._state(part, "done", f"compute-sanitizer did not run (exit code {code}): {end[-300:]}")
            return ""
        if code == 0 and not wrong:
            self._state(part, "done", "" if part == "smoke" else "compute-sanitizer found nothing")
            return ""
        why = "; ".join(wrong) or (f"not done after {seconds:.0f} s" if code is None else f"exit code {code}: {end}")
        self._state(part, "ended", why)
        return f"{part} failed: {why}"

    def part(self, name: str) -> None:
        """Runs a part for its share of the time that is left; in a new process where it lost its GPU."""
        todo = [other for other in self.only if not self.results.run.is_done(other)]
        share = PARTS[name] / sum(PARTS[other] for other in todo)
        end = time.monotonic() + share * self.left()
        self._state(name, "started")
        code: int | None = GPU_LOST
        for _ in range(MOST_STARTS):
            seconds = end - time.monotonic()
            if seconds <= 0:
                code = None
                break
            known = len(self.results.run.findings)
            limit = min(1.25 * seconds + 10, self.left())  # a process takes seconds to start
            code = run(self.part_command(name, seconds), limit, self._environment(), ROOT, self.log)
            self._read()
            if not self._again(name, code, len(self.results.run.findings) - known):
                break
        self._end(name, code)

    def _again(self, name: str, code: int | None, new: int) -> bool:
        """Whether a part that ended goes on in a new process: its GPU was lost, and it found something."""
        return new > 0 and (code == GPU_LOST or (name == "tests" and code is not None and code < 0))

    def _end(self, name: str, code: int | None) -> None:
        """How a part stands whose process ended with ``code``; a process that died is a failure with the log's end."""
        if name == "tests" and code in (0, 1, 5):  # all passed, some failed, none was left
            found = self.results.run.part("tests").values()
            if not any(one.ok and one.value["outcome"] == "passed" for one in found):
                self.results.add(name, "all of them", ok=False, error="no test passed")
            self._state(name, "done")
        elif code is None or (code == 0 and not self.results.run.is_done(name)):
            self._state(name, "ended", "the time was over")
        elif code != 0:
            end = self.log.read_bytes()[-600:].decode(errors="replace")
            self.results.add(name, "the process", ok=False, error=f"exit code {code}: {end}")
            self._state(name, "ended", f"exit code {code}")

    def _environment(self) -> dict[str, str]:
        more = {"GEMMSIM_GPU_RESULTS": str(self.results.folder.resolve())}
        if self.times is not None:
            more["GEMMSIM_GPU_TIMES"] = str(self.times)
        return {**self.environment, **more}

    def _state(self, part: str, state: str, words: str = "") -> None:
        self.results.state(part, state, words)

    def _read(self) -> Results:
        """What the part's process has added."""
        self.results = Results(self.results.folder)
        return self.results


def run_part(name: str, seconds: float, folder: Path, draws: Path | None) -> int:
    """One part, in the process that it has for itself."""
    import gpu_bits
    import gpu_process
    import gpu_smoke
    import gpu_timings
    import library_check

    results = Results(folder)
    results.end = time.monotonic() + seconds
    results.after_failure = lambda: os._exit(GPU_LOST) if gpu_process.gpu_is_lost() else None
    works: dict[str, Callable[[], None]] = {
        "smoke": lambda: gpu_smoke.smoke(results),
        "sanitizer": lambda: gpu_smoke.smoke(results, "sanitizer"),
        "undecided": lambda: gpu_bits.probes(results, undecided=True),
        "probes": lambda: gpu_bits.probes(results),
        "verdicts": lambda: gpu_bits.verdicts(results),
        "libraries": lambda: library_check.libraries(results),
        "random": lambda: gpu_bits.random_products(results, draws),
        "timings": lambda: gpu_timings.timings(results, results.run.machine),
        "tensor cores": lambda: gpu_timings.tensor_cores(results, results.run.machine),
    }
    with results.guard(name, "the part itself"):
        works[name]()
    if name in PARTS and not results.late():
        results.state(name, "done")
    return 0


def outcome(results: Results, parts: Sequence[str] = tuple(PARTS)) -> int:
    """The exit code of what has been found."""
    if any(not found.ok for found in results.run.findings.values()):
        return 1
    return 0 if all(results.run.is_done(name) for name in parts) else 3


def part_line(results: Results, name: str) -> str:
    """How a part stands."""
    state, words = results.run.states.get(name, ("not run", ""))
    found = results.run.part(name)
    bad = sum(not one.ok for one in found.values())
    return f"{name}: {state}, {len(found) - bad} found, {bad} failed{': ' * bool(words)}{words}"


def summary(results: Results) -> str:
    """A line for each part, and everything that failed."""
    lines = []
    for name in ("undecided", "smoke", "sanitizer", *PARTS):
        bad = [f"    {key}: {one.error[:300]}" for key, one in results.run.part(name).items() if not one.ok]
        lines += [part_line(results, name), *bad[:20]]
    return "\n".join(lines)


def check(check: Check, info: dict[str, Any], despite_smoke: bool) -> int:
    """All parts that are not done yet; the exit code."""
    check.compile_ahead(info["arch"])
    try:
        check.undecided()
        reason = check.smoke()
        if reason and not despite_smoke:
            print(f"error: {reason}\n  Nothing else was run. --despite-smoke runs it all the same.", file=sys.stderr)
            return 2
        for name in check.only:
            if not check.results.run.is_done(name) and check.left() > 1:
                print(f"{name} ...", flush=True)
                check.part(name)
                print(part_line(check.results, name), flush=True)
    except Stopped as signal_name:
        print(f"ended by {signal_name}; a second call goes on from here", file=sys.stderr)
        return 143
    finally:
        check.stop_compiling()
        write_whole(check.results.folder / "summary.txt", summary(check.results) + "\n")
    print(summary(check.results))
    return outcome(check.results, check.only)


def options_of(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "gpu_results", help="folder of results.jsonl")
    parser.add_argument("--minutes", type=float, default=8.0, help="time for everything together")
    parser.add_argument("--kernels", type=Path, help="list of kernels to compile ahead (of a bundle)")
    parser.add_argument("--draws", type=Path, help="random products (of a bundle)")
    parser.add_argument("--times", type=Path, help="seconds of tests (of a bundle)")
    parser.add_argument("--fresh", action="store_true", help="begin again, whatever the folder has")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="these parts alone (all)")
    parser.add_argument("--despite-smoke", action="store_true", help="go on where smoke failed")
    parser.add_argument(
        "--no-sanitizer", action="store_true", help="smoke without compute-sanitizer, which takes a minute"
    )
    parser.add_argument("--part", choices=("undecided", "smoke", "sanitizer", *PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--patience", type=float, default=1.0, help=argparse.SUPPRESS)  # times what smoke may take
    parser.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """The exit code that the module's text explains."""
    begin, options = time.monotonic(), options_of(argv)
    if options.part is not None:
        return run_part(options.part, options.seconds, options.out, options.draws)
    try:
        check_ready()
        if find_spec("pytest") is None or find_spec("hypothesis") is None:
            raise NotReady(
                "the tests without pytest and hypothesis; allowed: both installed.\n  pip install pytest hypothesis"
            )
        with locked(options.out):
            end_leftovers(options.out)
            info, results = machine(), Results(options.out)
            signal.signal(signal.SIGTERM, _stop)
            signal.signal(signal.SIGINT, _stop)
            went_on = results.begin(info, code_of(), options.fresh)
            print(f"{info['gpu']}, {'going on' if went_on else 'beginning'} in {options.out}", flush=True)
            one = Check(results, begin + 60 * options.minutes, options)
            return check(one, info, options.despite_smoke)
    except (NotReady, Busy) as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
