"""Programs in interpreters of their own that need not load torch first: 3 seconds less for each.

For tests of what a program does. Those of what importing does need ``support.run_python``.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from support import ROOT, run_python


@functools.cache
def _server() -> subprocess.Popen[str]:
    """One for each test process; it ends when its input is closed, at the latest with this process."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, str(ROOT / "tests" / "fork_server.py")]
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_forked(code: str, *, cwd: Path | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """As ``run_python``, with torch and numpy already loaded. A program that takes too long ends by a signal."""
    if sys.platform != "linux":  # where forking is safe after such imports
        return run_python(code, cwd=cwd, timeout=timeout)
    server = _server()
    with tempfile.TemporaryDirectory(prefix="gemmsim_") as folder:
        out, err = Path(folder) / "stdout", Path(folder) / "stderr"
        request = {
            "code": code,
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ),
            "stdout": str(out),
            "stderr": str(err),
            "seconds": timeout,
        }
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, f"the forking interpreter ended with {server.wait()}"
        return subprocess.CompletedProcess(["-c"], int(answer), out.read_text(), err.read_text())
