"""An interpreter that has loaded torch and forks itself for each program it is given (see ``support.fork``).

One request a line on stdin, JSON: code, cwd, env, files for stdout and stderr, seconds. One exit status a line back.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import sys
import traceback
from types import ModuleType

import numpy  # noqa: F401
import torch._dynamo  # with torch.library and what autograd loads later; half of a page's time
import torch.utils.data  # noqa: F401


def become(request: dict[str, str]) -> None:
    """This process as ``python -c`` would have begun it, but for the modules already loaded."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    signal.alarm(int(request["seconds"]))  # unhandled: ends the process
    for name, flags, number in (
        (os.devnull, os.O_RDONLY, 0),
        (request["stdout"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 1),
        (request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 2),
    ):
        opened = os.open(name, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)
    sys.argv, sys.path[0] = ["-c"], ""


def executed(code: str) -> int:
    """The program's exit status; what it registered for its end is done. Modules stay: unloading them costs a second."""
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    try:
        exec(compile(code, "<string>", "exec"), vars(main))
        status = 0
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def serve() -> None:
    gc.collect()
    gc.freeze()  # a child's collector would touch, and so copy, every page
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            become(request)
            os._exit(executed(request["code"]) & 0xFF)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, flush=True)


if __name__ == "__main__":
    serve()
