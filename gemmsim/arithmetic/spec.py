"""What a matrix product means, as one value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ..formats import FP32, TENSOR_FORMATS, BlockFormat, Cast, CodebookFormat, FixedFormat, Format, TensorFormat
from ..formats.any_format import FORMATS
from ..formats.errors import shown
from .accumulator import Accumulator, check_takes_terms, remembers
from .argument_kinds import ACCUMULATOR, CAST, OPERAND, CastKind, optional
from .block_operands import check_block_operands, group_size, operand_cast
from .construction_hooks import told
from .errors import check_json_depth, spec_error, too_deep
from .explain import explain_spec
from .grammar import split_spec
from .lookup import Lookup, ProductTable
from .recipe_words import no_single_spec, recipe_call
from .sequential import Sequential

__all__ = ["ARITHMETICS", "GemmSpec", "SpecLike"]

#: "exact": every rounding once, from the exact value. "fp32": from the value already rounded to binary32.
ARITHMETICS = ("exact", "fp32")

_OPTIONAL_CAST = optional(CAST)
_OPTIONAL_OUT = optional(CastKind(takes_two=True))
_OPTIONAL_OPERAND = optional(OPERAND)
_BLOCKS = (BlockFormat, *TENSOR_FORMATS)
_FIELDS = ("a", "b", "product", "accumulator", "out", "arithmetic")
#: Parsed strings; emptied when full. Strings that vary without end (a seed in each) must not grow it for ever.
_PARSED: dict[str, GemmSpec] = {}
_PARSED_LIMIT = 4096
remembers(_PARSED.clear)


@dataclass(frozen=True)
class GemmSpec:
    """Operand formats, product, accumulator, output and arithmetic of ``sum_k a_k * b_k``.

    Args:
        a, b: casts of the operands, made first. None takes operands as given, or as ``accumulator.operand_casts`` says
            if the accumulator only takes certain formats. A cast given for such an accumulator must be to values it
            holds. A block format ("mxfp8_e4m3", "nvfp4/tensor") has its blocks along the contraction dimension. Its
            values are element times scale, as exact reals, except for ``scaled`` and the block-scaled instructions of
            ``hw``, which take elements and scales apart.
        product: rounding of each product; None is exact; a ``ProductTable`` gives the products. It is part of the
            accumulator: giving it here or there is the same.
        accumulator: how the products become one number. Default: fp32, fused, k ascending.
        out: cast of the result, made last; None keeps the accumulator's value. Two roundings in a row, "-> fp32 ->
            bf16", are ``Cast.via``. They differ from a single one where the result is scaled or an addend enters.
        arithmetic: "exact" (default; one rounding a step) or "fp32": each product-sum (or product, then sum) is first
            rounded to binary32, then to the accumulator's format, as emulators on float hardware do.

    Casts, formats and their names are accepted alike, and the accumulator may also be a string. ``key`` is the
    canonical string, ``GemmSpec.parse(s.key) == s``.

    Raises:
        SpecError: for fields that name nothing or contradict each other; the message suggests the nearest names.

    Example:
        >>> spec = gs.GemmSpec(a="e4m3", b="e5m2", accumulator=gs.acc.chunked(64, "fp16", "fp32"), out="bf16")
        >>> spec.key
        'e4m3 * e5m2 : chunked(64, e5m10, e8m23) -> e8m7'
    """

    a: Cast | BlockFormat | TensorFormat | None = None
    b: Cast | BlockFormat | TensorFormat | None = None
    product: Cast | ProductTable | None = None
    accumulator: Accumulator = Sequential(Cast(FP32))
    out: Cast | None = None
    arithmetic: str = "exact"
    #: Canonical string, stored because the operators use it at every call.
    key: str = field(init=False, compare=False, repr=False, default="")
    #: Whether the result depends on random bits; stored for the same reason.
    is_stochastic: bool = field(init=False, compare=False, repr=False, default=False)
    #: Whether an operand is in a block format; likewise.
    has_blocks: bool = field(init=False, compare=False, repr=False, default=False)
    #: Whether something is a user's own step, a list of values or a table of products; likewise.
    needs_steps: bool = field(init=False, compare=False, repr=False, default=False)

    def __post_init__(self) -> None:
        told("GemmSpec")
        put = object.__setattr__
        for name in ("a", "b"):
            put(self, name, _OPTIONAL_OPERAND.read(getattr(self, name), "GemmSpec", name))
        put(self, "out", _OPTIONAL_OUT.read(self.out, "GemmSpec", "out"))
        accumulator: Accumulator = ACCUMULATOR.read(self.accumulator, "GemmSpec", "accumulator")
        check_takes_terms(accumulator, "GemmSpec")
        if isinstance(self.product, ProductTable):
            accumulator = _looked_up(self.product, accumulator)
        elif self.product is not None:
            accumulator = accumulator.with_product(_OPTIONAL_CAST.read(self.product, "GemmSpec", "product"))
        put(self, "accumulator", accumulator)
        put(self, "product", accumulator.products if isinstance(accumulator, Lookup) else accumulator.product_cast)
        check_block_operands(self.a, self.b, accumulator)
        if accumulator.operand_casts is not None:
            for name, taken in zip("ab", accumulator.operand_casts, strict=True):
                given = getattr(self, name)
                if not isinstance(given, _BLOCKS):
                    put(self, name, operand_cast(given, taken, accumulator, name))
        if self.arithmetic not in ARITHMETICS:
            raise spec_error(
                f"GemmSpec: arithmetic={self.arithmetic!r}",
                "'exact' (one rounding a step) or 'fp32' (rounded to binary32 first)",
                "Leave it out for 'exact'.",
            )
        if self.arithmetic == "fp32":
            self._check_fits_fp32()
        put(self, "key", _text(self))
        put(self, "has_blocks", isinstance(self.a, _BLOCKS) or isinstance(self.b, _BLOCKS))
        put(self, "is_stochastic", self._is_stochastic())
        lists = any(isinstance(step.format, CodebookFormat) for step in self.casts())
        put(self, "needs_steps", accumulator.is_custom or accumulator.is_lookup or lists)

    def transposed(self) -> GemmSpec:
        """The spec of ``B^T @ A^T`` for this one's ``A @ B``: each operand keeps its cast.

        Example:
            >>> gs.GemmSpec.parse("e4m3 * e5m2 : fp32").transposed()
            GemmSpec.parse('e5m2 * e4m3 : e8m23')
        """
        return replace(self, a=self.b, b=self.a, product=None, accumulator=self.accumulator.transposed())

    def _check_fits_fp32(self) -> None:
        if self.accumulator.is_custom or self.accumulator.is_lookup:
            raise spec_error(
                f"GemmSpec: arithmetic='fp32' with {self.accumulator}",
                "accumulators that multiply: a table gives products, and a Python step defines its own arithmetic",
                "Use arithmetic='exact' (and numbers = 'float32' in a class of your own).",
            )
        if self.accumulator.exact_sums:
            raise spec_error(
                f"GemmSpec: arithmetic='fp32' with {self.accumulator}",
                "accumulators whose steps round one sum; this one contains exact sums, which binary32 does not hold",
                "Use arithmetic='exact'.",
            )
        own = list(self.accumulator.casts())
        two = next((step for step in (*own, self.out) if step is not None and step.via is not None), None)
        if two is not None:
            raise spec_error(
                f"GemmSpec: arithmetic='fp32' with {two}, two roundings in a row",
                "one rounding to each format: arithmetic='fp32' rounds to binary32 before each of them",
                "Use arithmetic='exact'.",
            )
        casts = [("a", self.cast_a), ("b", self.cast_b), *(("accumulator", step) for step in own)]
        for name, step in casts:
            if step is not None and not _fits_fp32(step.format):
                raise spec_error(
                    f"GemmSpec: arithmetic='fp32' with {name} in {step.format}",
                    "formats whose values binary32 holds: p <= 24, exponents from -126 to 127, fixed point of up to "
                    "24 bits and sign",
                    "Use arithmetic='exact', or a narrower format.",
                )

    def _is_stochastic(self) -> bool:
        blocks = any(isinstance(fmt, TENSOR_FORMATS) and fmt.is_stochastic for fmt in (self.a, self.b))
        return blocks or any(step.is_stochastic for step in self.casts())

    # Questions

    @property
    def cast_a(self) -> Cast | None:
        """The cast of a; None without one, and for a block format."""
        return self.a if isinstance(self.a, Cast) else None

    @property
    def cast_b(self) -> Cast | None:
        """The cast of b; None without one, and for a block format."""
        return self.b if isinstance(self.b, Cast) else None

    @property
    def group(self) -> int | None:
        """The number of terms that share a pair of scales if the accumulator takes scales apart; otherwise None."""
        return group_size(self.a, self.b, self.accumulator)

    @property
    def fixed_seed(self) -> int | None:
        """The seed of all random bits of this product if the accumulator fixes one; otherwise None."""
        return self.accumulator.fixed_seed

    def casts(self) -> Iterator[Cast]:
        """Every rounding this product makes."""
        yield from (step for step in (self.cast_a, self.cast_b, self.out) if step is not None)
        yield from self.accumulator.casts()

    def explain(self) -> str:
        """What this product computes, in a few lines of words.

        Example:
            >>> print(gs.GemmSpec.parse("e4m3 : fp16").explain())
            spec        e4m3 : e5m10
            operands    a and b rounded to e4m3 (max 448), to nearest, ties to even
            product     exact (fused multiply-add)
            each step   s = R(s + a*b), one rounding to e5m10 (max 65504), to nearest, ties to even
            order       sequential, k ascending from +0
            overflow    e4m3: to NaN (no infinity in the format)
                        e5m10: to infinity
            output      the accumulator's value, then to nearest even in the output tensor's dtype
            arithmetic  exact: every rounding happens once, from the exact value
        """
        return explain_spec(self)

    def __str__(self) -> str:
        return self.key

    def __repr__(self) -> str:
        return f"GemmSpec.parse({self.key!r})"

    def __format__(self, width: str) -> str:
        return format(self.key, width)

    def __hash__(self) -> int:
        return hash(self.key)

    # Reading and writing

    @classmethod
    def parse(cls, text: str) -> GemmSpec:
        """The spec named by ``text`` (grammar: docs/reference/specs.md); ``parse(str(s)) == s``.

        Raises:
            SpecError: for text outside the grammar or with unknown names.

        Example:
            >>> gs.GemmSpec.parse("fp16 : chunked(64, kahan(bf16), fp32)")
            GemmSpec.parse('e5m10 : chunked(64, kahan(e8m7), e8m23)')
            >>> gs.GemmSpec.parse("deepgemm()")
            GemmSpec.parse('e4m3 : promote(hw(hopper, wgmma, e4m3), 128)')
        """
        found = _PARSED.get(text) if type(text) is str else None
        return found if found is not None else _parse(text)

    @classmethod
    def of(cls, spec: SpecLike) -> GemmSpec:
        """``spec`` itself, the spec that a string names, or the one with this accumulator, cast or format.

        Raises:
            SpecError: for anything else.

        Example:
            >>> gs.GemmSpec.of(gs.acc.kahan("bf16")) == gs.GemmSpec.of("kahan(bf16)")
            True
        """
        if type(spec) is str:
            found = _PARSED.get(spec)
            return found if found is not None else _parse(spec)
        if isinstance(spec, GemmSpec):
            return spec
        if isinstance(spec, str):
            return _parse(str(spec))
        if isinstance(spec, (Accumulator, Cast, *FORMATS)):
            return cls(accumulator=spec)  # type: ignore[arg-type]
        if hasattr(spec, "fprop"):
            raise no_single_spec(shown(spec))
        raise spec_error(
            f"GEMM spec {shown(spec)} of type {type(spec).__name__}",
            "a spec string, a GemmSpec, an accumulator, a Cast or a format",
            "Try 'e4m3 : e5m10'.",
        )

    def to_json(self) -> dict[str, object]:
        """The spec as a plain dictionary; ``from_json`` reads it back. ``product`` is inside the accumulator.

        Example:
            >>> gs.GemmSpec.parse("e4m3 : kahan(bf16)").to_json()["accumulator"]
            {'name': 'kahan', 'fmt': 'e8m7', 'mul': None}
        """
        return {
            "version": 1,
            "spec": self.key,
            "a": _OPTIONAL_OPERAND.json(self.a),
            "b": _OPTIONAL_OPERAND.json(self.b),
            "accumulator": self.accumulator.to_json(),
            "out": _OPTIONAL_OUT.json(self.out),
            "arithmetic": self.arithmetic,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> GemmSpec:
        """The spec written by ``to_json``, as the dictionary or as JSON text.

        ``spec`` and the fields say the same twice. You can leave one of them out, and some fields too.

        Raises:
            SpecError: for another version, unknown fields, impossible values, or fields that contradict ``spec``.

        Example:
            >>> spec = gs.GemmSpec.parse("e4m3 : kahan(bf16)")
            >>> gs.GemmSpec.from_json(spec.to_json()) == spec
            True
        """
        if isinstance(data, str):
            try:
                data = cast("Mapping[str, Any]", json.loads(data))
            except RecursionError:
                raise too_deep("GemmSpec JSON with lists and objects nested without end") from None
            except ValueError as error:
                raise spec_error(
                    f"GemmSpec JSON: {error}", "what to_json() writes", "Use parse() for strings."
                ) from None
        if not isinstance(data, Mapping):
            raise spec_error(f"GemmSpec JSON {shown(data)}", "an object", "Use to_json().")
        if data.get("version", 1) != 1:
            raise spec_error(f"GemmSpec JSON of version {data['version']!r}", "version 1", "Use a newer gemmsim.")
        fields = {key: value for key, value in data.items() if key not in ("version", "spec")}
        unknown = sorted(set(fields) - set(_FIELDS))
        if unknown:
            raise spec_error(f"GemmSpec JSON with {', '.join(unknown)}", ", ".join(_FIELDS), "Remove the unknown ones.")
        check_json_depth(fields)
        return cls(**fields) if data.get("spec") is None else _agreeing(data["spec"], fields)


def _agreeing(text: object, fields: dict[str, Any]) -> GemmSpec:
    """The spec ``text``, which is also what ``fields`` say; ``SpecError`` where they contradict it."""
    named = GemmSpec.parse(text)  # type: ignore[arg-type]
    said = GemmSpec(**{name: getattr(named, name) for name in _FIELDS if name != "product"} | fields)
    if said == named:
        return named
    apart = [name for name in _FIELDS if getattr(said, name) != getattr(named, name)]
    raise spec_error(
        f"GemmSpec JSON with spec {shown(named.key)} and fields that say {shown(said.key)} ({', '.join(apart)} differ)",
        "a spec and fields that mean the same, as to_json() writes them",
        "Edit both, or remove one of them.",
    )


#: What stands for a spec wherever one is asked for.
SpecLike = str | GemmSpec | Accumulator | Cast | Format


def _looked_up(products: ProductTable, accumulator: Accumulator) -> Accumulator:
    if isinstance(accumulator, Lookup) and accumulator.products == products:
        return accumulator
    return Lookup(products, accumulator)


def _parse(text: str) -> GemmSpec:
    if not isinstance(text, str):
        raise spec_error(
            f"spec {shown(text)} of type {type(text).__name__}", "a string", "Use GemmSpec.of for other values."
        )
    told("GemmSpec")
    recipe = recipe_call(text)
    if recipe is not None:
        raise no_single_spec(shown(text.strip()), recipe.name)
    if text.lstrip().startswith("QAffineFormats("):
        raise no_single_spec(shown(text.strip()))
    parts = split_spec(text)
    spec = GemmSpec(
        a=parts.a,  # type: ignore[arg-type]
        b=parts.b,  # type: ignore[arg-type]
        accumulator=parts.accumulator,  # type: ignore[arg-type]
        out=parts.out,  # type: ignore[arg-type]
        arithmetic="exact" if parts.arithmetic is None else parts.arithmetic.lower(),
    )
    if len(_PARSED) >= _PARSED_LIMIT:
        _PARSED.clear()
    _PARSED[text] = spec
    return spec


def _text(spec: GemmSpec) -> str:
    a, b = ("" if step is None else str(step) for step in (spec.a, spec.b))
    if spec.a == spec.b:
        head = f"{a} :" if a else ":"
    else:
        head = f"{a} * {b}".strip() + " :"
    accumulator = spec.accumulator.text()
    separator = "" if head == ":" else " "
    out = "" if spec.out is None else "".join(f" -> {step}" for step in spec.out.steps)
    arithmetic = "" if spec.arithmetic == "exact" else f", arithmetic={spec.arithmetic}"
    return f"{head}{separator}{accumulator}{out}{arithmetic}"


def _fits_fp32(fmt: Format) -> bool:
    """Whether binary32 holds every value of ``fmt``."""
    if not isinstance(fmt, FixedFormat):
        return fmt.p <= 24 and fmt.emax <= 127 and fmt.quantum_exponent >= -149
    width = fmt.bits - int(fmt.signed)
    # An unbounded grid has no width: what lies beyond 2**24 steps in binary32 is on the grid already.
    return fmt.quantum_exponent >= -149 and (not fmt.clamp or (width <= 24 and width - fmt.frac <= 127))
