"""Which arithmetic holds where: rules over places and kinds of products, as one value with a canonical text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import translate
from functools import lru_cache
from typing import Any, TypeAlias

from gemmsim.arithmetic import SpecError, SpecLike
from gemmsim.ops.errors import message
from gemmsim.ops.product.affine_formats import QAffineFormats
from gemmsim.ops.tracing import assume_constant_result

__all__ = [
    "KINDS",
    "Config",
    "ConfigError",
    "ConfigLike",
    "Rule",
    "RuleFormats",
    "checked",
    "config_of",
    "formats_at",
    "matches",
    "needs_of",
    "text_of",
]

#: The kinds of products that a rule can name. docs/howto/emulate.md says which calls each stands for.
KINDS = (
    *("linear", "matmul", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "addbmm", "einsum", "tensordot", "bilinear"),
    *("cdist", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    *("sdpa.qk", "sdpa.pv", "rnn.ih", "rnn.hh", "rnn.hr", "scaled_mm", "grouped_mm"),
)
_ROLES = ("fprop", "dgrad", "wgrad")

#: What a rule says of a product: a spec for all roles, formats, a mapping from role to spec, or None, PyTorch's own.
RuleFormats: TypeAlias = QAffineFormats | SpecLike | Mapping[str, SpecLike | None] | None


class ConfigError(SpecError):
    """Rules that mean nothing: an unknown kind or role, a pattern that matches nothing, formats that name nothing."""


@dataclass(frozen=True)
class Rule:
    """Formats of the products of some kinds at some places.

    Args:
        modules: a shell pattern over module paths relative to the outermost module ("encoder.layers.*", where * crosses
            dots), or "re:" and a regular expression that matches the whole path. Products outside modules have path "".
        kinds: a shell pattern over kinds ("linear", "conv*", "sdpa.*").
        formats: a spec or ``QAffineFormats`` for all roles, a mapping {"fprop": spec, "dgrad": spec, "wgrad": spec}
            whose missing roles are PyTorch's own, or None: PyTorch's own products.

    Raises:
        ConfigError: for a kind that no product has, an unknown role, a broken pattern.
        SpecError, FormatError: for formats that name nothing.
    """

    modules: str = "*"
    kinds: str = "*"
    formats: QAffineFormats | None = None

    def __init__(self, modules: str = "*", kinds: str = "*", formats: RuleFormats = None) -> None:
        put = object.__setattr__
        put(self, "modules", _pattern("modules", modules))
        put(self, "kinds", _pattern("kinds", kinds))
        put(self, "formats", _formats(formats))
        if not any(_matcher(kinds).match(kind) for kind in KINDS):
            near = get_close_matches(kinds, KINDS, 3) or KINDS
            asked = f"Rule: kinds={kinds!r}, which no product has"
            raise ConfigError(message(asked, "patterns over " + ", ".join(KINDS), f"Try {near[0]!r}."))

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary; ``from_dict`` reads it back. ``FormatError`` for quantisers that are functions."""
        formats = None if self.formats is None else self.formats.to_dict()
        return {"modules": self.modules, "kinds": self.kinds, "formats": formats}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Rule:
        """A rule written by ``to_dict``, or by hand with a spec or a mapping of roles as formats."""
        unknown = sorted(set(data) - {"modules", "kinds", "formats"})
        if unknown:
            asked = f"Rule.from_dict: {', '.join(map(str, unknown))}"
            raise ConfigError(message(asked, "modules, kinds, formats", "Remove the unknown fields."))
        formats = data.get("formats")
        if isinstance(formats, Mapping) and not set(formats) <= set(_ROLES):
            formats = QAffineFormats.from_dict(formats)
        return cls(data.get("modules", "*"), data.get("kinds", "*"), formats)


