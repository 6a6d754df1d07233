"""Finds the config of contexts that compiled code opens, from what the compiler can follow.

The compiler follows strings, numbers, lists and mappings, and guards on their contents. Values of this package are
frozen, so it only has to know which one it is. Those made outside are guarded by identity, and are registered here
under a number. Those made inside do not exist while code is traced, and are refused.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

import torch

from gemmsim.arithmetic import SpecLike
from gemmsim.arithmetic.construction_hooks import when_made
from gemmsim.ops.lazy_dynamo import assume_constant_result
from gemmsim.ops.product.affine_formats import QAffineFormats
from gemmsim.ops.rowwise.formats import RowFormats

from .dynamo_support import errors_as_they_are
from .rowwise_rules import MapFormats
from .rules import Config, Rule, made_inside, text_of

__all__ = ["text_inside"]

#: Types of this package, whose values are frozen: their meaning does not change as long as compiled code exists.
_OURS = (Config, Rule, QAffineFormats, RowFormats, MapFormats, *(set(get_args(SpecLike)) - {str}))
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
    if not vars(value).keys() >= {field.name for field in fields(value)}:
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
