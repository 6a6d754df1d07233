"""What raises says so: public functions and methods in a section "Raises:", the helpers between modules at least by an error's name.

A function raises if its own body has a ``raise`` of anything but ``NotImplementedError``, or calls a helper named
``check_...``; what it calls beyond that is not followed. Public is what a package's ``__all__`` names.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import ROOT

PACKAGE = ROOT / "gemmsim"
CHECK = re.compile(r"_?check_\w+")
NAMED = re.compile(r"\bRaises\b|\b\w+Error\b|\bUnsupportedSpec\b")
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in PACKAGE.rglob("__init__.py")
    if "transformers" not in path.read_text(encoding="utf-8")
)
MODULES = [f"gemmsim.{path.stem}" for path in sorted(PACKAGE.glob("*.py")) if not path.stem.startswith("__")]


def own_statements(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions and classes inside it."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield node
            todo += ast.iter_child_nodes(node)


def called(node: ast.AST | None) -> str:
    """The name of what is called or raised."""
    function = node.func if isinstance(node, ast.Call) else node
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def raises(function: ast.FunctionDef) -> bool:
    nodes = list(own_statements(function))
    raised = (called(node.exc) for node in nodes if isinstance(node, ast.Raise) and node.exc is not None)
    checks = (called(node) for node in nodes if isinstance(node, ast.Call))
    return any(name != "NotImplementedError" for name in raised) or any(CHECK.fullmatch(name) for name in checks)


def members(name: str, value: object) -> Iterator[tuple[str, Any, str]]:
    """(name, function, further documentation) of a function, or of the public methods of a class."""
    if not inspect.isclass(value):
        yield name, value, ""
        return
    for key, one in vars(value).items():
        if not key.startswith("_") or key in ("__init__", "__call__"):
            plain = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
            yield f"{name}.{key}", plain, (value.__doc__ or "") if key == "__init__" else ""


def public_functions() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """(name, function, documentation) of public functions and of the public methods of public classes, each once."""
    seen = set()
    for module in (*PACKAGES, *MODULES):
        package = importlib.import_module(module)
        for name in getattr(package, "__all__", ()):
            for where, one, more in members(name, getattr(package, name)):
                function = inspect.unwrap(one) if callable(one) else one
                if inspect.isfunction(function) and function.__module__.startswith("gemmsim") and function not in seen:
                    seen.add(function)
                    yield f"{function.__module__}: {where}", function, (function.__doc__ or "") + more


def tree_of(function: Callable[..., Any]) -> ast.FunctionDef | None:
    """The syntax of a function; None of one without source, as dataclasses make them."""
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError):
        return None
    return node if isinstance(node, ast.FunctionDef) else None


def test_public_functions_that_raise_document_what():
    found = [(name, tree_of(function), text) for name, function, text in public_functions()]
    raising = [(name, text) for name, tree, text in found if tree is not None and raises(tree)]
    assert len(raising) > 150
    missing = [name for name, text in raising if "Raises:" not in text]
    assert not missing, "add a section 'Raises:' to " + ", ".join(missing)


def exported(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return {one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)}
    return set()


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if "backends" not in path.parts and path.name != "__init__.py"]


@pytest.mark.parametrize("folder", sorted({path.relative_to(PACKAGE).parts[0] for path in FILES}))
def test_helpers_between_modules_name_the_error_that_they_raise(folder):
    missing = []
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] != folder:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = exported(tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name in names and raises(node):
                if not NAMED.search(ast.get_docstring(node) or ""):
                    missing.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert not missing, "name the error in the docstring of " + ", ".join(missing)


SAMPLES = {
    "def f(x):\n    raise ValueError(x)": True,
    "def f(x):\n    check_float(x)": True,
    "def f(x):\n    if x:\n        raise": False,
    "def f(x):\n    raise NotImplementedError": False,
    "def f(x):\n    def g():\n        raise ValueError\n    return g": False,
    "def f(x):\n    return self.checked(x)": False,
}


@pytest.mark.parametrize("source", SAMPLES)
def test_what_counts_as_raising(source):
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    assert raises(node) == SAMPLES[source]
