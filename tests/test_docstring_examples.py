"""The examples in docstrings are run, and the functions that people meet first have one."""

from __future__ import annotations

import ast
import doctest
import inspect
from collections.abc import Iterator

import pytest
import torch
from support import ROOT

import gemmsim as gs

PARSER = doctest.DocTestParser()
#: Functions that show what they do, in a line or three.
FIRST = (
    *(gs.quantize, gs.qmatmul, gs.qmm, gs.qlinear, gs.explain, gs.trace, gs.compare, gs.count_events),
    *(gs.count_overflows, gs.GemmSpec.parse, gs.formats.parse, gs.formats.parse_cast, gs.acc.chunked, gs.acc.promote),
    *(gs.acc.hw, gs.acc.exact, gs.recipes.hopper_fp8, gs.emulate, gs.convert, gs.capture, gs.audit.__call__, gs.search),
)


def documented(tree: ast.AST, within: str = "") -> Iterator[tuple[str, str]]:
    """(name, docstring) of the functions and classes that have examples."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            text = ast.get_docstring(node) or ""
            if ">>> " in text:
                yield f"{within}{node.name}", text
            yield from documented(node, f"{within}{node.name}.")


def examples() -> dict[str, str]:
    found = {}
    for path in sorted((ROOT / "gemmsim").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if ">>> " in source:
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.update({f"{module}.{name}": text for name, text in documented(ast.parse(source))})
    return found


EXAMPLES = examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gives_what_it_shows(name):
    test = PARSER.get_doctest(EXAMPLES[name], {"gs": gs, "torch": torch}, name, None, None)
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert result.attempted and not result.failed, "".join(said)


@pytest.mark.parametrize("function", FIRST, ids=lambda one: one.__qualname__)
def test_functions_that_people_meet_first_have_an_example(function):
    lines = (inspect.getdoc(function) or "").split("\nExample:\n")
    assert len(lines) == 2 and 1 <= len(PARSER.get_examples(lines[1])) <= 3
