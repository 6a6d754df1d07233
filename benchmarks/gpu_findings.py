"""What a part of ``gpu_check.py`` has found so far, on disk after every figure: a part that is ended keeps them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Kernels compiled at once: a few hundred are, at about a second of CPU each.
WORKERS = max(1, min(8, (os.cpu_count() or 2) - 1))


def write_whole(path: Path, text: str) -> None:
    """``text`` as the file ``path``, which is never there in part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


class Findings(dict[str, Any]):
    """Results by name; ``errors`` has what failed and why. Written to ``path`` whenever something is added."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(ok=True, errors={})
        self.path = path
        self.end = time.monotonic() + seconds

    def late(self) -> bool:
        """Whether the time that the part was given is over."""
        return time.monotonic() > self.end

    def measure(self, table: str, name: str, work: Callable[[], Any]) -> None:
        """``work()`` as the entry ``name`` of ``table``. What raises, or would come too late, is an error's line."""
        if self.late():
            self["errors"][f"{table}: {name}"] = "not measured: the time was over"
        else:
            try:
                self.setdefault(table, {})[name] = work()
            except Exception as error:
                self["ok"] = False
                self["errors"][f"{table}: {name}"] = f"{type(error).__name__}: {error}"[:600]
        self.save()

    def save(self) -> None:
        write_whole(self.path, json.dumps(self))
