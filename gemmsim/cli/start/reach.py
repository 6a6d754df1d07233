"""How an emulation reaches Python processes that its program starts: by two environment variables, which they inherit.

``GEMMSIM_RUN`` names the folder of the run. ``PYTHONPATH`` begins with the folder of this file, in which Python finds a
``sitecustomize`` at its start. That notes in the run's folder that the process is there, and opens the contexts as soon
as the process has imported PyTorch. An audit hook, here and there, sees what else is started: it puts the variables
back where a program dropped them, and raises where Python is told not to read them.

The standard library alone, and nothing of gemmsim: most of these processes never import PyTorch.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

__all__ = ["VARIABLE", "ProcessError", "Watch", "begin", "repair", "watch", "watched", "words_of"]

VARIABLE = "GEMMSIM_RUN"
HERE = os.path.dirname(os.path.abspath(__file__))

_PYTHON = re.compile(r"(python|pypy)[\d.]*[tdw]?(\.exe)?$")
#: Programs that start Python, maybe where the environment does not reach; and those that start what their words say.
_LAUNCHERS = re.compile(
    r"(torchrun|accelerate|deepspeed|colossalai|horovodrun|ray|mpirun|mpiexec|srun|ssh|pdsh|docker|podman|apptainer|"
    r"singularity)$"
)
_WRAPPERS = re.compile(r"(sh|bash|dash|zsh|fish|env|nice|nohup|timeout|time|numactl|taskset|stdbuf|xargs|sudo)$")
#: Switches of Python that take a word, those that print something and end, those that keep the hook away.
_WITH_WORD, _ENDS, _KEEPS_OUT = "WX", "hV?", "IES"


class ProcessError(RuntimeError):
    """A process that the emulation could not reach, so that its products would be PyTorch's own."""


class Watch:
    """What is started while an emulation holds. ``order``: the words that emulate in the process itself; ``started``:
    Python processes and programs that may start some, each with its words; ``audited``: the process of which a report
    is expected, 0 for none."""

    def __init__(self, folder: str, order: str) -> None:
        self.folder, self.order = folder, order
        self.started: list[list[str]] = []
        self.audited = 0
        self.process_id = os.getpid()

    def process(self, words: Sequence[str], env: Any, *, late: bool = False) -> None:
        """A process of these words is about to be started, with this environment (None: ours). ``late``: too late to
        change one that is given.

        Raises:
            ProcessError: Python is told not to read its variables, or the variables cannot be put back.
        """
        reached = self._reaches(env, late)
        python = bool(words) and is_python(words[0])
        if python and _switch(words, _ENDS) or not (python or _may_start_python(words)):
            return
        if python and (switch := _switch(words, _KEEPS_OUT)):
            raise self._refused(words, f"the switch -{switch} disables the emulation in it")
        if not reached:
            raise self._refused(words, "its environment lacks the variables that the emulation set")
        self.started.append(list(words))

    def replaced(self, words: Sequence[str], env: Any) -> None:
        """This process is about to become another program.

        Raises:
            ProcessError: as for ``process``, and where a report of this process is expected.
        """
        if self.audited == os.getpid():
            raise self._refused(words, "it replaces this process, so the report of this process would be lost")
        self.process(words, env, late=True)

    def _reaches(self, env: Any, late: bool) -> bool:
        """Whether the two variables are in ``env``, or in ours, put there if need be."""
        if env is None:
            repair(os.environ, self.folder)
            return True
        if late:
            return isinstance(env, Mapping) and repair(dict(env), self.folder)
        if isinstance(env, MutableMapping):
            repair(env, self.folder)
        return isinstance(env, MutableMapping)

    def _refused(self, words: Sequence[str], why: str) -> ProcessError:
        """The error; in a process that was forked to become another it is told at once, as nobody sees it there."""
        error = ProcessError(self._message(words, why))
        if os.getpid() != self.process_id:
            print(f"error: {error}", file=sys.stderr, flush=True)
        return error

    def _message(self, words: Sequence[str], why: str) -> str:
        order = f"{words[0]} -m {self.order} SCRIPT" if self.order else "the emulation inside it"
        return (
            f"the program starts {_shown(words)}: {why}; allowed: Python processes that read PYTHONPATH.\n"
            f"  Try to start {order} there, or --no-children to leave all such processes to PyTorch."
        )


_watch: Watch | None = None
_hooked = False


def watch(new: Watch | None) -> Watch | None:
    """Watches what this process starts; None: no longer. The watch before."""
    global _watch, _hooked
    before, _watch = _watch, new
    if new is not None and not _hooked:
        _hooked = True
        sys.addaudithook(_hook)
    return before


