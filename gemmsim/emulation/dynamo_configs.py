"""Configs as compiled code has them: by their canonical text, also of those with which it opens contexts.

The compiler follows strings, numbers, lists and mappings, and guards on their contents. Values of this package are
frozen, so it only has to know which one it is. Those made outside are guarded by identity, and are registered here
under a number. Those made inside do not exist while code is traced, and are refused.
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any, get_args

import torch

from gemmsim.arithmetic import SpecLike
from gemmsim.arithmetic.construction_hooks import when_made
from gemmsim.libraries.library import Library
from gemmsim.ops.errors import message
from gemmsim.ops.lazy_dynamo import assume_constant_result
from gemmsim.ops.product.affine_formats import QAffineFormats
from gemmsim.ops.product.amax_history import Lengths, has_delayed, lengths_of
from gemmsim.ops.rowwise.formats import RowFormats

from .dynamo_support import errors_as_they_are
from .library_plans import LibraryFormats
from .rowwise_rules import MapFormats, RowSteps
from .rules import INTERNED, Config, ConfigError, Rule, made_inside

__all__ = ["config_of", "formats_at", "needs_of", "problem", "reachable", "text_inside", "text_of", "text_with_unknown"]

#: Types of this package, whose values are frozen: their meaning does not change as long as compiled code exists.
_OURS = (
    *(Config, Rule, QAffineFormats, RowFormats, MapFormats, LibraryFormats, Library),
    *(set(get_args(SpecLike)) - {str}),
)
#: Values that compiled code was given, by ``id``. They are kept alive, so that no other value gets the same ``id``.
_GIVEN: dict[int, Any] = {}
_MISSING = -1


def _refuse(name: str) -> None:
    """Refuses a spec or accumulator that traced code is about to make.

    If a whole graph is required, the compiler would stop there with an error of its own. Otherwise it breaks the graph,
    and the code runs as it is.
    """
    if torch.compiler.is_dynamo_compiling():
        made_inside(f"a {name} that was made")  # raises in whole graphs


when_made(_refuse)


def text_inside(config: Any) -> str:
    """Canonical text of a config that is given to a context inside compiled code.

    Raises:
        ConfigError, SpecError, FormatError: as ``Config.of``, and for values of this package that were made inside
            compiled code, and for kinds of values that may change unseen.
    """
    if config is None or isinstance(config, str):
        return text_of(config)
    if type(config) is Config:
        return config.text
    return _text_of_parts(_parts(config))


def _parts(value: Any) -> Any:
    """``value`` as tuples, strings and numbers, the compiler's constants; values of this package become numbers."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return ("list", *[_parts(entry) for entry in value])
    if isinstance(value, dict):
        return ("dict", *[(_parts(name), _parts(entry)) for name, entry in value.items()])
    if not isinstance(value, _OURS):
        raise made_inside(f"a config with a {type(value).__name__}")
    number = _number(value)
    if number == _MISSING:
        raise made_inside(f"a {type(value).__name__} that was made")
    return ("ours", number)


@assume_constant_result
def _number(value: Any) -> int:
    """The number of a value; ``_MISSING`` for one made in traced code, which has fields only in the trace."""
    if not isinstance(value, (Library, LibraryFormats)) and not vars(value).keys() >= {
        field.name for field in fields(value)
    }:
        return _MISSING
    _GIVEN[id(value)] = value
    return id(value)


@assume_constant_result
def _text_of_parts(parts: Any) -> str:
    """Canonical text of the config that ``_parts`` took apart."""
    with errors_as_they_are():
        return Config.of(_joined(parts)).text


def _joined(parts: Any) -> Any:
    """The value that ``_parts`` took apart."""
    if not isinstance(parts, tuple):
        return parts
    kind, *entries = parts
    if kind == "ours":
        return _GIVEN[entries[0]]
    if kind == "dict":
        return {name: _joined(entry) for name, entry in entries}
    return tuple(map(_joined, entries))


@assume_constant_result
def text_of(config: str | None) -> str:
    """Canonical text of a config that is given as one string or None; a constant of compiled code."""
    with errors_as_they_are():
        return _text_of(config)


@lru_cache(maxsize=1024)
def _text_of(config: str | None) -> str:
    return Config.of(config).text


@assume_constant_result
def needs_of(text: str) -> tuple[bool, bool, bool]:
    """Whether the config of this text names modules, draws random bits, and makes all products native."""
    config = INTERNED[text]
    return config.names_modules, config.draws, all(rule.formats is None for rule in config.rules)


@assume_constant_result
def text_with_unknown(text: str, unknown: str) -> str:
    """Text of an interned config ``with_unknown``; a constant of compiled code."""
    with errors_as_they_are():
        return INTERNED[text].with_unknown(unknown).text


def config_of(text: str) -> Config:
    """The config of a canonical text of this process."""
    return INTERNED[text]


@assume_constant_result
def formats_at(text: str, path: str, kind: str) -> QAffineFormats | RowSteps | LibraryFormats | None:
    """``Config.formats`` of an interned config; a constant of compiled code."""
    return _formats_at(text, path, kind)


@assume_constant_result
def reachable(text: str, kinds: str) -> bool:
    """Whether a rule of an interned config has formats for one of ``kinds`` (joined by /) at some path."""
    rules = [rule for rule in INTERNED[text].rules if rule.formats is not None]
    return any(rule.names(kind) for rule in rules for kind in kinds.split("/"))


@assume_constant_result
def lengths_at(text: str, path: str, kind: str) -> Lengths | None:
    """How many calls the delayed scales of a product remember; None without delayed scales."""
    return _lengths_at(text, path, kind)


@lru_cache(maxsize=65536)
def _lengths_at(text: str, path: str, kind: str) -> Lengths | None:
    formats = _formats_at(text, path, kind)
    return lengths_of(formats) if isinstance(formats, QAffineFormats) and has_delayed(formats) else None


@lru_cache(maxsize=65536)
def _formats_at(text: str, path: str, kind: str) -> QAffineFormats | RowSteps | LibraryFormats | None:
    return INTERNED[text].formats(path, kind)


@assume_constant_result
def problem(text: str, paths: str, root: str, first: str) -> str:
    """What is wrong with the rules of an interned config for a module; "" for nothing.

    ``paths``: the paths of the module's submodules, one in each line. ``root``: the module's name. ``first``: the model
    that was called before it, "" for none. The result is a constant of compiled code, which raises the error by itself.
    """
    if first:
        asked = f"emulate with rules over modules: {first} and then {root} called in one context"
        do = "Give root=, the module that paths are relative to, or use one context for each."
        return message(asked, "one outermost module", do)
    try:
        INTERNED[text].check(paths.split("\n"), root)
    except ConfigError as error:
        return str(error)
    return ""
