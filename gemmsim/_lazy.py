"""Packages whose public names are loaded on first use, each name written once: in the imports that type checkers read.

    if TYPE_CHECKING:
        from .adam import QAdam as QAdam
    else:
        __getattr__, __dir__ = exports(__name__)

Type checkers and editors follow the imports and, seeing no ``__getattr__``, report names that there are not. At run
time the same lines say where a name comes from: the package's own source is read once, when a name is first asked for.
So importing a package loads neither its parts nor a table of them. (PEP 562. SPEC 1 of the scientific Python projects
reads a stub file instead, which would hide from type checkers whatever else the package defines.)
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Exports", "exports", "read"]


class Exports:
    """What a package offers.

    Args:
        homes: name -> module that defines it and its name there, "" for a module itself.
        lazy: those loaded on first use; the others are loaded with the package.
        stars: modules all of whose public names are offered, too.
    """

    __slots__ = ("homes", "lazy", "stars")

    def __init__(self, homes: dict[str, tuple[str, str]], lazy: frozenset[str], stars: tuple[str, ...]) -> None:
        self.homes, self.lazy, self.stars = homes, lazy, stars


def exports(
    module: str, *, also: tuple[str, ...] = (), star_modules: bool = True
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of the module of this name, which has no ``__all__`` of its own.

    Its ``__all__`` then are the names it imports from its own package under TYPE_CHECKING, those without a leading
    underscore it imports from there at run time, and ``also``: without the modules among them, if not ``star_modules``.
    ``dir`` lists these and the modules, names from stars and what the module defines itself: no name with an underscore
    first, but for its version.

    An unknown name is an AttributeError with ``name`` and ``obj``, from which Python makes its "Did you mean".
    """
    found: Exports | None = None

    def known() -> Exports:
        nonlocal found
        if found is None:
            found = read(module)
        return found

    def load(name: str) -> Any:
        """Load a public name on first use (PEP 562)."""
        offered = known()
        if name == "__all__":
            value: Any = _all(offered, also, star_modules)
        elif name in offered.homes:
            home, inner = offered.homes[name]
            if not inner:
                return import_module(home)  # which makes it an attribute of its package
            value = getattr(import_module(home), inner)
        elif name[:2] != "__" and any(name in import_module(star).__all__ for star in offered.stars):
            return next(getattr(part, name) for part in map(import_module, offered.stars) if name in part.__all__)
        else:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        setattr(sys.modules[module], name, value)
        return value

    def names() -> list[str]:
        offered = known()
        starred = [name for star in offered.stars for name in import_module(star).__all__]
        here = vars(sys.modules[module])
        own = [name for name, value in here.items() if getattr(value, "__module__", None) == module]
        public = {name for name in (*own, *offered.homes, *also, *starred) if name[0] != "_"}
        return sorted(public | ({"__version__"} & here.keys()))

    return load, names


def _all(offered: Exports, also: tuple[str, ...], star_modules: bool) -> list[str]:
    """The names that ``import *`` gives."""
    public = (
        name
        for name, (_, inner) in offered.homes.items()
        if (name in offered.lazy or name[0] != "_") and (inner or star_modules)
    )
    return sorted({*public, *also})


#: One relative import, top-level or indented once, of one name or several, in parentheses or not.
_IMPORT = r"^(?: {4})?from (\.+)([\w.]*) import \(?\s*(\*|\w+(?: as \w+)?(?:,\s*\w+(?: as \w+)?)*)"


def read(module: str) -> Exports:
    """The relative imports at the top of a module's source and in its block of TYPE_CHECKING, which ends with "else:".

    They are found by their shape, in a tenth of the time that it takes to parse a file.

    Raises:
        ImportError: where the source is not at hand (a program frozen without it).
    """
    spec = sys.modules[module].__spec__
    source = getattr(spec and spec.loader, "get_source", lambda _: None)(module)
    if source is None:
        raise ImportError(f"no source of {module}; allowed: gemmsim installed with its .py files, which name its parts")
    package = (sys.modules[module].__package__ or module).split(".")
    before, _, rest = source.partition("\nif TYPE_CHECKING:\n")
    eager, lazy = _imports(before, package), _imports(rest.partition("\nelse:\n")[0], package)
    stars = tuple(home for name, home, _ in lazy if name == "*")
    homes = {name: (home, inner) for name, home, inner in (*eager, *lazy) if name != "*"}
    return Exports(homes, frozenset(name for name, _, _ in lazy if name != "*"), stars)


def _imports(source: str, package: list[str]) -> list[tuple[str, str, str]]:
    """(name, module, name there) of every relative import but this module's."""
    import re

    found = []
    for dots, inside, names in re.findall(_IMPORT, source, re.MULTILINE):
        home = ".".join([*package[: len(package) - len(dots) + 1], *([inside] if inside else [])])
        if home == __name__:
            continue
        for text in names.split(","):
            inner, _, name = text.strip().partition(" as ")
            found.append((name or inner, home, inner) if inside else (name or inner, f"{home}.{inner}", ""))
    return found
