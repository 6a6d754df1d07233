"""No two files of the package need each other, not even inside a function or for their types alone.

Every import statement counts. A package is looked through: who imports a name from it needs the file that defines the
name, and who uses ``package.name`` likewise. What is left is listed below, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from support import ROOT

PACKAGE = ROOT / "gemmsim"
FILES: dict[str, Path] = {}
for _path in sorted(PACKAGE.rglob("*.py")):
    _parts = _path.relative_to(ROOT).with_suffix("").parts
    FILES[".".join(_parts[:-1] if _parts[-1] == "__init__" else _parts)] = _path

#: Circles there are, by their files without "gemmsim.", and why. The list may only become shorter.
CIRCLES = {
    (
        "formats.canonical_names",
        "formats.describe",
        "formats.fixed_format",
        "formats.float_codec",
        "formats.float_format",
    ): ("types alone: functions of a format's class that its file is too long for"),
    ("compat.dmx.blocks", "compat.dmx.single"): "Format.from_shorthand, of the base class, makes any of its subclasses",
    (
        *("mx.autograd", "mx.dispatch", "mx.tensor", "mx.tensor_collectives", "mx.tensor_groups", "mx.tensor_matmul"),
        *("mx.tensor_products", "mx.tensor_shapes", "mx.tensor_values"),
    ): "methods of MXTensor are the operators of the table, whose results are MXTensors",
}


def is_package(module: str) -> bool:
    return FILES[module].name == "__init__.py"


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All below ``node``, without the expressions in them, which are most of a tree."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            if isinstance(inner, ast.stmt):
                yield inner
            yield from statements(inner)


@cache
def imported(module: str) -> tuple[tuple[str, str, str], ...]:
    """(module, name there, name here) of every import of this package; name "" for a module itself."""
    return tuple(_imported(module))


def _imported(module: str) -> Iterator[tuple[str, str, str]]:
    package = module.split(".") if is_package(module) else module.split(".")[:-1]
    for node in statements(tree(module)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in FILES:
                    yield alias.name, "", alias.asname or alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                here = alias.asname or alias.name
                if f"{source}.{alias.name}" in FILES and not reexported(source, alias.name):
                    yield f"{source}.{alias.name}", "", here
                elif source in FILES:
                    yield source, alias.name, here


@cache
def reexported(package: str, name: str) -> bool:
    """Whether the package imports another thing under the name of one of its files."""
    return any(
        (alias.asname or alias.name) == name and node.module is not None
        for node in statements(tree(package))
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    )


@cache
def home(module: str, name: str) -> str:
    """The file that defines a name of a module: looked up through packages, which hand names on."""
    if not is_package(module):
        return module
    for source, inner, here in imported(module):
        if here == name and source != module:
            return home(source, inner) if inner else source
    return f"{module}.{name}" if f"{module}.{name}" in FILES else module


@cache
def attributes(module: str) -> frozenset[tuple[str, str]]:
    """(owner, attribute) of every ``owner.attribute``, the owner a name or dotted name."""
    nodes = (node for node in ast.walk(tree(module)) if isinstance(node, ast.Attribute))
    return frozenset(
        (ast.unparse(node.value), node.attr) for node in nodes if isinstance(node.value, (ast.Name, ast.Attribute))
    )


@cache
def values(module: str) -> frozenset[str]:
    """Names that stand by themselves, not as the owner of an attribute."""
    nodes = list(ast.walk(tree(module)))
    owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in owners)


def needs(module: str) -> set[str]:
    """The files that this one needs. A package that is used as a value may be asked for all that it exports."""
    found = set()
    for source, name, here in imported(module):
        if name or not is_package(source):
            found.add(home(source, name))
            continue
        used = {attribute for owner, attribute in attributes(module) if owner == here}
        if here in values(module):
            used |= {exported for _, _, exported in imported(source)}
        found |= {home(source, attribute) for attribute in used}
    return {target for target in found if target != module and not is_package(target)}


def circles(graph: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """Strongly connected components of two files or more (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            members = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(members) > 1:
                found.append(tuple(sorted(members)))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


def short(members: Iterable[str]) -> tuple[str, ...]:
    return tuple(member.removeprefix("gemmsim.") for member in members)


def test_files_need_each_other_only_where_it_is_listed():
    graph = {module: needs(module) for module in FILES if not is_package(module)}
    found = {short(members) for members in circles(graph)}
    new = [members for members in sorted(found) if not any(set(members) <= set(listed) for listed in CIRCLES)]
    assert new == [], "these files need each other: let the lower one be given what it asks of the upper one"
    gone = [listed for listed in CIRCLES if listed not in found]
    assert gone == [], "no longer a circle, or a smaller one: shorten the list"


@pytest.mark.parametrize("package", ["ops", "emulation", "study", "nn", "arithmetic", "backends.cpu", "backends.cuda"])
def test_folders_of_a_package_need_each_other_in_one_direction(package):
    start = f"gemmsim.{package}."
    rooms: dict[str, set[str]] = {}
    for module in FILES:
        if module.startswith(start) and not is_package(module):
            room = module[len(start) :].split(".")[0]
            below = {target[len(start) :].split(".")[0] for target in needs(module) if target.startswith(start)}
            rooms[room] = rooms.get(room, set()) | below - {room}
    assert circles(rooms) == [], "move what both need to a file below both"


def test_circles_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d", "f"}, "f": {"e"}}
    assert circles(graph) == [("a", "b", "c"), ("e", "f")]


def test_imports_in_functions_and_names_handed_on_count():
    assert home("gemmsim", "qmatmul") == "gemmsim.ops.product.matmul"
    assert home("gemmsim.formats", "parse") == "gemmsim.formats.parsing"
    assert home("gemmsim.hardware", "instruction") == "gemmsim.hardware.catalogue"
    assert "gemmsim.backends.cpu.gemm" in needs("gemmsim.backends.backend")  # the package is a value there
    assert "gemmsim.backends.exact_blas.run" in needs(
        "gemmsim.backends.route"
    )  # inside a function, through the package
    assert "gemmsim.formats.float_format" in needs("gemmsim.formats.canonical_names")  # under TYPE_CHECKING
