"""Comparing with the integer reference without computing it again where neither it nor the draws changed.

The reference is exact and slow. A test hands its results to ``Expected``, each with what computes the reference's. A
digest of all that a test compared, inputs and results, is kept in ``golden/reference_results.json`` once the reference
has confirmed it; as long as the reference's sources are those of then, the same digest is the same confirmation. Any
other digest, other sources and every long run compute the reference and compare number by number.

``pytest -n 0 --remember tests/backends ...`` computes all and writes the file.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support import GOLDEN, ROOT, assert_bitwise_equal, bits
from torch import Tensor

RESULTS = GOLDEN / "reference_results.json"
#: What the reference computes with.
_SOURCES = ("reference", "arithmetic", "formats", "hardware", "acc.py")
#: Digests that this process confirmed, by test.
confirmed: dict[str, str] = {}


def _statements(path: Path) -> bytes:
    """Without docstrings and lines of comment; as it is where other strings have three quotes."""
    text = path.read_text(encoding="utf-8")
    if not re.search(r'[=(,\[{+:][ \t]*"""|\b[rfbRFB]{1,2}"""', text):
        text = re.sub(r'^[ \t]*(?:#[^\n]*|""".*?""")[ \t]*\n', "", text, flags=re.MULTILINE | re.DOTALL)
    return text.encode()


@functools.cache
def sources() -> str:
    """Digest of the reference's sources."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        top = ROOT / "gemmsim" / name
        for path in [top] if top.is_file() else sorted(top.rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + _statements(path))
    return digest.hexdigest()[:32]


@functools.cache
def _kept() -> dict[str, Any]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"sources": "", "results": {}}


def remember() -> None:
    """Writes what was confirmed, beside what was confirmed before with the same sources."""
    old = _kept()["results"] if _kept()["sources"] == sources() else {}
    found = {"sources": sources(), "results": dict(sorted((old | confirmed).items()))}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


class Expected:
    """Results of one test that must be the reference's. ``always``: compute it whatever is kept."""

    def __init__(self, test: str, always: bool) -> None:
        self._test, self._always = test, always
        self._digest = hashlib.sha256()
        self._waiting: list[tuple[Tensor, Callable[[], Tensor], str]] = []

    def same(self, results: dict[str, Tensor], compute: Callable[[], Tensor], what: str, *inputs: Tensor) -> None:
        """``results`` have the same bits, now, and those of ``compute()``, at the end. ``what``: spec, seed, shapes."""
        (name, first), *others = results.items()
        for other, result in others:
            assert_bitwise_equal(result, first, context=f"{what}: {other} and {name}")
        self._digest.update(what.encode())
        for x in (*inputs, first):
            self._digest.update(repr((x.dtype, tuple(x.shape))).encode() + bits(x).numpy().tobytes())
        self._waiting.append((first, compute, f"{what} on {name}"))

    def settle(self) -> None:
        """Computes the reference's where what is kept does not tell."""
        digest = self._digest.hexdigest()[:32]
        kept = _kept()
        if not self._always and kept["sources"] == sources() and kept["results"].get(self._test) == digest:
            return
        for result, compute, what in self._waiting:
            assert_bitwise_equal(result, compute(), context=what)
        confirmed[self._test] = digest
