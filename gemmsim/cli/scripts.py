"""``gemmsim emulate`` and ``gemmsim audit``: programs as they are, under other arithmetic, and what they multiply."""

from __future__ import annotations

import argparse
import codecs
import json
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import gemmsim as gs
from gemmsim.emulation import Config, ConfigError

from .console import USER_ERRORS, say, user_errors

__all__ = ["audit", "emulate"]


def emulate(words: Sequence[str]) -> int:
    """Runs the program that ``words`` name under a config; its exit code. ``ConfigError``, exit code 2: no config,
    or one that means nothing or does not fit the program."""
    given = _read(
        _parser("emulate", "Run a Python program as it is, with its matrix products as a config says."), words
    )
    with user_errors():
        config = _config(given)
        if config is None:
            raise ConfigError("gemmsim emulate without a config; allowed: --spec SPEC or --config FILE.\n  Give one.")
        context, program = gs.emulate(config, seed=given.seed), _Program(given)
    with _mistakes_of(context), context:
        return program.run()


def audit(words: Sequence[str]) -> int:
    """Runs the program that ``words`` name, then prints every matrix product it made; its exit code. A config
    that means nothing or does not fit the program: exit code 2."""
    parser = _parser("audit", "Run a Python program as it is, and list the matrix products it computes.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the report there, too.")
    parser.add_argument("--strict", action="store_true", help="Stop at the first product that is PyTorch's own.")
    parser.add_argument("--values", action="store_true", help="Count NaN, infinite and zero results.")
    given = _read(parser, words)
    with user_errors():
        config = _config(given)
        context = None if config is None else gs.emulate(config, seed=given.seed)
        program = _Program(given)
    auditor = gs.audit(strict=given.strict, values=given.values)
    report = None
    try:
        with _mistakes_of(context), context or nullcontext(), auditor as report:
            return program.run()
    finally:
        if report is not None:
            say(str(report))
            if given.json is not None:
                report.save(given.json)


@contextmanager
def _mistakes_of(context: gs.emulate | None) -> Iterator[None]:
    """Where the config asked for does not fit the program, one message and exit code 2. What the program itself does
    wrong keeps its traceback: also where it calls gemmsim, opens contexts of its own, or runs a backward pass that
    cannot be."""
    try:
        yield
    except USER_ERRORS as error:
        if context is None or not context.caused(error):
            raise
        with user_errors():
            raise


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"gemmsim {name}",
        usage=f"gemmsim {name} [OPTIONS] (SCRIPT | -m MODULE) [ARGUMENTS...]",
        description=f"{about} What follows its name are the program's own arguments. The exit code is the program's; 2 "
        "for a mistake in what was asked, also for rules that do not fit the program.",
        allow_abbrev=False,
    )
    parser.add_argument("--spec", metavar="SPEC", help='One spec for all products, such as "e4m3 : e5m10".')
    parser.add_argument("--config", type=Path, metavar="FILE", help="Rules, JSON or (with PyYAML) YAML: see Config.")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="Seed of the random bits. Default: 0.")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="Run a module, as python -m does.")
    parser.add_argument("script", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _read(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """The options and the program; prints a message and exits 2 without a program."""
    given = parser.parse_args(list(words))
    if not (given.module or given.script):
        parser.error("no program; give a script or -m and a module")
    return given


def _config(given: argparse.Namespace) -> Config | None:
    """The config that the options name, None for none.

    Raises:
        ConfigError: for two of them, a file that cannot be read or means nothing, YAML without PyYAML.
        SpecError, FormatError: for specs that mean nothing.
    """
    if given.spec is not None and given.config is not None:
        raise ConfigError("--spec and --config; allowed: one of them.\n  Write the spec into the file's rules.")
    if given.config is None:
        return None if given.spec is None else Config.of(given.spec)
    return Config.of(_contents(given.config))


#: Byte order marks and the encodings they say, those of 32 bits first: theirs begin like those of 16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)


def _text(path: Path) -> str:
    """The text of a file in UTF-8, or in the encoding that its byte order mark says (PowerShell writes UTF-16)."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read '{path}': {error.strerror}; allowed: a JSON or YAML file.") from None
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        asked = f"'{path}' is no text in {encoding}: byte {error.start} is {data[error.start]:#04x}"
        raise ConfigError(f"{asked}; allowed: UTF-8, or UTF-16 with a mark.\n  Save it as UTF-8.") from None


def _contents(path: Path) -> Any:
    text = _text(path)
    if path.suffix.lower() not in (".yaml", ".yml"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(f"'{path}' is no JSON: {error}; allowed: JSON, or YAML in *.yaml.") from None
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError(
            f"'{path}' needs PyYAML; allowed without it: JSON.\n  pip install pyyaml, or write the same as JSON."
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"'{path}' is no YAML: {error}; allowed: YAML or JSON.") from None


class _Program:
    """A script or module, to run as ``python`` would.

    Raises:
        ConfigError: for a script that is not there.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self.is_module = given.module is not None
        self.name, *self.arguments = given.module if self.is_module else given.script
        if not self.is_module and not Path(self.name).exists():
            raise ConfigError(f"there is no file '{self.name}'; allowed: a Python script, or -m and a module.")

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
        except SystemExit as ended:
            if ended.code is None or isinstance(ended.code, int):
                return ended.code or 0
            print(ended.code, file=sys.stderr)
            return 1
        finally:
            sys.stdout.flush()
            sys.argv, sys.path[:] = before
        return 0
