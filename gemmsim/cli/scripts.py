"""``gemmsim emulate`` and ``gemmsim audit``: programs as they are, under other arithmetic, and what they multiply."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import shutil
import sys
import tokenize
import traceback
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

from gemmsim._files import FileError, read_text
from gemmsim.emulation import Config, ConfigError, Report

from .console import FAILED_EXIT, INTERRUPT_EXIT, is_user_error, say, user_errors, warn
from .processes import Processes
from .session import Request, Session, merged
from .start.reach import ProcessError

__all__ = ["Asked", "audit", "emulate"]

#: Lists and dictionaries in one another, at most, in a config.
_MOST_NESTED = 32


@dataclass(frozen=True)
class Asked:
    """The options of a command and the program. ``module``: that of ``-m``; else ``words`` begin with the script."""

    spec: str | None
    config: Path | None
    seed: int
    module: str | None
    words: Sequence[str]
    children: bool = True

    def order(self, command: str) -> str:
        """The words after ``python -m`` that run another program in the same way."""
        file = None if self.config is None else str(self.config.resolve())
        given = (("--spec", self.spec), ("--config", file), ("--seed", str(self.seed) if self.seed else None))
        options = [word for name, value in given if value is not None for word in (name, value)]
        return shlex.join(["gemmsim", command, *options])


def emulate(asked: Asked) -> int:
    """Runs the program under a config; its exit code. ``ConfigError``, exit code 2: no config, or one that means
    nothing or does not fit the program."""
    with user_errors():
        config = _config(asked)
        if config is None:
            raise ConfigError("gemmsim emulate without a config; allowed: --spec SPEC or --config FILE.\n  Give one.")
        session = Session(Request("emulate", config.to_json(), asked.seed))
        program = _Program(asked, "emulate")
    with _processes(session, asked) as processes, _mistakes_of(session), session:
        try:
            return program.run()
        finally:
            if os.getpid() == session.process:
                _tell_unreached(processes)


def audit(asked: Asked, json_file: Path | None, *, strict: bool, values: bool) -> int:
    """Runs the program, then prints every matrix product that it and the processes it starts made; its exit code.

    A config that means nothing or does not fit the program: exit code 2. ``strict``: 1 where a product is PyTorch's
    own, where there is no product at all, and where processes did not report theirs.
    """
    with user_errors():
        config = _config(asked)
        session = Session(Request("audit", None if config is None else config.to_json(), asked.seed, strict, values))
        program = _Program(asked, "audit")
    code = None
    with _processes(session, asked) as processes:
        try:
            with _mistakes_of(session), session:
                code = program.run()
        finally:
            if os.getpid() != session.process:  # a process that the program forked
                session.write()
            elif not _tell_products(session, processes, json_file, ended=code is not None) and code == 0:
                code = FAILED_EXIT
    return code


@contextmanager
def _processes(session: Session, asked: Asked) -> Iterator[Processes | None]:
    """The context in which processes that the program starts join the session, None where they are left alone."""
    if not asked.children:
        yield None
        return
    with Processes(session.request, asked.order(session.request.command)) as processes:
        session.folder = processes.folder
        yield processes


def _tell_products(session: Session, processes: Processes | None, json_file: Path | None, ended: bool) -> bool:
    """Prints the report of all processes, and what it lacks; False where a strict audit proves nothing. Why it does not
    is told where the program has ``ended`` by itself."""
    others = processes.reports() if processes else []
    report = merged([session.report, *(one for one, _ in others)])
    say(str(report))
    if others:
        say(f"Of {len(others) + 1} processes: the program and {len(others)} that it started.")
    if json_file is not None:
        _save(report, json_file)
    complete = _tell_unreached(processes)
    refused = session.refused or any(refused for _, refused in others)
    if not session.request.strict:
        return True
    if refused and ended:
        _fail("a native PyTorch product was refused, and the program continued", "Read the message of NativeGemmError.")
    elif ended and not report.total_macs:
        what = "only products without multiply-adds" if report.records else "no products"
        _fail(f"{what}, so nothing is proved", "Audit a program that multiplies; check which processes it starts.")
    elif ended and not complete:
        _fail("processes with unknown products", "See the warnings.")
    return complete and not refused and bool(report.total_macs)


def _save(report: Report, path: Path) -> None:
    try:
        report.save(path)
    except OSError as error:
        with user_errors():
            asked = f"cannot write '{path}': {error.strerror}"
            raise ConfigError(f"{asked}; allowed: a file in an existing folder.") from None


def _fail(what: str, do: str) -> None:
    warn(f"error: gemmsim audit --strict: {what}; allowed: programs in which every product is emulated.\n  {do}")


def _tell_unreached(processes: Processes | None) -> bool:
    """Warns of processes with unknown products; whether there are none."""
    if processes is None:
        return True
    missing, unreached = processes.missing(), processes.unreached()
    if missing:
        numbers = ", ".join(map(str, missing))
        warn(
            f"warning: processes that multiplied but sent no report, because they were killed or are "
            f"still running: {numbers}."
        )
    for words in unreached:
        short = words if len(words) <= 120 else words[:117] + "..."
        warn(
            f"warning: the program started {short!r}, which started no Python process that reads PYTHONPATH: its "
            f"products are native.\n  Try to start python -m {processes.order} SCRIPT there, or --no-children "
            "to leave all such processes to PyTorch."
        )
    return not missing and not unreached


@contextmanager
def _mistakes_of(session: Session) -> Iterator[None]:
    """Where the config asked for does not fit the program, or the program starts what cannot be reached, one message
    and exit code 2. What the program itself does wrong keeps its traceback: also where it calls gemmsim, opens contexts
    of its own, or runs a backward pass that cannot be."""
    try:
        yield
    except ProcessError as error:
        with user_errors():
            raise ConfigError(f"gemmsim {session.request.command}: {error}") from None
    except Exception as error:
        if not is_user_error(error) or session.context is None or not session.context.caused(error):
            raise
        with user_errors():
            raise


def _config(asked: Asked) -> Config | None:
    """The config that the options name, None for none.

    Raises:
        ConfigError: for two of them, a file that cannot be read or means nothing, YAML without PyYAML.
        SpecError, FormatError: for specs that mean nothing.
    """
    if asked.spec is not None and asked.config is not None:
        raise ConfigError("--spec and --config; allowed: one of them.\n  Write the spec into the file's rules.")
    if asked.config is None:
        return None if asked.spec is None else Config.of(asked.spec)
    return Config.of(_contents(asked.config))


def _contents(path: Path) -> Any:
    try:
        text = read_text(path)
    except FileError as error:
        raise ConfigError(str(error) + ("" if error.allowed else "; allowed: a JSON or YAML file.")) from None
    if path.suffix.lower() not in (".yaml", ".yml"):
        try:
            return _with_checked_depth(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"'{path}' is not valid JSON: {error}; allowed: JSON, or YAML in *.yaml.") from None
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError(
            f"'{path}' needs PyYAML; allowed without it: JSON.\n  pip install pyyaml, or write the same as JSON."
        ) from None
    try:
        return _with_checked_depth(yaml.safe_load(text))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"'{path}' is not valid YAML: {error}; allowed: YAML or JSON.") from None


def _with_checked_depth(contents: Any) -> Any:
    """The contents of a config, as they are. Python's own limit depends on what else the process did.

    Raises:
        RecursionError: for lists and dictionaries in one another more than 32 deep; configs have three levels.
    """
    level = [contents] if isinstance(contents, dict | list) else []
    for _ in range(_MOST_NESTED):
        inner = [each for one in level for each in (one.values() if isinstance(one, dict) else one)]
        # An alias in YAML makes one list the element of many, or of itself.
        level = list({id(each): each for each in inner if isinstance(each, dict | list)}.values())
        if not level:
            return contents
    raise RecursionError(f"lists and dictionaries are nested more than {_MOST_NESTED} deep")


class _Program:
    """A script or module, to run as ``python`` would.

    Raises:
        ConfigError: for a script that is not there, or that is no text in its encoding.
    """

    def __init__(self, asked: Asked, command: str) -> None:
        self.is_module = asked.module is not None
        self.name, *self.arguments = [asked.module, *asked.words] if asked.module is not None else asked.words
        if self.is_module or os.path.exists(self.name):
            if not self.is_module:
                _check_text(self.name)
            return
        do = ""
        beside = os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])
        if shutil.which(self.name, path=beside):
            order = f"{shlex.join([self.name, *self.arguments[:1]])} ... -m {asked.order(command)} SCRIPT"
            do = f"\n  It is a command. Try {order}, or -m and its module."
        raise ConfigError(f"there is no file '{self.name}'; allowed: a Python script, or -m and a module.{do}")

    def run(self) -> int:
        """The exit code; exceptions are the program's own."""
        before = sys.argv, list(sys.path)
        sys.argv = [self.name, *self.arguments]
        sys.path[0] = "" if self.is_module else str(Path(self.name).resolve().parent)
        try:
            if self.is_module:
                runpy.run_module(self.name, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(self.name, run_name="__main__")
        except ImportError as error:
            if not self.is_module or traceback.extract_tb(error.__traceback__)[-1].name != "_get_module_details":
                raise
            with user_errors():
                raise ConfigError(f"-m {self.name}: {error}; allowed: a module that Python finds.") from None
        except KeyboardInterrupt:
            traceback.print_exc()
            return INTERRUPT_EXIT
        except SystemExit as ended:
            if ended.code is None or isinstance(ended.code, int):
                return ended.code or 0
            print(ended.code, file=sys.stderr)
            return 1
        finally:
            sys.stdout.flush()
            sys.argv, sys.path[:] = before
        return 0


def _check_text(name: str) -> None:
    """``ConfigError`` for a script that Python could not read as text: UTF-16, bytes that are not UTF-8.

    Programs in folders, archives and compiled files, and pipes, which can be read once, are not looked at.
    """
    if not os.path.isfile(name) or zipfile.is_zipfile(name):
        return
    with open(name, "rb") as file:
        start = file.read(len(MAGIC_NUMBER))
    if start == MAGIC_NUMBER:
        return
    try:
        with tokenize.open(name) as script:
            why = "it has null bytes" if "\0" in script.read() else ""
    except (SyntaxError, UnicodeDecodeError) as error:
        why = str(error).replace(f" for {name!r}", "")
    if why:
        do = "Save it as UTF-8, or declare its encoding in its first line: # -*- coding: latin-1 -*-"
        if start[:2] in (b"\xff\xfe", b"\xfe\xff") or start[1::2] == b"\0\0" or start[::2] == b"\0\0":
            do = f"It looks like UTF-16: iconv -f UTF-16 -t UTF-8 {shlex.quote(name)} > UTF8.py"
        raise ConfigError(f"'{name}' cannot be read as Python: {why}; allowed: text in UTF-8.\n  {do}")
