"""Rules: formats for calls chosen by module path and kind, as one value with a canonical text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import translate
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, get_args

import torch

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import SpecError, SpecLike
from gemmsim.formats import FormatError
from gemmsim.formats.errors import shown
from gemmsim.libraries.library import Library
from gemmsim.ops.errors import message
from gemmsim.ops.product.affine_formats import QAffineFormats, formats_named
from gemmsim.ops.product.amax_history import has_delayed
from gemmsim.ops.product.short_text import short_formats, source_of
from gemmsim.ops.rowwise.formats import RowFormats

from .dynamo_support import raised
from .library_plans import UNKNOWN, LibraryFormats
from .rowwise_rules import ROW_KINDS, MapFormats, RowRuleFormats, RowSteps

__all__ = [
    "KINDS",
    "Config",
    "ConfigError",
    "ConfigLike",
    "INTERNED",
    "Rule",
    "RuleFormats",
    "made_inside",
    "matches",
]

#: The kinds of products that a rule can name. docs/howto/emulate.md lists the calls of each kind.
KINDS = (
    *("linear", "matmul", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "addbmm", "einsum", "tensordot", "bilinear"),
    *("cdist", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    *("sdpa.qk", "sdpa.pv", "rnn.ih", "rnn.hh", "rnn.hr", "scaled_mm", "grouped_mm"),
)
_ROLES = ("fprop", "dgrad", "wgrad")

#: What a rule gives products: a spec for all roles, formats, a library, a mapping from role to spec, or None for native
#: products.
#: Rules for the operations in ROW_KINDS give them RowRuleFormats.
RuleFormats: TypeAlias = (
    QAffineFormats | SpecLike | Library | LibraryFormats | Mapping[str, SpecLike | None] | RowRuleFormats | None
)


_Error = TypeVar("_Error", bound=Exception)
#: How many rules the ``repr`` of a config shows.
_SHOWN = 2


class ConfigError(SpecError):
    """Raised for invalid rules: unknown kinds or roles, patterns that match nothing, formats that name nothing.

    Example:
        >>> gs.emulation.Rule("head", "liner", "e4m3 : fp32")
        Traceback (most recent call last):
            ...
        gemmsim.emulation.rules.ConfigError: Rule: kinds='liner', which no product has; allowed: patterns ...
    """


@dataclass(frozen=True)
class Rule:
    """Formats of the products of some kinds at some module paths.

    Args:
        modules: a shell pattern over module paths relative to the outermost module ("encoder.layers.*", where * crosses
            dots), or "re:" and a regular expression that matches the whole path. Products outside modules have path "".
        kinds: a shell pattern over kinds ("linear", "conv*", "sdpa.*"). A pattern that matches no product but
            operations of rows ("softmax", "*_norm", "gelu", "re:sigmoid|tanh") makes a rule for these; no other rule
            reaches them.
        spec: a spec or ``QAffineFormats`` for all roles, a mapping {"fprop": spec, "dgrad": spec, "wgrad": spec} whose
            missing roles are native, a library (``gemmsim.libraries``), which chooses for each product by its shape
            and dtypes, or None: native products. For operations of rows it is their formats
            (``QSoftmaxFormats``, ``QLayerNormFormats``, ``QGELUFormats``), these as a mapping, one cast for every step,
            or None; for sigmoid, tanh and relu a mapping {"fwd": cast, "bwd": cast}. (``formats``, the former keyword,
            is deprecated.) The attribute ``formats`` is what it means.

    Raises:
        ConfigError: for a kind that no product has, an unknown role, a broken pattern; inside compiled code, which
            takes rules made outside.
        SpecError, FormatError: for formats that name nothing.

    Example:
        >>> rule = gs.emulation.Rule("layers.*", "linear", {"fprop": "e4m3 : fp32", "dgrad": "e5m2 * e4m3 : fp32"})
        >>> rule.formats.fprop, rule.formats.wgrad
        (GemmSpec.parse('e4m3 : e8m23'), None)
    """

    modules: str = "*"
    kinds: str = "*"
    formats: QAffineFormats | RowSteps | LibraryFormats | None = None

    @takes_spec("formats")
    def __init__(self, modules: str = "*", kinds: str = "*", spec: RuleFormats = None) -> None:
        if torch.compiler.is_dynamo_compiling():
            raise made_inside("Rule")
        put = object.__setattr__
        put(self, "modules", _pattern("modules", modules))
        put(self, "kinds", _pattern("kinds", kinds))
        rows = _rows(kinds)
        if not rows and not any(_matcher(kinds).match(kind) for kind in KINDS):
            near = get_close_matches(kinds, (*KINDS, *ROW_KINDS), 3) or KINDS
            asked = f"Rule: kinds={kinds!r}, which no product has"
            raise ConfigError(message(asked, "patterns over " + ", ".join((*KINDS, *ROW_KINDS)), f"Try {near[0]!r}."))
        try:
            put(self, "formats", _row_steps(rows, spec) if rows else _formats(_known(spec)))
        except (SpecError, FormatError) as error:
            raise _named(error, _place(modules, kinds)) from None

    @property
    def spec(self) -> QAffineFormats | RowSteps | LibraryFormats | None:
        """``formats``, under the name of the argument that sets it.

        Example:
            >>> gs.emulation.Rule("head").spec is None  # native
            True
        """
        return self.formats

    def names(self, kind: str) -> bool:
        """Return whether this rule is for operations of this kind.

        Example:
            >>> rule = gs.emulation.Rule("head", "linear", "e4m3 : fp32")
            >>> rule.names("linear"), rule.names("conv2d")
            (True, False)
        """
        if kind not in ROW_KINDS:
            return bool(_matcher(self.kinds).match(kind))
        return kind in _rows(self.kinds) and (not isinstance(self.formats, RowSteps) or self.formats.has(kind))

    def reaches(self, path: str, kind: str) -> bool:
        """Return whether this rule is for operations of this kind at this path.

        Example:
            >>> rule = gs.emulation.Rule("layers.*", "linear", "e4m3 : fp32")
            >>> rule.reaches("layers.0.up", "linear"), rule.reaches("head", "linear")
            (True, False)
        """
        return self.names(kind) and bool(_matcher(self.modules).match(path))

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dictionary, which ``from_dict`` reads back; ``FormatError`` for quantisers that are
        functions.

        Example:
            >>> gs.emulation.Rule("head", "linear").to_dict()
            {'modules': 'head', 'kinds': 'linear', 'formats': None}
        """
        formats = None if self.formats is None else self.formats.to_dict()
        return {"modules": self.modules, "kinds": self.kinds, "formats": formats}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Rule:
        """Return a rule that ``to_dict`` wrote, or one written by hand with a spec or a mapping of roles as ``spec``
        (or ``formats``).

        Raises:
            ConfigError: for unknown fields, for both ``spec`` and ``formats``, and as ``Rule``.

        Example:
            >>> gs.emulation.Rule.from_dict({"modules": "head", "spec": "e4m3 : fp32"}).reaches("head", "linear")
            True
        """
        unknown = sorted(set(data) - {"modules", "kinds", "spec", "formats"})
        if unknown:
            asked = f"Rule.from_dict: {', '.join(map(str, unknown))}"
            raise ConfigError(message(asked, "modules, kinds, spec", "Remove the unknown fields."))
        if "spec" in data and "formats" in data:
            asked = "Rule.from_dict: both spec and formats, which mean the same"
            raise ConfigError(message(asked, "one of them", "Remove formats."))
        modules, kinds = data.get("modules", "*"), data.get("kinds", "*")
        formats = data.get("spec", data.get("formats"))
        products = not isinstance(kinds, str) or not _rows(kinds)
        if isinstance(formats, Mapping) and "library" in formats:
            formats = LibraryFormats.from_dict(formats)
        if products and isinstance(formats, Mapping) and not set(formats) <= set(_ROLES):
            try:
                formats = QAffineFormats.from_dict(formats)
            except (SpecError, FormatError) as error:
                raise _named(error, _place(modules, kinds)) from None
        return cls(modules, kinds, formats)