def watched() -> Watch | None:
    """The watch of this process, None for none."""
    return _watch


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event not in _EVENTS or _watch is None:
        return
    _EVENTS[event](_watch, *args)


def _popen(watch: Watch, program: Any, given: Any, folder: Any, env: Any) -> None:
    words = words_of(given)
    watch.process([os.fsdecode(program) if program else words[0], *words[1:]] if words else [], env)


def _spawn(watch: Watch, program: Any, given: Any, env: Any) -> None:
    watch.process([os.fsdecode(program), *words_of(given)[1:]], env, late=True)


def _exec(watch: Watch, program: Any, given: Any, env: Any) -> None:
    watch.replaced([str(program) if isinstance(program, int) else os.fsdecode(program), *words_of(given)[1:]], env)


#: Events of Python's audit hooks -> what becomes of them.
_EVENTS: dict[str, Callable[..., None]] = {
    "subprocess.Popen": _popen,
    "os.system": lambda watch, command: watch.process(["sh", "-c", os.fsdecode(command)], None),
    "os.exec": _exec,
    "os.posix_spawn": _spawn,
    "os.spawn": lambda watch, mode, program, given, env: _spawn(watch, program, given, env),
}


def words_of(given: Any) -> list[str]:
    """The words of a command, given as one or as several."""
    if isinstance(given, (str, bytes, os.PathLike)):
        return [os.fsdecode(given)]
    return [os.fsdecode(word) if isinstance(word, (str, bytes, os.PathLike)) else str(word) for word in given]


def is_python(program: str) -> bool:
    """Whether a program's name is that of a Python interpreter."""
    return program == sys.executable or bool(_PYTHON.match(os.path.basename(program)))


def _may_start_python(words: Sequence[str]) -> bool:
    """Whether a command other than Python is one that starts it, or names it or such a one for a program to start."""
    if not words or not (_LAUNCHERS.match(name := os.path.basename(words[0])) or _WRAPPERS.match(name)):
        return False
    parts = [part for word in words for part in word.split() if not part.startswith("-")]
    return any(is_python(part) or _LAUNCHERS.match(os.path.basename(part)) for part in parts)


def _switch(words: Sequence[str], which: str) -> str:
    """The first of Python's one-letter switches in ``which`` among ``words``; "" for none."""
    waiting = False
    for word in words[1:]:
        if waiting:
            waiting = False
            continue
        if word in ("--version", "--help", "--help-all", "--help-env", "--help-xoptions"):
            return word[2] if "h" in which else ""
        if word == "--check-hash-based-pycs":
            waiting = True
            continue
        if not word.startswith("-") or word == "-" or word.startswith("--"):
            return ""
        for at, letter in enumerate(word[1:], 2):
            if letter in which:
                return letter
            if letter in "cm":
                return ""
            if letter in _WITH_WORD:
                waiting = at == len(word)
                break
    return ""


def repair(env: MutableMapping[Any, Any], folder: str) -> bool:
    """The two variables in ``env``; whether they were there already."""
    binary = any(isinstance(name, bytes) for name in env)
    code = os.fsencode if binary else str
    name, paths = code(VARIABLE), code("PYTHONPATH")
    there = [path for path in os.fsdecode(env.get(paths, "") or "").split(os.pathsep) if path]
    if there[:1] == [HERE] and env.get(name) == code(folder):
        return True
    env[paths] = code(os.pathsep.join([HERE, *(path for path in there if path != HERE)]))
    env[name] = code(folder)
    return False


def _shown(words: Sequence[str]) -> str:
    text = " ".join(words)
    return repr(text if len(text) <= 120 else text[:117] + "...")


def begin(join: Callable[[str], None]) -> None:
    """Called at the start of a process: it says that it is there, and has ``join`` called with the run's folder, now
    or when PyTorch has been imported."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    order = ""
    try:
        with open(os.path.join(folder, "order"), encoding="utf-8") as file:
            order = file.read()
        name = os.path.join(folder, f"{os.getpid()}-{time.time_ns()}.there")
        with open(name, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\0".join(sys.orig_argv))
    except OSError:
        pass  # the run is over; whoever imports PyTorch is told
    watch(Watch(folder, order))
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _AfterTorch(lambda: join(folder)))
        return
    try:
        join(folder)
    except Exception as error:  # which Python would only report here, and go on
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(1)


class _AfterTorch:
    """A finder that finds what the others find, and calls ``then`` when PyTorch has been imported."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.then = then

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """None but for PyTorch.

        Raises:
            ProcessError: when it has been imported and the run cannot be joined.
        """
        if name != "torch":
            return None
        from importlib import util

        sys.meta_path.remove(self)
        try:
            spec = util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_join(module: Any) -> None:
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.then()

        spec.loader.exec_module = run_and_join  # type: ignore[method-assign]
        return spec
