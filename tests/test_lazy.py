"""Packages that load their names on first use, from the imports that type checkers read."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path

import pytest
from support import ROOT, run_python

import gemmsim as gs
from gemmsim import _lazy

PACKAGE = '''\
"""A package of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmsim._lazy import exports

from .early import SEEN as SEEN
from .early import _hidden as _hidden

if TYPE_CHECKING:
    from . import part as part
    from .inner.deep import (
        long_name as long_name,
    )
    from .many import *
    from .part import _private as _private
    from .part import number as renamed
else:
    __getattr__, __dir__ = exports(__name__, also=("own",)MORE)


def own():
    return "own"
'''
FILES = {
    "early.py": "SEEN = []\n_hidden = 1\n",
    "part.py": "from .early import SEEN\nSEEN.append('part')\nnumber = 7\n_private = 8\n",
    "inner/__init__.py": "",
    "inner/deep.py": "from ..early import SEEN\nSEEN.append('deep')\nlong_name = 9\n",
    "many.py": "__all__ = ['starred']\nstarred = 10\nunlisted = 11\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes and imports a package of this name, with further arguments of ``exports``."""
    made = []

    def make(name: str, more: str = ""):
        files = {"__init__.py": PACKAGE.replace("MORE", more), **FILES}
        for file, text in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        made.append(name)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    monkeypatch.syspath_prepend(str(tmp_path))
    yield make
    for loaded in list(sys.modules):
        if loaded.split(".")[0] in made:
            del sys.modules[loaded]


def test_names_are_loaded_on_first_use_and_kept(package):
    module = package("lazy_first_use")
    assert module.SEEN == []
    assert module.long_name == 9 and module.SEEN == ["deep"]
    assert module.renamed == 7 and module.SEEN == ["deep", "part"] and vars(module)["renamed"] == 7
    assert module.part is sys.modules["lazy_first_use.part"] and module._private == 8 and module.own() == "own"


def test_all_and_dir_list_every_name_without_loading_one(package):
    module = package("lazy_listed")
    assert module.__all__ == ["SEEN", "_private", "long_name", "own", "part", "renamed"] and module.SEEN == []
    assert dir(module) == ["SEEN", "long_name", "own", "part", "renamed", "starred"]
    found = _lazy.read("lazy_listed")
    assert found.homes["renamed"] == ("lazy_listed.part", "number") and found.homes["part"] == ("lazy_listed.part", "")
    assert found.lazy == {"part", "long_name", "_private", "renamed"} and found.stars == ("lazy_listed.many",)


def test_import_star_gives_what_all_says(package):
    package("lazy_star", ", star_modules=False")
    given: dict[str, object] = {}
    exec("from lazy_star import *", given)
    assert {name for name in given if name != "__builtins__"} == {"SEEN", "_private", "long_name", "own", "renamed"}


def test_names_of_a_module_imported_with_a_star_are_its_public_ones(package):
    module = package("lazy_names_of_stars")
    assert module.starred == 10
    for unknown in ("unlisted", "__wrapped__", "deep"):
        with pytest.raises(AttributeError, match=f"module 'lazy_names_of_stars' has no attribute '{unknown}'"):
            getattr(module, unknown)


def parsed(path: Path, package: str) -> tuple[dict[str, tuple[str, str]], set[str], tuple[str, ...]]:
    """What ``_lazy.read`` finds, by Python's own parser."""
    homes, lazy, stars = {}, set(), []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    assert len(blocks) <= 1, path
    lazily = blocks[0].body if blocks else []
    for node in (*tree.body, *lazily):
        if not isinstance(node, ast.ImportFrom) or not node.level or node.module == "_lazy":
            continue
        home = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
        for alias in node.names:
            name = alias.asname or alias.name
            if name == "*":
                stars += [home] if node in lazily else []  # the names of others are there without it
                continue
            homes[name] = (home, alias.name) if node.module else (f"{home}.{alias.name}", "")
            if node in lazily:
                lazy.add(name)
    return homes, lazy, tuple(stars)


def lazy_files() -> list[str]:
    files = sorted((ROOT / "gemmsim").rglob("*.py"))
    return [
        str(path.relative_to(ROOT))
        for path in files
        if "exports(__name__" in path.read_text(encoding="utf-8").split('"""', 2)[-1]
    ]


@pytest.mark.parametrize("file", lazy_files())
def test_every_packages_names_are_those_of_its_syntax(file):
    path = ROOT / file
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    loaded = importlib.import_module(module)
    found = _lazy.read(module)
    assert (found.homes, found.lazy, found.stars) == parsed(path, loaded.__package__) and found.homes


def test_a_name_with_a_slip_is_answered_with_the_right_one():
    with pytest.raises(AttributeError, match="module 'gemmsim' has no attribute 'qmatmull'") as caught:
        gs.qmatmull  # noqa: B018
    assert caught.value.name == "qmatmull" and caught.value.obj is gs
    if sys.version_info >= (3, 12):  # earlier ones look among what is loaded alone
        assert "Did you mean: 'qmatmul'?" in "".join(traceback.format_exception(caught.value))


def test_without_the_source_the_error_says_what_is_missing(package, monkeypatch):
    module = package("lazy_sourceless")
    monkeypatch.setattr(type(module.__spec__.loader), "get_source", lambda self, name: None)
    with pytest.raises(
        ImportError, match="no source of lazy_sourceless; allowed: gemmsim installed with its .py files"
    ):
        module.long_name  # noqa: B018


def test_it_works_from_a_zip(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "lazy.zip", "w") as archive:
        archive.writestr("lazy_zipped/__init__.py", PACKAGE.replace("MORE", ""))
        for file, text in FILES.items():
            archive.writestr(f"lazy_zipped/{file}", text)
    code = f"import sys; sys.path[:0] = [{str(tmp_path / 'lazy.zip')!r}, {str(ROOT)!r}]; import lazy_zipped as z; print(z.long_name, z.SEEN)"
    assert run_python(code).stdout.split() == ["9", "['deep']"]
