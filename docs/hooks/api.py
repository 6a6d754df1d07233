"""Pages of the API reference, from the source alone: gemmsim and PyTorch are never imported.

A page under docs/api is a few words and the line ``<!-- public names of gemmsim.acc -->``. This line becomes the
module's docstring, a table of its public names, and one directive of mkdocstrings per object. An object with several
public names is documented once, on the first of ``MODULES`` that exports it, and linked from the others.

    python docs/hooks/api.py        # prints the public names of each module as JSON
"""

from __future__ import annotations

import ast
import json
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import griffe
from docstrings import Docstrings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "gemmsim"
#: In this order: the first that exports an object documents it. The package itself comes last.
MODULES = (
    *("ops", "functional", "acc", "formats", "arithmetic", "nn", "optim", "mx", "tensor_quant", "recipes", "emulation"),
    *("libraries", "hardware", "probe", "reference", "vectors", "sliced", "accumulator_search", "study", "train"),
    "",
)
MARK = re.compile(r"^<!-- public names of (?P<module>[\w.]+) -->$", re.MULTILINE)
KINDS = (("class", "Classes"), ("function", "Functions"), ("attribute", "Values"))


@dataclass(frozen=True)
class Entry:
    """A public name: as users write it, the path that griffe finds, the module that documents it, and its object."""

    name: str
    shown: str
    path: str
    owner: str
    target: griffe.Object


@cache
def package() -> griffe.Module:
    found = griffe.load(
        PACKAGE,
        search_paths=[str(ROOT)],
        allow_inspection=False,
        resolve_aliases=True,
        extensions=griffe.load_extensions(Docstrings),
    )
    assert isinstance(found, griffe.Module)
    return found


def names(module: griffe.Module) -> dict[str, griffe.Object]:
    """What gemmsim._lazy.exports makes public at run time: ``__all__``, or relative imports without an underscore."""
    imported = dict(_imports(module))
    if module.exports is not None:
        imported = {str(name): imported.get(str(name), f"{module.path}.{name}") for name in module.exports}
    own = {name: member.path for name, member in module.functions.items() if not member.is_alias}
    if module.exports is None and module is package():
        imported |= own  # load_operators
    found = {name: _object(path) for name, path in imported.items() if not name.startswith("_")}
    return {name: target for name, target in found.items() if not target.is_module}


def _imports(module: griffe.Module) -> Iterator[tuple[str, str]]:
    """(name, path) of every relative import of a module, those for type checkers among them."""
    tree = ast.parse(Path(str(module.filepath)).read_text(encoding="utf-8"))
    is_package = Path(str(module.filepath)).name == "__init__.py"
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level or node.module == "_lazy":
            continue
        up = node.level - is_package
        home = ".".join([*module.path.split(".")[: -up or None], *([node.module] if node.module else [])])
        for alias in node.names:
            if alias.name == "*":
                yield from ((name, f"{home}.{name}") for name in _starred(_object(home)))
            else:
                yield alias.asname or alias.name, f"{home}.{alias.name}"


def _starred(module: griffe.Object) -> list[str]:
    """What ``import *`` gives where ``__all__`` is computed: the constants and classes of the module itself."""
    own = {name: member for name, member in module.members.items() if not member.is_alias and name[0] != "_"}
    return [name for name, member in own.items() if member.is_class or name.isupper()]


def _object(path: str) -> griffe.Object:
    found = package()[path.removeprefix(f"{PACKAGE}.")]
    return found.final_target if found.is_alias else found


def _finds(path: str, target: griffe.Object) -> bool:
    try:
        return _object(path).path == target.path
    except KeyError:
        return False


def _module(name: str) -> griffe.Module:
    return package()[name] if name else package()


@cache
def entries() -> dict[str, list[Entry]]:
    """Module ("" for the package) -> its public names."""
    shortest = {target.path: f"{PACKAGE}.{name}" for name, target in names(package()).items()}
    owners: dict[str, str] = {}
    found: dict[str, list[Entry]] = {}
    for module in MODULES:
        found[module] = []
        for name, target in sorted(names(_module(module)).items(), key=lambda pair: pair[0].lower()):
            owner = owners.setdefault(target.path, module)
            here = f"{PACKAGE}.{owner}.{name}" if owner else f"{PACKAGE}.{name}"
            shown = shortest.get(target.path, here)
            # a module of the same name hides it from griffe, but not from Python
            path = shown if _finds(shown, target) else target.path
            found[module].append(Entry(name, shown, path, owner, target))
    return found


def first_sentence(entry: Entry) -> str:
    text = entry.target.docstring.value if entry.target.docstring else ""
    line = " ".join(text.split("\n\n")[0].split())
    sentence = re.match(r"(?:``.*?``|.)*?\.(?=\s|$)", line)
    parts = re.split(r"(`+[^`]*`+)", (sentence[0] if sentence else line).rstrip(":"))
    return "".join(
        part.replace("``", "`") if index % 2 else part.replace("|", "\\|") for index, part in enumerate(parts)
    )


def _table(listed: list[Entry]) -> str:
    rows = [f"| {_linked(entry)} | {first_sentence(entry) or _value(entry.target)} |" for entry in listed]
    return "\n".join(["| name | meaning |", "|---|---|", *rows]) + "\n"


def _linked(entry: Entry) -> str:
    return f"[`{entry.name}`][{entry.path}]" if entry.target.docstring else f"`{entry.name}`"


def _value(target: griffe.Object) -> str:
    """The value of a constant; of ``_named(FloatFormat(...), ...)`` the format alone."""
    value = getattr(target, "value", None)
    if isinstance(value, griffe.ExprCall) and str(value.function).startswith("_"):
        value = value.arguments[0]
    return f"`{' '.join(str(value)[:90].split())}`"


def reference(module: str) -> str:
    """The Markdown that stands for a page's mark: names without a docstring are in the tables alone."""
    found = entries()[module]
    docstring = _module(module).docstring
    parts = [docstring.value if docstring else ""]
    for kind, title in KINDS:
        listed = [entry for entry in found if entry.target.kind.value == kind]
        if listed:
            parts.append(f"## {title}\n\n{_table(listed)}")
    own = [entry for entry in found if entry.owner == module and entry.target.docstring]
    if own:
        parts.append("## Details")
    parts += [f"::: {entry.path}\n    options:\n      heading: {entry.shown}" for entry in own]
    return "\n\n".join(parts)


def expanded(text: str) -> str:
    """A page with its mark replaced."""
    return MARK.sub(lambda match: reference(match["module"].removeprefix(PACKAGE).lstrip(".")), text)


if __name__ == "__main__":
    listing = {f"{PACKAGE}.{module}".rstrip("."): [entry.name for entry in entries()[module]] for module in MODULES}
    json.dump(listing, sys.stdout)
