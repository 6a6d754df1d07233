"""A long product handles signals while it runs: Ctrl-C ends it, other handlers do not, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support import ROOT

pytestmark = [
    pytest.mark.kept(by="nothing"),
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX signals"),
]

#: Each takes a minute at least, most of them many: what ends within a test's time was ended.
LONG = {
    "register": "a, b, spec = torch.randn(1000, 1000).expand(400, 1000, 1000), torch.randn(1000, 1000), ':e5m10/sr'",
    "exact, wide": "a, b, spec = wide(600, 4096), wide(4096, 2000), ':exact(fp64)'",
    "one dot product": "a, b, spec = torch.ones(1, 1).expand(1, 1 << 36), torch.ones(1, 1).expand(1 << 36, 1), ':fp32'",
    "tiles of many terms": "a, b, spec = wide(64, 1 << 18), wide(1 << 18, 64), ':exact(fp64)'",
    "many small ones": "a, b, spec = wide(1000, 16, 64), wide(1000, 64, 3000), ':exact(fp64)'",
    "matrix instruction": "a, b, spec = torch.full((500, 3000), float('nan')), torch.ones(3000, 2000), "
    "'bf16 : hw(h100, wgmma, bf16)'",
    "integers": "a, b, spec = torch.ones(500, 3000), torch.full((3000, 2000), 2.0**62), ':int(53)'",
    "compensated": "a, b, spec = wide(500, 3000), wide(3000, 2000), ':kahan(fp64/sr)'",
    "by exponent": "a, b, spec = wide(500, 3000), wide(3000, 2000), ':binned(fp64)'",
}

SETUP = """
import os, signal, sys, threading, time
import torch
import gemmsim as gs

def wide(*shape):
    row = torch.randn(shape[-1], dtype=torch.float64)
    return (row * 2.0 ** torch.randint(-300, 300, row.shape)).expand(shape)  # one row of memory

small = torch.arange(12.0).reshape(3, 4)
def right():
    return gs.qmatmul(small, small.t(), ":fp32").equal(small @ small.t())
assert right()
"""


def run(code: str, timeout: float = 100) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that has Python's own handler of Ctrl-C."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    begin = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    return subprocess.run(
        [sys.executable, "-c", begin + SETUP + textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=Path(ROOT),
    )


def said(code: str) -> list[str]:
    done = run(code)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_a_long_product(threads):
    """The signal comes while C code runs: Python's handler runs between parts of it, what it raises comes out."""
    lines = said(
        f"""
        torch.set_num_threads({threads})
        for kind, operands in {LONG!r}.items():
            exec(operands)
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            try:
                gs.qmatmul(a, b, spec)
                print(kind, "came to its end")
            except KeyboardInterrupt as e:
                timer.join()
                print(kind, e.args, e.__cause__, right(), threading.active_count())
        """
    )
    assert lines == [f"{kind} () None True 1" for kind in LONG]


def test_a_handler_that_raises_nothing_lets_the_product_go_on():
    """The product is that of an undisturbed call, and the handler ran before its end."""
    lines = said(
        """
        a, b = torch.randn(400, 2000), torch.randn(2000, 400)
        seen = []
        a, b = a.repeat(4, 1), b.repeat(1, 4)
        signal.signal(signal.SIGALRM, lambda *_: seen.append(right()))
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        got = gs.qmatmul(a, b, ":e5m10/sr", seed=1)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(got.equal(gs.qmatmul(a, b, ":e5m10/sr", seed=1)), len(seen) > 3, all(seen))
        """
    )
    assert lines == ["True True True"]


def test_whatever_a_handler_raises_comes_out():
    lines = said(
        f"""
        class Late(Exception): pass
        def handler(*_):
            raise Late("too long")
        signal.signal(signal.SIGALRM, handler)
        {LONG["register"]}
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            gs.qmatmul(a, b, spec)
        except Late as e:
            print(e, right())
        """
    )
    assert lines == ["too long True"]


def test_a_product_of_another_thread_is_not_disturbed():
    """Python handles signals in the main thread alone."""
    lines = said(
        """
        a, b = torch.randn(600, 3000), torch.randn(3000, 600)
        want = gs.qmatmul(a, b, ":e5m10/sr", seed=1)
        found = []
        def work():
            for _ in range(6):
                found.append(gs.qmatmul(a, b, ":e5m10/sr", seed=1).equal(want))
        worker = threading.Thread(target=work)
        worker.start()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        heard = False
        while len(found) < 6 or not heard:
            try:
                time.sleep(0.05)
            except KeyboardInterrupt:
                heard = True
        worker.join()
        print(found == [True] * 6)
        """
    )
    assert lines == ["True"]


def test_an_interrupted_product_leaves_its_memory():
    """Products with 120 MB of panels, each interrupted: memory does not grow with their number."""
    lines = said(
        """
        import resource
        a, b = torch.randn(64, 3000), torch.randn(3000, 5000)
        class Stop(Exception): pass
        def handler(*_):
            raise Stop
        signal.signal(signal.SIGALRM, handler)
        def stopped(times):
            count = 0
            for _ in range(times):
                signal.setitimer(signal.ITIMER_REAL, 0.06)
                try:
                    gs.qmatmul(a, b, ":binned(fp64)")
                except Stop:
                    count += 1
            return count
        first = stopped(3)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count = stopped(20)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(first, count, (after - before) < 200_000)
        """
    )
    assert lines == ["3 20 True"]
