"""The formats that a rule can give operations that are no products: softmax, normalisations, activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from gemmsim.arithmetic import SpecError
from gemmsim.formats import Cast, FormatError
from gemmsim.ops.cast_arguments import CastLike, resolve_cast
from gemmsim.ops.errors import message
from gemmsim.ops.product.affine_formats import QuantLike
from gemmsim.ops.product.affine_plan import Quant, Step, step_of
from gemmsim.ops.rowwise.formats import QGELUFormats, QLayerNormFormats, QSoftmaxFormats, RowFormats, read_quant

__all__ = ["ROW_KINDS", "MapFormats", "RowRuleFormats", "RowSteps"]


@dataclass(frozen=True, init=False, repr=False)
class MapFormats:
    """Roundings of an elementwise function (sigmoid, tanh, relu): ``fwd`` of its result, ``bwd`` of its gradient.

    For ``batch_norm``, ``instance_norm`` and ``log_softmax`` they round every step forward, and every step of the
    gradient.

    Raises:
        FormatError: for quantisers that name nothing.
    """

    fwd: Quant
    bwd: Quant

    def __init__(self, fwd: QuantLike | None = None, bwd: QuantLike | None = None) -> None:
        object.__setattr__(self, "fwd", read_quant("MapFormats", "fwd", fwd))
        object.__setattr__(self, "bwd", read_quant("MapFormats", "bwd", bwd))

    @classmethod
    def of(cls, formats: MapFormats | CastLike) -> MapFormats:
        """``formats`` itself; for a cast, that cast in both directions."""
        return formats if isinstance(formats, cls) else cls(formats, formats)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        shown = [(name, str(q) if isinstance(q, Cast) else q) for name, q in (("fwd", self.fwd), ("bwd", self.bwd))]
        return f"MapFormats({', '.join(f'{name}={quant!r}' for name, quant in shown if quant is not None)})"

    def to_dict(self) -> dict[str, object]:
        """Plain dictionary, which ``from_dict`` reads back; ``FormatError`` for quantisers that are functions."""
        for name, quant in (("fwd", self.fwd), ("bwd", self.bwd)):
            if not isinstance(quant, Cast | None):
                asked = f"MapFormats.to_dict: {name} is the function {quant!r}"
                raise FormatError(message(asked, "casts and formats", "Give it as a string such as 'e4m3', or pickle."))
        return {name: str(quant) for name, quant in (("fwd", self.fwd), ("bwd", self.bwd)) if quant is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MapFormats:
        """Formats that ``to_dict`` wrote; ``SpecError`` for unknown fields."""
        unknown = sorted(set(data) - {"fwd", "bwd"})
        if unknown:
            asked = f"MapFormats.from_dict: {', '.join(map(str, unknown))}"
            raise SpecError(message(asked, "fwd, bwd", "Remove the unknown ones."))
        return cls(**data)


_Family: TypeAlias = type[RowFormats] | type[MapFormats]
#: The kinds of operations that only a rule that names them reaches -> the formats of each.
ROW_KINDS: dict[str, _Family] = {
    "softmax": QSoftmaxFormats,
    "log_softmax": MapFormats,
    "layer_norm": QLayerNormFormats,
    "rms_norm": QLayerNormFormats,
    "group_norm": QLayerNormFormats,
    "batch_norm": MapFormats,
    "instance_norm": MapFormats,
    "gelu": QGELUFormats,
    "silu": QGELUFormats,
    "sigmoid": MapFormats,
    "tanh": MapFormats,
    "relu": MapFormats,
}
#: What a rule for such kinds gives: formats of their steps, their fields by name, or one cast for every step.
RowRuleFormats: TypeAlias = RowFormats | MapFormats | CastLike | Mapping[str, Any]


class RowSteps:
    """The steps of operations of some kinds. Two are equal if their values are.

    ``value``: the formats of the steps, or one cast for every step of all kinds.
    ``hidden``: the same formats, in which a row of -inf alone gives 0, as in attention, if ``value`` does not say.
    ``maps``: the roundings of an elementwise function, forward and backward, as text.
    ``plan``: the object itself, which a call site has as its plan.
    ``draws``: whether any rounding draws bits that no seed of the formats fixes.
    The class is no dataclass, because a tracer reads only the fields of dataclasses.
    """

    def __init__(self, value: RowFormats | MapFormats | Cast) -> None:
        self.value = self.hidden = value
        self.plan = self
        self.maps: tuple[Step, Step] = (None, None)
        if isinstance(value, MapFormats):
            self.maps = step_of(value.fwd), step_of(value.bwd)
        self.draws = _draws(value)
        if isinstance(value, QSoftmaxFormats) and value.masked_rows is None:
            self.hidden = replace(value, masked_rows="zero")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowSteps) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"RowSteps({self.value!r})"

    @classmethod
    def of(cls, kinds: list[str], formats: RowRuleFormats) -> RowSteps:
        """The steps that ``formats`` mean for these kinds.

        Raises:
            FormatError, SpecError: for formats that name nothing, or are those of other kinds.
        """
        if isinstance(formats, (QLayerNormFormats, Mapping)) and len(kinds) > 1:
            # Batch norm and instance norm have no such steps. A rule for several norms does not change them.
            kinds = [kind for kind in kinds if kind not in ("batch_norm", "instance_norm")] or kinds
        families = list({ROW_KINDS[kind]: None for kind in kinds})
        if isinstance(formats, (RowFormats, MapFormats)):
            if families != [type(formats)]:
                raise _misplaced(kinds, families, type(formats).__name__)
            return cls(formats)
        if isinstance(formats, Mapping):
            if len(families) > 1:
                raise _misplaced(kinds, families, "fields of formats")
            return cls(families[0].from_dict(formats))
        cast = resolve_cast(formats)
        return cls(families[0].of(cast)) if len(families) == 1 else cls(cast)

    def has(self, kind: str) -> bool:
        """Whether these are formats of this kind."""
        return isinstance(self.value, Cast) or type(self.value) is ROW_KINDS[kind]

    def at(self, kind: str) -> RowSteps:
        """The steps of one kind."""
        return RowSteps(ROW_KINDS[kind].of(self.value)) if isinstance(self.value, Cast) else self

    def to_dict(self) -> Any:
        """Strings and numbers, which ``of`` reads back; ``FormatError`` for quantisers that are functions."""
        return str(self.value) if isinstance(self.value, Cast) else self.value.to_dict()

    def __str__(self) -> str:
        return str(self.value)


def _draws(value: RowFormats | MapFormats | Cast) -> bool:
    if isinstance(value, Cast):
        return value.is_stochastic
    if isinstance(value, MapFormats):
        steps: list[Any] = [value.fwd, value.bwd]
    else:
        steps = [] if value.seed is not None else [getattr(value, name) for name in (*value._CASTS, *value._QUANTS)]
    return any(isinstance(step, Cast) and step.is_stochastic for step in steps)


def _misplaced(kinds: list[str], families: list[_Family], given: str) -> FormatError:
    if len(families) > 1:
        allowed, do = "one cast for every step of all these operations", "Write one rule per kind to be more specific."
    else:
        allowed, do = f"{families[0].__name__}, its fields, or one cast", "Give formats of these operations."
    return FormatError(message(f"Rule for {', '.join(kinds)}: {given}", allowed, do))
