"""An extension of griffe: docstrings as Markdown, and docstrings that griffe does not find by itself.

* Paragraphs that are Python become blocks, and "Example:" the section that griffe knows.
* Stars and brackets outside of backticks are characters, not emphasis and links.
* Comments ``#: ...`` above a value are its docstring.
* ``audit = Audit()`` has the docstring of ``Audit.__call__``.
* ``qconv2d = _of_rank(2, "qconv2d", TEXT, function)`` is a function.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

import griffe

OF_RANK = re.compile(r"_of_rank\((?P<n>\d), '(?P<name>\w+)', (?P<text>\w+), (?P<function>\w+)\)")
INSTANCE = re.compile(r"(?P<name>[A-Z]\w*)\(\)")


def is_code(block: str) -> bool:
    """Whether a paragraph is Python: it parses, and does something with brackets or dots."""
    try:
        tree = ast.parse(textwrap.dedent(block))
    except SyntaxError:
        return False
    if any(isinstance(node, ast.AnnAssign) and node.value is None for node in tree.body):
        return False  # "Source: docs/reference/formats.md"
    return any(isinstance(node, ast.Call | ast.Attribute | ast.ImportFrom) for node in ast.walk(tree))


def markdown(text: str) -> str:
    """A docstring as Markdown: Python becomes blocks, and "Example:" the section that griffe knows."""
    text = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
    blocks = re.split(r"\n\s*\n", text)
    return "\n\n".join(_block(block, first=index == 0) for index, block in enumerate(blocks))


def _block(block: str, *, first: bool) -> str:
    indented = all(line.startswith("    ") for line in block.splitlines() if line.strip())
    if not first and ">>>" not in block and is_code(block):
        return f"```python\n{textwrap.dedent(block)}\n```"
    return block if indented or ">>>" in block else _plain(block)


def _plain(text: str) -> str:
    """Text outside of backticks, meant as it is: "XP[8,0](CSN)" is no link, "*.attention.*" no emphasis."""
    parts = re.split(r"(`+[^`]*`+)", text)
    return "".join(part if index % 2 else _escaped(part) for index, part in enumerate(parts))


def _escaped(part: str) -> str:
    return re.sub(r"(?<!\\)(?<!^)\*|(?<=\])(?=[(\[])", lambda match: f"\\{match[0]}", part)


def comment_above(attribute: griffe.Attribute) -> str:
    """The lines ``#: ...`` right above an assignment."""
    if attribute.lineno is None or not isinstance(attribute.filepath, Path):
        return ""
    lines = attribute.filepath.read_text(encoding="utf-8").splitlines()[: attribute.lineno - 1]
    found = []
    while lines and lines[-1].strip().startswith("#: "):
        found.insert(0, lines.pop().strip().removeprefix("#: "))
    return "\n".join(found)


def function_of_rank(module: griffe.Module, match: re.Match[str], lineno: int | None) -> griffe.Function:
    """The function that ``_of_rank`` makes: another one without its first argument, with a text of its own."""
    original = module.functions[match["function"]]
    text = ast.literal_eval(str(module.attributes[match["text"]].value)).format(n=match["n"])
    made = griffe.Function(
        match["name"],
        lineno=lineno,
        endlineno=lineno,
        parameters=griffe.Parameters(*list(original.parameters)[1:]),
        returns=original.returns,
        docstring=griffe.Docstring(markdown(inspect.cleandoc(text))),
    )
    made.docstring.parent = made  # type: ignore[union-attr]
    return made


class Docstrings(griffe.Extension):
    """Makes Markdown of every docstring of the package."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: object) -> None:
        text = "" if attr.docstring else comment_above(attr)
        if text:
            attr.docstring = griffe.Docstring(markdown(text), parent=attr)

    def on_module_members(self, *, mod: griffe.Module, **_: object) -> None:
        for name, attribute in list(mod.attributes.items()):
            if attribute.is_alias:
                continue
            of_rank = OF_RANK.fullmatch(str(attribute.value))
            instance = INSTANCE.fullmatch(str(attribute.value))
            if of_rank:
                mod.set_member(name, function_of_rank(mod, of_rank, attribute.lineno))
            elif instance and "__call__" in getattr(mod.classes.get(instance["name"]), "functions", ()):
                attribute.docstring = mod.classes[instance["name"]].functions["__call__"].docstring