@dataclass(frozen=True, repr=False)
class Config:
    """Rules: the first one that matches a product's path and kind applies; without a match the product is native.

    ``text`` is canonical: equal configs have equal texts, which ``from_json`` reads. Configs are frozen, hashable and
    picklable.

    Raises:
        ConfigError: inside compiled code, which takes configs made outside.

    Example:
        >>> rules = [gs.emulation.Rule("head", spec=None), gs.emulation.Rule("*", spec="e4m3 : fp32")]
        >>> config = gs.emulation.Config(rules)
        >>> config.formats("head", "linear") is None, config.formats("body.0", "linear").fprop
        (True, GemmSpec.parse('e4m3 : e8m23'))
    """

    rules: tuple[Rule, ...]
    #: Canonical JSON, by which compiled code knows the config.
    text: str = field(init=False, repr=False, compare=False)

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        if torch.compiler.is_dynamo_compiling():
            raise made_inside("Config")
        object.__setattr__(self, "rules", tuple(rules))
        object.__setattr__(self, "text", _text(self))
        INTERNED.setdefault(self.text, self)

    @classmethod
    @takes_spec("config")
    def of(cls, spec: ConfigLike) -> Config:
        """Return ``spec`` itself if it is a config; otherwise the config that it means.

        ``spec`` may be a spec, formats, a recipe, or a list of rules and pairs (pattern, formats). ``config``, the
        former keyword for ``spec``, is deprecated.

        Raises:
            ConfigError, SpecError, FormatError: for anything else.

        Example:
            >>> print(gs.emulation.Config.of([("head", None), ("*", "e4m3 : fp32")]))
            head                     *            PyTorch's own
            *                        *            e4m3 : e8m23
        """
        if isinstance(spec, Config):
            return spec
        if torch.compiler.is_dynamo_compiling():
            raise made_inside("Config")
        if isinstance(spec, str) and spec.startswith("{"):
            return INTERNED[spec] if spec in INTERNED else cls.from_json(spec)
        if isinstance(spec, Rule):
            return cls([spec])
        if isinstance(spec, Sequence) and not isinstance(spec, (str, bytes)):
            return _of_strings(entries) if _are_strings(entries := tuple(spec)) else cls(_rules(entries))
        if isinstance(spec, Mapping) and "rules" in spec:
            return cls.from_dict(spec)
        return cls([Rule("*", "*", _formats(_known(spec, rules=True)))])

    @property
    def names_modules(self) -> bool:
        """Whether the formats depend on the module that multiplies.

        Example:
            >>> gs.emulation.Config.of("e4m3 : fp32").names_modules
            False
            >>> gs.emulation.Config.of([("head", None)]).names_modules
            True
        """
        return any(rule.modules != "*" for rule in self.rules)

    @property
    def draws(self) -> bool:
        """Whether calls and steps have to be counted: a rounding draws random bits, or a scale is delayed.

        Example:
            >>> gs.emulation.Config.of("e4m3 : fp32").draws, gs.emulation.Config.of("e4m3/sr16 : fp32").draws
            (False, True)
        """
        return any(rule.formats is not None and (_draws(rule.formats) or _delays(rule.formats)) for rule in self.rules)

    def formats(self, path: str, kind: str) -> QAffineFormats | RowSteps | LibraryFormats | None:
        """Return the formats of a product of this kind at this path; None means native.

        Example:
            >>> config = gs.emulation.Config.of([("head", None), ("*", "e4m3 : fp32")])
            >>> config.formats("head", "linear") is None, str(config.formats("body", "linear").fprop)
            (True, 'e4m3 : e8m23')
        """
        for rule in self.rules:
            if rule.reaches(path, kind):
                return rule.formats.at(kind) if isinstance(rule.formats, RowSteps) else rule.formats
        return None

    def with_unknown(self, unknown: str) -> Config:
        """Return this config with another behaviour where a library's choice or arithmetic is unknown.

        "raise" raises ``UnknownPlan``, which names the module; "chain" computes one chain, and an audit lists the
        product as assumed.

        Raises:
            ConfigError: for another word, and if no rule names a library.

        Example:
            >>> config = gs.emulation.Config.of(gs.libraries.cublaslt("h100", version="13.1"))
            >>> config.with_unknown("chain") == config, config.with_unknown("raise") == config
            (False, True)
        """
        libraries = [rule for rule in self.rules if isinstance(rule.formats, LibraryFormats)]
        if unknown not in UNKNOWN or not libraries:
            asked = f"unknown={unknown!r}" + ("" if libraries else " with rules that name no library")
            do = "Give an object of gemmsim.libraries as the spec, or leave unknown out."
            raise ConfigError(message(asked, "'raise' or 'chain', for libraries", do))
        found: list[Rule] = []
        for rule in self.rules:
            formats: Any = rule.formats
            given = formats.with_unknown(unknown) if isinstance(formats, LibraryFormats) else formats
            found.append(Rule(rule.modules, rule.kinds, given))
        return Config(found)

    def check(self, paths: Iterable[str], root: str = "the model") -> None:
        """Check that every pattern over modules matches one of ``paths``, the modules of ``root``.

        Raises:
            ConfigError: for a pattern that matches none; the message suggests similar paths.

        Example:
            >>> gs.emulation.Config.of([("layrs.*", None)]).check(["layers.0", "layers.1"])
            Traceback (most recent call last):
                ...
            gemmsim.emulation.rules.ConfigError: rule for modules 'layrs.*'; allowed: patterns that match a ...
        """
        known = list(paths)
        for rule in self.rules:
            if not any(_matcher(rule.modules).match(path) for path in known):
                near = get_close_matches(rule.modules, known, 3, 0.4) or [path for path in known if path][:3]
                allowed = f"patterns that match a module of {root}" + (f", such as {', '.join(near)}" if near else "")
                do = "Paths are relative to the outermost module called; root= names that module."
                raise ConfigError(message(f"rule for modules {rule.modules!r}", allowed, do))

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dictionary, which ``from_dict`` reads back; ``FormatError`` for quantisers that are
        functions.

        Example:
            >>> gs.emulation.Config.of([("head", None)]).to_dict()
            {'rules': [{'modules': 'head', 'kinds': '*', 'formats': None}]}
        """
        return {"rules": [rule.to_dict() for rule in self.rules]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Config:
        """Return the config that ``to_dict`` wrote.

        Raises:
            ConfigError: for anything else.

        Example:
            >>> config = gs.emulation.Config.of([("head", None), ("*", "e4m3 : fp32")])
            >>> gs.emulation.Config.from_dict(config.to_dict()) == config
            True
        """
        if set(data) != {"rules"} or not isinstance(data["rules"], Sequence):
            asked = f"Config.from_dict: {', '.join(map(str, data)) or 'nothing'}"
            raise ConfigError(message(asked, "one field, rules: a list", "Write {'rules': [...]}."))
        return cls(_rules(data["rules"]))

    def to_json(self) -> str:
        """Return the canonical text.

        Example:
            >>> gs.emulation.Config.of([("head", None)]).to_json()
            '{"rules":[{"formats":null,"kinds":"*","modules":"head"}]}'
        """
        return self.text

    @classmethod
    def from_json(cls, text: str) -> Config:
        """Return the config that ``to_json`` wrote.

        Raises:
            ConfigError: for invalid text; inside compiled code, which takes configs made outside.

        Example:
            >>> config = gs.emulation.Config.of("e4m3 : fp32")
            >>> gs.emulation.Config.from_json(config.to_json()) == config
            True
        """
        if torch.compiler.is_dynamo_compiling():
            raise made_inside("Config")
        try:
            data = json.loads(text)
        except ValueError as error:
            asked = f"Config.from_json: {error}"
            raise ConfigError(message(asked, "JSON as Config.to_json writes it", "Check the file.")) from None
        return cls.from_dict(data) if isinstance(data, dict) else cls.of(data)

    def __reduce__(self) -> tuple[Any, ...]:
        return Config, (self.rules,)

    def __repr__(self) -> str:
        first = [f"{rule.modules!r} {rule.kinds!r} {short_formats(rule.formats)}" for rule in self.rules[:_SHOWN]]
        more = ["..."] if len(self.rules) > _SHOWN else []
        rules = f"{len(self.rules)} rule{'s' * (len(self.rules) != 1)}"
        return f"<Config of {rules}{': ' * bool(first)}{', '.join([*first, *more])}>"

    def __str__(self) -> str:
        lines = [f"{rule.modules:24} {rule.kinds:12} {_shown(rule.formats)}" for rule in self.rules]
        return "\n".join(lines) if lines else "no rules: native PyTorch products"


def made_inside(what: str) -> Exception:
    """``ConfigError`` about a value that compiled code makes or gets, and cannot follow."""
    allowed = "strings, numbers, None, lists, tuples and mappings, and rules, formats, specs, configs created outside"
    do = "Create it outside: config = gemmsim.emulation.Config.of(...), then emulate(config) inside."
    return raised(ConfigError, message(f"{what} inside compiled code", allowed, do))


#: Everything that ``Config.of`` reads.
ConfigLike: TypeAlias = Config | Rule | RuleFormats | Sequence[Rule | tuple[str, RuleFormats]]

#: Canonical text -> the config that has it, of every config that this process made.
INTERNED: dict[str, Config] = {}


def _are_strings(entries: tuple[object, ...]) -> bool:
    """Whether these are pairs (pattern, spec or None) of strings, which mean the same each time."""
    return all(type(entry) is tuple and all(part is None or type(part) is str for part in entry) for entry in entries)


@lru_cache(maxsize=1024)
def _of_strings(entries: tuple[object, ...]) -> Config:
    """The config of a list of pairs of strings, cached for contexts that open at each step."""
    return Config(_rules(entries))


def _rules(entries: Sequence[object]) -> list[Rule]:
    """The rules that a list means. Errors say which entry is wrong."""
    found = []
    for n, entry in enumerate(entries, 1):
        try:
            found.append(_rule(entry))
        except (SpecError, FormatError) as error:
            raise _named(error, f"Rule {n} of {len(entries)}") from None
    return found


def _place(modules: object, kinds: object) -> str:
    """The beginning of errors about the formats of a rule."""
    return f"Rule: modules={shown(modules)}, kinds={shown(kinds)}"


def _named(error: _Error, what: str) -> _Error:
    """``error`` with a message that begins with ``what``."""
    return type(error)(f"{what}: {str(error).removeprefix('Rule: ')}")


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


#: What formats may be, for messages.
_FORMATS = (
    "a spec string, GemmSpec, accumulator (gemmsim.acc), format, QAffineFormats, a recipe (gemmsim.recipes) or its "
    "word, a library (gemmsim.libraries), a mapping of roles {'fprop': spec, ...}, None for native PyTorch products"
)


def _known(formats: Any, rules: bool = False) -> Any:
    """``formats``, if they have a type that can mean something.

    Raises:
        ConfigError: otherwise, with all types that can.
    """
    known = (QAffineFormats, RowFormats, MapFormats, RowSteps, Mapping)
    if isinstance(formats, Library):
        return LibraryFormats(formats)
    if formats is None or isinstance(formats, (*known, LibraryFormats, *get_args(SpecLike))):
        return formats
    allowed, do = _FORMATS, "Try 'e4m3 : e5m10'."
    if rules:
        allowed += "; or a Config, a Rule, or a list of rules and pairs (pattern of module paths, any of these)"
        do = "Try 'e4m3 : e5m10', or [('encoder.*', 'e4m3 : e5m10'), ('*', None)]."
    raise ConfigError(message(f"spec {shown(formats)} of type {type(formats).__name__}", allowed, do))


def _rows(kinds: str) -> list[str]:
    """The kinds of operations of rows that a pattern names; none, if it names a product."""
    matcher = _matcher(_pattern("kinds", kinds))
    return [] if any(map(matcher.match, KINDS)) else [kind for kind in ROW_KINDS if matcher.match(kind)]


def _row_steps(kinds: list[str], formats: RuleFormats) -> RowSteps | None:
    """``formats`` as steps of operations of these kinds."""
    if formats is None or isinstance(formats, RowSteps):
        return formats
    return RowSteps.of(kinds, formats)  # type: ignore[arg-type]


def _formats(formats: RuleFormats) -> QAffineFormats | LibraryFormats | None:
    """``formats`` for the products of a model.

    Sums run on no matrix unit, so gradients of biases are PyTorch's sums unless ``formats`` itself says otherwise.
    """
    # The name of a recipe means the recipe, which itself says how gradients of biases are summed.
    if isinstance(formats, str):
        formats = formats_named(formats) or formats
    if isinstance(formats, (Library, LibraryFormats)):
        return LibraryFormats(formats) if isinstance(formats, Library) else formats
    if formats is None or isinstance(formats, QAffineFormats):
        return None if formats is not None and formats.plan.is_native else formats
    if isinstance(formats, (RowFormats, MapFormats, RowSteps)):
        asked = f"formats of products: {type(formats).__name__}"
        do = "Name the operations these formats are for: kinds='softmax', '*_norm', 'gelu'."
        raise ConfigError(message(asked, "specs, QAffineFormats, mappings of roles, None", do))
    if isinstance(formats, Mapping):
        unknown = sorted(set(formats) - set(_ROLES))
        if unknown or not formats:
            asked = f"formats of roles {', '.join(map(repr, unknown)) or 'none'}"
            raise ConfigError(message(asked, ", ".join(_ROLES), "Name the roles to emulate; others stay native."))
        found = QAffineFormats(**dict(formats), bias_sum="torch")
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
    except Exception:  # quantisers that are functions have no text; the process identifies them by ``id``
        return f"config {id(config):x} of functions: {config.rules!r}"


def _draws(formats: QAffineFormats | RowSteps | LibraryFormats) -> bool:
    if isinstance(formats, RowSteps):
        return formats.draws
    if isinstance(formats, LibraryFormats):
        return False
    specs = (formats.fprop, formats.dgrad, formats.wgrad)
    return formats.plan.draws_in_steps or any(spec is not None and spec.is_stochastic for spec in specs)


def _delays(formats: QAffineFormats | RowSteps | LibraryFormats) -> bool:
    return isinstance(formats, QAffineFormats) and has_delayed(formats)


def _shown(formats: QAffineFormats | RowSteps | LibraryFormats | None) -> str:
    if formats is None:
        return "PyTorch's own"
    return str(formats) if isinstance(formats, (RowSteps, LibraryFormats)) else source_of(formats) or str(formats)
