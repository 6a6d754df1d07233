"""Digests of what tests confirmed: where sources and results are those of then, the same need not be computed again."""

from __future__ import annotations

import ast
import fcntl
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support import ROOT


def statements(path: Path) -> bytes:
    """The syntax tree of a Python file without docstrings: comments and the layout of lines change nothing."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                del node.body[0]
    return ast.dump(tree).encode()


def digest_of(paths: list[Path]) -> str:
    """Of Python files, with their places in the repository."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + statements(path))
    return digest.hexdigest()[:32]


class Kept:
    """A file of digests, by test. ``sources``: a digest of all that they rest on; another one is another file."""

    def __init__(self, path: Path, sources: Callable[[], str]) -> None:
        self.path, self._sources = path, functools.cache(sources)
        #: What this process confirmed.
        self.found: dict[str, str] = {}

    def _read(self) -> dict[str, Any]:
        empty = {"sources": "", "results": {}}
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else empty

    @functools.cached_property
    def current(self) -> bool:
        """Whether it was written with the sources of now."""
        return self._read()["sources"] == self._sources()

    @functools.cached_property
    def _results(self) -> dict[str, str]:
        return self._read()["results"] if self.current else {}

    def __contains__(self, test: str) -> bool:
        return test in self._results

    def confirms(self, test: str, digest: str) -> bool:
        return self._results.get(test) == digest

    def write(self) -> None:
        """Writes what was confirmed, beside what this and other processes confirmed before with the same sources."""
        if not self.found:
            return
        lock = ROOT / "build" / f"{self.path.stem}.lock"
        lock.parent.mkdir(exist_ok=True)
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            old = self._read()
            results = (old["results"] if old["sources"] == self._sources() else {}) | self.found
            kept = {"sources": self._sources(), "results": dict(sorted(results.items()))}
            self.path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
