"""Contexts that compiled code opens: which config is meant, from what the compiler can follow.

The compiler follows strings, numbers, lists and mappings, and guards on what is in them. Of our values, which are
frozen, it only has to know which one it is: those made outside are guarded by identity and stand here under a number.
Those made inside are not there while code is traced, and are refused.
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

#: Our values, which are frozen: what they mean does not change while compiled code keeps them.
_OURS = (Config, Rule, QAffineFormats, RowFormats, MapFormats, *(set(get_args(SpecLike)) - {str}))
#: Those that compiled code was given, by identity. Kept: another value must not come to have the same one.
_GIVEN: dict[int, Any] = {}
_MISSING = -1


def _refuse(name: str) -> None:
    """A spec or accumulator is about to be made. Where a whole graph is asked for the compiler would stop there, in its
    words; otherwise it breaks the graph, and the code runs as it is."""
    if torch.compiler.is_dynamo_compiling():
        made_inside(f"a {name} that was made")  # raises in whole graphs


when_made(_refuse)


def text_inside(config: Any) -> str:
    """Canonical text of a config that is given to a context inside compiled code.

    Raises:
        ConfigError, SpecError, FormatError: as ``Config.of``, and for values of ours that were made inside compiled
            code, and for kinds of values that may change unseen.
    """
    if config is None or isinstance(config, str):
        return text_of(config)
    if type(config) is Config:
        return config.text
    return _text_of_parts(_parts(config))


def _parts(value: Any) -> Any:
    """``value`` in tuples, strings and numbers, as constants of the compiler; of our values their numbers."""
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
    """What a value is known by; ``_MISSING`` for one made in traced code, which has fields nowhere but in the trace."""
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
    """What ``_parts`` took apart."""
    if not isinstance(parts, tuple):
        return parts
    kind, *entries = parts
    if kind == "ours":
        return _GIVEN[entries[0]]
    if kind == "dict":
        return {name: _joined(entry) for name, entry in entries}
    return tuple(map(_joined, entries))