@dataclass(frozen=True)
class Config:
    """Rules, of which the first that matches a product's place and kind holds; where none does, it is PyTorch's.

    ``text`` is canonical: equal configs have equal texts, which ``from_json`` reads. Frozen, hashable, picklable.
    """

    rules: tuple[Rule, ...]
    #: Canonical JSON, by which compiled code knows the config.
    text: str = field(init=False, repr=False, compare=False)

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        object.__setattr__(self, "rules", tuple(rules))
        object.__setattr__(self, "text", _text(self))
        _INTERNED.setdefault(self.text, self)

    @classmethod
    def of(cls, config: ConfigLike) -> Config:
        """``config`` itself, or what a spec, formats, a recipe, or a list of rules and (pattern, formats) pairs mean.

        Raises:
            ConfigError, SpecError, FormatError: for what means nothing.
        """
        if isinstance(config, Config):
            return config
        if isinstance(config, str) and config in _INTERNED:
            return _INTERNED[config]
        if isinstance(config, Rule):
            return cls([config])
        if isinstance(config, Sequence) and not isinstance(config, (str, bytes)):
            return cls([_rule(entry) for entry in config])
        if isinstance(config, Mapping) and "rules" in config:
            return cls.from_dict(config)
        return cls([Rule("*", "*", config)])

    @property
    def names_modules(self) -> bool:
        """Whether what holds depends on the module that multiplies."""
        return any(rule.modules != "*" for rule in self.rules)

    @property
    def draws(self) -> bool:
        """Whether any rounding draws random bits."""
        return any(rule.formats is not None and _draws(rule.formats) for rule in self.rules)

    def formats(self, path: str, kind: str) -> QAffineFormats | None:
        """Formats of a product of this kind at this path; None: PyTorch's own."""
        for rule in self.rules:
            if _matcher(rule.kinds).match(kind) and _matcher(rule.modules).match(path):
                return rule.formats
        return None

    def check(self, paths: Iterable[str], root: str = "the model") -> None:
        """``ConfigError`` for a pattern over modules that matches none of ``paths``, with close ones."""
        known = list(paths)
        for rule in self.rules:
            if not any(_matcher(rule.modules).match(path) for path in known):
                near = get_close_matches(rule.modules, known, 3, 0.4)
                allowed = f"patterns that match a module of {root}" + (f", such as {', '.join(near)}" if near else "")
                do = "Paths are relative to the outermost module called; root= says which that is."
                raise ConfigError(message(f"rule for modules {rule.modules!r}", allowed, do))

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary; ``from_dict`` reads it back. ``FormatError`` for quantisers that are functions."""
        return {"rules": [rule.to_dict() for rule in self.rules]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Config:
        """A config written by ``to_dict``."""
        if set(data) != {"rules"} or not isinstance(data["rules"], Sequence):
            asked = f"Config.from_dict: {', '.join(map(str, data)) or 'nothing'}"
            raise ConfigError(message(asked, "one field, rules: a list", "Write {'rules': [...]}."))
        return cls([_rule(entry) for entry in data["rules"]])

    def to_json(self) -> str:
        """The canonical text."""
        return self.text

    @classmethod
    def from_json(cls, text: str) -> Config:
        """A config written by ``to_json``; ``ConfigError`` for text that is none."""
        try:
            data = json.loads(text)
        except ValueError as error:
            asked = f"Config.from_json: {error}"
            raise ConfigError(message(asked, "JSON as Config.to_json writes it", "Check the file.")) from None
        return cls.from_dict(data) if isinstance(data, dict) else cls.of(data)

    def __reduce__(self) -> tuple[Any, ...]:
        return Config, (self.rules,)

    def __str__(self) -> str:
        lines = [f"{rule.modules:24} {rule.kinds:12} {_shown(rule.formats)}" for rule in self.rules]
        return "\n".join(lines) if lines else "no rules: PyTorch's own products"


#: What says how a model computes.
ConfigLike: TypeAlias = Config | Rule | RuleFormats | Sequence[Rule | tuple[str, RuleFormats]]

_INTERNED: dict[str, Config] = {}


@assume_constant_result
def text_of(config: str) -> str:
    """Canonical text of a config given as one string: a constant of compiled code."""
    return Config.of(config).text


@assume_constant_result
def needs_of(text: str) -> tuple[bool, bool]:
    """Of the config of this text: whether it names modules, and whether it draws random bits."""
    return _INTERNED[text].names_modules, _INTERNED[text].draws


def config_of(text: str) -> Config:
    """The config of a canonical text of this process."""
    return _INTERNED[text]


@assume_constant_result
def formats_at(text: str, path: str, kind: str) -> QAffineFormats | None:
    """``Config.formats`` of an interned config: a constant of compiled code."""
    return _formats_at(text, path, kind)


@lru_cache(maxsize=65536)
def _formats_at(text: str, path: str, kind: str) -> QAffineFormats | None:
    return _INTERNED[text].formats(path, kind)


@assume_constant_result
def checked(text: str, paths: str, root: str) -> None:
    """``Config.check`` of an interned config with the lines of ``paths``: nothing is left of it in compiled code."""
    _INTERNED[text].check(paths.split("\n"), root)


def _rule(entry: object) -> Rule:
    if isinstance(entry, Rule):
        return entry
    if isinstance(entry, Mapping):
        return Rule.from_dict(entry)
    if isinstance(entry, (tuple, list)) and len(entry) == 2 and isinstance(entry[0], str):
        return Rule(entry[0], "*", entry[1])
    asked = f"a rule {entry!r}"
    raise ConfigError(message(asked, "pairs (pattern of module paths, formats), Rule, or their dictionaries",
                              "Write ('encoder.*', 'e4m3 : e5m10')."))  # fmt: skip


def _formats(formats: RuleFormats) -> QAffineFormats | None:
    """``formats`` for the products of a model: gradients of biases are sums, which run on no matrix unit."""
    if formats is None or isinstance(formats, QAffineFormats):
        return None if formats is not None and formats.plan.is_native else formats
    if isinstance(formats, Mapping):
        unknown = sorted(set(formats) - set(_ROLES))
        if unknown or not formats:
            asked = f"Rule: roles {', '.join(map(repr, unknown)) or 'none'}"
            raise ConfigError(message(asked, ", ".join(_ROLES), "Name the roles to emulate; others are PyTorch's."))
        found = QAffineFormats(**dict(formats), bias_sum="torch")  # type: ignore[arg-type]
    else:
        found = replace(QAffineFormats.of(formats), bias_sum="torch")
    return None if found.plan.is_native else found


def _pattern(name: str, pattern: object) -> str:
    if not isinstance(pattern, str):
        raise ConfigError(
            message(f"Rule: {name}={pattern!r}", "a string", "Write a shell pattern such as 'encoder.*'.")
        )
    try:
        _matcher(pattern)
    except re.error as error:
        asked = f"Rule: {name}={pattern!r}: {error}"
        raise ConfigError(message(asked, "shell patterns, or re: and a regular expression", "Mend it.")) from None
    return pattern


def matches(pattern: str, text: str) -> bool:
    """Whether a shell pattern, or "re:" and a regular expression, matches the whole of ``text``.

    Raises:
        ConfigError: for a broken pattern.
    """
    return _matcher(_pattern("pattern", pattern)).match(text) is not None


@lru_cache(maxsize=4096)
def _matcher(pattern: str) -> re.Pattern[str]:
    if pattern.startswith("re:"):
        return re.compile(f"(?:{pattern[3:]})\\Z")
    return re.compile(translate(pattern))


def _text(config: Config) -> str:
    try:
        return json.dumps(config.to_dict(), sort_keys=True, separators=(",", ":"))
    except SpecError:
        raise
    except Exception:  # quantisers that are functions have no text; the process knows them by identity
        return f"config {id(config):x} of functions: {config.rules!r}"


def _draws(formats: QAffineFormats) -> bool:
    specs = (formats.fprop, formats.dgrad, formats.wgrad)
    return formats.plan.draws_in_steps or any(spec is not None and spec.is_stochastic for spec in specs)


def _shown(formats: QAffineFormats | None) -> str:
    if formats is None:
        return "PyTorch's own"
    if formats == replace(QAffineFormats.of(formats.fprop), bias_sum="torch"):
        return str(formats.fprop)
    return str(formats)
