"""``gemmsim explain``: a spec in words."""

from __future__ import annotations

import re
from typing import Any

import gemmsim as gs

from .console import say, say_json

_LINE = re.compile(r"(\S[^:]*?)(?: {2,}|: |(?<=^[a-z]{11}) )(.*)")


def explain(spec: str, *, as_json: bool) -> None:
    """Prints what ``spec`` means, step by step, and who computes it."""
    text = gs.explain(spec)
    if not as_json:
        say(text)
        return
    try:
        meaning: Any = gs.GemmSpec.of(spec)
    except gs.SpecError:  # the word of a recipe, which is several specs
        meaning = None
    say_json(
        {
            "spec": spec if meaning is None else str(meaning),
            "definition": meaning and meaning.to_json(),
            "lines": _lines(text),
        }
    )


def _lines(text: str) -> list[dict[str, str]]:
    """The lines as what they are about and what they say; those without a beginning of their own go with the last."""
    found: list[dict[str, str]] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is not None:
            found.append({"about": match[1], "says": match[2]})
        elif found:
            found[-1]["says"] += "\n" + line.strip()
        else:
            found.append({"about": "", "says": line})
    return found
