"""Import lines that people write for other systems, and what becomes of each under ``gemmsim.compat``.

The lists are tests/compat/import_lines/<peer>.txt: one import a line as it is written for the peer, then optionally two
spaces and ``# differs: ...`` or ``# not offered: ...``. Lines that begin with ``#`` name where the next ones were found.
The sections in docs/reference/compat/<peer>.md are written from them by ``python tests/support/import_lines.py [PEER...]``.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LISTS = ROOT / "tests" / "compat" / "import_lines"
PAGES = ROOT / "docs" / "reference" / "compat"
#: The package that a peer's users import, where that is not the peer's name in ``gemmsim.compat``.
PACKAGES = {"microxcaling": "mx"}
HEADING = "## Import lines"
_LINE = re.compile(r"(?P<code>(?:from|import) .*?)(?:  # (?P<verdict>differs|not offered): (?P<why>.+))?")


@dataclass(frozen=True)
class Line:
    """One import line: ``verdict`` is "works", "differs" or "not offered", ``why`` says the rest."""

    peer: str
    code: str
    verdict: str = "works"
    why: str = ""

    @property
    def rewritten(self) -> str:
        return rewrite(self.code, self.peer)


def package(peer: str) -> str:
    """The package that the peer's users import."""
    return PACKAGES.get(peer, peer)


def peers() -> list[str]:
    return sorted(path.stem for path in LISTS.glob("*.txt"))


def read(peer: str) -> list[Line]:
    """The peer's list, in the file's order.

    Raises:
        ValueError: for a line of another form.
    """
    found = []
    path = LISTS / f"{peer}.txt"
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None or "#" in match["code"]:
            raise ValueError(f"{path.name}:{number}: {text!r}; allowed: 'IMPORT' and 'IMPORT  # differs: WHY'")
        found.append(Line(peer, match["code"], match["verdict"] or "works", match["why"] or ""))
    return found


def rewrite(code: str, peer: str) -> str:
    """The import with ``gemmsim.compat.`` before the peer's package (microxcaling's ``mx`` takes the peer's name).

    ``import package.part`` binds ``package``, which the rewritten line does too.

    Raises:
        ValueError: where ``code`` is anything but one import of the peer's.
    """
    (statement,) = ast.parse(code).body
    if isinstance(statement, ast.ImportFrom) and statement.module is not None and not statement.level:
        statement.module = _here(statement.module, peer)
        return ast.unparse(statement)
    if isinstance(statement, ast.Import) and len(statement.names) == 1:
        (alias,) = statement.names
        target = _here(alias.name, peer)
        if alias.asname is not None:
            return f"import {target} as {alias.asname}"
        whole = f"import gemmsim.compat.{peer} as {package(peer)}"
        return whole if alias.name == package(peer) else f"import {target}; {whole}"
    raise ValueError(f"{code!r}; allowed: one import of {package(peer)}")


def _here(module: str, peer: str) -> str:
    first, _, rest = module.partition(".")
    if first != package(peer):
        raise ValueError(f"module {module!r}; allowed: {package(peer)} and its parts")
    return f"gemmsim.compat.{peer}" + (f".{rest}" if rest else "")


def section(peer: str) -> str:
    """The page's section: a table of the lines that differ or are not offered, then, folded, those that work."""
    lines = read(peer)
    name, new = package(peer), f"gemmsim.compat.{peer}"
    whole = f" (`import {name}`: `import {new} as {name}`)" if name != peer else ""
    text = [
        HEADING,
        "",
        f"In a script, replace `{name}` in imports by `{new}`{whole}. {_summary(lines)}",
        f"`python tests/support/import_lines.py` writes this section from `tests/compat/import_lines/{peer}.txt`, which names",
        "the source of each line; a test runs each of them.",
        "",
        *_table([line for line in lines if line.verdict != "works"]),
        *_fold([line for line in lines if line.verdict == "works"], len(lines)),
    ]  # fmt: skip
    return "\n".join(text) + "\n"


def _summary(lines: Sequence[Line]) -> str:
    working = sum(line.verdict == "works" for line in lines)
    if working == len(lines):
        return f"All {working} lines work unchanged."
    return f"{working} of {len(lines)} lines work unchanged; the table lists the others."


def _table(lines: Sequence[Line]) -> list[str]:
    rows = [f"| `{line.code}` | {line.verdict}: {_cell(line.why)} |" for line in lines]
    return ["| import line | in gemmsim |", "|---|---|", *rows, ""] if rows else []


def _fold(lines: Sequence[Line], of: int) -> list[str]:
    """The lines as text that a reader unfolds: a blank line around the block, or it is shown as HTML."""
    summary = f"<details><summary>{len(lines)} of {of} lines work</summary>"
    return [summary, "", "```text", *(line.code for line in lines), "```", "", "</details>"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def with_section(text: str, peer: str) -> str:
    """A page with the section in place of the one it has, or at its end."""
    before, found, rest = text.partition(HEADING + "\n")
    after = rest.partition("\n## ")[2] if found else ""
    return before.rstrip("\n") + "\n\n" + section(peer) + (f"\n## {after}" if after else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the sections of these peers, of all by default; 0 if that was done."""
    parser = argparse.ArgumentParser(description="Write the sections of import lines into docs/reference/compat.")
    parser.add_argument("peers", nargs="*", help=f"of {', '.join(peers())} (all)")
    for peer in parser.parse_args(argv).peers or peers():
        path = PAGES / f"{peer}.md"
        path.write_text(with_section(path.read_text(encoding="utf-8"), peer), encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
